"""Programs of one contraction of int8, or int16, with int8, with every number at the test's choice.

Enters: geometry, zero points, multipliers, clamp. Leaves: a Program as operators and fusion would make it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.graph.evaluate import execute
from aot.graph.expr import Acc, Binary, Const, Expr, Load, Requantise, add, affine, axis, cast, clamp, fixed, integer, mul
from aot.graph.ir import DType
from aot.graph.ops.contraction import aligned
from aot.graph.ops.wide import Wide
from aot.graph.primitive import Contract, Geometry
from aot.lower.program import Buffer, Program

INT8 = DType.INT8


@dataclass(frozen=True)
class Case:
    """A layer. `scales`: the real rescaling of each output channel (one: the same for all; none: of the right size); `padding` is
    top, bottom, left, right; `weight` the largest; `saturated`: weights are -128 or 127; `large_bias`: every third channel has a bias
    that drowns its sums (a pruned channel). `sums`: int16 activations that are added up as TFLite does with a bias of 64 bits ("wide") or
    of 32 ("double": and rounded twice); there are no zero points then, biases and clamps are those of int8 times 256. nine_bits: weights
    are those of uint8 less this number, in int16; `saturated` are the smallest and the largest of them, and `few` of them are beyond int8
    (0: as many as chance has)."""

    kind: str = "conv"
    image: tuple[int, int, int, int] = (1, 5, 5, 4)
    channels: int = 8
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    multiplier: int = 1
    zero_point: int = -128
    out_zero_point: int = -128
    low: int = -128
    high: int = 127
    scales: Sequence[float] = ()
    bias: bool = True
    weight: int = 127
    saturated: bool = False
    large_bias: bool = False
    sums: str = ""
    nine_bits: int | None = None
    few: int = 0
    seed: int = 0

    @property
    def dtype(self) -> DType:
        return DType.INT16 if self.sums else INT8


def quantised_multiplier(scale: float) -> tuple[int, int]:
    """TFLite's Q0.31 multiplier and shift of a real number."""
    if scale == 0:
        return 0, 0
    mantissa, exponent = np.frexp(scale)
    fixed_point = round(float(mantissa) * (1 << 31))
    return (fixed_point, int(exponent)) if fixed_point < 1 << 31 else (fixed_point // 2, int(exponent) + 1)


def sizes(case: Case) -> tuple[int, int]:
    """Output rows and columns."""
    found = []
    for number in range(2):
        span = (case.kernel[number] - 1) * case.dilation[number] + 1
        padded = case.image[1 + number] + case.padding[2 * number] + case.padding[2 * number + 1]
        found.append((padded - span) // case.stride[number] + 1)
    return found[0], found[1]


def _nine_bits(case: Case, zero_point: int, rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """int16 weights from -zero_point to 255 - zero_point, at least one of them beyond int8."""
    ends = -zero_point, 255 - zero_point
    far = max(ends, key=abs)
    wide = rng.integers(0, 256, weights.shape).astype(np.int16) - np.int16(zero_point)
    wide = np.where(weights < 0, *(np.int16(end) for end in ends)) if case.saturated else wide
    wide = np.clip(wide, -128, 127) if case.few else wide
    wide.reshape(-1)[rng.integers(0, wide.size, case.few or 1)] = far
    return wide


def program_of(case: Case, rest=None, store=None, out_shape=None, extra: Sequence[Buffer] = ()) -> Program:
    """The program. `rest(int8 expression, axes) -> Expr` is fused behind; `store` and `out_shape` retarget the output."""
    if case.sums:
        case = replace(case, zero_point=0, out_zero_point=0, low=256 * case.low, high=256 * case.high + 255)
    rng = np.random.default_rng(case.seed)
    n, _, _, depth = case.image
    rows, columns = sizes(case) if case.kind != "dense" else (1, 1)
    channels = depth * case.multiplier if case.kind == "depthwise" else case.channels
    taps = case.kernel[0] * case.kernel[1] if case.kind != "dense" else 1
    products = taps * (1 if case.kind == "depthwise" else depth)
    weights_shape = {
        "conv": (channels, *case.kernel, depth),
        "depthwise": (1, *case.kernel, channels),
        "dense": (channels, depth),
    }[case.kind]
    weights = rng.integers(-case.weight, case.weight + 1, weights_shape).astype(np.int8)
    if case.saturated:
        weights = np.where(weights < 0, np.int8(-128), np.int8(127))
    if case.nine_bits is not None:
        weights = _nine_bits(case, case.nine_bits, rng, weights)
    deviation = max(1.0, 74 * case.weight / 1.73 * products**0.5)
    bias = (rng.normal(0, 0.5, channels) * deviation * (256 if case.sums else 1)).round().astype(np.int64)
    if case.large_bias:
        large = 1 << (40 if case.sums == "wide" and case.seed % 2 else 30)
        bias[::3] = np.where(rng.random(len(bias[::3])) < 0.5, -large, large)
    scales = case.scales or (70 / deviation * np.exp(rng.normal(0, 0.3, channels)))
    pairs = [quantised_multiplier(float(scale)) for scale in np.broadcast_to(np.asarray(scales, float), channels)]
    constants = {
        "w": weights,
        "bias": bias.astype(np.int32),
        "multiplier": np.array([pair[0] for pair in pairs], np.int32),
        "shift": np.array([pair[1] for pair in pairs], np.int32),
    }
    acc, kept = Acc(DType.INT32), DType(weights.dtype.name)
    if case.sums == "wide":
        flat = np.moveaxis(weights, -1 if case.kind == "depthwise" else 0, 0).reshape(channels, -1)
        reach = (np.abs(flat.astype(np.int64)).sum(1) << 15) + np.abs(bias)
        acc = Acc(DType.INT32 if reach.max() < 1 << 31 else DType.INT64)
        factor, shift = (np.array(array, np.int64) for array in zip(*pairs, strict=True))
        scaling = Wide(np.where(factor < 0x7FFF0000, (factor + (1 << 15)) >> 16, 0x7FFF), 15 - shift, case.low, case.high)
        scaling = aligned(scaling) if acc.dtype is DType.INT32 else scaling
        constants = {
            "w": weights,
            "bias": bias.astype(acc.dtype.np),
            "factor": scaling.factor.astype(np.int32),
            "down": scaling.down.astype(np.int32),
        }
    if case.kind == "conv":
        space, window, channel = (n, rows, columns, channels), (*case.kernel, depth), axis(3)
        right = Load("w", (axis(3), axis(4), axis(5), axis(6)), kept)
        in_channel, ky = axis(6), 4
    elif case.kind == "depthwise":
        space, window = (n, rows, columns, depth, case.multiplier), case.kernel
        channel = affine({3: case.multiplier, 4: 1}) if case.multiplier > 1 else axis(3)
        right, in_channel, ky = Load("w", (fixed(0), axis(5), axis(6), channel), kept), axis(3), 5
    else:
        space, window, channel = (n, channels), (depth,), axis(1)
        right = Load("w", (axis(1), axis(2)), kept)
    if case.kind == "dense":
        left, image_shape = Load("x", (axis(0), axis(2)), case.dtype), (n, depth)
        geometry = Geometry("dense", (n, 1, 1, depth), (n, 1, 1, channels))
        shape = (n, channels)
    else:
        at = [
            affine({1 + number: case.stride[number], ky + number: case.dilation[number]}, -case.padding[2 * number])
            for number in range(2)
        ]
        fill = Const(case.zero_point, case.dtype) if any(case.padding) else None
        left, image_shape = Load("x", (axis(0), at[0], at[1], in_channel), case.dtype, fill), case.image
        multiplier = case.multiplier if case.kind == "depthwise" else 1
        out = (n, rows, columns, channels)
        geometry = Geometry(
            case.kind, case.image, out, case.kernel, case.stride, case.dilation, case.padding[0], case.padding[2], 1, multiplier
        )
        shape = out
    load = {name: Load(name, (channel,), DType(data.dtype.name)) for name, data in constants.items() if name != "w"}
    if case.sums == "wide":
        numbers = {}
        for name in ("factor", "down"):
            uniform = (constants[name] == constants[name][0]).all()
            first = int(constants[name][0])
            numbers[name] = integer(first, DType.INT64) if uniform else cast(load[name], DType.INT64)
        half = Binary("shl", integer(1, DType.INT64), Binary("sub", numbers["down"], integer(1, DType.INT64)))
        scaled = add(mul(cast(acc, DType.INT64), numbers["factor"]), half)
        scaled = cast(Binary("shr", scaled, numbers["down"]), DType.INT32)
    else:
        scaled = add(Requantise(acc, load["multiplier"], load["shift"]), integer(case.out_zero_point))
    result: Expr = cast(clamp(scaled, case.low, case.high), case.dtype)
    own_store = (axis(0), axis(1), axis(2), channel) if case.kind == "depthwise" else ()
    if rest is not None:
        spatial = own_store or tuple(axis(number) for number in range(len(space)))
        result = rest(result, spatial)
    initial = load["bias"] if case.bias else integer(0, acc.dtype)
    used_store = own_store if store is None else store
    contract = Contract("y", space, window, left, right, case.zero_point, 0, initial, result, used_store, geometry)
    names = constants if case.bias else {name: data for name, data in constants.items() if name != "bias"}
    buffers = [Buffer("x", case.dtype, image_shape, "input"), *extra, Buffer("y", result.dtype, out_shape or shape, "output")]
    buffers += [Buffer(name, DType(data.dtype.name), data.shape, "constant", data=data) for name, data in names.items()]
    return Program("test", tuple(buffers), (contract,), ("x", *(one.name for one in extra if one.role == "input")), ("y",))


def inputs_of(program: Program, seed: int = 1) -> dict[str, np.ndarray]:
    """Full-range inputs; some of them all extreme."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in program.inputs:
        buffer = program[name]
        low, high = buffer.dtype.limits
        array = rng.integers(low, high + 1, buffer.shape)
        found[name] = (np.where(array < 0, low, high) if seed % 3 == 0 else array).astype(buffer.dtype.np)
    return found


def expected(program: Program, inputs: dict[str, np.ndarray], background: int = 0) -> np.ndarray:
    """The numpy meaning; what the instruction does not write stays `background`."""
    arrays = dict(inputs)
    for buffer in program.buffers:
        if buffer.data is not None:
            arrays[buffer.name] = buffer.data
    out = program["y"]
    arrays["y"] = np.full(out.shape, background, out.dtype.np)
    execute(program.instructions[0], arrays)
    return arrays["y"]
