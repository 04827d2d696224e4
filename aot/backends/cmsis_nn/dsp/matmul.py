"""Products of two matrices that are both only known when the code runs: BATCH_MATMUL.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: in scratch the right matrix' columns stand as a dense layer's int16 weights do in flash, with 0 for what pads them, so that
`product.Core` multiplies them with slots of the left matrix' rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.across import Vectors, gather_across
from aot.backends.cmsis_nn.dsp.ending import Output, constants_of_form
from aot.backends.cmsis_nn.dsp.finish import Finish, finish_block
from aot.backends.cmsis_nn.dsp.gather import Pixels, gather_run
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.dsp.packing import Packed, Tile, paired, replicated
from aot.backends.cmsis_nn.dsp.product import Core, Placement
from aot.backends.cmsis_nn.dsp.tiling import block_choices, block_instructions, equal_turns
from aot.backends.generic import activations, constant_of, generic_constants
from aot.backends.layers.operands import Layer, Layout, Split, split_result
from aot.backends.layers.requantise import Form, Stage, solve
from aot.backends.layers.requantise16 import rounded_once
from aot.graph.expr import Const, Load
from aot.graph.ir import DType, Shape
from aot.graph.primitive import Contract, Geometry, Map, Primitive, store_of
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Implementation
from aot.lower.indexing import linear
from aot.lower.inplace import elementwise_overwrites, stored_element_loads
from aot.lower.program import Program
from aot.target import Target

_SLICE_NBYTES = 8 * 1024  # of the right matrix in scratch, where columns can be shared out evenly
_STRAIGHT = 32  # words of a pair of channels in a turn


@dataclass(frozen=True)
class Matrices:
    """Where an operand's, or the output's, elements lie: `offset` + a step for each batch axis + vector * across + element * along. A left
    vector is a row, a right one a column, an output's one a row."""

    name: str
    offset: int
    batches: tuple[int, ...]
    across: int
    along: int
    nbytes: int
    zero: int = 0

    @property
    def has_words(self) -> bool:
        """Whether every vector starts as well aligned as the first element of all."""
        return all(step * self.nbytes % 4 == 0 for step in (self.offset, *self.batches, self.across))


@dataclass(frozen=True)
class _Plan:
    """All decisions for one product. sizes: rows, depth, columns. slices: parts of the columns that are packed one after the other."""

    layer: Layer
    batches: tuple[int, ...]
    sizes: tuple[int, int, int]
    left: Matrices
    right: Matrices
    out: Matrices
    packed: Packed
    slices: int

    @property
    def tile(self) -> Tile:
        return self.packed.tile

    @property
    def slice_columns(self) -> int:
        return -(-self.sizes[2] // self.slices)

    @property
    def constants_nbytes(self) -> int:
        return 8 * self.packed.constant_count

    @property
    def group_nbytes(self) -> int:
        return self.packed.header_nbytes + self.packed.word_nbytes * self.tile.words

    @property
    def slots_at(self) -> int:
        """Byte of scratch at which slots begin, behind the right matrix."""
        return self.constants_nbytes + self.group_nbytes * self.packed.groups

    @property
    def stage_at(self) -> int:
        return self.slots_at + 4 * self.tile.pixels * self.tile.words

    @property
    def nbytes(self) -> int:
        staged = self.layer.split.rest is not None
        return self.stage_at + (-(-self.tile.pixels * self.sizes[2] * self.packed.element_nbytes // 4) * 4 if staged else 0)

    @property
    def quads(self) -> bool:
        """Whether words hold elements in the order in which neighbouring bytes are expanded."""
        return self.left.nbytes == 1

    @property
    def tail_unroll(self) -> int:
        return next(step for step in range(8, 0, -1) if self.tile.words % step == 0)


def claim_matmul(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Products of int8 and int16 matrices of any layout, with one scale."""
    if "dsp" not in target.has:
        return f"{target.name} has no DSP extension (SMLAD)"
    plan = _plan(program, instruction)
    if isinstance(plan, str):
        return plan
    layer = plan.layer
    rest, names = layer.split.rest, (plan.left.name, plan.right.name)
    fused = None if rest is None else Map(layer.instruction.out, layer.instruction.space, rest, layer.instruction.store)
    operands = [name for name in names if not _is_constant(program, name)]
    constants = [constant_of(program, name) for name in names if _is_constant(program, name)]
    found = {one.name: one for one in (*constants, *(() if fused is None else generic_constants(program, fused)))}
    return Implementation(
        kernel="matmul",
        instruction=instruction,
        reads=tuple(dict.fromkeys((*operands, *(() if fused is None else activations(program, fused))))),
        writes=(layer.instruction.out,),
        constants=tuple(found.values()),
        emit=lambda function: _Emitter(function, plan).emit(),
        scratch_nbytes=plan.nbytes,
        overwrites=tuple(name for name in elementwise_overwrites(program, layer.instruction) if name not in names),
        style="ordered",
        notes=(str(plan.packed.form), f"a block is {plan.tile.pixels} x {2 * plan.tile.pairs} (rows x columns)"),
    )


def _is_constant(program: Program, name: str) -> bool:
    return program[program.storage(name)].role == "constant"


def _plan(program: Program, instruction: Primitive) -> _Plan | str:
    """The decisions, or why there is no product here."""
    if not isinstance(instruction, Contract) or len(instruction.window) != 1 or len(instruction.space) < 2:
        return "not a product of matrices"
    if instruction.geometry is not None and (
        instruction.geometry.kind != "dense" or _is_constant(program, instruction.right.buffer)
    ):
        return "not a product of two matrices that are known when the code runs"
    if not prod(instruction.space) * prod(instruction.window):
        return "it has no elements"
    types = tuple(program[load.buffer].dtype for load in (instruction.left, instruction.right))
    if types not in ((DType.INT8, DType.INT8), (DType.INT16, DType.INT16), (DType.INT16, DType.INT8)):
        return f"{types[0]} times {types[1]}"
    if not isinstance(instruction.initial, Const) or instruction.initial.value:
        return "sums that begin with a bias"
    split = split_result(instruction.result)
    if split is None or split.dtype is not types[0]:
        return f"its result does not begin with a requantisation to {types[0]}"
    if not isinstance(split.multiplier, Const) or not isinstance(split.shift, Const):
        return "more than one scale"
    places = _places(program, instruction)
    if isinstance(places, str):
        return places
    uses = instruction.space[-2] * prod(size for size, step in zip(instruction.space, places[1].batches) if not step)
    if uses == 1 and places[1].along != 1:
        return "one row times columns that lie apart: generic code needs as few instructions, and no scratch"
    form = _form(instruction, split, types)
    return form if isinstance(form, str) else _decided(program, instruction, split, form, places)


def _places(program: Program, instruction: Contract) -> tuple[Matrices, Matrices, Matrices] | str:
    """Left, right, output."""
    space = instruction.space
    found: list[Matrices] = []
    row, column, depth = len(space) - 2, len(space) - 1, len(space)
    left, right = instruction.left, instruction.right
    for load, vector, zero in ((left, row, instruction.left_zero_point), (right, column, instruction.right_zero_point)):
        if load.fill is not None:
            return "an operand with padding"
        place = _matrices(program, load, (*space, *instruction.window), vector, depth, zero)
        if place is None:
            return "an operand that is read through an index map that the kernel doesn't know"
        found.append(place)
    store = linear(store_of(instruction), program[instruction.out].shape, space)
    if store is None:
        return "its output is stored through a table"
    terms, nbytes = dict(store.terms), program[instruction.out].dtype.nbytes
    if space[column] > 1 and terms.get(column, 0) != 1:
        return "its columns are not stored next to each other"
    steps = tuple(terms.get(number, 0) for number in range(row))
    found.append(Matrices(instruction.out, store.offset, steps, terms.get(row, 0), 1, nbytes))
    return found[0], found[1], found[2]


def _matrices(program: Program, load: Load, extents: Shape, vector: int, depth: int, zero: int) -> Matrices | None:
    """Where an operand lies; None if its index is not a step for each axis, or moves with the other operand's vectors."""
    buffer = program[load.buffer]
    position = linear(load.index, buffer.shape, extents)
    if position is None:
        return None
    terms = {number: step for number, step in position.terms if extents[number] > 1}
    other = 2 * depth - 3 - vector  # of the axes before depth's, which are row and column
    if terms.get(other, 0):
        return None
    batches = tuple(terms.get(number, 0) for number in range(depth - 2))
    along = terms.get(depth, 0) if extents[depth] > 1 else 1
    return Matrices(load.buffer, position.offset, batches, terms.get(vector, 0), along, buffer.dtype.nbytes, zero)


def _form(instruction: Contract, split: Split, types: tuple[DType, ...]) -> Form | str:
    """The requantisation of every column, as one channel."""
    left, right = types
    zeros = (instruction.left_zero_point, instruction.right_zero_point)
    ends = [[number - zero for number in dtype.limits] for dtype, zero in zip((left, right), zeros)]
    corners = [a * b * instruction.window[0] for a in ends[0] for b in ends[1]]
    assert isinstance(split.multiplier, Const) and isinstance(split.shift, Const)
    multiplier, shift = (np.array([int(number.value)], np.int64) for number in (split.multiplier, split.shift))
    clamp = None if (split.low, split.high) == split.dtype.limits else (split.low, split.high)
    if split.rounds_once:
        reach = np.array([max(map(abs, corners))], np.int64)
        fits = instruction.initial.dtype is DType.INT32 or int(reach[0]) < 1 << 31
        return rounded_once(multiplier, shift, reach, fits, clamp)
    if shift.min() < -31 or shift.max() > 30 or multiplier.min() < 0 or split.dtype is not DType.INT8:
        return "a rescaling that is not known here"
    low, high = (np.array([bound(corners)], np.int64) for bound in (min, max))
    stage = Stage(multiplier, shift, low, high, split.zero_point, split.low, split.high)
    return solve(stage, (np.zeros(1, np.int64), np.full(1, 8)))


def _decided(
    program: Program, instruction: Contract, split: Split, form: Form, places: tuple[Matrices, Matrices, Matrices]
) -> _Plan:
    *batches, rows, columns = instruction.space
    (depth,) = instruction.window
    left, right, out = places
    words, channels = -(-depth // 2), paired(columns)
    choices = block_choices(words, len(channels), form.kind == "long")
    pixels, pairs = min(choices, key=lambda choice: block_instructions(words, rows, *choice))
    tile = equal_turns(words, pixels, pairs, _STRAIGHT // pairs, rows % pixels != 0, False)
    tile = Tile(tile.pixels, tile.pairs, tile.unroll, tile.turns, wide=True)
    slices = (
        1
        if split.rest is not None or columns % (2 * pairs)
        else _slices(columns // (2 * pairs), 16 * pairs + 8 * pairs * tile.words)
    )
    channels = channels[: len(channels) // slices]
    packed = Packed(channels, False, replicated(form, len(channels)), tile, np.zeros(0, np.int32), True)
    zeros = np.zeros(columns, np.int64)
    loads = stored_element_loads(program, instruction)
    beside = tuple(load for load in loads if not _is_constant(program, load.buffer))
    geometry = Geometry("dense", (1, 1, rows, depth), (1, 1, rows, columns))
    place = Layout(0, 0, out.across or columns, 0)
    layer = Layer(instruction, geometry, zeros.reshape(-1, 1, 1, 1), zeros, zeros, zeros, split, place, beside)
    return _Plan(layer, tuple(batches), (rows, depth, columns), left, right, out, packed, slices)


def _slices(groups: int, group_nbytes: int) -> int:
    """The fewest equal parts of which one is small enough; all groups apart where none is."""
    return next(
        count
        for count in range(1, groups + 1)
        if groups % count == 0 and (groups // count * group_nbytes <= _SLICE_NBYTES or count == groups)
    )


class _Emitter:
    """Emits one product."""

    def __init__(self, function: KernelFunction, plan: _Plan) -> None:
        self.plan, self.dsp = plan, Dsp(function)
        self.output = Output(self.dsp, plan.layer)
        assert function.scratch is not None
        self.table = function.scratch
        self.slots, self.stage = (self.dsp.at(self.table, start) for start in (plan.slots_at, plan.stage_at))
        self.words = {each.name: each.has_words and function.align_of(each.name) % 4 == 0 for each in (plan.left, plan.right)}

    def emit(self) -> None:
        plan, dsp = self.plan, self.dsp
        form = plan.packed.form
        for number, word in enumerate([*constants_of_form(form, 0), *constants_of_form(form, 1)]):
            dsp.store_word(I32(word), self.table, 4 * number)
        each = (plan.left, plan.right, plan.out)
        starts = [dsp.at(dsp.function.pointer(one.name), one.offset * one.nbytes) for one in each]
        self._batches(0, starts, I32(0), False)

    def _batches(self, level: int, at: Sequence[Value], row: Value, is_packed: bool) -> None:
        """The batches from this axis on. at: the first left, right and output matrix; row: the number of the first row."""
        plan, dsp = self.plan, self.dsp
        if not is_packed and plan.slices == 1 and not any(plan.right.batches[level:]):
            self._pack(at[1])
            is_packed = True
        if level == len(plan.batches):
            self._matrix(at, row, is_packed)
            return
        steps = [one.batches[level] * one.nbytes for one in (plan.left, plan.right, plan.out)]
        rows = prod(plan.layer.instruction.space[level + 1 : -1])
        with dsp.repeat(plan.batches[level], [*at, row]) as carried:
            *here, number = carried.values
            self._batches(level + 1, here, number, is_packed)
            following = [dsp.at(pointer, step) for pointer, step in zip(here, steps, strict=True)]
            carried.next = (*following, dsp.builder.add(number, I32(rows)))

    def _matrix(self, at: Sequence[Value], row: Value, is_packed: bool) -> None:
        """One product, slice by slice."""
        plan, dsp = self.plan, self.dsp
        left, right, out = at
        if is_packed:
            self._rows(left, out, row)
            return
        with dsp.repeat(plan.slices, [right, out]) as carried:
            here, there = carried.values
            self._pack(here)
            self._rows(left, there, row)
            steps = (plan.right.across * plan.right.nbytes, plan.out.nbytes)
            carried.next = tuple(dsp.at(pointer, plan.slice_columns * step) for pointer, step in zip(carried.values, steps))

    # The right matrix.

    def _pack(self, right: Value) -> None:
        """A slice's columns, the first one at `right`, group by group."""
        plan, dsp, packed = self.plan, self.dsp, self.plan.packed
        odd = int(packed.is_odd)
        start = dsp.at(self.table, plan.constants_nbytes)
        if packed.groups > odd:
            with dsp.repeat(packed.groups - odd, [right, start]) as carried:
                here, into = carried.values
                self._group(here, into, False)
                step = 2 * plan.tile.pairs * plan.right.across * plan.right.nbytes
                carried.next = (dsp.at(here, step), dsp.at(into, plan.group_nbytes))
            right, start = carried.results
        if odd:
            self._group(right, start, True)

    def _group(self, right: Value, into: Value, is_odd: bool) -> None:
        """Biases, words, and zeros for words that pad; is_odd: the last column stands in both of its pair's places."""
        plan, dsp, packed = self.plan, self.dsp, self.plan.packed
        pairs, (_, depth, _) = plan.tile.pairs, plan.sizes
        for number in range(packed.header_nbytes // 4):
            dsp.store_word(I32(int(packed.form.delta[0])), into, 4 * number)
        words = dsp.at(into, packed.header_nbytes)
        for pair in range(pairs):
            column = dsp.at(right, 2 * pair * plan.right.across * plan.right.nbytes)
            distance = 0 if is_odd and pair == pairs - 1 else plan.right.across
            self._gather(plan.right, column, dsp.at(words, 8 * pair), 2, distance, 2 * pairs)
        if depth % 2:
            last = dsp.at(words, packed.word_nbytes * (depth // 2))
            for number in range(2 * pairs):
                dsp.store_word(dsp.builder.and_(dsp.word(last, 4 * number), I32(0xFFFF)), last, 4 * number)
        for number in range(2 * pairs * (plan.tile.words - -(-depth // 2))):
            dsp.store_word(I32(0), dsp.at(words, packed.word_nbytes * -(-depth // 2)), 4 * number)

    def _gather(self, each: Matrices, source: Value, into: Value, count: int, distance: int, stride: int) -> None:
        """`count` of an operand's vectors, `distance` elements apart, into slots."""
        plan, depth = self.plan, self.plan.sizes[1]
        if each.along == 1 and plan.quads == (each.nbytes == 1):
            layout = Pixels(count, distance * each.nbytes, stride, self.words[each.name], each.zero, each.nbytes)
            gather_run(self.dsp, source, into, depth, layout)
        else:
            vectors = Vectors(count, distance, each.along, stride, each.zero, each.nbytes, plan.quads)
            gather_across(self.dsp, source, into, depth, vectors)

    # The left matrix, and the product.

    def _rows(self, left: Value, out: Value, row: Value) -> None:
        """All rows times the slice, block by block."""
        plan, dsp, pixels = self.plan, self.dsp, self.plan.tile.pixels
        rows, _, _ = plan.sizes
        single = Core(plan.packed, 1, pixels, plan.tail_unroll)
        full = Core(plan.packed, pixels, pixels, plan.tile.unroll)
        for core, count, turns in ((full, pixels, rows // pixels), (single, 1, rows % pixels)):
            if not turns or (core is single and pixels == 1):
                continue
            with dsp.repeat(turns, [left, out, row]) as carried:
                source, there, number = carried.values
                self._gather(plan.left, source, self.slots, count, plan.left.across, pixels)
                self._product(core, there, count, number)
                left_step, out_step = (each.across * each.nbytes for each in (plan.left, plan.out))
                forward = (dsp.at(source, count * left_step), dsp.at(there, count * out_step))
                carried.next = (*forward, dsp.builder.add(number, I32(count)))
            left, out, row = carried.results

    def _product(self, core: Core, out: Value, count: int, row: Value) -> None:
        """Multiply the slots and store; what is fused behind goes over the block from the stage."""
        plan, columns = self.plan, self.plan.sizes[2]
        if plan.layer.split.rest is None:
            core.call(self.dsp, Placement(self.table, self.slots, out, plan.out.across * plan.out.nbytes))
            return
        core.call(self.dsp, Placement(self.table, self.slots, self.stage, columns * plan.packed.element_nbytes))
        finish_block(self.dsp, self.output, self.stage, Finish(out, count, row, {}))
