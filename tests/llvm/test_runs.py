"""Layers in turns, a row at a time: a loop over a table of steps, on several cores, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.bundle import Bundle
from aot.graph.expr import Acc, Load, add, axis, integer, mul
from aot.graph.ir import DType, Site
from aot.graph.operator import Lowering, load
from aot.graph.primitive import Control, Map, Reduce
from aot.llvm.runs import FEWEST, Numbers, find_run
from aot.lower.build import build_program
from aot.lower.execute import execute_all
from aot.lower.lifetime import Io
from aot.lower.plan import Plan, Step
from aot.lower.program import Buffer, Program
from aot.run import run_bundle
from aot.target import Target, load_target
from tests.llvm import compiled
from tests.llvm.scattered import scattered_plan
from tests.llvm.test_primitives import HOST
from tests.lower.toy import TOYS, GraphBuilder, narrow, random_inputs, wide

CORES = {"host": HOST, **{name: load_target(name) for name in ("cortex-m0", "cortex-m4")}}


def lower_total(site: Site, lowering: Lowering) -> None:
    """Over rows and columns, int32; out (N, 1, 1, C)."""
    x, out = site.input(0), site.output
    term = wide(load(x, (axis(0), axis(4), axis(5), axis(3))))
    lowering.append(Reduce(out.name, out.shape, x.shape[1:3], "add", integer(7), term, Acc(DType.INT32)))


def network(rows: int) -> Program:
    """Convolutions with padding, a stride and a residual, a pool, rows that repeat, rows of fill, and a sum over all of them."""
    builder = GraphBuilder()
    x = builder.conv(builder.input(1, rows, 7, 3), 4, 3, 2, 1, -3)
    y = builder.depthwise(builder.conv(x, 4, 3, 1, 1))
    y = builder.node("ADD", x, builder.node("UNARY", y))
    height = builder.shape(y)[1]
    y = builder.node(
        "GATHER",
        y,
        shape=(1, 2 * height, *builder.shape(y)[2:]),
        attributes=(1, tuple(row // 2 for row in range(2 * height))),
    )
    y = builder.pool(builder.pad(y, (0, 2, 1, 0), (0, 1, 0, 0), 9), 3, 1, 1)
    total = builder.node("TOTAL", y, shape=(1, 1, 1, 4), dtype=DType.INT32)
    out = builder.node("NARROW", total)
    operators = {**TOYS, "TOTAL": replace(TOYS["SUM"], name="TOTAL", lower=lower_total)}
    return build_program(builder.graph(out, builder.node("UNARY", y)), operators)


def streamed(program: Program, target: Target, monkeypatch: pytest.MonkeyPatch, seed: int = 0, most: int = 1, **options) -> Bundle:
    def plan_of(program: Program, target: Target, io: Io):
        return scattered_plan(program, target, seed, io, most=most)

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "plan_of", plan_of)
        return compiled.bundle_of(program, target, **options)


def check(program: Program, bundle: Bundle) -> int:
    inputs = random_inputs(program)
    values = execute_all(program, inputs)
    result = run_bundle(bundle, [inputs[name] for name in program.inputs])
    for name, have in zip(program.outputs, result.outputs, strict=True):
        np.testing.assert_array_equal(have, values[name])
    return result.per_layer[-1][1] if result.per_layer else 0


def steps_of(bundle: Bundle) -> int:
    assert bundle.main.plan is not None
    return len(bundle.main.plan.schedule.steps)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("most", [1, 3])
def test_network(core: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in (5, 12, 25):
        program = network(rows)
        bundle = streamed(program, CORES[core], monkeypatch, rows, most)
        plan = bundle.main.plan
        assert plan is not None
        assert len(plan.rows) >= 7
        assert any(plan.tables(position) for position in range(len(program.instructions)))
        assert len({layer.symbol for layer in bundle.main.layers}) == len(program.instructions)
        assert len(plan.schedule.steps) > len(program.instructions)
        check(program, bundle)


@pytest.mark.parametrize("io", ["caller", "workspace"])
@pytest.mark.parametrize("weights", ["embedded", "separate"])
@pytest.mark.parametrize("pic", [False, True])
def test_every_kind_of_pointer(io: Io, weights: str, pic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = network(12)
    for core in ("host", "cortex-m4"):
        check(program, streamed(program, CORES[core], monkeypatch, io=io, weights=weights, pic=pic and core != "host"))


def test_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of steps that a byte does not hold, offsets that 16 bits do not."""
    program = network(300)
    bundle = streamed(program, HOST, monkeypatch)
    check(program, bundle)
    assert bundle.main.workspace_nbytes < 1 << 16
    builder = GraphBuilder()
    x = builder.node("UNARY", builder.input(1, 8, 9000, 3))
    x = builder.node("UNARY", builder.pool(x, 3, 1, 1))
    program = builder.program(x)
    bundle = streamed(program, HOST, monkeypatch)
    check(program, bundle)
    assert bundle.main.workspace_nbytes > 1 << 16


def test_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes at most 8 bytes of flash and 25 instructions more; the stack does not grow with the number of layers."""
    program = network(64)
    layerwise = compiled.bundle_of(program, CORES["cortex-m4"])
    bundle = streamed(program, CORES["cortex-m4"], monkeypatch)
    more = steps_of(bundle) - steps_of(layerwise)
    flash_nbytes = len(bundle.object) - len(layerwise.object)
    instructions = check(program, bundle) - check(program, layerwise)
    print(f"{more} more steps: {flash_nbytes} bytes, {instructions} instructions")
    assert flash_nbytes <= 8 * more
    assert instructions <= 25 * more
    assert bundle.main.stack_nbytes <= layerwise.main.stack_nbytes + 64


@pytest.mark.parametrize("core", CORES)
def test_runs_that_may_not_happen(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a branch, and in a loop that is left before them: what follows finds its pointers."""
    shape, rank = (1, 10, 3, 2), range(4)

    def step(out: str, x: str, more: int) -> Map:
        return Map(out, shape, narrow(add(mul(wide(Load(x, tuple(map(axis, rank)), DType.INT8)), integer(3)), integer(more))))

    instructions = [
        step("t", "x", 1),
        Control("if", "flag"),
        *(step("t", "x", 2), step("u", "t", 3)),
        Control("else"),
        *(step("u", "x", 4), step("t", "u", 5)),
        Control("end"),
        step("v", "u", 6),
        Control("repeat", count=2),
        Control("leave", "flag"),
        *(step("v", "t", 7), step("t", "v", 8)),
        Control("end"),
        step("y", "t", 9),
        step("z", "v", 10),
    ]
    buffers = [Buffer("x", DType.INT8, shape, "input"), Buffer("flag", DType.BOOL, (1,), "input")]
    buffers += [Buffer(name, DType.INT8, shape, "temporary") for name in "tuv"]
    buffers += [Buffer(name, DType.INT8, shape, "output") for name in "yz"]
    program = Program("branches", tuple(buffers), tuple(instructions), ("x", "flag"), ("y", "z"))
    whole = compiled.plan_of

    def divided(program: Program, target: Target, io: Io) -> Plan:
        plan = whole(program, target, io)
        choices = plan.schedule.choices
        rows = [range(max(choices[step.position].implementation.rows.count, 1)) for step in plan.schedule.steps]
        steps = tuple(Step(step.position, y, y + 1) for step, ys in zip(plan.schedule.steps, rows) for y in ys)
        return replace(plan, schedule=replace(plan.schedule, steps=steps))

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "plan_of", divided)
        bundle = compiled.bundle_of(program, CORES[core])
    for flag in (False, True):
        inputs = {"x": np.arange(60, dtype=np.int8).reshape(shape), "flag": np.array([flag])}
        values = execute_all(program, inputs)
        for name, have in zip("yz", run_bundle(bundle, [inputs["x"], inputs["flag"]]).outputs, strict=True):
            np.testing.assert_array_equal(have, values[name])


def test_which_steps_are_a_run() -> None:
    steps = [Step(0, 0, 9), *(Step(position, y, y + 1) for y in range(FEWEST) for position in (1, 2)), Step(3, 0, 9)]
    run = find_run(steps)
    assert run is not None and run.steps == tuple(steps[1:-1]) and list(run.layers) == [1, 2]
    assert run.entries[:4] == ((0, 0), (1, 0), (0, 1), (1, 1))
    assert find_run(steps[: 2 + FEWEST // 2]) is None
    assert find_run([Step(position, 0, 1) for position in range(50)]) is None


def test_numbers_on_a_line_need_no_table() -> None:
    numbers = Numbers(None)
    for values in ([7], [3, 3, 3], [0, 2, 4, 6], [2, 4, 6, 7], [9, 5, 1]):
        assert numbers.add(values) is None
    assert numbers.add([0, 1, 3]) == 0 and numbers.add([0, -300, 3]) == 4 and numbers.add([0, 1, 3]) == 0
    assert numbers.add([0, 70_000, 3]) == 12
    assert numbers.table().nbytes == 24
