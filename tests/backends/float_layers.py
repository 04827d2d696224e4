"""Programs of one float32 contraction, pool or map, as operators and fusion would make it; inputs for them; how far results may be off.

Enters: geometry, what is fused behind. Leaves: Programs, arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aot.graph.evaluate import execute
from aot.graph.expr import Acc, Axis, Binary, Cast, Const, Expr, Load, Select, Unary, affine, axis, fixed, integer
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Geometry, Map, Reduce
from aot.lower.program import Buffer, Program

FLOAT = DType.FLOAT32
BOUND = 1e-5
"""Of the largest output: sums may be added up in another order, and products are not rounded where the core has FMLA."""
Rest = Callable[[Expr, Sequence], Expr]
"""What is fused: of the sum and the indices of the element that is stored."""


@dataclass(frozen=True)
class FloatCase:
    """A layer. padding: top, bottom, left, right. `rest` is fused behind; it may read `z`, which lies as the output does, and `alpha`, a
    constant for each channel."""

    kind: str = "conv"
    image: tuple[int, int, int, int] = (1, 5, 5, 4)
    channels: int = 8
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    multiplier: int = 1
    bias: bool = True
    rest: Rest | None = None
    seed: int = 0


def number(value: float) -> Const:
    return Const(value, FLOAT)


def rectified(acc: Expr, _at: Sequence) -> Expr:
    return Binary("max", acc, number(0.0))


def clamped(acc: Expr, _at: Sequence) -> Expr:
    """As a fused activation is written: the bound comes first."""
    return Binary("min", number(0.75), Binary("max", acc, number(-0.5)))


def residual(acc: Expr, at: Sequence) -> Expr:
    return Binary("max", Binary("add", Load("z", tuple(at), FLOAT), acc), number(0.0))


def parametric(acc: Expr, at: Sequence) -> Expr:
    """PRELU."""
    negative = Binary("mul", acc, Load("alpha", (at[-1],), FLOAT))
    return Binary("add", Binary("max", acc, number(0.0)), Binary("min", negative, number(0.0)))


def hard_swish(acc: Expr, _at: Sequence) -> Expr:
    gate = Binary("min", Binary("max", Binary("add", acc, number(3.0)), number(0.0)), number(6.0))
    return Binary("mul", Binary("mul", acc, gate), number(1 / 6))


RESTS = (None, rectified, clamped, residual, parametric, hard_swish)


def program_of(case: FloatCase) -> Program:
    rng = np.random.default_rng(case.seed)
    n, height, width, depth = case.image
    is_depthwise = case.kind == "depthwise"
    channels = depth * case.multiplier if is_depthwise else case.channels
    (ky, kx), taps = case.kernel, case.kernel[0] * case.kernel[1] * (1 if is_depthwise else depth)
    top, bottom, left, right = case.padding
    spans = [(case.kernel[at] - 1) * case.dilation[at] + 1 for at in range(2)]
    rows, columns = (
        (height + top + bottom - spans[0]) // case.stride[0] + 1,
        (width + left + right - spans[1]) // case.stride[1] + 1,
    )
    acc, constants = Acc(FLOAT), {"bias": rng.normal(0, 1, channels), "alpha": rng.normal(0, 1, channels)}
    if case.kind == "dense":
        constants["w"] = rng.normal(0, depth**-0.5, (channels, depth))
        space, window, out_shape = (n, channels), (depth,), (n, channels)
        left_load, right_load = Load("x", (axis(0), axis(2)), FLOAT), Load("w", (axis(1), axis(2)), FLOAT)
        geometry, channel, at = Geometry("dense", (n, 1, 1, depth), (n, 1, 1, channels)), axis(1), (axis(0), axis(1))
        image_shape: tuple[int, ...] = (n, depth)
    else:
        first = 5 if is_depthwise else 4
        where = [
            affine({1 + i: case.stride[i], first + i: case.dilation[i]}, -offset)
            for i, offset in enumerate((case.padding[0], left))
        ]
        fill = number(0.0) if any(case.padding) else None
        channel = affine({3: case.multiplier, 4: 1}) if is_depthwise and case.multiplier > 1 else axis(3)
        in_channel = axis(3) if is_depthwise else axis(6)
        left_load = Load("x", (axis(0), *where, in_channel), FLOAT, fill)
        if is_depthwise:
            constants["w"] = rng.normal(0, taps**-0.5, (1, ky, kx, channels))
            space, window = (n, rows, columns, depth, case.multiplier), (ky, kx)
            right_load = Load("w", (fixed(0), axis(5), axis(6), channel), FLOAT)
        else:
            constants["w"] = rng.normal(0, taps**-0.5, (channels, ky, kx, depth))
            space, window = (n, rows, columns, channels), (ky, kx, depth)
            right_load = Load("w", (axis(3), axis(4), axis(5), axis(6)), FLOAT)
        out_shape, image_shape = (n, rows, columns, channels), case.image
        geometry = Geometry(
            case.kind,
            case.image,
            out_shape,
            case.kernel,
            case.stride,
            case.dilation,
            top,
            left,
            1,
            case.multiplier if is_depthwise else 1,
        )
        at = (axis(0), axis(1), axis(2), channel)
    result = acc if case.rest is None else case.rest(acc, at)
    initial = Load("bias", (channel,), FLOAT) if case.bias else number(0.0)
    contract = Contract("y", space, window, left_load, right_load, 0, 0, initial, result, at if is_depthwise else (), geometry)
    used = {load.buffer for load in contract.loads}
    extra = [Buffer("z", FLOAT, out_shape, "input")] if "z" in used else []
    buffers = [Buffer("x", FLOAT, image_shape, "input"), *extra, Buffer("y", FLOAT, out_shape, "output")]
    buffers += [
        Buffer(name, FLOAT, data.shape, "constant", data=data.astype(np.float32))
        for name, data in constants.items()
        if name in used
    ]
    return Program("test", tuple(buffers), (contract,), tuple(one.name for one in buffers if one.role == "input"), ("y",))


@dataclass(frozen=True)
class PoolCase:
    """A pool. padding: top, bottom, left, right. combine: `add` for an average (of the elements inside), `max`, `min`."""

    image: tuple[int, int, int, int] = (1, 5, 5, 4)
    kernel: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    combine: str = "add"
    rest: Rest | None = None


def pool_of(case: PoolCase) -> Program:
    n, *sizes, channels = case.image
    top, bottom, left, right = case.padding
    outs = [
        (size + before + after - kernel) // step + 1
        for size, before, after, kernel, step in zip(sizes, (top, left), (bottom, right), case.kernel, case.stride, strict=True)
    ]
    where = [affine({1 + i: case.stride[i], 4 + i: 1}, -before) for i, before in enumerate((top, left))]
    start = {"add": 0.0, "max": -3.0e38, "min": 3.0e38}[case.combine]
    load = Load("x", (axis(0), *where, axis(3)), FLOAT, number(start) if any(case.padding) else None)
    result: Expr = Acc(FLOAT)
    if case.combine == "add":
        counts = [_count(1 + i, case.stride[i], before, case.kernel[i], sizes[i]) for i, before in enumerate((top, left))]
        result = Binary("div", result, Cast(Binary("mul", *counts), FLOAT))
    if case.rest is not None:
        result = case.rest(result, tuple(axis(number) for number in range(4)))
    shape = (n, *outs, channels)
    reduce = Reduce("y", shape, case.kernel, case.combine, number(start), load, result, (), skip_fill=True)
    alpha = np.random.default_rng(1).normal(0, 1, channels).astype(np.float32)
    used = {one.buffer for one in reduce.loads}
    buffers = [Buffer("x", FLOAT, case.image, "input"), Buffer("z", FLOAT, shape, "input")][: 1 + ("z" in used)]
    constants = [Buffer("alpha", FLOAT, alpha.shape, "constant", data=alpha)] * ("alpha" in used)
    names = tuple(one.name for one in buffers)
    return Program("test", (*buffers, Buffer("y", FLOAT, shape, "output"), *constants), (reduce,), names, ("y",))


def map_of(shape: Sequence[int], what: str) -> Program:
    """An elementwise layer on `x` of a shape, with other operands by what it does."""
    rank, integer_input = len(shape), what in ("rescale", "channels")
    at = tuple(axis(each) for each in range(rank))
    x = Load("x", at, DType.INT32 if integer_input else FLOAT)
    others: dict[str, tuple[int, ...]] = {}
    value: Expr = x
    match what:
        case "add":
            others["z"] = tuple(shape)
            value = Binary("max", Binary("add", x, Load("z", at, FLOAT)), number(0.0))
        case "activation":
            value = Binary("min", number(0.75), Binary("max", x, number(0.0)))
        case "clamp":
            value = Binary("min", Binary("max", x, number(-0.5)), number(0.25))
        case "rows":  # a number for each pixel
            others["z"] = (*shape[:-1], 1)
            value = Binary("sub", x, Load("z", (*at[:-1], fixed(0)), FLOAT))
        case "rescale" | "channels":  # sums of integers by a number that is known at run time, and a bias
            others["z"] = (2, 1)
            value = Binary("mul", Cast(x, FLOAT), Load("z", (fixed(1), fixed(0)), FLOAT))
            if what == "channels":
                value = Binary("max", Binary("add", value, Load("bias", (at[-1],), FLOAT)), number(-0.5))
        case "select":
            value = Select(Binary("lt", x, number(0.1)), Unary("neg", x), Unary("sqrt", Unary("abs", x)))
    buffers = [Buffer("x", x.dtype, tuple(shape), "input"), *(Buffer(name, FLOAT, size, "input") for name, size in others.items())]
    names = tuple(one.name for one in buffers)
    bias = np.random.default_rng(3).normal(0, 1000, shape[-1]).astype(np.float32)
    buffers += [Buffer("bias", FLOAT, bias.shape, "constant", data=bias)] * (what == "channels")
    return Program("test", (*buffers, Buffer("y", FLOAT, tuple(shape), "output")), (Map("y", tuple(shape), value),), names, ("y",))


def reduction_of(outer: Sequence[int], run: Sequence[int], combine: str, absolute: bool = False) -> Program:
    """Of all elements of the last axes, for each position of the first."""
    space, window = tuple(outer), tuple(run)
    load = Load("x", tuple(axis(each) for each in range(len(space) + len(window))), FLOAT)
    start = {"add": 0.5, "max": -3.0e38, "min": 3.0e38}[combine]
    term = Unary("abs", load) if absolute else load
    reduce = Reduce("y", space, window, combine, number(start), term, Binary("mul", Acc(FLOAT), number(0.25)))
    buffers = (Buffer("x", FLOAT, (*space, *window), "input"), Buffer("y", FLOAT, space, "output"))
    return Program("test", buffers, (reduce,), ("x",), ("y",))


def _count(along: int, stride: int, before: int, kernel: int, size: int) -> Expr:
    """Elements of a window that are inside, along one axis."""
    first = Binary("sub", Binary("mul", Axis(along), integer(stride)), integer(before))
    last = Binary("min", Binary("add", first, integer(kernel)), integer(size))
    return Binary("sub", last, Binary("max", first, integer(0)))


def inputs_of(program: Program, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    scales = {name: 1 if program[name].dtype is FLOAT else 1000 for name in program.inputs}
    return {name: rng.normal(0, scales[name], program[name].shape).astype(program[name].dtype.np) for name in program.inputs}


def expected(program: Program, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The numpy meaning."""
    arrays = dict(inputs)
    for buffer in program.buffers:
        if buffer.data is not None:
            arrays[buffer.name] = buffer.data
    for instruction in program.instructions:
        assert isinstance(instruction, Contract | Map | Reduce)
        arrays[instruction.out] = np.zeros(program[instruction.out].shape, program[instruction.out].dtype.np)
        execute(instruction, arrays)
    return arrays["y"]


def error(out: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, as a part of the largest output. A NaN is as far off as can be."""
    difference = np.abs(out.astype(np.float64) - right).max(initial=0.0)
    return float(difference / max(np.abs(right).max(initial=0.0), 1e-30)) if np.isfinite(difference) else np.inf
