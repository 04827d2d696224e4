"""Reading a contraction: what a kernel needs to know, as numbers, or the sentence why no kernel here can take it.

Enters: a Program's instruction. Leaves: `Layer`: constants as arrays by output channel, the requantisation stage, what is fused
behind it, and how input and output lie in memory.
Invariant: a `Layer` states everything that the instruction means; what it can't state is declined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from aot.backends.layers.requantise import Stage
from aot.graph.arithmetic import INT32_MAX, INT32_MIN
from aot.graph.expr import (
    Acc,
    Affine,
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    IndexMap,
    Load,
    Requantise,
    axis,
    integer,
    rewrite,
    walk,
)
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Geometry, Primitive, store_of
from aot.lower.indexing import linear, same
from aot.lower.inplace import stored_element_loads
from aot.lower.program import Program
from aot.target import Target


@dataclass(frozen=True)
class Split:
    """An instruction's result, cut behind the requantisation to `dtype`. `rest` has `Acc` of it; None if nothing follows.

    dtype: int32 where the sums themselves are the result, all else being 0 then. rounds_once: `Layer.multiplier` says how; `shift`
    here is to the right.
    """

    multiplier: Expr
    shift: Expr
    zero_point: int
    low: int
    high: int
    rest: Expr | None
    dtype: DType = DType.INT8
    rounds_once: bool = False


@dataclass(frozen=True)
class Layout:
    """Where output elements lie, in elements: offset + n * image + y * row + x * pixel + channel."""

    image: int
    row: int
    pixel: int
    offset: int


@dataclass(frozen=True)
class Layer:
    """A contraction of int8 or int16 with int8. Arrays are int64; `weights` is (Co, KH, KW, Ci), depthwise (Co, KH, KW); the others are
    (Co,).

    multiplier, shift (to the left): of `Requantise`; or, where the split rounds once, of the 64-bit (sum * multiplier + half) >> -shift,
    the multiplier being below 2^15.
    geometry: of a dense layer that of a 1x1 convolution on one row of pixels, of a depthwise layer on one channel that of a
    convolution. beside: fused loads of the element that is stored, in other activations: they need no axes.
    """

    instruction: Contract
    geometry: Geometry
    weights: np.ndarray
    bias: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray
    split: Split
    out: Layout
    beside: tuple[Load, ...] = ()

    @property
    def dtype(self) -> DType:
        """Of the activations that are read, and, but for a layer of sums, of what these are requantised to."""
        return self.instruction.left.dtype

    @property
    def is_sums(self) -> bool:
        """Whether the output is the sums, in int32."""
        return self.split.dtype is DType.INT32

    @property
    def fits_int32(self) -> bool:
        """Whether sums can be added up in int32: they do not leave it, or wrap in the definition, too."""
        low, high = self.reach
        return self.instruction.initial.dtype is DType.INT32 or bool((low >= INT32_MIN).all() and (high <= INT32_MAX).all())

    @property
    def folded_bias(self) -> np.ndarray:
        """The bias of a sum over raw inputs: the zero point is taken out at compile time."""
        return self.bias - self.instruction.left_zero_point * self.weights.reshape(len(self.bias), -1).sum(1)

    @property
    def reach(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest accumulator of each channel, over all inputs."""
        zero_point, (low, high) = self.instruction.left_zero_point, self.dtype.limits
        flat = self.weights.reshape(len(self.bias), -1)
        ends = np.stack([flat * (low - zero_point), flat * (high - zero_point)])
        return self.bias + ends.min(0).sum(1), self.bias + ends.max(0).sum(1)

    @property
    def pixel_axes(self) -> frozenset[int]:
        """The iteration axes of the pixel (image, row, column; a dense layer's row axes), those of the channel apart."""
        return frozenset(range(channel_axes(self.instruction)[0]))

    @property
    def rest_axes(self) -> frozenset[int]:
        """The iteration axes that the fused expression asks for."""
        found: set[int] = set()
        for expr in walk(self.split.rest) if self.split.rest is not None else ():
            if isinstance(expr, Axis):
                found.add(expr.axis)
            if isinstance(expr, Load) and expr not in self.beside:
                for index in expr.index:
                    found |= {number for number, _ in index.terms} if isinstance(index, Affine) else {index.axis}
        return frozenset(found)


def stage_of(layer: Layer, channels: Sequence[int]) -> Stage:
    """The requantisation of these channels, in this order (a channel may come twice)."""
    low, high = layer.reach
    chosen = np.asarray(channels, np.int64)
    split = layer.split
    return Stage(layer.multiplier[chosen], layer.shift[chosen], low[chosen], high[chosen], split.zero_point, split.low, split.high)


def split_result(result: Expr) -> Split | None:
    """Find int8(clamp(requantise(acc, multiplier, shift) + zero_point, low, high)) inside a result, or what int16 sums become; None if
    it is not there."""
    if result == Acc(DType.INT32):
        return Split(integer(0), integer(0), 0, 0, 0, None, DType.INT32)
    for expr in walk(result):
        split = _stage(expr)
        if split is not None:
            done = Acc(split.dtype)
            rest = rewrite(result, lambda node, found=expr, done=done: done if node == found else None)
            if any(isinstance(node, Acc) and node != done for node in walk(rest)):
                return None
            return replace(split, rest=None if rest == done else rest)
    return None


def _stage(expr: Expr) -> Split | None:
    match expr:
        case Cast(
            Binary(
                "min",
                Binary("max", Binary("add", Requantise(Acc(DType.INT32), multiplier, shift), Const(zero_point)), Const(low)),
                Const(high),
            ),
            DType.INT8 | DType.INT16 as dtype,
        ):
            return Split(multiplier, shift, int(zero_point), int(low), int(high), None, dtype)
        case Cast(
            Binary(
                "min",
                Binary(
                    "max",
                    Cast(Binary("shr", Binary("add", Binary("mul", total, factor), half), down), DType.INT32),
                    Const(low),
                ),
                Const(high),
            ),
            DType.INT16,
        ) if _is_sum(total) and half == _half(down):
            return Split(factor, down, 0, int(low), int(high), None, DType.INT16, True)
        case _:
            pass
    return None


def _is_sum(expr: Expr) -> bool:
    """Whether it is the accumulator as int64."""
    return expr == Acc(DType.INT64) or expr == Cast(Acc(DType.INT32), DType.INT64)


def _half(down: Expr) -> Expr:
    """2^(down - 1), as `aot.graph.ops.wide` writes it."""
    return Binary("shl", integer(1, DType.INT64), Binary("sub", down, integer(1, DType.INT64)))


HELIUM_TAPS = 128
"""Taps of a depthwise kernel up to which the kernels for Helium take it: each has code of its own."""
_MOST_WEIGHT = 255
_ABILITIES = {
    "neon": "Advanced SIMD",
    "dotprod": "dot products (SDOT)",
    "dsp": "DSP extension (SMLAD)",
    "mve": "Helium (MVE)",
}


def read_layer(
    program: Program,
    instruction: Primitive,
    target: Target,
    kind: str,
    needs: str = "",
    takes: tuple[DType, ...] = (DType.INT8,),
    sums: bool = False,
    nine_bits: bool = False,
) -> Layer | str:
    """The layer behind a contraction of geometry `kind` for a kernel that needs this ability of the target and takes these activations,
    or why it is not one. sums: whether the kernel can leave them as they are. nine_bits: whether, beside int8 activations, weights may
    be those of uint8 less a zero point."""
    if not isinstance(instruction, Contract) or instruction.geometry is None or common_geometry(instruction.geometry).kind != kind:
        return f"not a {kind} layer"
    if needs and needs not in target.has:
        return f"{target.name} has no {_ABILITIES[needs]}"
    if needs == "dsp" and "mve" in target.has and (kind != "depthwise" or prod(instruction.geometry.kernel) <= HELIUM_TAPS):
        return f"{target.name} has Helium (MVE), whose kernels need a third of the instructions"
    if prod(instruction.space) * prod(instruction.window) == 0:
        return "it has no elements"
    geometry = instruction.geometry
    dtype = program[instruction.left.buffer].dtype
    weights_dtype = program[instruction.right.buffer].dtype
    has_nine_bits = nine_bits and dtype is DType.INT8 and weights_dtype is DType.INT16
    if dtype not in takes:
        return f"{dtype} activations: the kernels are for {' and '.join(map(str, takes))}"
    if weights_dtype is not DType.INT8 and not has_nine_bits:
        return f"{weights_dtype} weights: they are beyond int8"
    if geometry.groups != 1:
        return f"grouped convolution ({geometry.groups} groups)"
    if instruction.right_zero_point:
        return f"weights with a zero point ({instruction.right_zero_point})"
    split = split_result(instruction.result)
    leaves_sums = sums and dtype is DType.INT8 and split is not None and split.dtype is DType.INT32
    if split is None or not (split.dtype is dtype or leaves_sums):
        return f"its result does not begin with a requantisation to {dtype}"
    if not dtype.limits[0] <= split.low <= split.high <= dtype.limits[1]:
        return f"the clamp [{split.low}, {split.high}] is not inside {dtype}"
    return _with_constants(program, instruction, common_geometry(geometry), split)


def common_geometry(geometry: Geometry) -> Geometry:
    """A dense layer as a 1x1 convolution on one row of pixels; a depthwise layer on a single channel as the convolution that it
    is."""
    if geometry.kind == "depthwise" and geometry.input[3] == 1:
        return replace(geometry, kind="conv", multiplier=1)
    if geometry.kind != "dense":
        return geometry
    rows, depth, channels = geometry.input[0], geometry.input[3], geometry.output[3]
    return Geometry("dense", (1, 1, rows, depth), (1, 1, rows, channels))


def _with_constants(program: Program, instruction: Contract, geometry: Geometry, split: Split) -> Layer | str:
    first = channel_axes(instruction)[0]
    rank, channels = len(instruction.space), range(first, len(instruction.space))
    window = range(rank, rank + len(instruction.window))
    arrays = {"bias": instruction.initial, "multiplier": split.multiplier, "shift": split.shift}
    found = {name: tabulate(program, expr, instruction, channels) for name, expr in arrays.items()}
    weights = tabulate(program, instruction.right, instruction, [*channels, *window])
    for name, array in (*found.items(), ("weights", weights)):
        if array is None:
            return f"its {name} is not a constant for each output channel"
    assert weights is not None
    if np.abs(weights).max() > _MOST_WEIGHT:
        return "weights of more than nine bits"
    bias, multiplier, shift = (found[name].reshape(-1) for name in ("bias", "multiplier", "shift"))  # type: ignore[union-attr]
    if multiplier.min() < 0:
        return "a negative multiplier"
    if split.rounds_once:
        multiplier, shift = _reduced(multiplier, -shift)
        if multiplier.max() >= 1 << 15 or shift.min() < -62 or shift.max() > -1:
            return (
                f"multipliers to {multiplier.max()} (at most 15 bits), shifts from {shift.min()} to {shift.max()} (1 to 62 right)"
            )
    elif shift.min() < -31 or shift.max() > 30:
        return f"shifts from {shift.min()} to {shift.max()} (at most 31 right, 30 left)"
    out = layout_of(program, instruction, geometry)
    if isinstance(out, str):
        return out
    refusal = input_refusal(program, instruction, geometry)
    if refusal:
        return refusal
    if program[program.storage(instruction.left.buffer)].role == "constant":
        return "its input is a constant"
    depth = () if geometry.kind == "depthwise" else (geometry.input[3],)
    shaped = weights.reshape(len(bias), *geometry.kernel, *depth)
    loads = stored_element_loads(program, instruction)
    beside = tuple(load for load in loads if program[program.storage(load.buffer)].role != "constant")
    return Layer(instruction, geometry, shaped, bias, multiplier, shift, split, out, beside)


def _reduced(multiplier: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same scales with multipliers below 2^15: what was moved to the left for the sake of one shift is moved back."""
    for _ in range(16):
        even = (multiplier >= 1 << 15) & (multiplier % 2 == 0)
        multiplier, shift = np.where(even, multiplier >> 1, multiplier), shift + even
    return multiplier, np.where(multiplier == 0, -1, shift)


def channel_axes(instruction: Contract) -> range:
    """The space axes that make up the output channel: (C, M) of a depthwise layer, as many as it takes of a dense one (the four gates of
    an LSTM, then their units), else the last."""
    rank, geometry = len(instruction.space), instruction.geometry
    assert geometry is not None
    first = rank - (2 if geometry.kind == "depthwise" else 1)
    while geometry.kind == "dense" and first > 0 and prod(instruction.space[first:]) < geometry.output[3]:
        first -= 1
    return range(first, rank)


def tabulate(
    program: Program, expr: Expr, instruction: Contract, axes: Sequence[int], dtype: type[np.generic] = np.int64
) -> np.ndarray | None:
    """An expression's values over these axes: of a number, or a load of a constant that depends on no other axis."""
    extents = (*instruction.space, *instruction.window)
    shape = tuple(extents[number] for number in axes)
    if isinstance(expr, Const):
        return np.full(shape, expr.value, dtype)
    if isinstance(expr, Cast) and expr.dtype is DType.INT64:
        expr = expr.x
    if not isinstance(expr, Load) or expr.fill is not None:
        return None
    owner = program[program.storage(expr.buffer)]
    if owner.data is None or owner.role != "constant":
        return None
    grid = dict(zip(axes, np.indices(shape)))
    indices = [_positions(index, grid, extents) for index in expr.index]
    if any(index is None for index in indices):
        return None
    data = owner.data.reshape(program[expr.buffer].shape).astype(dtype)
    return np.broadcast_to(data[tuple(indices)] if indices else data, shape)


def _positions(index: IndexMap, grid: dict[int, np.ndarray], extents: Sequence[int]) -> np.ndarray | None:
    if not isinstance(index, Affine):
        return None
    total = np.full(next(iter(grid.values())).shape, index.offset)
    for number, coefficient in index.terms:
        if extents[number] == 1:
            continue
        if number not in grid:
            return None
        total = total + coefficient * grid[number]
    return total


def layout_of(program: Program, instruction: Contract, geometry: Geometry) -> Layout | str:
    """How the store lies in memory: channels next to each other, anything regular around them."""
    space, buffer = instruction.space, program[instruction.out]
    position = linear(store_of(instruction), buffer.shape, space)
    if position is None:
        return "its output is stored through a table"
    terms = dict(position.terms)
    channels = list(channel_axes(instruction))
    step = 1
    for number in reversed(channels):
        if space[number] > 1 and terms.get(number, 0) != step:
            return "its output channels are not stored next to each other"
        step *= space[number]
    if geometry.kind != "dense":
        image, row, pixel = (terms.get(number, 0) for number in range(3))
        return Layout(image, row, pixel or step, position.offset)
    pixel = _row_step(space[: channels[0]], terms)
    return "its rows are not stored at one distance" if pixel is None else Layout(0, 0, pixel or step, position.offset)


def _row_step(rows: Sequence[int], terms: dict[int, int]) -> int | None:
    """The one distance between neighbouring rows, where rows are several axes; 0 for one row; None if there is no such distance."""
    step, count = 0, 1
    for number in reversed(range(len(rows))):
        if rows[number] > 1:
            step = step or terms.get(number, 0)
            if terms.get(number, 0) != step * count:
                return None
        count *= rows[number]
    return step


def input_refusal(program: Program, instruction: Contract, geometry: Geometry) -> str:
    """Why the input is not read as the geometry says; empty if it is."""
    left, buffer = instruction.left, program[instruction.left.buffer]
    extents = (*instruction.space, *instruction.window)
    strange = "its input is read through an index map that the kernels don't know"
    if geometry.kind == "dense":
        position = linear(left.index, buffer.shape, extents)
        return "" if position == linear(_dense_index(instruction), (geometry.input[2] * geometry.input[3],), extents) else strange
    if left.fill is not None and left.fill.value != instruction.left_zero_point:
        return f"its padding holds {left.fill.value}, not the zero point"
    if buffer.shape != geometry.input or not same(left.index, _conv_index(instruction, geometry), extents):
        return strange
    return ""


def _dense_index(instruction: Contract) -> tuple[Affine]:
    """Row-major position over rows and depth, whatever axes they are spread over."""
    rank = len(instruction.space)
    step = 1
    terms: dict[int, int] = {}
    for number in reversed([*range(channel_axes(instruction)[0]), *range(rank, rank + len(instruction.window))]):
        terms[number] = step
        step *= (*instruction.space, *instruction.window)[number]
    return (Affine(tuple(sorted(terms.items()))),)


def _conv_index(instruction: Contract, geometry: Geometry) -> tuple[Affine, ...]:
    rank = len(instruction.space)
    rows = Affine(((1, geometry.stride[0]), (rank, geometry.dilation[0])), -geometry.pad_top)
    columns = Affine(((2, geometry.stride[1]), (rank + 1, geometry.dilation[1])), -geometry.pad_left)
    is_depthwise = instruction.geometry is not None and instruction.geometry.kind == "depthwise"
    return (axis(0), rows, columns, axis(3) if is_depthwise else axis(rank + 2))
