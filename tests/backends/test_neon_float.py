"""The neon kernels of float32 under QEMU's user mode against the numpy meaning of their instructions; and what they cost.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long. Buffers lie at the ends and at the starts of pages: a byte read or written
outside ends the run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from aot.backends.neon import KERNELS
from aot.driver import compile
from aot.graph.primitive import Contract, describe
from aot.lower.implementation import Implementation
from aot.lower.program import Program
from aot.run import run_bundle
from aot.samples import random_inputs
from aot.target import load_target
from tests.backends.board import count, needs_board, run_all, run_in_place
from tests.backends.float_layers import (
    BOUND,
    RESTS,
    FloatCase,
    PoolCase,
    clamped,
    error,
    expected,
    inputs_of,
    map_of,
    parametric,
    pool_of,
    program_of,
    reduction_of,
    residual,
)
from tests.shared import model

MAPS = ("add", "activation", "clamp", "rows", "rescale", "channels", "select")
CORES = ("cortex-a53", "cortex-a9")
KERNEL_SIZES = ((1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (1, 3), (3, 1), (2, 2), (7, 7), (4, 10))
PADDINGS = ((0, 0, 0, 0), (0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (2, 1, 0, 2), (3, 3, 3, 3))


def check(programs: Sequence[Program], core: str, splits: bool = False) -> list[Implementation]:
    """Run them all and compare; each is computed by a kernel for float32."""
    inputs = [inputs_of(program, number) for number, program in enumerate(programs)]
    found = run_all(programs, load_target(core), inputs, splits)
    for program, given, (implementation, out) in zip(programs, inputs, found, strict=True):
        assert implementation.kernel.startswith("float"), implementation.kernel
        off = error(out, expected(program, given))
        assert off <= BOUND, f"{off:.2g}: {implementation.kernel}; {describe(program.instructions[0])}; {implementation.notes}"
    return [implementation for implementation, _ in found]


def drawn(seed: int, number: int) -> list[FloatCase]:
    """So many layers of all kinds and odd sizes that have a kernel."""
    rng, found = random.Random(seed), []
    while len(found) < number:
        kind = rng.choice(("conv", "conv", "depthwise", "depthwise", "dense"))
        case = FloatCase(
            kind,
            (
                rng.choice((1, 1, 1, 2, 3)),
                rng.choice((1, 2, 3, 5, 6, 8, 11)),
                rng.choice((1, 2, 3, 5, 6, 7, 11, 12, 16, 25)),
                rng.choice((1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 33, 64)),
            ),
            rng.choice((1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 16, 20, 24, 31, 32, 48, 50, 64)),
            rng.choice(KERNEL_SIZES),
            rng.choice(((1, 1), (1, 1), (2, 2), (2, 1), (3, 3))),
            rng.choice(((1, 1), (1, 1), (1, 1), (2, 2), (1, 3), (2, 1))),
            rng.choice(PADDINGS),
            rng.choice((1, 1, 1, 2, 4, 8)) if kind == "depthwise" else 1,
            rng.random() < 0.8,
            rng.choice(RESTS),
            len(found),
        )
        if kind == "dense":
            image = (rng.choice((1, 2, 3, 7, 13, 30)), 1, 1, rng.choice((1, 2, 3, 5, 16, 33, 64, 100, 256)))
            case = replace(case, image=image, kernel=(1, 1), stride=(1, 1), dilation=(1, 1), padding=PADDINGS[0])
        if is_possible(case):
            found.append(case)
    return found


def is_possible(case: FloatCase) -> bool:
    """Whether windows fit into the image, and a kernel takes so few channels."""
    for at in range(2):
        padded = case.image[1 + at] + case.padding[2 * at] + case.padding[2 * at + 1]
        if padded < (case.kernel[at] - 1) * case.dilation[at] + 1:
            return False
    channels = case.image[3] * case.multiplier
    if case.kind != "depthwise" or case.image[3] == 1:
        return True
    return channels >= 4 and not (case.multiplier == 2 and channels % 8)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("splits", [False, True])
def test_layers(core: str, splits: bool) -> None:
    for first in range(30 if os.environ.get("AOT_SWEEP") else 1):
        check([program_of(case) for case in drawn(2 * first + splits, 16)], core, splits)


LARGE = (
    FloatCase("dense", (150, 1, 1, 300), 40, (1, 1)),  # blocks of pixels in several turns
    FloatCase("conv", (1, 1, 200, 9), 37, (1, 1)),
    FloatCase("conv", (1, 4, 3, 1), 5, (2, 2), dilation=(2, 1)),
    FloatCase("conv", (1, 3, 7, 70), 9, (3, 3), padding=(1, 1, 1, 1), rest=residual),
    FloatCase("depthwise", (1, 9, 30, 21), kernel=(3, 3), padding=(1, 1, 1, 1), rest=residual),
    FloatCase("depthwise", (2, 6, 6, 12), kernel=(5, 5), padding=(2, 2, 2, 2), rest=parametric),
    FloatCase("depthwise", (1, 3, 4, 8), kernel=(9, 9), dilation=(2, 2), padding=(9, 9, 9, 9)),
    FloatCase("depthwise", (1, 2, 2, 4), kernel=(3, 3), padding=(4, 4, 4, 4)),  # windows that see nothing
)


@pytest.mark.parametrize("core", CORES)
def test_other_layers(core: str) -> None:
    check([program_of(case) for case in LARGE], core)


POOLS = (
    PoolCase((1, 8, 8, 16)),
    PoolCase((2, 5, 7, 5), (3, 3), (1, 1), (1, 1, 1, 1)),
    PoolCase((1, 9, 26, 24), (3, 3), (2, 2), (0, 1, 0, 1), "max", clamped),
    PoolCase((1, 6, 1, 13), (3, 1), (1, 1), (1, 1, 0, 0), "max"),
    PoolCase((1, 7, 7, 70), (7, 7), (7, 7)),
    PoolCase((3, 1, 40, 8), (1, 40), (1, 40), (0, 0, 0, 0), "min", parametric),
    PoolCase((1, 12, 12, 9), (6, 5), (1, 2), (2, 3, 2, 2), "add", residual),
)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("splits", [False, True])
def test_pools(core: str, splits: bool) -> None:
    check([pool_of(case) for case in POOLS], core, splits)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("splits", [False, True])
def test_maps(core: str, splits: bool) -> None:
    """Rows of as many elements as a turn takes, fewer, more, and of any number."""
    shapes = ((1, 4, 4, 4), (3, 5, 1), (2, 3, 5, 7), (1, 2, 3, 33), (19,), (7, 16))
    check([map_of(shape, what) for shape in shapes for what in MAPS if what != "rows" or len(shape) > 1], core, splits)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("splits", [False, True])
def test_reductions(core: str, splits: bool) -> None:
    sizes = (((1,), (5, 2)), ((6, 1), (128,)), ((3, 4), (33,)), ((1, 7), (2, 3, 5)), ((2,), (19,)), ((5,), (16,)))
    programs = [reduction_of(*size, how, number % 2 > 0) for number, size in enumerate(sizes) for how in ("add", "max", "min")]
    check(programs, core, splits)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("kind", ["conv", "depthwise"])
def test_the_output_takes_the_place_of_an_operand(core: str, kind: str) -> None:
    program = program_of(FloatCase(kind, (1, 6, 7, 12), 12, (3, 3), padding=(1, 1, 1, 1), rest=residual))
    given = inputs_of(program)
    assert error(run_in_place(program, load_target(core), given, "z"), expected(program, given)) <= BOUND


def test_infinities_and_nans_stay_in_their_windows() -> None:
    """A padded window multiplies nothing by what lies beside it; the largest of numbers and a NaN is a number."""
    layers = [program_of(FloatCase(kind, (1, 7, 9, 6), 6, (3, 3), padding=(1, 1, 1, 1))) for kind in ("conv", "depthwise")]
    for program in (*layers, pool_of(PoolCase((1, 7, 9, 6), (3, 3), (1, 1), (1, 1, 1, 1), "max"))):
        given = inputs_of(program)
        given["x"][0, 3, 4, 2] = np.nan
        given["x"][0, 0, 8, 5] = np.inf
        ((_, out),) = run_all([program], load_target("cortex-a53"), [given])
        right = expected(program, given)
        finite = np.isfinite(right)
        assert (np.isfinite(out) == finite).all()
        assert error(out[finite], right[finite]) <= BOUND


@pytest.mark.parametrize(
    ("case", "core", "limit"),
    [
        (FloatCase("dense", (512, 1, 1, 512), 512, (1, 1)), "cortex-a53", 0.30),
        (FloatCase("conv", (1, 12, 12, 64), 64, (1, 1)), "cortex-a53", 0.31),
        (FloatCase("conv", (1, 32, 32, 16), 16, (3, 3), padding=(1, 1, 1, 1)), "cortex-a53", 0.32),
        (FloatCase("conv", (1, 96, 96, 3), 8, (3, 3), (2, 2), padding=(0, 1, 0, 1)), "cortex-a53", 0.40),
        (FloatCase("dense", (1, 1, 1, 640), 128, (1, 1)), "cortex-a53", 0.41),
        (FloatCase("depthwise", (1, 24, 24, 32), kernel=(3, 3), padding=(1, 1, 1, 1)), "cortex-a53", 0.40),
        (FloatCase("conv", (1, 12, 12, 64), 64, (1, 1)), "cortex-a9", 0.40),
        (FloatCase("depthwise", (1, 24, 24, 32), kernel=(3, 3), padding=(1, 1, 1, 1)), "cortex-a9", 0.71),
    ],
)
def test_instructions_for_each_product(case: FloatCase, core: str, limit: float) -> None:
    program = program_of(case)
    (contract,) = program.instructions
    assert isinstance(contract, Contract) and contract.geometry is not None
    found = count(program, load_target(core), inputs_of(program)) / contract.geometry.macs
    assert found <= limit, found


def test_costs_are_those_counted() -> None:
    for core in CORES:
        target = load_target(core)
        odd = (
            (LARGE[4],) if core == "cortex-a53" else ()
        )  # on Armv7 addresses at odd distances take instructions, which it leaves out
        for case in (LARGE[0], LARGE[3], LARGE[5], *odd, FloatCase("conv", (1, 12, 12, 64), 64, (1, 1))):
            program = program_of(case)
            answers = [kernel.claim(program, program.instructions[0], target) for kernel in KERNELS]
            (cost,) = [one.cost for one in answers if isinstance(one, Implementation)]
            assert cost is not None
            counted = count(program, target, inputs_of(program))
            assert 0.8 <= cost.instructions / counted <= 1.25, (case, core, cost.instructions, counted)


@pytest.mark.parametrize(
    ("core", "name", "millions"), [("cortex-a53", "vww_96_float", 2.5), ("cortex-a76", "pretrainedResnet", 4.0)]
)
def test_instructions_of_networks(core: str, name: str, millions: float) -> None:
    """LiteRT with XNNPACK takes 5.51 and 4.71 million."""
    target = load_target(core)
    needs_board(target)
    path = model(f"mlperf_tiny/{name}")
    bundle = compile(path, target)
    result = run_bundle(bundle, random_inputs(bundle.main, 1), "qemu")
    assert result.instructions is not None and result.instructions <= millions * 1e6, result.instructions
