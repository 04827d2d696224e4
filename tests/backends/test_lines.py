"""Depthwise convolutions of one column on an emulated Cortex-M4: right to the byte, at once, row by row and on their input.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.lines import claim_lines
from aot.lower.implementation import Implementation
from aot.lower.program import Program
from tests.backends import emulator
from tests.backends.contracts import Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import M4, NUMBERS, numbers
from tests.backends.test_row_steps import check, fused
from tests.backends.test_variants import variants
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")


def claimed(program: Program) -> Implementation:
    found = claim_lines(program, program.instructions[0], M4)
    assert isinstance(found, Implementation), found
    return found


@pytest.mark.parametrize("part", range(4))
def test_one_column(part: int) -> None:
    choices = {
        **NUMBERS,
        "height": (1, 2, 3, 5, 8, 19),
        "taps": (1, 2, 3, 4, 5, 8, 10, 15, 16),
        "stride": (1, 1, 2, 3),
        "dilation": (1, 1, 2),
        "padding": ((0, 0), (1, 1), (0, 1), (4, 5), (3, 0)),
        "depth": (4, 8, 12, 36),
    }
    stated = set()
    for number, choice in enumerate(sweep(14, 400 + part, **choices)):
        above, below = choice["padding"]
        below = max(below, (choice["taps"] - 1) * choice["dilation"] + 1 - choice["height"] - above)
        case = Case(
            "depthwise",
            (1, choice["height"], 1, choice["depth"]),
            kernel=(choice["taps"], 1),
            stride=(choice["stride"], 1),
            dilation=(choice["dilation"], 1),
            padding=(above, below, 0, 0),
            seed=number,
            **numbers(choice, choice["depth"]),
        )
        program = program_of(case)
        one, inputs = claimed(program), inputs_of(program, number)
        stated |= check(program, number, [one])
        outcome = emulator.run(program, one, M4, inputs, align=(1, 4)[number % 2])
        assert (outcome.out == expected(program, inputs)).all(), case
    assert "same" in stated


def test_the_ends_of_all_ranges() -> None:
    case = Case("depthwise", (1, 9, 1, 8), kernel=(7, 1), padding=(3, 3, 0, 0), zero_point=127, saturated=True)
    program = program_of(case)
    for value in (-128, 127):
        inputs = {"x": np.full((1, 9, 1, 8), value, np.int8)}
        assert (emulator.run(program, claimed(program), M4, inputs).out == expected(program, inputs)).all()


@pytest.mark.parametrize(
    ("case", "most"),
    [
        (Case("depthwise", (1, 24, 1, 128), kernel=(5, 1)), 0.65),
        (Case("depthwise", (1, 24, 1, 128), kernel=(10, 1), padding=(4, 5, 0, 0)), 0.4),
    ],
    ids=["5x1", "10x1"],
)
def test_costs(case: Case, most: float) -> None:
    """What selection is told; and how much less it takes than strips of columns."""
    program = program_of(case)
    one, inputs = claimed(program), inputs_of(program)
    outcome = emulator.run(program, one, M4, inputs)
    assert one.cost is not None and abs(one.cost.instructions / outcome.instructions - 1) < 0.07
    assert abs(sum(nbytes for _, nbytes in one.cost.shared) - outcome.code_nbytes) < 0.25 * outcome.code_nbytes
    strips = next(other for other in variants(program) if other.variant == "one row at a time")
    assert outcome.instructions < most * emulator.run(program, strips, M4, inputs).instructions


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        (Case("depthwise", (1, 9, 2, 8), kernel=(3, 1)), "one column"),
        (Case("depthwise", (1, 9, 1, 8), kernel=(3, 1), multiplier=2), "one column"),
        (Case("depthwise", (2, 9, 1, 8), kernel=(3, 1)), "several images"),
        (Case("depthwise", (1, 9, 1, 6), kernel=(3, 1)), "multiple of 4"),
        (Case("depthwise", (1, 20, 1, 8), kernel=(17, 1)), "more than 16"),
        (fused(Case("depthwise", (1, 9, 1, 8), kernel=(3, 1))), "registers"),
    ],
    ids=str,
)
def test_what_is_declined(case: Case | Program, sentence: str) -> None:
    program = case if isinstance(case, Program) else program_of(case)
    assert sentence in str(claim_lines(program, program.instructions[0], M4))
