"""Layers in parts: the calls that an entry makes for them, on several cores, and their scratch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from aot.bundle import Bundle
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I32
from aot.lower import parts
from aot.lower.check import check_plan
from aot.lower.execute import execute_all
from aot.lower.implementation import Choice, Implementation, Rows
from aot.lower.parts import split
from aot.lower.place import plan as place
from aot.lower.plan import Plan
from aot.lower.program import Program
from aot.lower.schedule import schedule
from aot.run import run_bundle
from aot.target import Target, load_target
from tests.llvm import compiled
from tests.llvm.test_primitives import HOST
from tests.lower.toy import GraphBuilder, dummy, random_inputs
from tests.run.apart import run_apart

CORES = {"host": HOST, **{name: load_target(name) for name in ("cortex-m0", "cortex-m4")}}


def network(rows: int) -> Program:
    """Three maps of an image, one after the other."""
    builder = GraphBuilder()
    x = builder.input(1, rows, 3, 5)
    for _ in range(3):
        x = builder.node("UNARY", x)
    return builder.program(x)


def through_scratch(program: Program, instruction: Primitive, per_step: int) -> Implementation:
    """out = 3 * x + 1, row by row; each goes through scratch."""
    one = dummy(program, instruction, overwrites=False)
    _, rows, columns, channels = program[one.writes[0]].shape
    size = columns * channels

    def emit(function: KernelFunction) -> None:
        builder, scratch = function.builder, function.scratch
        with function.loop(function.y0, function.y1) as row:
            for source, target in ((one.reads[0], None), (None, one.writes[0])):
                start = builder.mul(row, I32(size))
                with function.loop(0, size) as index:
                    held = builder.gep(scratch, [index], source_etype=I8)
                    if source is not None:
                        value = builder.load(function.element(source, builder.add(start, index)), align=1, typ=I8)
                        builder.store(value, held, align=1)
                    else:
                        value = builder.add(builder.mul(builder.load(held, align=1, typ=I8), I8(3)), I8(1))
                        builder.store(value, function.element(target, builder.add(start, index)), align=1)

    return replace(one, emit=emit, scratch_nbytes=size, rows=Rows(rows, per_step))


def plan_of(program: Program, target: Target, io: str = "caller", *, threads: int, per_step: int, shared: bool = False) -> Plan:
    """All layers in parts. shared: as if all parts could have the same scratch."""
    made = [split(program, through_scratch(program, one, per_step), threads) for one in program.instructions]
    if shared:
        made = [replace(one, scratch_nbytes=16) for one in made]
    result = place(replace(schedule(program, tuple(map(Choice, made)), io), threads=threads), io)
    if not shared:
        check_plan(result)
    return result


def bundled(rows: int, monkeypatch: pytest.MonkeyPatch, target: Target = HOST, **options) -> tuple[Program, Bundle]:
    monkeypatch.setattr(parts, "LEAST_WORK", 1)
    monkeypatch.setattr(compiled, "plan_of", partial(plan_of, **options))
    return network(rows), compiled.bundle_of(network(rows), target, "workspace")


def outputs(program: Program, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    values = execute_all(program, inputs)
    return [values[name] for name in program.outputs]


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(("rows", "threads", "per_step"), [(7, 4, 2), (8, 2, 1), (9, 4, 1), (5, 7, 3), (2, 2, 1), (1, 3, 1)])
def test_rows_in_parts(core: str, rows: int, threads: int, per_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program, bundle = bundled(rows, monkeypatch, CORES[core], threads=threads, per_step=per_step)
    inputs = random_inputs(program, rows)
    (expected,) = outputs(program, inputs)
    np.testing.assert_array_equal(run_bundle(bundle, list(inputs.values())).outputs[0], expected)
    if core == "host":
        (got,), calls = run_apart(bundle, list(inputs.values()))
        np.testing.assert_array_equal(got, expected)
        assert calls == (0 if rows <= per_step else 3)


def test_scratch_that_parts_share_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a race would look like: shares of 4 bytes, of which each part uses 15."""
    program, bundle = bundled(8, monkeypatch, threads=4, per_step=1, shared=True)
    with pytest.raises(AssertionError, match="parts 0 and 1 of layer 1 write the same"):
        run_apart(bundle, list(random_inputs(program, 1).values()))


def test_stack_counts_the_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is of the way through the caller's function, which Unicorn's run takes without one."""
    _, whole = bundled(8, monkeypatch, CORES["cortex-m4"], threads=1, per_step=1)
    _, bundle = bundled(8, monkeypatch, CORES["cortex-m4"], threads=4, per_step=1)
    assert bundle.main.stack_nbytes > whole.main.stack_nbytes
