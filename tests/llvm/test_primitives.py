"""Generic loop nests against the numpy meaning: random index maps, windows cut at borders, rows in pieces."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from aot.graph.expr import (
    Acc,
    Affine,
    Binary,
    Cast,
    Const,
    Expr,
    IndexMap,
    Load,
    Requantise,
    Table,
    axis,
    cast,
    clamp,
    fixed,
    integer,
)
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Map, Primitive, Reduce
from aot.llvm.expressions import index_range
from aot.lower.plan import Plan, Schedule, Step
from aot.target import host_target, load_target
from tests.llvm import compiled
from tests.llvm.compiled import check, program_of

HOST = host_target()


class Maker:
    """Random primitives and the arrays that they read."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.arrays: dict[str, np.ndarray] = {}
        self.constants: set[str] = set()

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def array(self, dtype: DType, shape: tuple[int, ...]) -> str:
        name = f"a{len(self.arrays)}"
        if dtype.is_float:
            self.arrays[name] = self.random.standard_normal(shape).astype(dtype.np)
        else:
            low, high = dtype.limits
            self.arrays[name] = self.random.integers(max(low, -1000), min(high, 1000) + 1, shape).astype(dtype.np)
        if self.random.random() < 0.3:
            self.constants.add(name)
        return name

    def index(self, extents: tuple[int, ...]) -> IndexMap:
        """An index of one or two axes, a table, or a fixed one."""
        kind = self.random.random()
        number = self.number(0, len(extents) - 1)
        if kind < 0.15:
            return Table(number, tuple(self.number(-2, 5) for _ in range(extents[number])))
        if kind < 0.25:
            return fixed(self.number(0, 3))
        if kind < 0.5 and len(extents) > 1:
            other = self.number(0, len(extents) - 1)
            terms = {number: self.number(1, 2)} if other == number else {number: self.number(1, 3), other: self.number(1, 2)}
            return Affine(tuple(sorted(terms.items())), self.number(-2, 1))
        return axis(number, int(self.random.choice([1, 1, 1, 2, -1])), self.number(-1, 2))

    def load(self, dtype: DType, extents: tuple[int, ...], fill: Const | None = None, rank: int | None = None) -> Load:
        """A load through random index maps; with `fill` about half of them leave the buffer."""
        maps, shape = [], []
        for _ in range(self.number(0, 4) if rank is None else rank):
            index = self.index(extents)
            low, high = index_range(index, extents)
            if fill is None or self.random.random() < 0.4:
                index, high = shifted(index, -low), high - low
            maps.append(index)
            shape.append(max(1, high + 1 - (self.number(0, 3) if fill else 0)))
        return Load(self.array(dtype, tuple(shape)), tuple(maps), dtype, fill)

    def space(self, limit: int = 5) -> tuple[int, ...]:
        return tuple(self.number(1, limit) for _ in range(self.number(1, 4)))

    def store(self, space: tuple[int, ...]) -> tuple[tuple[IndexMap, ...], tuple[int, ...]]:
        """A permutation as the store map, and the output's shape."""
        if self.random.random() < 0.5:
            return (), space
        order = [int(number) for number in self.random.permutation(len(space))]
        return tuple(axis(number) for number in order), tuple(space[number] for number in order)


def shifted(index: IndexMap, by: int) -> IndexMap:
    if isinstance(index, Table):
        return replace(index, entries=tuple(entry + by for entry in index.entries))
    return replace(index, offset=index.offset + by)


def check_one(maker: Maker, primitive: Primitive, dtype: DType, shape: tuple[int, ...], where: str = "host") -> None:
    target = HOST if where == "host" else load_target(where)
    program = program_of([primitive], maker.arrays, {"out": (dtype, shape)}, maker.constants)
    check(program, maker.arrays, target)


@pytest.mark.parametrize("seed", range(60))
def test_map(seed: int) -> None:
    maker = Maker(seed)
    dtype = [DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32, DType.INT64][seed % 5]
    space = maker.space()
    fill = Const(3, dtype) if seed % 3 else None
    value: Expr = Binary("add", maker.load(dtype, space, fill), maker.load(dtype, space))
    store, shape = maker.store(space)
    check_one(maker, Map("out", space, value, store), dtype, shape)


@pytest.mark.parametrize("seed", range(60))
def test_reduce(seed: int) -> None:
    maker = Maker(1000 + seed)
    dtype = [DType.INT8, DType.INT32, DType.FLOAT32, DType.INT16][seed % 4]
    wide = {DType.INT8: DType.INT32, DType.INT16: DType.INT64}.get(dtype, dtype)
    space, window = maker.space(), maker.space(4)
    extents = space + window
    skip = seed % 3 == 0
    fill = Const(1, dtype) if skip or seed % 3 == 1 else None
    term = cast(maker.load(dtype, extents, fill), wide)
    combine = ["add", "max", "min", "mul"][seed // 4 % 4]
    result = Binary("add", Acc(wide), cast(maker.load(dtype, space), wide))
    store, shape = maker.store(space)
    check_one(maker, Reduce("out", space, window, combine, Const(2, wide), term, result, store, skip), wide, shape)


@pytest.mark.parametrize("seed", range(60))
def test_contract(seed: int) -> None:
    maker = Maker(2000 + seed)
    left_type, right_type, wide = [
        (DType.INT8, DType.INT8, DType.INT32),
        (DType.FLOAT32, DType.FLOAT32, DType.FLOAT32),
        (DType.INT16, DType.INT8, DType.INT64),
        (DType.UINT8, DType.UINT8, DType.INT32),
    ][seed % 4]
    space, window = maker.space(), maker.space(4)
    extents = space + window
    zero_point = 0 if wide.is_float else 5
    fill = Const(zero_point if seed % 5 else 1, left_type) if seed % 3 else None
    left, right = maker.load(left_type, extents, fill), maker.load(right_type, extents)
    initial = maker.load(wide, space)
    store, shape = maker.store(space)
    right_zero_point = 0 if wide.is_float else seed % 2 * 7
    check_one(
        maker, Contract("out", space, window, left, right, zero_point, right_zero_point, initial, Acc(wide), store), wide, shape
    )


def convolution(maker: Maker, kind: str, stride: int, dilation: int, pad: int, batch: int) -> tuple[Contract, tuple[int, ...]]:
    """A quantised convolution as operators lower it (kind: conv, depthwise or grouped), and its output's shape."""
    height, width, channels, kernel = 7, 5, 4, 3
    out_height, out_width = ((size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for size in (height, width))
    rank = {"conv": 4, "depthwise": 5, "grouped": 5}[kind]
    inner = {"conv": (6,), "depthwise": (channels, 2), "grouped": (2, 3)}[kind]
    space = (batch, out_height, out_width, *inner)
    window = (kernel, kernel) if kind == "depthwise" else (kernel, kernel, channels // (2 if kind == "grouped" else 1))
    y, x = (Affine(((1 + number, stride), (rank + number, dilation)), -pad) for number in (0, 1))
    channel = {"conv": axis(rank + 2), "depthwise": axis(3), "grouped": Affine(((3, 2), (7, 1)))}[kind]
    out_channel = axis(3) if kind == "conv" else Affine(((3, inner[1]), (4, 1)))
    left = Load(
        maker.array(DType.INT8, (batch, height, width, channels)), (axis(0), y, x, channel), DType.INT8, Const(-3, DType.INT8)
    )
    count = math.prod(inner)
    weights = maker.array(DType.INT8, (1, kernel, kernel, count) if kind == "depthwise" else (count, kernel, kernel, window[2]))
    inside = (axis(rank), axis(rank + 1))
    right_index = (fixed(0), *inside, out_channel) if kind == "depthwise" else (out_channel, *inside, axis(rank + 2))
    multiplier, shift, bias = (maker.array(DType.INT32, (count,)) for _ in range(3))
    maker.arrays[multiplier] = maker.random.integers(1 << 30, 1 << 31, count).astype(np.int32)
    maker.arrays[shift] = maker.random.integers(-12, -2, count).astype(np.int32)
    maker.constants |= {weights, multiplier, shift, bias}
    vector = [Load(name, (out_channel,), DType.INT32) for name in (multiplier, shift, bias)]
    scaled = Binary("add", Requantise(Acc(DType.INT32), vector[0], vector[1]), integer(4))
    result = Cast(clamp(scaled, -128, 127), DType.INT8)
    store = (*(axis(number) for number in range(3)), out_channel)
    primitive = Contract("out", space, window, left, Load(weights, right_index, DType.INT8), -3, 0, vector[2], result, store)
    return primitive, (batch, out_height, out_width, count)


@pytest.mark.parametrize("where", ["host", "cortex-m0", "cortex-m4"])
@pytest.mark.parametrize("kind", ["conv", "depthwise", "grouped"])
def test_convolutions(kind: str, where: str) -> None:
    for case, (stride, dilation, pad, batch) in enumerate(
        [(1, 1, 0, 1), (1, 1, 1, 2), (2, 1, 1, 1), (1, 2, 2, 1), (3, 1, 2, 1), (2, 2, 3, 2)]
    ):
        maker = Maker(case)
        primitive, shape = convolution(maker, kind, stride, dilation, pad, batch)
        check_one(maker, primitive, DType.INT8, shape, where)


def test_average_pool_divides_by_what_it_counted() -> None:
    """The divisor is a table of the valid window's size; the sum skips what is outside."""
    maker = Maker(0)
    extents = (1, 6, 5, 3, 3, 3)
    index = (axis(0), Affine(((1, 1), (4, 1)), -1), Affine(((2, 1), (5, 1)), -1), axis(3))
    load = Load(maker.array(DType.INT8, (1, 6, 5, 3)), index, DType.INT8, Const(0, DType.INT8))
    counts = np.array([[min(y + 2, 6) - max(y - 1, 0) for y in range(6)]]).T * np.array(
        [[min(x + 2, 5) - max(x - 1, 0) for x in range(5)]]
    )
    maker.arrays["counts"] = counts.astype(np.int32)
    maker.constants = {"counts"}
    result = Cast(Binary("div", Acc(DType.INT32), Load("counts", (axis(1), axis(2)), DType.INT32)), DType.INT8)
    term = Cast(load, DType.INT32)
    reduce = Reduce("out", extents[:4], extents[4:], "add", integer(0), term, result, skip_fill=True)
    for where in ("host", "cortex-m0"):
        check_one(maker, reduce, DType.INT8, extents[:4], where)


def test_parts_of_one_output() -> None:
    """Two copies, each at its offset along an axis (a concatenation), in order and with a stride."""
    maker = Maker(1)
    first, second = maker.array(DType.INT8, (2, 3, 4)), maker.array(DType.INT8, (2, 5, 4))
    maker.constants = set()
    load = [Load(name, (axis(0), axis(1), axis(2)), DType.INT8) for name in (first, second)]
    maps = [
        Map("out", (2, 3, 4), load[0], (axis(0), axis(1), axis(2))),
        Map("out", (2, 5, 4), load[1], (axis(0), axis(1, 1, 3), axis(2))),
    ]
    program = program_of(maps, maker.arrays, {"out": (DType.INT8, (2, 8, 4))})
    check(program, maker.arrays, HOST)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_nothing_to_compute(shape: tuple[int, ...]) -> None:
    """Zero-size tensors: no element is read or written, and other work still happens."""
    maker = Maker(2)
    maker.arrays["empty"] = np.zeros(shape, np.int8)
    maker.arrays["x"] = np.arange(5, dtype=np.int8)
    rank = tuple(axis(number) for number in range(len(shape)))
    maps = [Map("none", shape, Load("empty", rank, DType.INT8)), Map("y", (5,), Load("x", (axis(0),), DType.INT8))]
    summed = Reduce(
        "sum",
        (2,),
        shape,
        "add",
        integer(7),
        Cast(Load("empty", tuple(axis(1 + n) for n in range(len(shape))), DType.INT8), DType.INT32),
        Acc(DType.INT32),
    )
    outputs = {"none": (DType.INT8, shape), "y": (DType.INT8, (5,)), "sum": (DType.INT32, (2,))}
    program = program_of([*maps, summed], maker.arrays, outputs)
    check(program, maker.arrays, HOST)


@pytest.mark.parametrize("kind", ["conv", "depthwise"])
def test_rows_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step computes exactly its rows: any split of the rows gives the same bytes."""
    maker = Maker(3)
    primitive, shape = convolution(maker, kind, 1, 1, 1, 1)
    program = program_of([primitive], maker.arrays, {"out": (DType.INT8, shape)}, maker.constants)

    def split(program, target, io="caller") -> Plan:
        plan = whole(program, target, io)
        rows = plan.schedule.choices[0].implementation.rows.count
        assert rows == shape[1]
        steps = tuple(Step(0, start, min(start + 3, rows)) for start in range(0, rows, 3))
        return replace(plan, schedule=Schedule(plan.schedule.program, plan.schedule.choices, steps))

    whole = compiled.plan_of
    monkeypatch.setattr(compiled, "plan_of", split)
    bundle = check(program, maker.arrays, HOST)
    assert [layer.symbol for layer in bundle.main.layers] == ["sample_k00"]


def test_axes_that_are_tested_are_not_joined() -> None:
    """A row shifted by one: memory is walked as one run, but the border of each row is not."""
    maker = Maker(4)
    load = Load(maker.array(DType.INT8, (4, 3)), (axis(0), axis(1, 1, -1)), DType.INT8, Const(9, DType.INT8))
    check_one(maker, Map("out", (4, 3), load), DType.INT8, (4, 3))


def test_window_axes_that_are_cut_are_not_joined() -> None:
    """The input is as wide as the kernel, so that the window's rows follow each other in memory, but borders cut the inner axis."""
    maker = Maker(5)
    index = (Affine(((0, 1), (2, 1)), -1), Affine(((1, 1), (3, 1)), -1))
    left = Load(maker.array(DType.INT8, (5, 3)), index, DType.INT8, Const(0, DType.INT8))
    right = Load(maker.array(DType.INT8, (3, 3)), (axis(2), axis(3)), DType.INT8)
    check_one(maker, Contract("out", (5, 3), (3, 3), left, right, 0, 0, integer(0), Acc(DType.INT32)), DType.INT32, (5, 3))
