"""Convolutions and dense layers by SDOT, by SMMLA and without either, in a process under QEMU, against the numpy meaning of their
instructions, every byte; and what they cost.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long. Cases are those of the DSP kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from aot.backends import neon
from aot.graph.expr import Binary, Load, Lookup, Requantise, add, axis, cast, clamp, integer, mul, real, sub
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Geometry
from aot.lower.implementation import Implementation, kind_of
from aot.lower.program import Buffer, Program
from aot.target import Target, load_target
from tests.backends.board import BACKGROUND, code_nbytes, count, run_all, run_in_place
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, KERNELS, NUMBERS, WINDOWS, numbers, residual, windowed
from tests.backends.test_endings import sums_of
from tests.graph.lowered import sweep

A76, A510, A53, A9 = (load_target(name) for name in ("cortex-a76", "cortex-a510", "cortex-a53", "cortex-a9"))
CORES = pytest.mark.parametrize("target", [A76, A510, A53, A9], ids=["SDOT", "SMMLA", "SADALP", "VPADAL"])
SAME = (1, 1, 1, 1)


def check(
    programs: Sequence[Program], splits: bool = False, seeds: Sequence[int] = (), target: Target = A76
) -> list[Implementation]:
    """Run them all and compare what their instructions write; every one is computed by a kernel of this file."""
    inputs = [inputs_of(program, seed) for program, seed in zip(programs, seeds or range(len(programs)), strict=True)]
    found = run_all(programs, target, inputs, splits)
    for program, given, (implementation, out) in zip(programs, inputs, found, strict=True):
        assert dot_of(program, target) is not None, implementation.kernel
        different = np.argwhere(out != expected(program, given, BACKGROUND))
        geometry = geometry_of(program)
        assert not different.size, f"{geometry}: {len(different)} differ, the first at {different[0]}; {implementation.notes}"
    return [implementation for implementation, _ in found]


def geometry_of(program: Program) -> Geometry:
    (contract,) = program.instructions
    assert isinstance(contract, Contract) and contract.geometry is not None
    return contract.geometry


def dot_of(program: Program, target: Target = A76) -> Implementation | None:
    (instruction,) = program.instructions
    kernels = [one for one in neon.KERNELS if one.name in ("convolution", "dense") and kind_of(instruction) in one.kinds]
    answers = [kernel.claim(program, instruction, target) for kernel in kernels]
    return next((answer for answer in answers if isinstance(answer, Implementation)), None)


@pytest.mark.parametrize("part", range(4))
def test_convolutions(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": (*CHANNELS, 64), "channels": CHANNELS}
    cases = [
        windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        for number, choice in enumerate(sweep(12, part, **choices))
    ]
    check([program_of(case) for case in cases], splits=part % 3 == 1, target=(A76, A510, A53, A9)[part])


@CORES
def test_dense(target: Target) -> None:
    choices = {**NUMBERS, "rows": (1, 1, 2, 3, 5, 8), "depth": (*CHANNELS, 64, 100, 640), "channels": CHANNELS}
    cases = [
        Case(
            "dense", (choice["rows"], 1, 1, choice["depth"]), choice["channels"], seed=number, **numbers(choice, choice["channels"])
        )
        for number, choice in enumerate(sweep(20, 9, **choices))
    ]
    check([program_of(case) for case in cases], target=target)


LAYERS_FUSED = (
    Case("conv", (1, 6, 7, 8), 24, padding=SAME),
    Case("conv", (2, 4, 5, 16), 13, (1, 1)),
    Case("dense", (3, 1, 1, 20), 9),
    Case("dense", (1, 1, 1, 64), 40),
)
LOOPED = (
    Case("conv", (1, 3, 6, 128), 16, (3, 3), padding=SAME),
    Case("conv", (1, 3, 5, 100), 17, (3, 3), padding=SAME),
    Case("conv", (1, 2, 9, 300), 20, (2, 2), dilation=(1, 2), padding=(0, 1, 1, 1)),
    Case("conv", (2, 3, 3, 667), 33, (1, 1)),
    Case("dense", (3, 1, 1, 3001), 13),
    Case("dense", (1, 1, 1, 3000), 16),
)


@CORES
def test_long_windows_are_looped_over(target: Target) -> None:
    check([program_of(case) for case in LOOPED], target=target)


PANELS = (
    Case("conv", (1, 3, 21, 24), 30, padding=SAME),
    Case("conv", (2, 9, 7, 48), 33, (1, 1)),
    Case("dense", (40, 1, 1, 100), 60),
)


@CORES
def test_weights_beyond_the_cache_come_in_panels(target: Target) -> None:
    small = replace(target, l1d_nbytes=4096)
    programs = [program_of(case) for case in PANELS]
    check(programs, splits=True, target=small)
    for program in programs:
        in_panels, whole = (count(program, one, inputs_of(program)) for one in (small, target))
        assert in_panels != whole and in_panels < 1.1 * whole


@CORES
def test_sums(target: Target) -> None:
    """Layers whose output is their sums, in int32."""
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": (*CHANNELS, 64), "channels": CHANNELS}
    cases = [
        windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        for number, choice in enumerate(sweep(8, 5, **choices))
    ]
    cases += [Case("dense", (rows, 1, 1, 100), channels) for rows, channels in ((1, 17), (3, 16), (4, 7))]
    check([sums_of(case) for case in cases], splits=True, target=target)


def test_weights_of_minus_128_and_extreme_inputs() -> None:
    cases = [Case(kind, image, 6, saturated=True, seed=3) for kind, image in (("conv", (1, 4, 4, 6)), ("dense", (2, 1, 1, 40)))]
    for target in (A76, A510, A53, A9):
        check([program_of(case) for case in cases], seeds=(3, 6), target=target)


def test_endings() -> None:
    """Every form of requantisation."""
    wide = tuple(2.0 ** -(4 + number) * 1.37 for number in range(12))
    scales = [(), wide, (3e6,), (2.0**29,), (0.9,), (3e6,) * 3 + (2.0**-6,) * 9, (2.0**-9,) * 12]
    cases = [
        Case(kind, (3, 1, 1, 12) if kind == "dense" else (1, 5, 4, 12), 12, scales=some, out_zero_point=zero_point, low=low)
        for some in scales
        for kind, (zero_point, low) in (("conv", (-128, -128)), ("dense", (-128, -100)), ("conv", (11, -128)))
    ]
    notes = {one.notes[0].split(",")[0] for one in check([program_of(case) for case in cases])}
    assert notes == {"requantised by SQRDMULH", "requantised by SQRDMULH and SRSHL"}


# What is fused behind, and where results go.


def test_fused_operand() -> None:
    check([program_of(case, residual, extra=[Buffer("r", INT8, program_of(case)["y"].shape, "input")]) for case in LAYERS_FUSED])


@pytest.mark.parametrize("case", LAYERS_FUSED[:2], ids=str)
def test_fused_operand_in_place(case: Case) -> None:
    program = program_of(case, residual, extra=[Buffer("r", INT8, program_of(case)["y"].shape, "input")])
    inputs = inputs_of(program)
    assert np.array_equal(run_in_place(program, A76, inputs, "r"), expected(program, inputs))


def test_fused_arithmetic_table_and_float() -> None:
    """Scaled products and sums, sixteen at a time; what has a table, results in float and a number for each channel one by one."""
    table = np.random.default_rng(5).integers(-128, 128, 256).astype(np.int8)
    numbers = np.random.default_rng(6).integers(-128, 128, 40).astype(np.int8)

    def lookup(result, index):
        return Lookup("table", add(cast(result, DType.INT32), integer(128)), INT8)

    def rescaled(result, index):
        other = cast(Load("r", index, INT8), DType.INT32)
        product = mul(sub(cast(result, DType.INT32), integer(3)), sub(other, integer(-5)))
        scaled = [Requantise(product, integer(1518500250), integer(shift)) for shift in (-6, -9, 2)]
        return cast(clamp(add(add(scaled[0], scaled[1]), scaled[2]), -100, 127), INT8)

    def dequantise(result, index):
        return mul(cast(sub(cast(result, DType.INT32), integer(7)), DType.FLOAT32), real(0.125))

    def by_channel(result, index):
        total = add(cast(result, DType.INT32), cast(Load("v", index[-1:], INT8), DType.INT32))
        return cast(clamp(total, -128, 127), INT8)

    def summed(result, index):
        products = [
            mul(cast(result, DType.INT32), integer(8578262)),
            mul(cast(Load("r", index, INT8), DType.INT32), integer(3243230)),
        ]
        total = add(products[0], add(products[1], integer(-153953293)))
        return cast(clamp(Binary("shr", total, integer(22)), -128, 100), INT8)

    extra = [[Buffer("r", INT8, program_of(case)["y"].shape, "input")] for case in LAYERS_FUSED]
    check([program_of(case, summed, extra=some) for case, some in zip(LAYERS_FUSED, extra, strict=True)])
    check([program_of(case, rescaled, extra=some) for case, some in zip(LAYERS_FUSED, extra, strict=True)])
    check([program_of(case, lookup, extra=[Buffer("table", INT8, (256,), "constant", data=table)]) for case in LAYERS_FUSED])
    check([program_of(case, dequantise) for case in LAYERS_FUSED])
    channels = [program_of(case)["y"].shape[-1] for case in LAYERS_FUSED]
    vectors = [[Buffer("v", INT8, (count,), "constant", data=numbers[:count])] for count in channels]
    check([program_of(case, by_channel, extra=some) for case, some in zip(LAYERS_FUSED, vectors, strict=True)])


def test_parts_of_larger_outputs() -> None:
    case = Case("conv", (2, 5, 6, 8), 8, padding=SAME)
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
        programs.append(program_of(case, residual, store, shape, [Buffer("r", INT8, (2, 5, 6, 8), "input")]))
    programs.append(program_of(Case("dense", (3, 1, 1, 20), 9), store=(axis(0), axis(1, 1, 4)), out_shape=(3, 17)))
    check(programs)


LAYERS = [
    # layer, instructions per MAC
    (Case("conv", (1, 25, 5, 64), 64, (1, 1)), 0.09),
    (Case("conv", (1, 48, 48, 8), 16, (1, 1)), 0.24),
    (Case("conv", (1, 3, 3, 256), 256, (1, 1)), 0.08),
    (Case("conv", (1, 32, 32, 3), 16, padding=SAME), 0.16),
    (Case("conv", (1, 32, 32, 16), 16, padding=SAME), 0.083),
    (Case("conv", (1, 8, 8, 64), 64, padding=SAME), 0.074),
    (Case("conv", (1, 49, 10, 1), 64, (10, 4), (2, 2), padding=(4, 5, 1, 1)), 0.12),
    (Case("dense", (1, 1, 1, 640), 128), 0.085),
]


@pytest.mark.parametrize(("case", "ceiling"), [(LAYERS[0][0], 0.071), (LAYERS[4][0], 0.063), (LAYERS[5][0], 0.05)], ids=str)
def test_matrix_products_cost(case: Case, ceiling: float) -> None:
    program = program_of(case)
    counted, answer = count(program, A510, inputs_of(program)), dot_of(program, A510)
    assert answer is not None and answer.cost is not None
    assert "by SMMLA" in answer.notes[1]
    print(f"{counted / geometry_of(program).macs:6.3f} instructions/MAC, {answer.cost.instructions / counted:.3f} expected")
    assert counted / geometry_of(program).macs <= ceiling
    assert 0.85 < answer.cost.instructions / counted < 1.15


@pytest.mark.parametrize(("case", "ceiling"), LAYERS, ids=[f"{case.kind} {case.image}" for case, _ in LAYERS])
def test_cost(case: Case, ceiling: float) -> None:
    """The estimate is not far from what is counted."""
    program = program_of(case)
    counted = count(program, A76, inputs_of(program))
    answer = dot_of(program)
    assert answer is not None and answer.cost is not None
    per_mac = counted / geometry_of(program).macs
    print(f"{per_mac:6.3f} instructions/MAC, {answer.cost.instructions / counted:.3f} expected")
    assert per_mac <= ceiling
    assert 0.85 < answer.cost.instructions / counted < 1.15
    written = code_nbytes(program, A76)
    assert 0.85 < answer.cost.code_nbytes / written < 1.15
