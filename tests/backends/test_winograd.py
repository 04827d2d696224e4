"""Winograd's convolution on an emulated Cortex-M against the numpy meaning, every byte, with guards around every buffer.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.winograd import claim_winograd
from aot.backends.cmsis_nn.dsp.winograd_weights import ACROSS, DOWN, INPUT_ACROSS
from aot.graph.expr import Lookup, add, cast, integer
from aot.graph.ir import DType
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.target import Target, load_target
from tests.backends import emulator
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import M4, NUMBERS, numbers, replace_role, residual
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

SAME = (1, 1, 1, 1)


def claim(program: Program, target: Target = M4) -> tuple[Implementation, ...]:
    answer = claim_winograd(program, program.instructions[0], target)
    assert not isinstance(answer, str), answer
    return answer


def check(program: Program, seed: int = 1, target: Target = M4, background: int = 0, **options) -> tuple[Implementation, ...]:
    """Run every variant, at once and in two steps of rows, and compare."""
    inputs = inputs_of(program, seed)
    wanted = expected(program, inputs, background)
    made = claim(program, target)
    for number, implementation in enumerate(made):
        count = implementation.rows.count
        middle = count // 4 * 2
        ranges = [(0, middle), (middle, count)] if middle and number == 0 else None
        outcome = emulator.run(program, implementation, target, inputs, ranges, background, **options)
        different = np.argwhere(outcome.out != wanted)
        assert not different.size, (
            f"{len(different)} of {wanted.size} differ, the first at {different[0]}; {implementation.variant}"
        )
    return made


def test_the_transformations_make_a_convolution() -> None:
    """In exact integers: 48 times the direct sums."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (4, 6)), rng.integers(-128, 128, (3, 3))
    input_down = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    output_across = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
    output_down = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
    middle = (DOWN @ w @ ACROSS.T) * (input_down @ x @ INPUT_ACROSS.T)
    direct = [[(x[row : row + 3, column : column + 3] * w).sum() for column in range(4)] for row in range(2)]
    assert (output_down @ middle @ output_across.T == 48 * np.array(direct)).all()


SIZES = {
    "height": (1, 2, 3, 4, 5, 8),
    "width": (1, 2, 3, 4, 5, 8, 9, 13, 16, 17, 20),
    "padding": ((0, 0, 0, 0), SAME, SAME, SAME, (0, 2, 2, 0), (2, 1, 3, 2)),
    "depth": (3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33),
    "channels": (1, 2, 3, 4, 5, 7, 8, 9, 12, 16),
}


@pytest.mark.parametrize("part", range(4))
def test_sizes_and_numbers(part: int) -> None:
    run = 0
    for number, choice in enumerate(sweep(10, part, **NUMBERS, **SIZES)):
        top, bottom, left, right = choice["padding"]
        height, width = (max(choice["height"], 3 - top - bottom), max(choice["width"], 3 - left - right))
        image = (choice["batch"], height, width, choice["depth"])
        case = Case(
            "conv", image, choice["channels"], padding=choice["padding"], seed=number, **numbers(choice, choice["channels"])
        )
        program = program_of(case)
        if not isinstance(claim_winograd(program, program.instructions[0], M4), str):
            check(program, number)
            run += 1
    assert run >= 4  # large biases and scales may pass int32


def test_wide_images_are_transformed_by_a_loop() -> None:
    for width, padding in ((41, SAME), (48, (0, 0, 0, 0)), (52, (1, 1, 4, 5))):
        check(program_of(Case("conv", (1, 4, width, 6), 4, padding=padding)))


@pytest.mark.parametrize("name", ["cortex-m7", "cortex-m33"])
def test_other_cores(name: str) -> None:
    check(program_of(Case(image=(1, 6, 7, 8), padding=SAME)), target=load_target(name))


def test_extreme_inputs_and_weights() -> None:
    for seed in (3, 6):  # inputs_of makes these all -128 or 127
        program = program_of(Case(image=(1, 7, 9, 16), channels=6, padding=SAME, seed=seed))
        program["w"].data.flags.writeable = True
        program["w"].data[...] = np.where(program["w"].data < 0, -128, 127)
        check(program, seed)
        check(program, 1)


@pytest.mark.parametrize("depth", [64, 72, 100])
def test_deep_inputs_go_in_turns(depth: int) -> None:
    made = check(program_of(Case(image=(1, 4, 8, depth), channels=8, padding=SAME)))
    assert len(made) > 1 and len({one.variant for one in made}) == len(made)


def test_activations_at_odd_addresses() -> None:
    check(program_of(Case(image=(1, 5, 6, 8), channels=5, padding=SAME)), align=1)


FUSABLE = (
    Case(image=(1, 6, 7, 8), channels=7, padding=SAME),
    Case(image=(2, 7, 8, 8), channels=8, padding=SAME),
    Case(image=(1, 5, 17, 4), channels=3, padding=SAME),
)


@pytest.mark.parametrize("case", FUSABLE, ids=str)
def test_fused_operand(case: Case) -> None:
    """Also in place, with odd heights and channels, where the last row and channel come twice."""
    shape = program_of(case)["y"].shape
    program = program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")])
    check(program)
    in_place = replace_role(program, "r", "temporary")
    implementation = claim(in_place)[0]
    assert implementation.overwrites == ("r",)
    inputs = inputs_of(program)
    outcome = emulator.run(in_place, implementation, M4, inputs, in_place="r")
    assert (outcome.out == expected(program, inputs)).all()


def test_fused_table() -> None:
    table = np.random.default_rng(5).integers(-128, 128, 256).astype(np.int8)

    def lookup(result, index):
        return Lookup("table", add(cast(result, DType.INT32), integer(128)), INT8)

    check(program_of(FUSABLE[0], lookup, extra=[Buffer("table", INT8, (256,), "constant", data=table)]))


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case(stride=(2, 2)), "is for 3x3 kernels of stride 1"),
        (Case(kernel=(5, 3), image=(1, 9, 9, 4)), "is for 3x3 kernels of stride 1"),
        (Case(image=(1, 5, 5, 2)), "an input of depth 2: transforming"),
        (Case(scales=(3e6,)), "48 times its accumulators may pass int32"),
        (Case("dense", (1, 1, 1, 9)), "not a conv layer"),
    ],
)
def test_what_is_declined(case: Case, why: str) -> None:
    program = program_of(case)
    answer = claim_winograd(program, program.instructions[0], M4)
    assert isinstance(answer, str) and why in answer


COSTS = (
    # image, channels, instructions per MAC of the fastest variant
    ((1, 32, 32, 16), 16, 0.46),
    ((1, 16, 16, 32), 32, 0.36),
    ((1, 8, 8, 64), 64, 0.32),
)


@pytest.mark.parametrize(("image", "channels", "ceiling"), COSTS, ids=str)
def test_cost(image: tuple, channels: int, ceiling: float) -> None:
    """What it takes, and that this is what selection was told."""
    program = program_of(Case("conv", image, channels, padding=SAME))
    inputs = inputs_of(program)
    counts = []
    for implementation in claim(program):
        outcome = emulator.run(program, implementation, M4, inputs)
        cost = implementation.cost
        assert cost and abs(cost.instructions / outcome.instructions - 1) < 0.05
        assert abs((cost.code_nbytes + sum(nbytes for _, nbytes in cost.shared)) / outcome.code_nbytes - 1) < 0.1
        assert outcome.stack_nbytes <= 520
        counts.append(outcome.instructions)
    assert min(counts) <= ceiling * program.instructions[0].geometry.macs
