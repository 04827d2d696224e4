"""The DSP kernels with weights of nine bits, as a uint8 layer has them without its zero point: right to the byte, in steps of rows, too.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.gather import Patches
from aot.graph.ir import DType
from aot.graph.primitive import Contract
from aot.lower.narrow import bare_weights
from aot.lower.program import Program
from tests.backends import emulator
from tests.backends.contracts import Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, FILTERS, M4, NUMBERS, numbers, windowed
from tests.backends.test_row_steps import IMAGES, check, fused
from tests.backends.test_variants import SAME, variants
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

WEIGHTS = {"nine_bits": (0, 1, 60, 127, 129, 200, 254, 255), "few": (0, 0, 1, 2, 5)}


def nine_bits(choice: dict, channels: int) -> dict:
    return {**numbers(choice, channels), "nine_bits": choice["nine_bits"], "few": choice["few"]}


@pytest.mark.parametrize("part", range(4))
def test_convolutions(part: int) -> None:
    kernels = ((1, 1), (1, 1), (3, 3), (3, 3), (2, 2), (1, 4), (5, 3))
    choices = {**IMAGES, **WEIGHTS, "kernel": kernels, "depth": CHANNELS, "channels": CHANNELS}
    for number, choice in enumerate(sweep(8, 150 + part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **nine_bits(choice, choice["channels"]))
        check(fused(case) if number % 4 == 3 else program_of(case), number)


@pytest.mark.parametrize("part", range(4))
def test_depthwise(part: int) -> None:
    kernels = ((3, 3), (3, 3), (3, 3), (3, 2), *FILTERS)
    choices = {**IMAGES, **WEIGHTS, "kernel": kernels, "depth": CHANNELS, "multiplier": (1, 1, 1, 2)}
    for number, choice in enumerate(sweep(8, 160 + part, **choices)):
        fields = nine_bits(choice, choice["depth"] * choice["multiplier"])
        case = windowed(number, choice, kind="depthwise", multiplier=choice["multiplier"], **fields)
        check(fused(case) if number % 4 == 3 else program_of(case), number)


@pytest.mark.parametrize("part", range(2))
def test_dense(part: int) -> None:
    choices = {**NUMBERS, **WEIGHTS, "depth": (1, 3, 4, 9, 33, 64, 130), "channels": (2, 3, 4, 7, 16), "rows": (1, 1, 2, 5)}
    for number, choice in enumerate(sweep(10, 170 + part, **choices)):
        image = (choice["rows"], 1, 1, choice["depth"])
        program = program_of(Case("dense", image, choice["channels"], seed=number, **nine_bits(choice, choice["channels"])))
        inputs = inputs_of(program, number)
        for implementation in variants(program):
            outcome = emulator.run(program, implementation, M4, inputs, align=(1, 4)[number % 2])
            assert (outcome.out == expected(program, inputs)).all(), (implementation.kernel, implementation.variant)


@pytest.mark.parametrize(
    "case",
    [
        Case("conv", (1, 16, 16, 32), 32, (1, 1), nine_bits=140, few=3),
        Case("conv", (1, 32, 32, 3), 8, stride=(2, 2), padding=(0, 1, 0, 1), nine_bits=140, few=2),
        Case("dense", (1, 1, 1, 256), 64, nine_bits=100, few=4),
        Case("depthwise", (1, 16, 16, 32), padding=SAME, nine_bits=140),
    ],
    ids=str,
)
def test_costs(case: Case) -> None:
    """What selection is told is what it takes; and no more than 12 % more than int8 weights take."""
    program = program_of(case)
    inputs, least = inputs_of(program), []
    for implementation in variants(program):
        outcome = emulator.run(program, implementation, M4, inputs)
        assert implementation.cost is not None
        assert abs(implementation.cost.instructions / outcome.instructions - 1) < 0.07, implementation.variant
        least.append(outcome.instructions)
    usual = program_of(replace(case, nine_bits=None, few=0))
    narrow = min(emulator.run(usual, one, M4, inputs).instructions for one in variants(usual) if not one.is_frugal)
    assert min(least) <= 1.12 * narrow


def test_inputs_that_come_again_stand_behind_the_others() -> None:
    geometry = program_of(Case("conv", (1, 4, 4, 3), 2)).instructions[0].geometry  # type: ignore[union-attr]
    assert geometry is not None
    patches = Patches(geometry, 0, False, again=(2, 7, 26))
    assert list(patches.order[-4:]) == [27, 28, 29, -1] and list(patches.order[:-4]) == list(patches.first_order)


def with_zero_point(program: Program, zero_point: int) -> Program:
    """The same layer of uint8 weights, of which a zero point is taken off."""
    layer, weights = program.instructions[0], program["w"].data
    assert isinstance(layer, Contract) and weights is not None
    data = (weights.astype(np.int64) + zero_point).astype(np.uint8)
    buffers = tuple(replace(one, dtype=DType.UINT8, data=data) if one.name == "w" else one for one in program.buffers)
    layer = replace(layer, right=replace(layer.right, dtype=DType.UINT8), right_zero_point=zero_point)
    return replace(program, buffers=buffers, instructions=(layer,))


@pytest.mark.parametrize(("zero_point", "dtype"), [(128, DType.INT8), (100, DType.INT16), (3, DType.INT16), (255, DType.INT16)])
def test_weights_without_their_zero_point(zero_point: int, dtype: DType) -> None:
    """uint8 less a zero point becomes int8 where all of a layer fits, else int16."""
    program = program_of(Case("conv", (1, 3, 4, 5), 6, nine_bits=zero_point))
    after = bare_weights(with_zero_point(program, zero_point))
    layer = after.instructions[0]
    assert isinstance(layer, Contract)
    assert (layer.right.dtype, layer.right_zero_point) == (dtype, 0)
    inputs = inputs_of(program)
    assert (expected(after, inputs) == expected(program, inputs)).all()
