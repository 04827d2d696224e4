"""Float32 elementwise layers: sums, products, activations, with operands that lie as the output does, or follow its channels or pixels.

Enters: maps. Leaves: `Implementation`s, or the sentence why not.
Invariant: an element's operands are loaded before it is stored, element by element, so that the output may take the place of any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aot.backends.generic import activations, generic_constants
from aot.backends.neon.float_ending import Ending, read_ending
from aot.backends.neon.float_layer import is_wide
from aot.backends.neon.float_streams import Streams
from aot.backends.neon.simd_float import LANES, Floats
from aot.graph.expr import Load
from aot.graph.ir import DType
from aot.graph.primitive import Map, Primitive, store_of
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value, memory_type
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.indexing import linear
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Program
from aot.lower.rows import instruction_rows
from aot.target import Target

_BURST = 4  # vectors that a turn of the loop makes
_FEW = 4  # loads and operations of an element


def claim_map(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Layers whose elements are made of elements at the same place."""
    if "neon" not in target.has:
        return f"{target.name} has no Advanced SIMD"
    if not isinstance(instruction, Map) or program[instruction.out].dtype is not DType.FLOAT32:
        return "not elements of float32"
    if prod(instruction.space) < LANES:
        return "fewer elements than a vector has lanes"
    stored = linear(store_of(instruction), program[instruction.out].shape, instruction.space)
    if stored is None or stored.offset or dict(stored.terms) != _row_major(instruction.space):
        return "its output does not lie in one piece"
    ending = read_ending(program, instruction, instruction.value, (len(instruction.space) - 1,), is_wide(target))
    if isinstance(ending, str):
        return ending
    if ending.channels and ending.instructions <= _FEW:
        return "little but a number for each channel, which LLVM's loops keep in registers"
    if not ending.streams:
        return "it reads nothing that lies as the output does"
    rows = instruction_rows(instruction)
    plan = _Plan(instruction, ending, rows if prod(instruction.space) // rows >= _BURST * LANES else 1)
    return Implementation(
        kernel="float map",
        instruction=instruction,
        reads=activations(program, instruction),
        writes=(instruction.out,),
        constants=tuple(one for one in generic_constants(program, instruction)),
        emit=lambda function: _emit(function, plan),
        overwrites=elementwise_overwrites(program, instruction),
        rows=Rows(plan.rows),
        style="ordered",
        notes=(f"{plan.run} elements in a row, {_BURST * LANES} at a time",),
        cost=plan.cost,
    )


def _row_major(space: tuple[int, ...]) -> dict[int, int]:
    """Steps of a dense array, axis by axis."""
    return {number: prod(space[number + 1 :]) for number, extent in enumerate(space) if extent > 1}


@dataclass(frozen=True)
class _Plan:
    """rows: those that a step can be divided in."""

    instruction: Map
    ending: Ending
    rows: int

    @property
    def run(self) -> int:
        """Elements that follow each other without another channel's or pixel's number: a pixel's, or all of a row."""
        channels = self.instruction.space[-1]
        return channels if self.ending.channels or self.ending.pixels else prod(self.instruction.space) // self.rows

    @property
    def runs(self) -> int:
        """Of a row."""
        return prod(self.instruction.space) // self.rows // self.run

    @property
    def cost(self) -> Cost:
        vectors = -(-self.run // LANES)
        each = self.ending.instructions + 0.5 + 0.75 * (len(self.ending.beside) + len(self.ending.channels))
        run = vectors * each + 5 * -(-vectors // _BURST) + 6
        code = 4 * int((_BURST * (1 + self.run % (_BURST * LANES) // LANES)) * each + 40)
        return Cost(int(20 + self.rows * (6 + self.runs * run)), code, step_instructions=20)


def _emit(function: KernelFunction, plan: _Plan) -> None:
    floats, ending = Floats(function), plan.ending
    scalars = {load: floats.repeated(_scalar(function, plan, load)) for load in ending.scalars}
    row = plan.run * plan.runs
    builder = function.builder
    with function.loop(function.y0, function.y1) if plan.rows > 1 else function.loop(0, 1) as y:
        place, pixel = (builder.mul(y, I32(4 * count)) for count in (row, plan.runs))
        beside = [plan.instruction.out, *(load.buffer for load in ending.beside)]
        pointers = [floats.at(function.pointer(name), place) for name in beside]
        pointers += [function.pointer(load.buffer) for load in ending.channels]
        pointers += [floats.at(function.pointer(load.buffer), pixel) for load in ending.pixels]
        streams = Streams(floats, ending, tuple(pointers), 4 * plan.run, scalars)
        with function.carried_loop(0, plan.runs, streams.pointers) as carried:
            streams = streams.at(carried.values)
            _run(function, streams, plan.run)
            carried.next = streams.moved(pixels=1).pointers


def _scalar(function: KernelFunction, plan: _Plan, load: Load) -> Value:
    """The one element that a load reads."""
    address = function.mapped_address(load.buffer, load.index, {number: I32(0) for number in range(len(plan.instruction.space))})
    return function.builder.load(address, align=4, typ=memory_type(load.dtype))


def _run(function: KernelFunction, streams: Streams, count: int) -> None:
    """Elements of a row that follow each other."""
    turns, rest = divmod(count, _BURST * LANES)
    moved = streams
    if turns:
        with function.carried_loop(0, turns, streams.pointers) as carried:
            inner = streams.at(carried.values)
            inner.store([[None] * _BURST], _BURST * LANES)
            carried.next = inner.moved(channels=_BURST * LANES).pointers
        moved = streams.at(carried.results)
    if rest:
        moved.store([[None] * -(-rest // LANES)], rest)
