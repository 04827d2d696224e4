"""Kernels whose buffers lie scattered, row by row: alone between guard bytes, and whole Programs in steps of interleaved layers."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings

from aot.backends.generic import claim
from aot.graph.evaluate import execute
from aot.graph.expr import Load, axis
from aot.graph.ir import DType, Graph
from aot.graph.primitive import Map, Primitive
from aot.lower.build import build_program
from aot.lower.execute import execute_all
from aot.lower.fuse import fuse
from aot.lower.implementation import Implementation
from aot.lower.lifetime import Io
from aot.lower.plan import Plan
from aot.lower.program import Program
from aot.run import run_bundle
from aot.target import Target, load_target
from tests.backends import emulator
from tests.llvm import compiled, test_primitives
from tests.llvm.compiled import program_of
from tests.llvm.scattered import scattered_plan, streamed_plan
from tests.llvm.test_primitives import HOST, Maker
from tests.lower.random_graphs import graphs
from tests.lower.toy import TOYS, random_inputs

M4 = load_target("cortex-m4")


def check_scattered(maker: Maker, primitive: Primitive, dtype: DType, shape: tuple[int, ...], where: str = "") -> None:
    """One primitive, row by row or in larger steps, with every buffer scattered."""
    program = program_of([primitive], maker.arrays, {"out": (dtype, shape)}, maker.constants)
    implementation = claim(program, primitive, M4)
    assert isinstance(implementation, Implementation)
    values = {name: array.copy() for name, array in maker.arrays.items()}
    values["out"] = np.zeros(shape, dtype.np)
    execute(primitive, values)
    inputs = {name: maker.arrays[name] for name in implementation.reads}
    for rows_at_once in (1, 2, implementation.rows.count):
        steps = [(y, min(y + rows_at_once, implementation.rows.count)) for y in range(0, implementation.rows.count, rows_at_once)]
        if not implementation.rows.accumulates:
            steps = steps[::-1]
        outcome = emulator.run(
            program, implementation, M4, inputs, steps, scattered=implementation.scatters, seed=maker.number(0, 1 << 30)
        )
        np.testing.assert_array_equal(outcome.out, values["out"])


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", ["map", "reduce", "contract"])
def test_random_primitives(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_primitives, "check_one", check_scattered)
    getattr(test_primitives, f"test_{kind}")(seed)


@pytest.mark.parametrize("kind", ["conv", "depthwise", "grouped"])
def test_convolutions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_primitives, "check_one", check_scattered)
    test_primitives.test_convolutions(kind, "cortex-m4")


def test_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_primitives, "check_one", check_scattered)
    test_primitives.test_average_pool_divides_by_what_it_counted()


@pytest.mark.parametrize("shape", [(4, 1), (3, 2), (2, 6), (3, 8)])
def test_copies_of_rows_stay_in_them(shape: tuple[int, int]) -> None:
    """A row of fewer bytes than a word, or of no whole number of words."""
    maker = Maker(0)
    maker.arrays["a"] = np.arange(shape[0] * shape[1], dtype=np.int8).reshape(shape)
    program = program_of([Map("out", shape, Load("a", (axis(0), axis(1)), DType.INT8))], maker.arrays, {"out": (DType.INT8, shape)})
    implementation = claim(program, program.instructions[0], M4)
    assert isinstance(implementation, Implementation)
    for scattered in ((), ("a",), ("a", "out")):
        steps = [(y, y + 1) for y in reversed(range(shape[0]))]
        outcome = emulator.run(program, implementation, M4, maker.arrays, steps, scattered=scattered)
        np.testing.assert_array_equal(outcome.out, maker.arrays["a"])


@pytest.mark.slow
@pytest.mark.parametrize("where", [HOST, M4], ids=["host", "m4"])
@pytest.mark.parametrize("plans", ["random", "streamed"])
@settings(max_examples=400 if os.environ.get("AOT_SWEEP") else 16, deadline=None, derandomize=True)
@given(graph=graphs())
def test_random_graphs(plans: str, where: Target, graph: Graph) -> None:
    for program in (build_program(graph, TOYS), fuse(build_program(graph, TOYS))):
        for io in ("caller", "workspace"):
            owners = [program.storage(name) for name in (*program.inputs, *program.outputs)]
            if io == "workspace" or len(set(owners)) == len(owners):
                plan = (
                    scattered_plan(program, where, len(graph.nodes), io) if plans == "random" else streamed_plan(program, where, io)
                )
                check_run(program, plan, where, io)


def check_run(program: Program, plan: Plan, where: Target, io: Io) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "plan_of", lambda *_: plan)
        bundle = compiled.bundle_of(program, where, io)
    inputs = random_inputs(program)
    values = execute_all(program, inputs)
    got = run_bundle(bundle, [inputs[name] for name in program.inputs]).outputs
    for name, have in zip(program.outputs, got, strict=True):
        np.testing.assert_array_equal(have, values[name], str(plan))
