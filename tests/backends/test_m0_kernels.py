"""The kernels for Cortex-M0 on an emulated one against the numpy meaning of their instructions, every byte, with guards around every
buffer; and what they cost.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long. Cases are those of the DSP kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.backends.cmsis_nn import thumb1
from aot.backends.cmsis_nn.swar import lanes
from aot.backends.cmsis_nn.thumb1.depthwise import cut_classes
from aot.backends.cmsis_nn.thumb1.packing import pack
from aot.backends.layers.operands import Layer, read_layer
from aot.graph.expr import axis
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.target import load_target
from tests.backends import emulator
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import (
    CHANNELS,
    FUSABLE,
    KERNELS,
    NUMBERS,
    UNALIGNED,
    WINDOWS,
    claim,
    numbers,
    replace_role,
    residual,
    windowed,
)
from tests.backends.test_dsp_kernels import check as dsp_check
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

M0 = load_target("cortex-m0")


def check(program: Program, seed: int = 1, **options) -> None:
    """All variants, each by itself."""
    for implementation in variants(program):
        dsp_check(program, seed, target=M0, implementation=implementation, **options)


def variants(program: Program) -> tuple[Implementation, ...]:
    answers = [kernel.claim(program, program.instructions[0], M0) for kernel in thumb1.KERNELS]
    (found,) = [answer for answer in answers if not isinstance(answer, str)]
    return found if isinstance(found, tuple) else (found,)


def layer_of(case: Case) -> Layer:
    program = program_of(case)
    layer = read_layer(program, program.instructions[0], M0, case.kind)
    assert isinstance(layer, Layer)
    return layer


@pytest.mark.parametrize("part", range(2))
def test_convolutions(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": CHANNELS, "channels": (*CHANNELS, 11)}
    for number, choice in enumerate(sweep(8, part, weight=(127, 60, 10), **choices)):
        fields = numbers(choice, choice["channels"])
        case = windowed(number, choice, channels=choice["channels"], weight=choice["weight"], **fields)
        check(program_of(case), number, split=True)


FILTERS = ((3, 3), (3, 3), (3, 1), (3, 2), (1, 1), (2, 2), (5, 5), (7, 2), (1, 5), (10, 4))


@pytest.mark.parametrize("part", range(2))
def test_depthwise(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": FILTERS, "depth": CHANNELS, "multiplier": (1, 1, 1, 2, 3)}
    for number, choice in enumerate(sweep(8, part, weight=(127, 60, 10), **choices)):
        fields = numbers(choice, choice["depth"] * choice["multiplier"])
        case = windowed(number, choice, kind="depthwise", multiplier=choice["multiplier"], weight=choice["weight"], **fields)
        check(program_of(case), number, split=True)


def test_depthwise_far_apart() -> None:
    """Many channels, steps and kernels: offsets that no immediate holds, windows that see only padding, uneven columns."""
    for number, case in enumerate(
        (
            Case("depthwise", (1, 3, 7, 300), padding=(1, 1, 1, 1), weight=60),
            Case("depthwise", (1, 3, 23, 5), kernel=(2, 3), dilation=(1, 9), stride=(1, 5)),
            Case("depthwise", (1, 40, 3, 3), kernel=(31, 1), weight=20),
            Case("depthwise", (1, 2, 30, 3), kernel=(1, 25), padding=(0, 0, 12, 12), weight=40),
            Case("depthwise", (1, 2, 2, 3), kernel=(2, 2), padding=(3, 0, 4, 0), stride=(1, 1)),
            Case("depthwise", (1, 2, 2, 3), kernel=(1, 1), padding=(0, 0, 4, 0), stride=(1, 9)),
        )
    ):
        check(program_of(case), number)
        check(program_of(replace(case, scales=(0.3,))), number)


def test_classes_are_proven() -> None:
    rng = np.random.default_rng(3)
    for taps, largest in ((9, 60), (9, 127), (25, 80), (1, 127), (4, 127)):
        weights = rng.integers(-largest, largest + 1, (40, taps))
        weights[0] = 127
        classes = cut_classes(weights)
        assert sorted(n for _, channels in classes for n in channels) == list(range(40)) and len(classes) <= 3
        for sizes, channels in classes:
            ends = np.cumsum(sizes)
            groups = [tuple(range(end - size, end)) for size, end in zip(sizes, ends.tolist(), strict=True)]
            lanes.check(weights[channels], groups)


def test_dense() -> None:
    choices = {**NUMBERS, "rows": (1, 1, 2, 3, 5, 8), "depth": (*CHANNELS, 64, 100, 640), "channels": (*CHANNELS, 11)}
    for number, choice in enumerate(sweep(14, 9, weight=(127, 60, 10), **choices)):
        image = (choice["rows"], 1, 1, choice["depth"])
        fields = {**numbers(choice, choice["channels"]), "weight": choice["weight"]}
        check(program_of(Case("dense", image, choice["channels"], seed=number, **fields)), number)


@pytest.mark.parametrize("channels", [1, 2, 5, 7, 8, 11, 13])
def test_every_shape_of_blocks(channels: int) -> None:
    """In one chunk and in two, with int8 results and with sums."""
    for depth, scales in ((9, ()), (9, (0.3,)), (150, ()), (150, (0.3,))):
        check(program_of(Case("dense", (2, 1, 1, depth), channels, scales=scales, seed=channels)))


@pytest.mark.parametrize(("depth", "channels"), [(300, 20), (16, 64), (5, 7), (12, 18)])
def test_unpacked_for_all_pixels(depth: int, channels: int) -> None:
    """In one chunk and in three, groups that share channels with the last one and groups that do not, of one block and of more."""
    case = Case("conv", (2, 3, 4, depth), channels, (1, 1), weight=60, seed=depth)
    assert "unpacked" in variants(program_of(case))[-1].variant
    check(program_of(case), split=True)
    shape, store = (3, 8, 9, channels + 7), tuple(axis(number, 1, offset) for number, offset in enumerate((1, 2, 3, 4)))
    check(program_of(case, store=store, out_shape=shape), split=True, background=77)


def test_large_groups_and_fill() -> None:
    """Weights so small that all k's fit one group: chunks stay within reach of the stack pointer."""
    for weight in (0, 1):
        case = Case("dense", (1, 1, 1, 577), 5, weight=weight)
        for packed in pack(layer_of(case)):
            assert max(packed.product.sizes) <= 65 and packed.product.is_within_reach
        check(program_of(case))


@pytest.mark.parametrize("case", [Case(), Case("dense", (1, 1, 1, 640), 33), Case("conv", (1, 5, 5, 33), 7, (5, 5))], ids=str)
def test_packed_groups_are_proven(case: Case) -> None:
    layer = layer_of(case)
    weights = layer.weights.reshape(len(layer.bias), -1)
    for packed in pack(layer):
        groups, at = [], 0
        for _ in range(packed.product.chunks):
            for size in packed.product.sizes:
                groups.append(tuple(k for k in packed.order[at : at + size].tolist() if k >= 0))
                at += size
        assert at == len(packed.order)
        lanes.check(weights, groups)


def test_an_image_too_large_for_offsets() -> None:
    """Windows that reach further than 65535 bytes are copied, every one."""
    case = Case("conv", (1, 4, 1400, 16), 2, (4, 2), (1, 97), padding=(0, 0, 1, 1), dilation=(1, 3))
    check(program_of(case))


@pytest.mark.parametrize("case", UNALIGNED, ids=str)
def test_activations_at_odd_addresses(case: Case) -> None:
    check(program_of(case), align=1, split=True)
    shape = program_of(case)["y"].shape
    check(program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")]), align=1, split=True)


@pytest.mark.parametrize("scales", [(), (1.7,)])
@pytest.mark.parametrize("case", FUSABLE, ids=str)
def test_fused_operand(case: Case, scales: tuple[float, ...]) -> None:
    case = replace(case, scales=case.scales or scales)
    shape = program_of(case)["y"].shape
    program = program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")])
    check(program, split=True)
    in_place = replace_role(program, "r", "temporary")
    implementation = claim(in_place, M0)
    assert implementation.overwrites == ("r",)
    inputs = inputs_of(program)
    outcome = emulator.run(in_place, implementation, M0, inputs, in_place="r")
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
    # name, layer, instructions per MAC of each variant
    ("conv 1x1 64->64, 25x5", Case("conv", (1, 25, 5, 64), 64, (1, 1)), (1.95, 2.8, 2.5)),
    ("conv 1x1 8->16, 12x12", Case("conv", (1, 12, 12, 8), 16, (1, 1)), (4.3, 5.45, 5.4)),
    ("conv 1x1 7->15, 5x5", Case("conv", (1, 5, 5, 7), 15, (1, 1)), (4.8, 6.65, 6.4)),
    ("conv 1x1 256->256, 3x3", Case("conv", (1, 3, 3, 256), 256, (1, 1)), (2.0, 2.9)),
    ("conv 3x3 3->16, 16x16", Case("conv", (1, 16, 16, 3), 16, padding=SAME), (2.75, 3.95)),
    ("conv 3x3 16->16, 8x8", Case("conv", (1, 8, 8, 16), 16, padding=SAME), (2.0, 3.05)),
    ("depthwise 3x3 64, 25x5", Case("depthwise", (1, 25, 5, 64), padding=SAME), (5.3, 5.7)),
    ("depthwise 3x3 8, 24x24", Case("depthwise", (1, 24, 24, 8), padding=SAME), (5.0, 5.05)),
    ("depthwise 3x3 64, 3x3", Case("depthwise", (1, 3, 3, 64), padding=SAME), (7.0, 7.9)),
    ("depthwise 3x3 8 stride 2, 24x24", Case("depthwise", (1, 24, 24, 8), stride=(2, 2), padding=(0, 1, 0, 1)), (6.2, 6.4)),
    ("conv 10x4 1->64 stride 2", Case("conv", (1, 49, 10, 1), 64, (10, 4), (2, 2), padding=(4, 5, 1, 1)), (2.3, 3.15)),
    ("dense 640->128", Case("dense", (1, 1, 1, 640), 128), (1.8, 2.65)),
]


@pytest.mark.parametrize(("name", "case", "ceiling"), LAYERS, ids=[layer[0] for layer in LAYERS])
def test_cost(name: str, case: Case, ceiling: tuple[float, ...]) -> None:
    """Weights as they are in models: most are far from the largest. The estimate is not far from what is counted."""
    program = program_of(replace(case, weight=60))
    inputs, macs = inputs_of(program), program.instructions[0].geometry.macs
    for number, implementation in enumerate(variants(program)):
        outcome = emulator.run(program, implementation, M0, inputs)
        assert (outcome.out == expected(program, inputs)).all()
        cost = outcome.instructions / macs
        print(f"{name:32s} {implementation.variant:20s} {cost:6.3f} instructions/MAC, {implementation.constants_nbytes} bytes")
        assert cost <= ceiling[number]
        assert implementation.cost is not None
        assert 0.8 < implementation.cost.instructions / outcome.instructions < 1.2


@pytest.mark.parametrize("name", ["cortex-m3", "cortex-m4", "cortex-m55", "riscv32"])
def test_other_cores_are_declined(name: str) -> None:
    for case in (Case(), Case("depthwise"), Case("dense", (1, 1, 1, 8), 8)):
        program = program_of(case)
        answers = [kernel.claim(program, program.instructions[0], load_target(name)) for kernel in thumb1.KERNELS]
        assert all(isinstance(answer, str) and ("Armv6-M" in answer or answer.startswith("not a")) for answer in answers)
