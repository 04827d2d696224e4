"""Compiles hand-made programs the way the driver does, runs them, and compares with their numpy meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aot import driver, planning
from aot.backends.generic import BACKEND
from aot.bundle import Bundle
from aot.describe import describe_entry
from aot.graph.evaluate import execute
from aot.graph.ir import DType
from aot.graph.primitive import Primitive, reads, writes
from aot.llvm.module import EntrySource, emit_bundle
from aot.lower.plan import Plan
from aot.lower.program import Buffer, Program
from aot.run import run_bundle
from aot.target import Target


def program_of(
    instructions: Sequence[Primitive], arrays: Mapping[str, np.ndarray], outputs: Mapping[str, tuple], constants=()
) -> Program:
    """A program. `arrays`: data of inputs and constants by name; `outputs`: (dtype, shape) of what is written."""
    buffers = []
    for name, array in arrays.items():
        role = "constant" if name in constants else "input"
        buffers.append(Buffer(name, DType(array.dtype.name), array.shape, role, data=array if role == "constant" else None))
    for name, (dtype, shape) in outputs.items():
        buffers.append(Buffer(name, dtype, shape, "output"))
    program = Program("sample", tuple(buffers), tuple(instructions), tuple(n for n in arrays if n not in constants), tuple(outputs))
    program.verify()
    return program


def plan_of(program: Program, target: Target, io: str = "caller") -> Plan:
    return planning.plan_program(program, target, BACKEND, driver.Options(io=io), lambda stage, result: None)


def bundle_of(program: Program, target: Target, io: str = "caller", weights: str = "embedded", pic: bool = False) -> Bundle:
    """The program as a bundle with one entry, `sample_run`."""
    plan = plan_of(program, target, io)
    options = driver.Options(io=io, weights=weights)
    source = EntrySource("sample_run", plan, *driver.ports(program, plan, target, options))
    emitted = emit_bundle("sample", target, [source], weights=weights, io=io, position_independent=pic)
    entry = describe_entry(source, emitted, None, options)
    return Bundle(
        name="sample",
        backend="generic",
        target=target,
        object=emitted.object,
        entries=(entry,),
        code_nbytes=emitted.code_nbytes,
        weights_nbytes=emitted.weights_nbytes,
        weights=emitted.weights,
        io_in_workspace=io == "workspace",
    )


def meaning(program: Program, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The program's outputs, by `evaluate.execute`."""
    values = {**arrays}
    for instruction in program.instructions:
        for name in writes(instruction):
            values.setdefault(name, np.zeros(program[name].shape, program[name].dtype.np))
        assert all(name in values for name in reads(instruction))
        execute(instruction, values)
    return [values[name] for name in program.outputs]


def check(program: Program, arrays: Mapping[str, np.ndarray], target: Target, **options) -> Bundle:
    """Compile, run, compare bit for bit (any NaN for any NaN). Returns the bundle."""
    bundle = bundle_of(program, target, **options)
    got = run_bundle(bundle, [arrays[name] for name in program.inputs]).outputs
    for name, have, want in zip(program.outputs, got, meaning(program, arrays), strict=True):
        assert have.dtype == want.dtype and have.shape == want.shape
        bits = np.dtype(f"u{have.itemsize}")
        equal = np.ascontiguousarray(have).view(bits) == np.ascontiguousarray(want).view(bits)
        if have.dtype.kind == "f":
            equal |= np.isnan(have) & np.isnan(want)
        wrong = np.argwhere(~equal)
        assert not len(wrong), (
            f"{name}: {len(wrong)} of {have.size} differ, first at {wrong[0]}: {have[tuple(wrong[0])]}, not {want[tuple(wrong[0])]}"
        )
    return bundle
