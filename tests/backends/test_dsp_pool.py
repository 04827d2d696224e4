"""The DSP pool kernel on an emulated Cortex-M4 against the numpy meaning of its reduction, with guards around every buffer."""

from __future__ import annotations

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.pool import claim_pool
from aot.graph.expr import Acc, Axis, Binary, Const, Expr, Load, Requantise, Select, add, affine, axis, cast, clamp, integer, sub
from aot.graph.ir import DType
from aot.graph.primitive import Reduce
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.target import load_target
from tests.backends import emulator
from tests.backends.contracts import INT8, expected, inputs_of
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

M4 = load_target("cortex-m4")
SHAPES = {
    "images": (1, 1, 2),
    "size": ((1, 1), (4, 4), (5, 3), (1, 7), (6, 9)),
    "window": ((1, 1), (2, 2), (3, 3), (2, 3), (3, 1), (5, 5)),
    "stride": ((1, 1), (2, 2), (1, 3)),
    "depth": (4, 5, 7, 8, 12, 15, 16, 33),
}


def average(count: Expr) -> Expr:
    """TFLite's: the quotient rounds away from zero."""
    half = integer(int(count.value) >> 1) if isinstance(count, Const) else Binary("shr", count, integer(1))
    acc = Acc(DType.INT32)
    rounded = Select(Binary("gt", acc, integer(0)), add(acc, half), sub(acc, half))
    return cast(clamp(Binary("div", rounded, count), -128, 127), INT8)


def extent(axis_number: int, size: int, taps: int, stride: int, pad: int) -> Expr:
    """Elements of a window inside the image."""
    start = sub(Binary("mul", Axis(axis_number), integer(stride)), integer(pad))
    end = Binary("min", add(start, integer(taps)), integer(size))
    return sub(end, Binary("max", start, integer(0)))


def program_of(choice: dict, combine: str, same: bool, result: Expr | None = None, initial: int | None = None) -> Program | None:
    """A pool; None where the window does not fit."""
    (height, width), taps, stride, depth = choice["size"], choice["window"], choice["stride"], choice["depth"]
    pads, counts = [], []
    for size, tap, step in zip((height, width), taps, stride):
        count = -(-size // step) if same else (size - tap) // step + 1
        pads.append(max(0, (count - 1) * step + tap - size) // 2 if same else 0)
        counts.append(count)
    if min(counts) < 1:
        return None
    space = (choice["images"], *counts, depth)
    index = [affine({1 + k: stride[k], 4 + k: 1}, -pads[k]) for k in range(2)]
    is_max = combine == "max"
    fill = Const(-128 if is_max else 0, INT8) if same else None
    load = Load("x", (axis(0), index[0], index[1], axis(3)), INT8, fill)
    sides = [extent(1 + k, (height, width)[k], taps[k], stride[k], pads[k]) for k in range(2)]
    ending = Acc(INT8) if is_max else average(Binary("mul", *sides) if same else integer(taps[0] * taps[1]))
    start = Const(-128, INT8) if is_max else Const(initial or 0, DType.INT32)
    term = load if is_max else cast(load, DType.INT32)
    reduce = Reduce("y", space, taps, combine, start, term, ending if result is None else result, skip_fill=same)
    buffers = (Buffer("x", INT8, (choice["images"], height, width, depth), "input"), Buffer("y", INT8, space, "output"))
    return Program("test", buffers, (reduce,), ("x",), ("y",))


def check(program: Program, seed: int) -> None:
    implementation = claim_pool(program, program.instructions[0], M4)
    assert isinstance(implementation, Implementation), implementation
    inputs = inputs_of(program, seed)
    count = implementation.rows.count
    ranges = [(0, count // 2), (count // 2, count)] if count > 1 else None
    outcome = emulator.run(program, implementation, M4, inputs, ranges, align=1 if seed % 2 else 4)
    np.testing.assert_array_equal(outcome.out, expected(program, inputs))


@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
@pytest.mark.parametrize("combine", ["add", "max"])
def test_pools(combine: str, same: bool) -> None:
    checked = 0
    for number, choice in enumerate(sweep(24, 3 + same, **SHAPES)):
        program = program_of(choice, combine, same)
        if program is not None:
            check(program, number)
            checked += 1
    assert checked > 8


def test_the_largest_sums() -> None:
    choice = {"images": 1, "size": (16, 16), "window": (16, 16), "stride": (1, 1), "depth": 9}
    program = program_of(choice, "add", False)
    assert program is not None
    for value in (-128, 127):
        implementation = claim_pool(program, program.instructions[0], M4)
        assert isinstance(implementation, Implementation)
        inputs = {"x": np.full((1, 16, 16, 9), value, np.int8)}
        assert (emulator.run(program, implementation, M4, inputs).out == value).all()


def test_means_start_from_a_number() -> None:
    scaled = add(Requantise(Acc(DType.INT32), integer(1_500_000_000), integer(-6)), integer(-5))
    choice = {"images": 2, "size": (5, 5), "window": (5, 5), "stride": (1, 1), "depth": 11}
    program = program_of(choice, "add", False, cast(clamp(scaled, -128, 127), INT8), initial=-75)
    assert program is not None
    check(program, 1)
    check(program, 4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"size": (17, 17), "window": (17, 17)}, "windows of 289 elements"),
        ({"depth": 3}, "fewer than four"),
    ],
)
def test_what_is_declined(change: dict, sentence: str) -> None:
    choice = {"images": 1, "size": (4, 4), "window": (2, 2), "stride": (1, 1), "depth": 8, **change}
    program = program_of(choice, "add", False)
    assert program is not None
    assert sentence in str(claim_pool(program, program.instructions[0], M4))


def test_a_word_of_a_maximum_takes_three_instructions() -> None:
    choice = {"images": 1, "size": (16, 16), "window": (2, 2), "stride": (2, 2), "depth": 32}
    program = program_of(choice, "max", False)
    assert program is not None
    implementation = claim_pool(program, program.instructions[0], M4)
    assert isinstance(implementation, Implementation)
    outcome = emulator.run(program, implementation, M4, inputs_of(program))
    assert outcome.instructions / (16 * 16 * 32) < 1.1
