"""Depthwise kernels that slide over the image, on an emulated Cortex-M4: right to the byte, in few instructions."""

from __future__ import annotations

import pytest

from aot.graph.expr import axis
from aot.lower.implementation import Implementation
from aot.lower.program import Program
from tests.backends import emulator, test_dsp_int16
from tests.backends.contracts import Case, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, M4, NUMBERS, check, numbers, offers, windowed
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

SAME = (1, 1, 1, 1)


def sliding(program: Program) -> list[Implementation]:
    """The variants that slide."""
    return [one for one in offers(program) if one.variant.startswith("sliding")]


WINDOWS = {
    "kernel": ((3, 3), (3, 3), (3, 3), (3, 2), (3, 1)),
    "height": (2, 3, 4, 5, 8, 9),
    "width": (1, 2, 3, 4, 5, 7, 9, 10, 12, 14, 15, 20, 27, 32),
    "stride": ((1, 1),),
    "dilation": ((1, 1),),
    "padding": ((0, 0, 0, 0), SAME, SAME, (0, 1, 0, 1), (2, 0, 1, 2), (1, 2, 2, 0), (2, 2, 2, 2), (1, 0, 0, 2)),
    "depth": CHANNELS[:17],
}


@pytest.mark.parametrize("part", range(6))
def test_sweep(part: int) -> None:
    found = 0
    for number, choice in enumerate(sweep(20, 40 + part, **NUMBERS, **WINDOWS)):
        program = program_of(windowed(number, choice, kind="depthwise", **numbers(choice, choice["depth"])))
        for implementation in sliding(program):
            check(program, number, split=True, implementation=implementation)
            found += 1
    assert found >= 15


@pytest.mark.parametrize("part", range(2))
def test_int16(part: int) -> None:
    found = 0
    for number, choice in enumerate(sweep(20, 50 + part, **{**test_dsp_int16.NUMBERS, "bias": ("some", "none")}, **WINDOWS)):
        fields = test_dsp_int16.numbers(choice, choice["depth"])
        program = program_of(windowed(number, choice, kind="depthwise", **fields))
        for implementation in sliding(program):
            check(program, number, split=True, implementation=implementation, align=2 if number % 8 == 7 else 4)
            found += 1
    assert found >= 15


@pytest.mark.parametrize("width", [6, 14])
def test_part_of_a_larger_output(width: int) -> None:
    case = Case("depthwise", (2, 5, width, 8), padding=SAME)
    store = tuple(axis(number, 1, offset) for number, offset in enumerate((0, 2, 3, 4)))
    program = program_of(case, store=store, out_shape=(2, 8, width + 3, 15))
    variants = sliding(program)
    assert variants
    for implementation in variants:
        check(program, split=True, background=77, implementation=implementation)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("depthwise", padding=SAME, stride=(2, 2)), "stride"),
        (Case("depthwise", padding=SAME, multiplier=2), "multiplier"),
        (Case("depthwise", (1, 3, 5, 4)), "a single output row"),
        (Case("depthwise", (1, 4, 3, 4), padding=(1, 1, 3, 3)), "a column of the padding alone"),
        (Case("depthwise", (1, 4, 40, 64), padding=SAME), "rows too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_slide(case: Case, reason: str) -> None:
    program = program_of(case)
    assert not sliding(program)
    check(program)


LAYERS = [
    # layer, instructions for each output in short turns, and in long ones, bytes of code
    (Case("depthwise", (1, 25, 5, 64), padding=SAME), 14.2, 14.2, 1700),
    (Case("depthwise", (1, 48, 48, 8), padding=SAME), 14.5, 14.1, 3000),
    (Case("depthwise", (1, 12, 12, 64), padding=SAME), 14.9, 14.4, 3000),
    (Case("depthwise", (1, 6, 6, 128), padding=SAME), 14.9, 14.9, 2200),
    (Case("depthwise", (1, 3, 3, 256), padding=SAME), 19.0, 19.0, 800),
]


@pytest.mark.parametrize(("case", "short", "long", "code"), LAYERS, ids=str)
def test_cost(case: Case, short: float, long: float, code: int) -> None:
    program = program_of(case)
    variants = sliding(program)
    for implementation, ceiling in ((variants[0], short), (variants[-1], long)):
        outcome = emulator.run(program, implementation, M4, inputs_of(program))
        print(f"{implementation.variant}: {outcome.instructions / outcome.out.size:.2f} an output, {outcome.code_nbytes} bytes")
        assert outcome.instructions / outcome.out.size <= ceiling
        assert outcome.code_nbytes <= code
        assert implementation.scratch_nbytes == 0
        assert outcome.stack_nbytes <= 200
