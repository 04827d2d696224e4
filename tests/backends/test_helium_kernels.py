"""The Helium kernels on an emulated board against the numpy meaning of their instructions, every byte; and what they cost.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long. Cases are those of the DSP kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from aot.backends.cmsis_nn import helium
from aot.graph.expr import Load, Lookup, Requantise, add, affine, axis, cast, clamp, integer, mul, real, sub
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Geometry
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.target import load_target
from tests.backends.board import BACKGROUND, count, run_all, run_in_place
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, FILTERS, FUSABLE, KERNELS, NUMBERS, WINDOWS, numbers, residual, windowed
from tests.graph.lowered import sweep

M55 = load_target("cortex-m55")


def check(programs: Sequence[Program], splits: bool = False, seeds: Sequence[int] = ()) -> list[Implementation]:
    """Run them all and compare what their instructions write; every one is computed by a Helium kernel."""
    inputs = [inputs_of(program, seed) for program, seed in zip(programs, seeds or range(len(programs)), strict=True)]
    found = run_all(programs, M55, inputs, splits)
    for program, given, (implementation, out) in zip(programs, inputs, found, strict=True):
        assert helium_of(program) is not None, implementation.kernel
        different = np.argwhere(out != expected(program, given, BACKGROUND))
        geometry = geometry_of(program)
        assert not different.size, f"{geometry}: {len(different)} differ, the first at {different[0]}; {implementation.notes}"
    return [implementation for implementation, _ in found]


def geometry_of(program: Program) -> Geometry:
    (contract,) = program.instructions
    assert isinstance(contract, Contract) and contract.geometry is not None
    return contract.geometry


def helium_of(program: Program) -> Implementation | None:
    answers = [kernel.claim(program, program.instructions[0], M55) for kernel in helium.KERNELS]
    return next((answer for answer in answers if isinstance(answer, Implementation)), None)


@pytest.mark.parametrize("part", range(2))
def test_convolutions(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": (*CHANNELS, 64), "channels": CHANNELS}
    cases = [
        windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        for number, choice in enumerate(sweep(20, part, **choices))
    ]
    check([program_of(case) for case in cases], splits=part == 1)


@pytest.mark.parametrize("part", range(2))
def test_depthwise(part: int) -> None:
    more = {"depth": (*CHANNELS, 32, 64), "multiplier": (1, 1, 1, 2, 3), "weight": (127, 127, 50, 20)}
    choices = {**NUMBERS, **WINDOWS, "kernel": FILTERS, **more}
    cases = [
        windowed(number, choice, kind="depthwise", multiplier=choice["multiplier"], weight=choice["weight"], **fields)
        for number, choice in enumerate(sweep(20, part, **choices))
        for fields in (numbers(choice, choice["depth"] * choice["multiplier"]),)
    ]
    check([program_of(case) for case in cases], splits=part == 1)


def test_dense() -> None:
    choices = {**NUMBERS, "rows": (1, 1, 2, 3, 5, 8), "depth": (*CHANNELS, 64, 100, 640), "channels": CHANNELS}
    cases = [
        Case(
            "dense", (choice["rows"], 1, 1, choice["depth"]), choice["channels"], seed=number, **numbers(choice, choice["channels"])
        )
        for number, choice in enumerate(sweep(20, 9, **choices))
    ]
    check([program_of(case) for case in cases])


LOOPED = (
    Case("conv", (1, 3, 4, 128), 6, (3, 3), padding=(1, 1, 1, 1)),
    Case("conv", (1, 3, 3, 100), 5, (3, 3), padding=(1, 1, 1, 1)),
    Case("conv", (1, 4, 9, 16), 5, (1, 9), padding=(0, 0, 4, 4)),
    Case("conv", (1, 2, 3, 300), 5, (2, 2), dilation=(1, 2), padding=(0, 1, 1, 1)),
    Case("conv", (1, 9, 2, 3), 70, (9, 1), padding=(4, 4, 0, 0)),
    Case("conv", (2, 3, 3, 400), 130, (1, 1)),
    Case("conv", (1, 11, 11, 1), 3, (11, 11), padding=(5, 5, 5, 5)),
)


def test_long_windows() -> None:
    check([program_of(case) for case in LOOPED])


def test_many_taps() -> None:
    cases = [
        Case("depthwise", (1, 5, 4, channels), kernel=kernel, padding=(5, 5, 5, 5), zero_point=-7)
        for kernel in ((11, 11), (5, 8), (1, 11))
        for channels in (33, 4)
    ]
    check([program_of(case) for case in cases])
    most = program_of(Case("depthwise", (1, 12, 12, 16), kernel=(12, 12)))
    answers = [kernel.claim(most, most.instructions[0], M55) for kernel in helium.KERNELS]
    assert "a 12x12 kernel: more than 128 taps" in answers


def test_endings() -> None:
    """Every form of requantisation: uniform and own shifts, both roundings with shifts left and right."""
    wide = tuple(2.0 ** -(4 + number) * 1.37 for number in range(12))
    scales = [(), wide, (3e6,), (2.0**29,), (0.9,), (3e6,) * 3 + (2.0**-6,) * 9, (2.0**-9, 2.0**-7, 3e6, 2.0**-5) * 3]
    bounds = [(-128, -128), (-128, -100), (11, -128)]
    cases = [
        Case(kind, (3, 1, 1, 12) if kind == "dense" else (1, 5, 4, 12), 12, scales=some, out_zero_point=zero_point, low=low)
        for number, some in enumerate(scales)
        for turn, kind in enumerate(("conv", "depthwise", "dense"))
        for zero_point, low in (bounds[(number + turn) % 3],)
    ]
    found = check([program_of(case) for case in cases])
    notes = {one.notes[0].split(" #")[0] for one in found}
    assert len(notes) == 3, notes


def test_sums_in_sixteen_bits() -> None:
    """Weights of every size: as few, and as many, taps in 16 bits as can be; all of them extreme, with extreme inputs."""
    programs = [
        program_of(Case("depthwise", (1, 4, 5, 24), kernel=kernel, padding=(1, 1, 1, 1), weight=weight, seed=3))
        for weight in (127, 63, 31, 8)
        for kernel in ((3, 3), (4, 5))
    ]
    for number, program in enumerate(programs):
        weights = program["w"].data
        assert weights is not None
        weights.flags.writeable = True
        most = (127, 63, 31, 8)[number // 2]
        weights[...] = np.where(weights < 0, -most - 1, most)
    assert any("1+1+1" in one.notes[1] for one in check(programs, seeds=[3] * len(programs)))


def test_weights_of_minus_128_and_extreme_inputs() -> None:
    programs = [program_of(Case(kind, image, 6, seed=3)) for kind, image in (("conv", (1, 4, 4, 6)), ("dense", (2, 1, 1, 40)))]
    check(programs, seeds=(3, 6))
    for program in programs:
        weights = program["w"].data
        assert weights is not None
        weights.flags.writeable = True
        weights[...] = np.where(weights < 0, -128, 127)
    check(programs, seeds=(6, 3))


# What is fused behind, and where results go.


def test_fused_operand() -> None:
    check([program_of(case, residual, extra=[Buffer("r", INT8, program_of(case)["y"].shape, "input")]) for case in FUSABLE])


@pytest.mark.parametrize("case", FUSABLE[::2], ids=str)
def test_fused_operand_in_place(case: Case) -> None:
    program = program_of(case, residual, extra=[Buffer("r", INT8, program_of(case)["y"].shape, "input")])
    inputs = inputs_of(program)
    assert np.array_equal(run_in_place(program, M55, inputs, "r"), expected(program, inputs))


def test_fused_table_and_float() -> None:
    table = np.random.default_rng(5).integers(-128, 128, 256).astype(np.int8)

    def lookup(result, index):
        return Lookup("table", add(cast(result, DType.INT32), integer(128)), INT8)

    def rescaled(result, index):
        other = cast(Load("r", index, INT8), DType.INT32)
        product = mul(sub(cast(result, DType.INT32), integer(3)), sub(other, integer(-5)))
        scaled = [Requantise(product, integer(1518500250), integer(shift)) for shift in (-6, -9, 2)]
        return cast(clamp(add(add(scaled[0], scaled[1]), scaled[2]), -128, 127), INT8)

    extra = [[Buffer("r", INT8, program_of(case)["y"].shape, "input")] for case in FUSABLE]
    check([program_of(case, rescaled, extra=some) for case, some in zip(FUSABLE, extra, strict=True)])

    def dequantise(result, index):
        return mul(cast(sub(cast(result, DType.INT32), integer(7)), DType.FLOAT32), real(0.125))

    check([program_of(case, lookup, extra=[Buffer("table", INT8, (256,), "constant", data=table)]) for case in FUSABLE])
    check([program_of(case, dequantise) for case in FUSABLE])


def test_parts_of_larger_outputs() -> None:
    case, channels = Case("conv", (2, 5, 6, 8), 8, padding=(1, 1, 1, 1)), Case("depthwise", (2, 5, 6, 8), padding=(1, 1, 1, 1))
    places = [
        ((2, 5, 6, 20), (0, 0, 0, 7)),
        ((2, 9, 6, 8), (0, 3, 0, 0)),
        ((2, 5, 11, 8), (0, 0, 4, 0)),
        ((3, 8, 9, 15), (1, 2, 3, 4)),
    ]
    programs = []
    for shape, offsets in places:
        store = tuple(axis(number, 1, offset) for number, offset in enumerate(offsets))
        programs.append(program_of(case, store=store, out_shape=shape))
        programs.append(program_of(replace(case, kernel=(1, 1), padding=(0, 0, 0, 0)), store=store, out_shape=shape))
        for one in (case, channels):
            programs.append(program_of(one, residual, store, shape, [Buffer("r", INT8, (2, 5, 6, 8), "input")]))
        programs.append(program_of(channels, store=(*store[:3], affine({3: 1, 4: 1}, offsets[3])), out_shape=shape))
    dense = Case("dense", (3, 1, 1, 20), 9)
    programs.append(program_of(dense, store=(axis(0), axis(1, 1, 4)), out_shape=(3, 17)))
    check(programs)


SAME = (1, 1, 1, 1)
LAYERS = [
    # layer, instructions per MAC
    (Case("conv", (1, 25, 5, 64), 64, (1, 1)), 0.16),
    (Case("conv", (1, 24, 24, 8), 16, (1, 1)), 0.64),
    (Case("conv", (1, 24, 24, 7), 15, (1, 1)), 0.80),
    (Case("conv", (1, 3, 3, 256), 256, (1, 1)), 0.14),
    (Case("conv", (1, 32, 32, 3), 16, padding=SAME), 0.30),
    (Case("conv", (1, 16, 16, 16), 16, padding=SAME), 0.16),
    (Case("conv", (1, 49, 10, 1), 64, (10, 4), (2, 2), padding=(4, 5, 1, 1)), 0.28),
    (Case("dense", (1, 1, 1, 640), 128), 0.17),
    (Case("depthwise", (1, 25, 5, 64), padding=SAME), 1.05),
    (Case("depthwise", (1, 24, 24, 8), padding=SAME), 1.0),
    (Case("depthwise", (1, 24, 24, 7), padding=SAME), 1.2),
    (Case("depthwise", (1, 24, 24, 33), stride=(2, 2), padding=(0, 1, 0, 1)), 1.6),
]


@pytest.mark.parametrize(("case", "ceiling"), LAYERS, ids=[f"{case.kind} {case.image}" for case, _ in LAYERS])
def test_cost(case: Case, ceiling: float) -> None:
    """The estimate is not far from what is counted."""
    program = program_of(case)
    counted = count(program, M55, inputs_of(program))
    answer = helium_of(program)
    assert answer is not None
    assert answer.cost is not None
    per_mac = counted / geometry_of(program).macs
    print(f"{per_mac:6.3f} instructions/MAC, {answer.cost.instructions / counted:.3f} expected")
    assert per_mac <= ceiling
    assert 0.9 < answer.cost.instructions / counted < 1.1


@pytest.mark.parametrize("name", ["cortex-m4", "cortex-m33"])
def test_other_cores_are_declined(name: str) -> None:
    for case in (Case(), Case("dense", (1, 1, 1, 8), 8)):
        program = program_of(case)
        answers = [kernel.claim(program, program.instructions[0], load_target(name)) for kernel in helium.KERNELS]
        assert f"{name} has no Helium (MVE)" in answers


SHAPES = {
    "conv 1x1, 64 out": lambda size: Case("conv", (1, 8, 8, size), 64, (1, 1)),
    "conv 1x1, 64 in": lambda size: Case("conv", (1, 8, 8, 64), size, (1, 1)),
    "conv 3x3, 32 out": lambda size: Case("conv", (1, 8, 8, size), 32, padding=SAME),
    "conv 3x3, 32 in": lambda size: Case("conv", (1, 8, 8, 32), size, padding=SAME),
    "conv 3x3, image": lambda size: Case("conv", (1, size, size, 16), 16, padding=SAME),
    "depthwise": lambda size: Case("depthwise", (1, 8, 8, size), padding=SAME) if size > 1 else None,
    "depthwise, stride 2": lambda size: (
        Case("depthwise", (1, 8, 8, size), stride=(2, 2), padding=(0, 1, 0, 1)) if size > 1 else None
    ),
    "depthwise, image": lambda size: Case("depthwise", (1, size, size, 16), padding=SAME),
    "dense, 64 out": lambda size: Case("dense", (1, 1, 1, size), 64),
    "dense, 64 in": lambda size: Case("dense", (1, 1, 1, 64), size),
    "dense, rows": lambda size: Case("dense", (size, 1, 1, 64), 16),
}


@pytest.mark.parametrize("name", SHAPES)
def test_odd_sizes_cost_little_more(name: str) -> None:
    """Instructions per MAC, as estimated, at most 1.5 times those of the next even size (an image of a single pixel: 1.6)."""

    def cost(case: Case) -> float:
        program = program_of(case)
        answer = helium_of(program)
        assert answer is not None and answer.cost is not None
        return answer.cost.instructions / geometry_of(program).macs

    for size in (1, 3, 5, 7, 9, 13, 15, 17, 31, 33):
        case, even = SHAPES[name](size), SHAPES[name](size + 1)
        if case is None or (size == 1 and "image" not in name):
            continue
        print(f"{name}, {size}: {cost(case):.2f} instructions/MAC, {cost(even):.2f} at {size + 1}")
        assert cost(case) <= (1.6 if size == 1 else 1.5) * cost(even), size
