"""The neon pool kernel in a process under QEMU against the numpy meaning of its reduction, every byte; and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from aot.backends.neon.pool import claim_pool
from aot.graph.expr import Acc, Requantise, add, cast, clamp, integer
from aot.graph.ir import DType
from aot.lower.program import Program
from aot.target import load_target
from tests.backends.board import count, run_all
from tests.backends.contracts import INT8, expected, inputs_of
from tests.backends.test_dsp_pool import program_of
from tests.backends.test_helium_pool import SHAPES
from tests.graph.lowered import sweep

CORES = ("cortex-a76", "cortex-a9")


def check(programs: Sequence[Program], core: str, inputs: Sequence[dict[str, np.ndarray]] = (), splits: bool = False) -> None:
    inputs = inputs or [inputs_of(program, seed) for seed, program in enumerate(programs)]
    found = run_all(programs, load_target(core), inputs, splits)
    for program, given, (implementation, out) in zip(programs, inputs, found, strict=True):
        assert implementation.notes and "channels at a time" in implementation.notes[0], implementation.kernel
        different = np.argwhere(out != expected(program, given))
        assert not different.size, f"{program.instructions[0]}: {len(different)} differ, the first at {different[0]}"


@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
@pytest.mark.parametrize("combine", ["add", "max"])
@pytest.mark.parametrize("core", CORES)
def test_pools(core: str, combine: str, same: bool) -> None:
    drawn = [program_of(choice, combine, same) for choice in sweep(40, 3 + same, **SHAPES)]
    check([program for program in drawn if program is not None], core, splits=same)


@pytest.mark.parametrize("window", [(16, 16), (7, 9), (1, 1), (13, 17)], ids=str)
def test_every_quotient(window: tuple[int, int]) -> None:
    """Sums from the smallest to the largest, and those that round halves."""
    taps = window[0] * window[1]
    program = program_of({"images": 1, "size": window, "window": window, "stride": (1, 1), "depth": 2000}, "add", False)
    assert program is not None
    sums = np.linspace(-128 * taps, 127 * taps, 1990).astype(np.int64)
    sums = np.concatenate([sums, [0, 1, -1, taps // 2, -(taps // 2), taps, -taps, taps - taps // 2, taps // 2 - taps, -128 * taps]])
    sums = np.clip(sums, -128 * taps, 127 * taps)
    low, more = sums // taps, sums % taps
    x = low[None, :] + (np.arange(taps)[:, None] < more[None, :])
    check([program], "cortex-a53", [{"x": x.reshape(1, *window, 2000).astype(np.int8)}])


@pytest.mark.parametrize("core", CORES)
def test_scaled_sums(core: str) -> None:
    """A mean whose scale is in its requantisation, with what it starts from."""
    result = cast(clamp(add(Requantise(Acc(DType.INT32), integer(1_500_000_000), integer(-6)), integer(-5)), -128, 127), INT8)
    programs = []
    for depth in (5, 8, 40):
        choice = {"images": 2, "size": (5, 5), "window": (5, 5), "stride": (1, 1), "depth": depth}
        program = program_of(choice, "add", False, result, -40000 if depth == 8 else -75)
        assert program is not None
        programs.append(program)
    check(programs, core)


def test_instructions() -> None:
    """A mean over an image takes less than a third of an instruction for each input."""
    program = program_of({"images": 1, "size": (15, 15), "window": (15, 15), "stride": (1, 1), "depth": 64}, "add", False)
    assert program is not None
    assert count(program, load_target("cortex-a53"), inputs_of(program)) < 15 * 15 * 64 / 3.5


def test_declines_other_cores() -> None:
    program = program_of({"images": 1, "size": (4, 4), "window": (2, 2), "stride": (2, 2), "depth": 8}, "max", False)
    assert program is not None
    assert "no Advanced SIMD" in str(claim_pool(program, program.instructions[0], load_target("cortex-m4")))
