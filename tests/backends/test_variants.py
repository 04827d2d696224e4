"""Every variant of the DSP kernels on an emulated Cortex-M4: right to the byte, and what it takes is what selection was told."""

from __future__ import annotations

import pytest

from aot.backends.cmsis_nn import dsp
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from tests.backends import emulator
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import M4, NUMBERS, numbers, residual
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

SAME = (1, 1, 1, 1)


def variants(program: Program) -> list[Implementation]:
    """All that the kernels offer, whichever comes first."""
    found: list[Implementation] = []
    for kernel in dsp.KERNELS:
        answer = kernel.claim(program, program.instructions[0], M4)
        if not isinstance(answer, str):
            found += [answer] if isinstance(answer, Implementation) else answer
    return found


@pytest.mark.parametrize("part", range(3))
def test_every_variant(part: int) -> None:
    choices = {
        **NUMBERS,
        "kind": ("conv", "conv", "dense"),
        "kernel": ((1, 1), (1, 1), (3, 3), (2, 3)),
        "depth": (1, 3, 4, 9, 16, 33, 64, 130),
        "channels": (1, 2, 3, 4, 7, 12, 16),
        "width": (1, 3, 4, 5, 8, 9),
        "stride": ((1, 1), (1, 1), (2, 2)),
    }
    for number, choice in enumerate(sweep(4, part, **choices)):
        fields = numbers(choice, choice["channels"])
        image = (choice["batch"], 4, choice["width"], choice["depth"])
        if choice["kind"] == "dense":
            case = Case("dense", (choice["width"], 1, 1, choice["depth"]), choice["channels"], seed=number, **fields)
        else:
            padding = SAME if choice["kernel"] != (1, 1) else (0, 0, 0, 0)
            shape = {"kernel": choice["kernel"], "stride": choice["stride"], "padding": padding}
            case = Case("conv", image, choice["channels"], seed=number, **shape, **fields)
        program = program_of(case)
        inputs = inputs_of(program, number)
        wanted = expected(program, inputs)
        for implementation in variants(program):
            outcome = emulator.run(program, implementation, M4, inputs)
            assert (outcome.out == wanted).all(), (case, implementation.kernel, implementation.variant)


LAYERS = (
    Case("conv", (1, 25, 5, 64), 64, (1, 1)),
    Case("conv", (1, 12, 12, 32), 64, (1, 1)),
    Case("conv", (1, 6, 6, 128), 128, (1, 1)),
    Case("conv", (1, 3, 3, 256), 64, (1, 1)),
    Case("conv", (1, 32, 32, 3), 16, padding=SAME),
    Case("conv", (1, 49, 10, 1), 64, (10, 4), (2, 2), padding=(4, 5, 1, 1)),
    Case("dense", (1, 1, 1, 640), 128),
    Case("dense", (1, 1, 1, 128), 128),
    Case("conv", (1, 48, 48, 8), 16, (1, 1)),
    Case("depthwise", (1, 25, 5, 64), padding=SAME),
    Case("depthwise", (1, 48, 48, 8), padding=SAME),
    Case("depthwise", (1, 6, 6, 128), padding=SAME),
    Case("depthwise", (1, 48, 48, 16), stride=(2, 2), padding=(0, 1, 0, 1)),
    Case("conv", (1, 96, 96, 1), 8, stride=(2, 2), padding=(0, 1, 0, 1)),
)


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_costs(case: Case) -> None:
    program = program_of(case)
    inputs = inputs_of(program)
    made = variants(program)
    assert len({(one.kernel, one.variant) for one in made}) == len(made)
    for implementation in made:
        cost = implementation.cost
        assert cost is not None
        outcome = emulator.run(program, implementation, M4, inputs)
        code = cost.code_nbytes + sum(nbytes for _, nbytes in cost.shared)
        assert abs(cost.instructions / outcome.instructions - 1) < 0.07, implementation.variant
        assert abs(code - outcome.code_nbytes) < max(160, 0.25 * outcome.code_nbytes), implementation.variant


def test_pixels_that_are_not_gathered() -> None:
    """Dense layers that read their input where it lies: no scratch, but for what is fused behind."""
    choices = {
        **NUMBERS,
        "depth": (4, 8, 12, 20, 64, 132, 640),
        "channels": (1, 2, 3, 4, 6, 8, 12, 24),
        "fused": (False, False, True),
    }
    taken = 0
    for number, choice in enumerate(sweep(24, 7, **choices)):
        case = Case("dense", (1, 1, 1, choice["depth"]), choice["channels"], seed=number, **numbers(choice, choice["channels"]))
        program = program_of(case)
        if choice["fused"]:
            program = program_of(case, residual, extra=[Buffer("r", INT8, program["y"].shape, "input")])
        inputs = inputs_of(program, number)
        for implementation in variants(program):
            if implementation.variant.endswith("not gathered"):
                assert implementation.scratch_nbytes <= 4 * -(-choice["channels"] // 4)
                outcome = emulator.run(program, implementation, M4, inputs, align=(1, 4)[number % 2])
                assert (outcome.out == expected(program, inputs)).all(), case
                taken += 1
    assert taken > 12


@pytest.mark.parametrize(("case", "ceiling"), [(LAYERS[0], 0.80), (LAYERS[5], 1.0)], ids=str)
def test_int16_weights(case: Case, ceiling: float) -> None:
    """The fastest variant has int16 weights, where several pixels use them at a time."""
    program = program_of(case)
    fastest = min(variants(program), key=lambda one: one.cost.instructions if one.cost else 0)
    assert fastest.variant.endswith("int16 weights")
    outcome = emulator.run(program, fastest, M4, inputs_of(program))
    assert outcome.instructions / program.instructions[0].geometry.macs <= ceiling
