"""The Helium pool kernel on an emulated board against the numpy meaning of its reduction, every byte; and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.backends.cmsis_nn.helium.pool import claim_pool
from aot.graph.expr import Acc, Axis, Load, Requantise, add, axis, cast, clamp, integer, mul
from aot.graph.ir import DType
from aot.lower.implementation import Implementation
from aot.lower.program import Program
from aot.run import run_bundle
from aot.samples import random_inputs
from tests.backends.board import count, needs_board, run_all
from tests.backends.contracts import INT8, expected, inputs_of
from tests.backends.test_dsp_pool import program_of
from tests.backends.test_helium_kernels import M55
from tests.graph.lowered import sweep
from tests.one_operator import pool
from tests.oracle import tflm_run

SHAPES = {
    "images": (1, 1, 2, 3),
    "size": ((1, 1), (4, 4), (5, 3), (1, 7), (6, 9), (9, 1)),
    "window": ((1, 1), (2, 2), (3, 3), (2, 3), (3, 1), (5, 5)),
    "stride": ((1, 1), (2, 2), (1, 3)),
    "depth": (*range(4, 18), 24, 31, 33, 64, 72),
}


def check(programs: Sequence[Program], inputs: Sequence[dict[str, np.ndarray]] = (), splits: bool = False) -> None:
    inputs = inputs or [inputs_of(program, seed) for seed, program in enumerate(programs)]
    for program, given, (implementation, out) in zip(programs, inputs, run_all(programs, M55, inputs, splits), strict=True):
        assert implementation.notes and "channels at a time" in implementation.notes[0], implementation.kernel
        different = np.argwhere(out != expected(program, given))
        assert not different.size, f"{program.instructions[0]}: {len(different)} differ, the first at {different[0]}"


@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
@pytest.mark.parametrize("combine", ["add", "max"])
def test_pools(combine: str, same: bool) -> None:
    drawn = [program_of(choice, combine, same) for choice in sweep(40, 3 + same, **SHAPES)]
    programs = [program for program in drawn if program is not None]
    assert len(programs) > 12
    check(programs, splits=same)


@pytest.mark.parametrize("window", [(16, 16), (1, 256), (7, 9), (1, 1), (3, 1), (13, 17)], ids=str)
def test_every_quotient(window: tuple[int, int]) -> None:
    """Sums from the smallest to the largest, and those round halves."""
    taps = window[0] * window[1]
    program = program_of({"images": 1, "size": window, "window": window, "stride": (1, 1), "depth": 2000}, "add", False)
    assert program is not None
    sums = np.linspace(-128 * taps, 127 * taps, 1990).astype(np.int64)
    sums = np.concatenate([sums, [0, 1, -1, taps // 2, -(taps // 2), taps, -taps, taps - taps // 2, taps // 2 - taps, -128 * taps]])
    sums = np.clip(sums, -128 * taps, 127 * taps)
    low, more = sums // taps, sums % taps
    x = low[None, :] + (np.arange(taps)[:, None] < more[None, :])
    check([program], [{"x": x.reshape(1, *window, 2000).astype(np.int8)}])


def test_means_start_from_a_number() -> None:
    scaled = add(Requantise(Acc(DType.INT32), integer(1_500_000_000), integer(-6)), integer(-5))
    result = cast(clamp(scaled, -128, 127), INT8)
    programs = []
    for depth in (4, 7, 11, 16, 40):
        choice = {"images": 2, "size": (5, 5), "window": (5, 5), "stride": (1, 1), "depth": depth}
        for initial in (-75, 1000, -40000):
            program = program_of(choice, "add", False, result, initial)
            assert program is not None
            programs.append(program)
    check(programs)


def test_what_is_declined() -> None:
    choice = {"images": 1, "size": (4, 4), "window": (2, 2), "stride": (1, 1), "depth": 8}
    scaled = cast(clamp(mul(cast(Acc(INT8), DType.INT32), integer(3)), -128, 127), INT8)
    wide = cast(Acc(DType.INT32), DType.FLOAT32)
    other = cast(add(Acc(DType.INT32), Axis(1)), INT8)
    beside = cast(add(Acc(DType.INT32), cast(Load("x", tuple(axis(number) for number in range(4)), INT8), DType.INT32)), INT8)
    for combine, result, sentence in (
        ("max", scaled, "something is fused behind the maximum"),
        ("add", wide, "its results are float32"),
        ("add", other, "it has a Axis"),
        ("add", beside, "its result depends on the channel"),
    ):
        program = program_of(choice, combine, False, result)
        assert program is not None
        assert sentence in str(claim_pool(program, program.instructions[0], M55))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_operators_of_models(tmp_path: Path, op: str, padding: str) -> None:
    """As the reader and the passes make them."""
    needs_board()
    model = pool(op, (2, 7, 9, 13), (3, 4), padding=padding, activation="RELU" if op[0] == "A" else "NONE")
    path = tmp_path / "pool.tflite"
    path.write_bytes(model)
    bundle = aot.compile(path, "cortex-m55")
    assert bundle.main.layers[0].kernel in ("average pool", "maximum pool")
    inputs = random_inputs(bundle.main, 1)
    for ours, theirs in zip(run_bundle(bundle, inputs).outputs, tflm_run(model, list(inputs)), strict=True):
        assert np.array_equal(ours, theirs)


COSTS = [
    # combine, size, window, stride, depth, instructions for an element that is read
    ("max", (16, 16), (2, 2), (2, 2), 32, 0.3),
    ("add", (16, 16), (2, 2), (2, 2), 32, 1.3),
    ("add", (25, 5), (25, 5), (1, 1), 64, 0.5),
    ("add", (8, 8), (8, 8), (1, 1), 64, 0.6),
]


@pytest.mark.parametrize(("combine", "size", "window", "stride", "depth", "ceiling"), COSTS)
def test_cost(combine: str, size: tuple, window: tuple, stride: tuple, depth: int, ceiling: float) -> None:
    program = program_of({"images": 1, "size": size, "window": window, "stride": stride, "depth": depth}, combine, False)
    assert program is not None
    answer = claim_pool(program, program.instructions[0], M55)
    assert isinstance(answer, Implementation) and answer.cost is not None
    counted = count(program, M55, inputs_of(program))
    per_element = counted / (size[0] * size[1] * depth)
    print(f"{per_element:.2f} instructions per element, {answer.cost.instructions / counted:.2f} expected")
    assert per_element <= ceiling
    assert 0.7 < answer.cost.instructions / counted < 1.4
