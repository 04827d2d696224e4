"""Layers of one dimension column by column, on an emulated Cortex-M4: right to the byte, wherever the columns lie.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

import numpy as np
import pytest

from aot.backends.layers.turned import turned
from aot.graph.expr import Load, add, cast, clamp
from aot.graph.ir import DType
from aot.graph.primitive import Contract
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from tests.backends import emulator
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, M4, NUMBERS, numbers
from tests.backends.test_dsp_pool import program_of as pool_of
from tests.backends.test_row_steps import check, fused, sums_of
from tests.backends.test_variants import variants
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

LINES = {
    **NUMBERS,
    "batch": (1,),
    "width": (2, 3, 5, 8, 9, 21),
    "taps": (1, 1, 2, 3, 3, 5),
    "stride": (1, 1, 2, 3),
    "dilation": (1, 1, 2),
    "padding": ((0, 0), (1, 1), (0, 1), (2, 2)),
    "depth": CHANNELS,
    "channels": CHANNELS,
}


def line(number: int, choice: dict, kind: str, channels: int, **more) -> Case:
    """A layer on a single row, with as much padding behind as its kernel needs."""
    before, behind = choice["padding"] if choice["taps"] > 1 else (0, 0)
    span = (choice["taps"] - 1) * choice["dilation"] + 1
    behind = max(behind, span - choice["width"] - before)
    return Case(
        kind,
        (1, 1, choice["width"], choice["depth"]),
        channels,
        (1, choice["taps"]),
        (1, choice["stride"]),
        (1, choice["dilation"]),
        (0, 0, before, behind),
        seed=number,
        **more,
    )


def by_columns(program: Program) -> list[Implementation]:
    found = [one for one in variants(program) if "column by column" in one.variant]
    assert all(one.rows.count > 1 and one.instruction is program.instructions[0] for one in found)
    return found


def check_columns(program: Program, number: int) -> int:
    chosen = by_columns(program)
    check(program, number, chosen)
    inputs = inputs_of(program, number)
    for one in chosen:
        outcome = emulator.run(program, one, M4, inputs, align=(1, 4)[number % 2])
        assert (outcome.out == expected(program, inputs)).all(), (one.kernel, one.variant)
    return len(chosen)


@pytest.mark.parametrize("part", range(4))
def test_convolutions(part: int) -> None:
    taken = 0
    for number, choice in enumerate(sweep(6, 300 + part, **LINES)):
        case = line(number, choice, "conv", choice["channels"], **numbers(choice, choice["channels"]))
        taken += check_columns(fused(case) if number % 3 == 2 else program_of(case), number)
    assert taken > 10


@pytest.mark.parametrize("part", range(4))
def test_depthwise(part: int) -> None:
    taken = 0
    for number, choice in enumerate(sweep(6, 310 + part, **LINES, multiplier=(1, 1, 2))):
        fields = numbers(choice, choice["depth"] * choice["multiplier"])
        case = line(number, choice, "depthwise", 0, multiplier=choice["multiplier"], **fields)
        taken += check_columns(fused(case) if number % 3 == 2 else program_of(case), number)
    assert taken > 3


@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
@pytest.mark.parametrize("combine", ["add", "max"])
def test_pools(combine: str, same: bool) -> None:
    choices = {
        "images": (1,),
        "size": ((1, 2), (1, 7), (1, 12)),
        "window": ((1, 1), (1, 2), (1, 3), (1, 5)),
        "stride": ((1, 1), (1, 2), (1, 3)),
        "depth": (4, 5, 7, 8, 12, 15, 16, 33),
    }
    taken = 0
    for number, choice in enumerate(sweep(8, 320 + same, **choices)):
        program = pool_of(choice, combine, same)
        taken += 0 if program is None else check_columns(program, number)
    assert taken > 3


def test_sums() -> None:
    for number, (width, depth) in enumerate(((2, 4), (7, 5), (21, 16))):
        check_columns(sums_of(1, width, depth, number), number)


@pytest.mark.parametrize(
    "case",
    [
        Case("conv", (1, 2, 7, 4), 8, (1, 3)),
        Case("conv", (1, 1, 7, 4), 8, (3, 3), padding=(1, 1, 1, 1)),
        Case("conv", (1, 1, 1, 4), 8, (1, 1)),
        Case("conv", (2, 1, 7, 4), 8, (1, 3)),
        Case("dense", (1, 1, 1, 16), 8),
    ],
    ids=["two rows", "rows of a kernel", "one column", "two images", "dense"],
)
def test_what_is_not_turned(case: Case) -> None:
    program = program_of(case)
    assert turned(program, program.instructions[0]) is None and not by_columns(program)


def test_what_is_fused_behind_may_not_ask_where_it_is() -> None:
    """An operand of another shape is found through an index that columns would be missing from."""
    program = program_of(
        Case("conv", (1, 1, 7, 4), 8, (1, 3)),
        lambda acc, at: cast(
            clamp(add(cast(acc, DType.INT32), cast(Load("r", (at[2], at[3]), INT8), DType.INT32)), -128, 127), INT8
        ),
        extra=[Buffer("r", INT8, (5, 8), "input")],
    )
    assert turned(program, program.instructions[0]) is None and not by_columns(program)
    check(program, 1)


def test_a_turned_layer_computes_the_same() -> None:
    program = program_of(Case("conv", (1, 1, 9, 5), 6, (1, 3), (1, 2), padding=(0, 0, 1, 1)))
    found = turned(program, program.instructions[0])
    assert found is not None
    layer = found.instructions[0]
    assert isinstance(layer, Contract) and layer.geometry is not None
    assert (layer.geometry.input, layer.geometry.kernel, layer.geometry.pad_top) == ((1, 9, 1, 5), (3, 1), 1)
    (x,) = inputs_of(program).values()
    wanted = expected(program, {"x": x})
    np.testing.assert_array_equal(expected(found, {"x": x.reshape(1, 9, 1, 5)}).reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    "case",
    [
        Case("conv", (1, 1, 64, 9), 32, (1, 5)),
        Case("conv", (1, 1, 64, 32), 32, (1, 1)),
        Case("depthwise", (1, 1, 64, 16), kernel=(1, 3), padding=(0, 0, 1, 1)),
        Case("depthwise", (1, 1, 64, 16), kernel=(1, 9)),
    ],
    ids=str,
)
def test_costs(case: Case) -> None:
    """What takes one column a row is a little less than it is said to be, never clearly more."""
    program = program_of(case)
    for one in by_columns(program):
        taken = emulator.run(program, one, M4, inputs_of(program)).instructions
        assert one.cost is not None and 0.88 < one.cost.instructions / taken < 1.5, one.variant
