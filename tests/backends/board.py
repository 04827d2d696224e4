"""Runs the kernels of many Programs of one instruction in one go, on an emulated board or in a process under QEMU: for cores that Unicorn
does not have.

Enters: Programs, inputs. Leaves: for each its implementation and output. Inputs, outputs and workspace lie at the ends and at the starts
of pages that the board's memory protection guards, or between unmapped ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from aot.backends.generic import GENERIC
from aot.bundle import Bundle
from aot.driver import Options, describe_entry, emit, ports, resolve_target
from aot.graph.expr import Const, Expr, Load, Lookup, axis, rewrite
from aot.graph.primitive import Contract, Map, Primitive, Reduce
from aot.llvm.elf import functions
from aot.llvm.module import EntrySource
from aot.lower.check import check_plan
from aot.lower.implementation import Implementation
from aot.lower.lifetime import Io
from aot.lower.place import plan as place
from aot.lower.plan import Schedule, Step
from aot.lower.program import Program
from aot.lower.rows import row_count
from aot.lower.select import select
from aot.run import run_bundle
from aot.target import Target

BACKGROUND = 77
"""What an output holds where its instruction writes only a part of it."""
AT_ONCE = 5  # Programs in a bundle: the board's memory protection has 16 regions
AT_ONCE_IN_PROCESS = 40


def needs_board(target: Target | None = None) -> None:
    """Skip where the emulator of a board, or the target's, is missing."""
    program = (program_of(target) if target else "") or "qemu-system-arm"
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def program_of(target: Target) -> str:
    """The emulator that runs the target's code in a process; empty for a board."""
    return str(target.run.get("qemu", {}).get("program", ""))


def run_all(
    programs: Sequence[Program], target: Target, inputs: Sequence[dict[str, np.ndarray]], splits: bool = False
) -> list[tuple[Implementation, np.ndarray]]:
    """The implementation and output (`y`) of each Program. splits: in two steps of rows where there are as many."""
    needs_board(target)
    found: list[tuple[Implementation, np.ndarray]] = []
    at_once = AT_ONCE_IN_PROCESS if program_of(target) else AT_ONCE
    for first in range(0, len(programs), at_once):
        found += _run(programs[first : first + at_once], target, inputs[first : first + at_once], splits)
    return found


def _run(
    programs: Sequence[Program], target: Target, inputs: Sequence[dict[str, np.ndarray]], splits: bool
) -> list[tuple[Implementation, np.ndarray]]:
    bundle, implementations = _bundle(_merged(programs), target, splits)
    arrays = [given[name] for program, given in zip(programs, inputs, strict=True) for name in program.inputs]
    outputs = run_bundle(bundle, arrays, "qemu").outputs
    return list(zip(implementations, outputs, strict=True))


def count(program: Program, target: Target, inputs: dict[str, np.ndarray]) -> int:
    """Instructions that a Program's kernel takes, with the call of it."""
    needs_board(target)
    bundle, _ = _bundle(program, target, False)
    instructions = run_bundle(bundle, [inputs[name] for name in program.inputs], "qemu").instructions
    assert instructions is not None
    return instructions


def code_nbytes(program: Program, target: Target) -> int:
    """Bytes of the largest function: the kernel's, where that is large."""
    bundle, _ = _bundle(program, target, False)
    return max(functions(bundle.object).values())


def _merged(programs: Sequence[Program]) -> Program:
    """One Program that computes all."""
    renamed = [_renamed(program, f"c{number}_") for number, program in enumerate(programs)]
    return Program(
        "many",
        tuple(buffer for one in renamed for buffer in one.buffers),
        tuple(instruction for one in renamed for instruction in one.instructions),
        tuple(name for one in renamed for name in one.inputs),
        tuple(name for one in renamed for name in one.outputs),
    )


def _renamed(program: Program, prefix: str) -> Program:
    """The Program with other names for its buffers."""

    def named(node: Expr) -> Expr | None:
        return replace(node, buffer=prefix + node.buffer) if isinstance(node, Load | Lookup) else None

    (given,) = program.instructions
    assert isinstance(given, Contract | Map | Reduce)
    parts = {Contract: ("left", "right", "initial", "result"), Reduce: ("term", "initial", "result"), Map: ("value",)}
    exprs = {name: rewrite(getattr(given, name), named) for name in parts[type(given)]}
    changed = replace(given, out=prefix + given.out, **exprs)
    buffers = tuple(replace(one, name=prefix + one.name) for one in program.buffers)
    names = [tuple(prefix + name for name in some) for some in (program.inputs, program.outputs)]
    fill = Map(changed.out, program["y"].shape, Const(BACKGROUND, program["y"].dtype))
    instructions = (changed,) if prod(changed.space) == prod(program["y"].shape) else (fill, changed)
    return Program(program.name, buffers, instructions, *names)


def run_in_place(program: Program, target: Target, inputs: dict[str, np.ndarray], taken: str) -> np.ndarray:
    """The output of a Program whose buffer `taken`, an input, is computed (copied) first, so that the output can take its place."""
    needs_board(target)
    shape, given = program[taken].shape, f"{taken}.given"
    moved = replace(program[taken], role="temporary")
    copy = Map(taken, shape, Load(given, tuple(axis(number) for number in range(len(shape))), moved.dtype))
    buffers = tuple(moved if one.name == taken else one for one in program.buffers)
    names = tuple(given if name == taken else name for name in program.inputs)
    whole = replace(
        program,
        buffers=(replace(program[taken], name=given), *buffers),
        instructions=(copy, *program.instructions),
        inputs=names,
    )
    bundle, _ = _bundle(whole, target, False, "workspace")
    plan = bundle.main.plan
    assert plan is not None and plan.offset_of["y"] == plan.offset_of[taken]
    return run_bundle(bundle, [inputs[taken if name == given else name] for name in names], "qemu").outputs[0]


def _bundle(program: Program, target: Target, splits: bool, io: Io = "caller") -> tuple[Bundle, list[Implementation]]:
    options = Options(target=target, io=io)
    _, backend = resolve_target(options)
    program.verify()
    choices = select(program, backend, GENERIC, target)
    steps = []
    for position, choice in enumerate(choices):
        rows = choice.implementation.rows
        divides = splits and rows.count == row_count(program[choice.implementation.writes[0]])  # rows of several images: not so
        middle = rows.count // 2 // rows.per_step * rows.per_step if divides else 0
        steps += [Step(position, *some) for some in ((0, middle), (middle, rows.count)) if some[0] < some[1]]
    plan = place(Schedule(program, choices, tuple(steps)), io=io)
    check_plan(plan)
    source = EntrySource("many_run", plan, *ports(program, plan, target, options), None)
    emitted = emit("many", target, [source], options)
    bundle = Bundle(
        name="many",
        backend=backend.name,
        target=target,
        object=emitted.object,
        entries=(describe_entry(source, emitted, None, options),),
        code_nbytes=emitted.code_nbytes,
        weights_nbytes=emitted.weights_nbytes,
        io_in_workspace=io == "workspace",
    )
    return bundle, [one.implementation for one in choices if not _is_fill(one.implementation.instruction)]


def _is_fill(instruction: Primitive) -> bool:
    return isinstance(instruction, Map) and isinstance(instruction.value, Const)
