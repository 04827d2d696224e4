"""The kernels for Cortex-M3 on an emulated one against the numpy meaning of their instructions, every byte, with guards around every
buffer; and what they cost.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long. Cases are those of the DSP kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.backends.cmsis_nn.swar import m3
from aot.graph.expr import axis
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.target import load_target
from tests.backends import emulator, test_dsp_kernels
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import (
    CHANNELS,
    FILTERS,
    FUSABLE,
    KERNELS,
    NUMBERS,
    UNALIGNED,
    WINDOWS,
    claim,
    numbers,
    offers,
    replace_role,
    residual,
    windowed,
)
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

M3 = load_target("cortex-m3")


def check(program: Program, seed: int = 1, **options) -> Implementation:
    """Every way that is offered, also those that are not the cheapest. The first one."""
    found = offers(program, M3)
    for variant in range(len(found)):
        test_dsp_kernels.check(program, seed, target=M3, variant=variant, **options)
    assert len({one.variant for one in found}) == len(found)
    return found[0]


@pytest.mark.parametrize("part", range(2))
def test_convolutions(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": CHANNELS, "channels": CHANNELS, "weight": (127, 60, 10)}
    for number, choice in enumerate(sweep(14, part, **choices)):
        fields = numbers(choice, choice["channels"])
        case = windowed(number, choice, channels=choice["channels"], weight=choice["weight"], **fields)
        check(program_of(case), number, split=True)


@pytest.mark.parametrize("part", range(2))
def test_depthwise(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": FILTERS, "depth": CHANNELS, "multiplier": (1, 1, 1, 2, 3)}
    for number, choice in enumerate(sweep(14, part, **choices)):
        fields = numbers(choice, choice["depth"] * choice["multiplier"])
        case = windowed(number, choice, kind="depthwise", multiplier=choice["multiplier"], **fields)
        check(program_of(case), number, split=True)


def test_convolutions_of_one_channel() -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "kind": ("conv", "depthwise"), "channels": (1, 1, 2, 3, 8)}
    for number, choice in enumerate(sweep(8, 5, depth=(1,), **choices)):
        fields = numbers(choice, choice["channels"])
        kind = (
            {"channels": choice["channels"]}
            if choice["kind"] == "conv"
            else {"kind": "depthwise", "multiplier": choice["channels"]}
        )
        check(program_of(windowed(number, choice, **kind, **fields)), number, split=True)
    for kind in ("conv", "depthwise"):
        case = Case(kind, (2, 6, 5, 1), 3, multiplier=3, padding=(1, 1, 1, 1))
        program = program_of(case, residual, extra=[Buffer("r", INT8, (2, 6, 5, 3), "input")])
        assert check(program, split=True).kernel == "depthwise 3x3"


def test_dense() -> None:
    choices = {**NUMBERS, "rows": (1, 1, 2, 3, 5, 8), "depth": (*CHANNELS, 64, 100, 640), "channels": CHANNELS}
    for number, choice in enumerate(sweep(14, 9, weight=(127, 60, 10), **choices)):
        image = (choice["rows"], 1, 1, choice["depth"])
        fields = {**numbers(choice, choice["channels"]), "weight": choice["weight"]}
        if choice["rows"] * choice["channels"] > 1:
            check(program_of(Case("dense", image, choice["channels"], seed=number, **fields)), number)


def test_windows_of_the_whole_image() -> None:
    choices = {**NUMBERS, "height": (1, 2, 5), "width": (1, 3, 4), "depth": (1, 3, 8, 16), "channels": (2, 5, 8, 12, 17)}
    for number, choice in enumerate(sweep(8, 3, **choices)):
        size = (choice["height"], choice["width"])
        fields = numbers(choice, choice["channels"])
        case = Case("conv", (choice["batch"], *size, choice["depth"]), choice["channels"], size, seed=number, **fields)
        check(program_of(case), number)
    check(program_of(Case("conv", (1, 3, 3, 4), 9, (3, 3), dilation=(2, 2), padding=(0, 2, 0, 2))))
    case = Case("conv", (2, 3, 3, 4), 9, (3, 3))
    check(program_of(case, residual, extra=[Buffer("r", INT8, (2, 1, 1, 9), "input")]))
    assert "four channels' weights" in check(program_of(case)).notes[1]


@pytest.mark.parametrize("case", UNALIGNED, ids=str)
def test_activations_at_odd_addresses(case: Case) -> None:
    check(program_of(case), align=1, split=True)
    shape = program_of(case)["y"].shape
    check(program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")]), align=1, split=True)


@pytest.mark.parametrize("case", FUSABLE, ids=str)
def test_fused_operand(case: Case) -> None:
    shape = program_of(case)["y"].shape
    program = program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")])
    check(program, split=True)
    in_place = replace_role(program, "r", "temporary")
    implementation = claim(in_place, M3)
    assert implementation.overwrites == ("r",)
    inputs = inputs_of(program)
    outcome = emulator.run(in_place, implementation, M3, inputs, in_place="r")
    assert (outcome.out == expected(program, inputs)).all()


def test_weights_of_minus_128_and_extreme_inputs() -> None:
    for kind, image in (("conv", (1, 4, 4, 6)), ("depthwise", (1, 4, 4, 6)), ("dense", (1, 1, 1, 40)), ("dense", (5, 1, 1, 40))):
        for seed in (3, 6):  # inputs_of makes these all -128 or 127
            program = program_of(Case(kind, image, 6, seed=seed))
            check(program, seed)
            program["w"].data.flags.writeable = True
            program["w"].data[...] = np.where(program["w"].data < 0, -128, 127)
            check(program, seed)


@pytest.mark.parametrize("kind", ["conv", "depthwise"])
def test_parts_of_larger_outputs(kind: str) -> None:
    case = Case(kind, (2, 5, 6, 8), 8, padding=(1, 1, 1, 1))
    shape, store = (3, 8, 9, 15), tuple(axis(number, 1, offset) for number, offset in enumerate((1, 2, 3, 4)))
    check(program_of(case, store=store, out_shape=shape), split=True, background=77)
    program = program_of(case, residual, store, shape, [Buffer("r", INT8, (2, 5, 6, 8), "input")])
    check(program, split=True, background=77)


SAME = (1, 1, 1, 1)
LAYERS = [
    # name, layer, instructions per MAC
    ("conv 1x1 64->64, 25x5", Case("conv", (1, 25, 5, 64), 64, (1, 1)), 1.24),
    ("conv 1x1 8->16, 12x12", Case("conv", (1, 12, 12, 8), 16, (1, 1)), 2.45),
    ("conv 1x1 7->15, 5x5", Case("conv", (1, 5, 5, 7), 15, (1, 1)), 2.80),
    ("conv 1x1 256->256, 3x3", Case("conv", (1, 3, 3, 256), 256, (1, 1)), 1.34),
    ("conv 3x3 3->16, 16x16", Case("conv", (1, 16, 16, 3), 16, padding=SAME), 1.85),
    ("conv 3x3 16->16, 8x8", Case("conv", (1, 8, 8, 16), 16, padding=SAME), 1.40),
    ("depthwise 3x3 64, 25x5", Case("depthwise", (1, 25, 5, 64), padding=SAME), 2.65),
    ("depthwise 3x3 8, 24x24", Case("depthwise", (1, 24, 24, 8), padding=SAME), 2.65),
    ("depthwise 3x3 64, 3x3", Case("depthwise", (1, 3, 3, 64), padding=SAME), 4.10),
    ("depthwise 3x3 8 stride 2, 24x24", Case("depthwise", (1, 24, 24, 8), stride=(2, 2), padding=(0, 1, 0, 1)), 3.05),
    ("conv 1x1 64->64, 1x1", Case("conv", (1, 1, 1, 64), 64, (1, 1)), 2.10),
    ("dense 640->32", Case("dense", (1, 1, 1, 640), 32), 1.90),
    ("dense 64->12", Case("dense", (1, 1, 1, 64), 12), 2.70),
    ("conv 10x4 1->64 stride 2", Case("conv", (1, 49, 10, 1), 64, (10, 4), (2, 2), padding=(4, 5, 1, 1)), 1.46),
]


@pytest.mark.parametrize(("name", "case", "ceiling"), LAYERS, ids=[layer[0] for layer in LAYERS])
def test_cost(name: str, case: Case, ceiling: float) -> None:
    """Weights as they are in models: most are far from the largest. The estimate is not far from what is counted."""
    program = program_of(replace(case, weight=60))
    implementation = claim(program, M3)
    inputs = inputs_of(program)
    outcome = emulator.run(program, implementation, M3, inputs)
    assert (outcome.out == expected(program, inputs)).all()
    cost = outcome.instructions / program.instructions[0].geometry.macs
    print(f"{name:32s} {cost:6.3f} instructions/MAC")
    assert cost <= ceiling
    assert implementation.cost is not None
    assert 0.85 < implementation.cost.instructions / outcome.instructions < 1.15


@pytest.mark.parametrize(
    ("name", "reason"), [("cortex-m0", "no 32-bit Thumb-2 multiply-accumulate"), ("cortex-m4", "has the DSP extension")]
)
def test_other_cores_are_declined(name: str, reason: str) -> None:
    for case in (Case(), Case("depthwise"), Case("dense", (1, 1, 1, 8), 8)):
        program = program_of(case)
        answers = [kernel.claim(program, program.instructions[0], load_target(name)) for kernel in m3.KERNELS]
        assert all(isinstance(answer, str) and reason in answer for answer in answers)
