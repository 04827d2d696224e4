"""Depthwise convolutions on Cortex-A, in a process under QEMU, against the numpy meaning of their instructions, every byte; and what they
cost.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long. Cases are those of the DSP kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from llvmlite import ir

from aot.backends.neon.depthwise import claim_depthwise
from aot.llvm.emission import KernelFunction
from aot.llvm.llvm import Compiler
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.target import load_target
from tests.backends.board import BACKGROUND, count, run_all, run_in_place
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, FILTERS, NUMBERS, WINDOWS, numbers, residual, windowed
from tests.graph.lowered import sweep

CORES = ("cortex-a76", "cortex-a53", "cortex-a9")
SAME = (1, 1, 1, 1)


def check(programs: Sequence[Program], core: str, splits: bool = False, seeds: Sequence[int] = ()) -> list[Implementation]:
    """Run them all and compare what their instructions write; every one is computed by the kernel."""
    inputs = [inputs_of(program, seed) for program, seed in zip(programs, seeds or range(len(programs)), strict=True)]
    found = run_all(programs, load_target(core), inputs, splits)
    for program, given, (implementation, out) in zip(programs, inputs, found, strict=True):
        assert implementation.kernel.startswith("depthwise"), implementation.kernel
        different = np.argwhere(out != expected(program, given, BACKGROUND))
        (instruction,) = program.instructions
        assert not different.size, f"{instruction}: {len(different)} differ, the first at {different[0]}; {implementation.notes}"
    return [implementation for implementation, _ in found]


@pytest.mark.parametrize("core", CORES)
def test_odd_layers(core: str) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": FILTERS, "depth": (*CHANNELS, 32, 64), "weight": (127, 127, 50, 20)}
    cases = [
        windowed(number, choice, kind="depthwise", weight=choice["weight"], **numbers(choice, choice["depth"]))
        for number, choice in enumerate(sweep(30, CORES.index(core), **choices))
    ]
    check([program_of(case) for case in cases if case.image[3] > 1], core, splits=core != "cortex-a53")


@pytest.mark.parametrize("core", CORES)
def test_lines_with_and_without_a_loop(core: str) -> None:
    cases = [
        Case("depthwise", (1, 5, width, channels), kernel=kernel, stride=stride, padding=SAME, seed=width)
        for width, channels in ((7, 9), (16, 8), (11, 20))
        for kernel, stride in (((3, 3), (1, 1)), ((3, 3), (2, 2)), ((5, 3), (1, 1)), ((2, 5), (1, 2)))
    ]
    check([program_of(case) for case in cases], core, splits=True)


@pytest.mark.parametrize("core", CORES)
def test_extremes(core: str) -> None:
    """All weights and inputs at their ends: sums in 16 bits go as far as can be."""
    programs = [
        program_of(Case("depthwise", (1, 4, 9, 24), kernel=kernel, padding=SAME, seed=3))
        for kernel in ((3, 3), (4, 5))
        for _ in range(4)
    ]
    for number, program in enumerate(programs):
        weights = program["w"].data
        assert weights is not None
        weights.flags.writeable = True
        most = (128, 127, 63, 31)[number % 4]
        weights[...] = np.where(weights < 0, -most, min(most, 127))
    check(programs, core, seeds=[3, 6] * 4)


@pytest.mark.parametrize("core", CORES)
def test_large_kernels_leave_the_stack_alone(core: str) -> None:
    target = load_target(core)
    for size in (4, 5, 6, 7, 9):
        program = program_of(Case("depthwise", (1, 10, 10, 24), kernel=(size, size), padding=(size // 2,) * 4, seed=size))
        found = claim_depthwise(program, program.instructions[0], target)
        assert isinstance(found, Implementation)
        module = ir.Module("test")
        function = KernelFunction(module, "kernel", found, program, target)
        found.emit(function)
        function.finish()
        compiler = Compiler(target)
        assert max(compiler.emit(compiler.parse(str(module)), ordered=True).frames.values(), default=0) <= 896
        check([program], core)


def test_sums_in_16_bits_are_as_long_as_weights_allow() -> None:
    """A unit of eight channels with small weights has more taps in a sum than its neighbour with large ones."""
    program = program_of(Case("depthwise", (1, 6, 6, 16), padding=SAME))
    weights = program["w"].data
    assert weights is not None
    weights.flags.writeable = True
    weights[..., :8] //= 8
    check([program], "cortex-a53")
    found = claim_depthwise(program, program.instructions[0], load_target("cortex-a53"))
    assert isinstance(found, Implementation)
    assert "products of 9 taps" in found.notes[1], found.notes


@pytest.mark.parametrize("core", CORES)
def test_several_filters_for_a_channel(core: str) -> None:
    cases = [
        Case("depthwise", (1, 5, 7, depth), multiplier=multiplier, kernel=kernel, padding=SAME, seed=depth)
        for depth, multiplier in ((2, 4), (5, 3), (17, 2), (40, 2), (3, 7))
        for kernel in ((3, 3), (2, 5))
    ]
    check([program_of(case) for case in cases], core, splits=True)


@pytest.mark.parametrize("core", CORES)
def test_what_is_fused_behind(core: str) -> None:
    """Sums with another tensor, which may lie where the output goes."""
    cases = [
        Case("depthwise", image, padding=SAME, multiplier=multiplier, out_zero_point=-7, seed=number)
        for number, (image, multiplier) in enumerate((((1, 5, 7, 8), 1), ((2, 4, 5, 20), 1), ((1, 6, 3, 6), 3)))
    ]
    programs = [program_of(case, residual, extra=[Buffer("r", INT8, program_of(case)["y"].shape, "input")]) for case in cases]
    check(programs, core, splits=True)
    given = inputs_of(programs[0], 3)
    assert np.array_equal(run_in_place(programs[0], load_target(core), given, "r"), expected(programs[0], given))


def test_what_is_declined() -> None:
    one = program_of(Case("depthwise", (1, 5, 5, 8)))
    assert "no Advanced SIMD" in str(claim_depthwise(one, one.instructions[0], load_target("cortex-m4")))


@pytest.mark.parametrize(("core", "most"), [("cortex-a76", 0.29), ("cortex-a53", 0.45), ("cortex-a9", 0.65)])
def test_instructions(core: str, most: float) -> None:
    """For each multiply-accumulate of a 3x3 layer, with requantisation."""
    program = program_of(Case("depthwise", (1, 24, 24, 32), padding=SAME))
    counted = count(program, load_target(core), inputs_of(program))
    found = claim_depthwise(program, program.instructions[0], load_target(core))
    assert isinstance(found, Implementation) and found.cost is not None
    assert counted / (24 * 24 * 32 * 9) <= most
    assert abs(found.cost.instructions - counted) < 0.15 * counted
