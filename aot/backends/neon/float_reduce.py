"""Float32 reductions of elements that follow each other: a softmax's largest number and its sum, means over the last axes.

Enters: reductions. Leaves: `Implementation`s, or the sentence why not.
Invariant: nothing behind a run of elements is read. A run is added up in sixteen parts, which are added up in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod

from llvmlite import ir

from aot.backends.generic import activations, generic_constants
from aot.backends.neon.float_ending import Ending, Lanes, refusal
from aot.backends.neon.float_layer import is_wide
from aot.backends.neon.simd_float import FLOATS, LANES, NBYTES, Floats, constant_floats
from aot.graph.expr import Axis, Const, Load, Lookup, walk
from aot.graph.ir import DType
from aot.graph.primitive import Primitive, Reduce, store_of
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.indexing import linear
from aot.lower.program import Program
from aot.lower.rows import instruction_rows
from aot.target import Target

_BURST = 4  # vectors that a turn of the loop takes
_FEWEST = 2 * LANES  # elements of a run


def claim_reduce(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Sums, largest and smallest of runs of elements, or of what becomes of them one by one."""
    if "neon" not in target.has:
        return f"{target.name} has no Advanced SIMD"
    if not isinstance(instruction, Reduce) or instruction.term.dtype is not DType.FLOAT32:
        return "not a reduction of float32 elements"
    found = [load for load in instruction.loads if load in set(walk(instruction.term))]
    if instruction.combine not in ("add", "max", "min") or not isinstance(instruction.initial, Const) or len(found) != 1:
        return "not the sum, largest or smallest of one tensor's elements"
    run = prod(instruction.window)
    if run < _FEWEST or prod(instruction.space) == 0:
        return f"runs of {run} elements"
    stored = linear(store_of(instruction), program[instruction.out].shape, instruction.space)
    if stored is None or stored.offset or dict(stored.terms) != _row_major(instruction.space):
        return "its output does not lie in one piece"
    (load,) = found
    extents = (*instruction.space, *instruction.window)
    position = linear(load.index, program[load.buffer].shape, extents)
    if load.fill or position is None or position.offset or dict(position.terms) != _row_major(extents):
        return "the elements of a sum do not follow each other"
    if program[program.storage(load.buffer)].role == "constant" or program[instruction.out].dtype is not DType.FLOAT32:
        return "constants, or an output of another type"
    for node in walk(instruction.term):
        if reason := refusal(node, is_wide(target)):
            return reason
    long = [number for number, extent in enumerate(instruction.space) if extent > 1]
    if len(long) > 1 and any(isinstance(node, Load | Lookup | Axis) for node in walk(instruction.result)):
        return "its result asks for positions along several axes"
    plan = _Plan(instruction, load, run, long[0] if len(long) == 1 else None)
    return Implementation(
        kernel="float reduce",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=(instruction.out,),
        constants=generic_constants(program, instruction),
        emit=lambda function: _emit(function, plan),
        rows=Rows(plan.rows),
        style="ordered",
        notes=(f"runs of {run} elements, {_BURST * LANES} at a time",),
        cost=plan.cost,
    )


def _row_major(extents: tuple[int, ...]) -> dict[int, int]:
    """Steps of a dense array, axis by axis."""
    return {number: prod(extents[number + 1 :]) for number, extent in enumerate(extents) if extent > 1}


@dataclass(frozen=True)
class _Plan:
    """load: of the element. run: elements for each output. axis: the one that outputs follow, where there is just one."""

    instruction: Reduce
    load: Load
    run: int
    axis: int | None

    @property
    def rows(self) -> int:
        return instruction_rows(self.instruction)

    @property
    def outputs(self) -> int:
        """Of a row."""
        return prod(self.instruction.space) // self.rows

    @property
    def cost(self) -> Cost:
        vectors = -(-self.run // LANES)
        each = 1.5 + sum(not isinstance(node, Const | Load) for node in walk(self.instruction.term))
        output = vectors * each + 4 * -(-vectors // _BURST) + 15
        return Cost(int(20 + self.rows * (4 + self.outputs * output)), 4 * int(2 * _BURST * each + 60), step_instructions=20)


def _emit(function: KernelFunction, plan: _Plan) -> None:
    emitter = _Emitter(function, plan)
    builder, instruction = function.builder, plan.instruction
    start, stop = (I32(0), I32(plan.outputs))
    if plan.rows > 1:
        start, stop = (builder.mul(y, I32(plan.outputs)) for y in (function.y0, function.y1))
    with function.loop(start, stop) as number:
        first = emitter.floats.at(function.pointer(plan.load.buffer), builder.mul(number, I32(4 * plan.run)))
        axes = {} if plan.axis is None else {plan.axis: number}
        result = function.value(instruction.result, axes, emitter.reduced(first))
        builder.store(result, emitter.floats.at(function.pointer(instruction.out), builder.mul(number, I32(4))), align=4)


class _Emitter:
    """Reduces a run."""

    def __init__(self, function: KernelFunction, plan: _Plan) -> None:
        self.function, self.plan, self.floats = function, plan, Floats(function)
        assert isinstance(plan.instruction.initial, Const)
        initial = float(plan.instruction.initial.value)
        self.initial, self.neutral = initial, constant_floats(0.0 if plan.instruction.combine == "add" else initial)

    def reduced(self, first: Value) -> Value:
        """The scalar that a run of elements becomes."""
        floats, builder = self.floats, self.function.builder
        parts = [self.neutral] * _BURST
        turns, rest = divmod(self.plan.run, _BURST * LANES)
        with self.function.carried_loop(0, turns, [first, *parts]) as carried:
            source, *own = carried.values
            own = [self._combined(part, self._terms(source, NBYTES * at)) for at, part in enumerate(own)]
            carried.next = (floats.at(source, NBYTES * _BURST), *own)
        source, *parts = carried.results
        for at in range(0, rest, LANES):
            part = at // LANES
            parts[part] = self._combined(parts[part], self._terms(source, 4 * at, min(LANES, rest - at)))
        whole = reduce(self._combined, parts)
        for distance in (2, 1):
            undefined = ir.Constant(FLOATS, ir.Undefined)
            lanes = ir.Constant(ir.VectorType(I32, LANES), [(lane + distance) % LANES for lane in range(LANES)])
            whole = self._combined(whole, builder.shuffle_vector(whole, undefined, lanes))
        if self.plan.instruction.combine == "add" and self.initial:
            whole = self._combined(whole, constant_floats(self.initial))
        return builder.extract_element(whole, I32(0))

    def _terms(self, source: Value, nbytes: int, count: int = LANES) -> Value:
        """The terms of up to four elements; neutral numbers in the place of others."""
        plan, term = self.plan, self.plan.instruction.term
        loaded = {plan.load: self.floats.load(source, nbytes, count)}
        terms = Lanes(self.floats, Ending(term), None, loaded, {}).value(term)
        if count == LANES:
            return terms
        lanes = [lane if lane < count else LANES + lane for lane in range(LANES)]
        return self.function.builder.shuffle_vector(terms, self.neutral, ir.Constant(ir.VectorType(I32, LANES), lanes))

    def _combined(self, a: Value, b: Value) -> Value:
        match self.plan.instruction.combine:
            case "add":
                return self.function.builder.fadd(a, b)
            case "max":
                return self.floats.larger_number(a, b)
            case _:
                pass
        return self.floats.smaller_number(a, b)
