"""The DSP kernels in steps of rows that lie scattered, and with outputs on inputs as far as they allow: right to the byte.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.single_rows import claim_single_rows
from aot.backends.cmsis_nn.dsp.sums import claim_sums
from aot.graph.expr import Acc, Const, Load, axis, cast
from aot.graph.ir import DType
from aot.graph.primitive import Reduce
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.lower.rows import row_count, row_nbytes
from tests.backends import emulator, scattered
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, EXPANDED, FILTERS, M4, NUMBERS, WINDOWS, numbers, residual, windowed
from tests.backends.test_dsp_pool import SHAPES
from tests.backends.test_dsp_pool import program_of as pool_of
from tests.backends.test_variants import variants
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

IMAGES = {**NUMBERS, **WINDOWS, "batch": (1,), "height": (2, 3, 5, 8), "width": (1, 3, 5, 8, 9)}


def check(program: Program, seed: int, chosen: list[Implementation] | None = None) -> set[str]:
    """All implementations, in steps of as few rows as they make and of some more, apart and on their inputs. Returns what was stated."""
    inputs = inputs_of(program, seed)
    wanted = expected(program, inputs)
    stated = set()
    for implementation in variants(program) if chosen is None else chosen:
        rows, align = implementation.rows, (4, 4, 1)[seed % 3]
        each = rows.per_step * (1 + seed % 3)
        steps = [(y, min(y + each, rows.count)) for y in range(0, rows.count, each)]
        runs = [(steps, ""), *(((), name) for name, kind in implementation.overlap if applies(program, implementation, name, kind))]
        for divided, over in runs:
            outcome = scattered.run(program, implementation, M4, inputs, divided, seed, align, over)
            assert (outcome.out == wanted).all(), (
                implementation.kernel,
                implementation.variant,
                divided,
                over,
                implementation.notes,
            )
            stated.add(dict(implementation.overlap).get(over, ""))
    return stated


def applies(program: Program, implementation: Implementation, name: str, kind: str) -> bool:
    """Whether an overlap can happen: rows of equal size where it is byte on byte; one row of outputs a step."""
    divided = row_count(program[name]) > 1 and 1 < row_count(program["y"]) == implementation.rows.count
    same = row_nbytes(program[name]) == row_nbytes(program["y"])
    return implementation.rows.per_step == 1 and divided and (same or kind != "same")


def fused(case: Case) -> Program:
    """With an operand beside the output, that may be overwritten."""
    shape = program_of(case)["y"].shape
    return program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")])


@pytest.mark.parametrize("part", range(3))
def test_convolutions(part: int) -> None:
    choices = {
        **IMAGES,
        "kernel": ((1, 1), (3, 3), (3, 3), (2, 2), (5, 5), (3, 1), (2, 5)),
        "depth": CHANNELS,
        "channels": CHANNELS,
    }
    stated = set()
    for number, choice in enumerate(sweep(5, 60 + part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        stated |= check(fused(case) if number % 3 == 2 else program_of(case), number)
    assert stated


@pytest.mark.parametrize("part", range(2))
def test_convolutions_over_expanded_rows(part: int) -> None:
    choices = {**IMAGES, **EXPANDED, "channels": CHANNELS}
    stated = set()
    for number, choice in enumerate(sweep(8, 65 + part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        stated |= check(fused(case) if number % 3 == 2 else program_of(case), number)
    assert "anywhere" in stated


@pytest.mark.parametrize("part", range(2))
def test_pointwise_convolutions_over_their_input(part: int) -> None:
    choices = {**IMAGES, "depth": CHANNELS, "channels": CHANNELS, "padding": ((0, 0, 0, 0),), "kernel": ((1, 1),)}
    stated = set()
    for number, choice in enumerate(sweep(5, 70 + part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        stated |= check(fused(case) if number % 3 == 2 else program_of(case), number)
    assert "forward" in stated


@pytest.mark.parametrize("part", range(2))
def test_depthwise(part: int) -> None:
    choices = {**IMAGES, "kernel": FILTERS, "depth": CHANNELS, "multiplier": (1, 1, 1, 2)}
    for number, choice in enumerate(sweep(8, 80 + part, **choices)):
        fields = numbers(choice, choice["depth"] * choice["multiplier"])
        case = windowed(number, choice, kind="depthwise", multiplier=choice["multiplier"], **fields)
        check(fused(case) if number % 3 == 2 else program_of(case), number)


@pytest.mark.parametrize("part", range(2))
def test_depthwise_of_three_rows(part: int) -> None:
    """By single rows: few columns, and many in turns of a loop."""
    choices = {
        **IMAGES,
        "kernel": ((3, 3), (3, 3), (3, 2), (3, 1)),
        "depth": CHANNELS,
        "height": (1, 2, 3, 4, 7),
        "width": (1, 2, 3, 5, 8, 9, 12, 13, 24, 31),
        "padding": ((1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 0, 0), (0, 1, 0, 1), (2, 2, 2, 2)),
    }
    stated, taken = set(), 0
    for number, choice in enumerate(sweep(16, 84 + part, **choices)):
        case = windowed(number, choice, kind="depthwise", **numbers(choice, choice["depth"]))
        program = program_of(case)
        chosen = claim_single_rows(program, program.instructions[0], M4)
        if isinstance(chosen, Implementation):
            stated |= check(program, number, [chosen])
            taken += 1
            outcome = emulator.run(program, chosen, M4, inputs_of(program, number + 1))
            assert (outcome.out == expected(program, inputs_of(program, number + 1))).all()
    assert "same" in stated and taken > 8


@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
@pytest.mark.parametrize("combine", ["add", "max"])
def test_pools(combine: str, same: bool) -> None:
    choices = {**SHAPES, "images": (1,), "size": ((4, 4), (5, 3), (6, 9), (3, 1))}
    stated = set()
    for number, choice in enumerate(sweep(16, 90 + same, **choices)):
        program = pool_of(choice, combine, same)
        stated |= set() if program is None else check(program, number)
    assert "forward" in stated


def sums_of(height: int, width: int, depth: int, initial: int) -> Program:
    load = Load("x", (axis(0), axis(4), axis(5), axis(3)), INT8)
    acc = Acc(DType.INT32)
    reduce = Reduce("y", (1, 1, 1, depth), (height, width), "add", Const(initial, DType.INT32), cast(load, DType.INT32), acc)
    buffers = (Buffer("x", INT8, (1, height, width, depth), "input"), Buffer("y", DType.INT32, (1, 1, 1, depth), "output"))
    return Program("test", buffers, (reduce,), ("x",), ("y",))


def test_sums_over_rows() -> None:
    choices = {"height": (1, 2, 3, 8, 17), "width": (1, 3, 4, 7, 8, 21), "depth": CHANNELS[3:], "initial": (0, 7, -(1 << 20))}
    for number, choice in enumerate(sweep(24, 95, **choices)):
        program = sums_of(**choice)
        chosen = claim_sums(program, program.instructions[0], M4)
        assert isinstance(chosen, Implementation), chosen
        assert chosen.rows.accumulates == (choice["height"] > 1)
        check(program, number, [chosen])


def test_the_largest_sums() -> None:
    program = sums_of(3, 256, 9, 0)
    chosen = claim_sums(program, program.instructions[0], M4)
    assert isinstance(chosen, Implementation)
    for value in (-128, 127):
        inputs = {"x": np.full((1, 3, 256, 9), value, np.int8)}
        assert (scattered.run(program, chosen, M4, inputs).out == 3 * 256 * value).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"depth": 3}, "fewer than four"), ({"width": 257}, "more than 256 columns")],
)
def test_sums_that_are_declined(change: dict, sentence: str) -> None:
    program = sums_of(**{"height": 2, "width": 3, "depth": 8, "initial": 0, **change})
    assert sentence in str(claim_sums(program, program.instructions[0], M4))


def test_an_operand_beside_the_output_gives_only_its_own_row() -> None:
    """Two output rows in a step are stored one behind the other, or column by column: a row of the operand that is still to be read
    must not be under the other row's output."""
    paired = [one for one in variants(fused(Case("depthwise", image=(1, 6, 5, 8)))) if one.rows.per_step == 2]
    assert paired
    for one in paired:
        assert one.sharing(2)["r"] == "element", one.variant
