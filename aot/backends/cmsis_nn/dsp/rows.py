"""Convolutions over expanded rows: each input row becomes int16 pairs once, and every window that it takes part in reads it there.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: before an output row is computed, row dy of scratch holds the input row of kernel row dy, less the zero point, with zeros
around it; every output element is computed once, from inputs read before it is stored.

Scratch is [kernel row][word of a pixel][phase][column]: column c of a row, its left padding counted, stands at phase c % stride,
place c // stride. So the same word of neighbouring output pixels is one LDRD, for any stride, and a step of the kernel row or of the
word is a constant. From one output row to the next the rows that are needed again move up. Kernel rows outside the image add nothing
and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.convolution import FOR_COLUMNS, is_for_columns
from aot.backends.cmsis_nn.dsp.finish import Finish, finish_block
from aot.backends.cmsis_nn.dsp.gather import Patches, Pixels, gather_run, run_order, run_words
from aot.backends.cmsis_nn.dsp.instructions import REACH, Dsp
from aot.backends.cmsis_nn.dsp.packing import Packed, Tile, pack, paired
from aot.backends.cmsis_nn.dsp.product import Core, Placement
from aot.backends.cmsis_nn.dsp.tiling import block_choices, block_instructions, code_share
from aot.backends.cmsis_nn.shared import Body, digest, emit_body
from aot.backends.layers.fused import operands_of, overlaps, scatterable, skews
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.skews import row_by_row
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, POINTER, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_MOST_SCRATCH_NBYTES = 8 * 1024
_LEAST_UNROLL, _MOST_UNROLL = 6, 24  # words of a turn
_TURN = 8  # instructions for each turn of the inner loop besides its words
_WORD_NBYTES = 46  # of code for a word of a turn


def claim_rows(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Convolutions whose windows overlap so much that expanding whole rows is cheaper than gathering each window."""
    layer = read_layer(program, instruction, target, "conv", "dsp")
    if isinstance(layer, str):
        return layer
    shape = FOR_COLUMNS if is_for_columns(layer) else _shape(program, layer)
    if isinstance(shape, str):
        return shape
    plan = _Plan(layer, shape, pack(layer, shape.order, shape.tile, centred=True))
    weights = Buffer(
        f"{layer.instruction.out}.packed", DType.INT32, plan.packed.data.shape, "constant", data=plan.packed.data, align=4
    )
    reads, constants = operands_of(program, layer.instruction, layer.split.rest)
    g = layer.geometry
    return Implementation(
        kernel=f"conv {g.kernel[0]}x{g.kernel[1]}",
        instruction=instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(weights, *constants),
        emit=lambda function: _emit(function, plan, weights.name),
        scratch_nbytes=plan.stage_at + plan.stage_nbytes,
        overwrites=elementwise_overwrites(program, instruction),
        scatters=scatterable(program, layer),
        overlap=overlaps(program, layer, "anywhere" if g.input[0] == 1 else None),
        skew=skews(program, layer, row_by_row(layer, lambda y: (y - 1) * g.stride[0] - g.pad_top + shape.height)),
        rows=Rows(g.output[1], 1, images=g.output[0]),
        style="ordered",
        cost=Cost(
            int(_row_instructions(layer, shape) * g.output[0] * g.output[1]),
            shape.code_nbytes,
            step_instructions=int(_again_instructions(shape)),
        ),
        notes=(
            str(plan.packed.form),
            f"expanded rows; a block is {shape.tile.pixels} x {2 * shape.tile.pairs} (pixels x channels)",
        ),
    )


@dataclass(frozen=True)
class _Shape:
    """Sizes of the scratch and of the loops over it. chunk: words of a pixel in a turn."""

    geometry: Geometry
    tile: Tile
    chunk: int

    @property
    def words(self) -> int:
        """Words of an input pixel."""
        return run_words(self.geometry.input[3])

    @property
    def stride(self) -> int:
        return self.geometry.stride[1]

    @property
    def span(self) -> int:
        """Columns that an output row reads, padding included."""
        g = self.geometry
        return (g.output[2] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1

    @property
    def pitch(self) -> int:
        """Columns of a phase."""
        return -(-self.span // self.stride)

    @property
    def row_nbytes(self) -> int:
        return 4 * self.words * self.stride * self.pitch

    @property
    def height(self) -> int:
        """Input rows that scratch holds: those from the kernel's first row to its last."""
        return (self.geometry.kernel[0] - 1) * self.geometry.dilation[0] + 1

    @property
    def nbytes(self) -> int:
        return self.height * self.row_nbytes

    @property
    def inside(self) -> range:
        """The columns that lie in the image."""
        g = self.geometry
        return range(g.pad_left, min(self.span, g.pad_left + g.input[2]))

    @property
    def leaves(self) -> tuple[bool, bool]:
        """Whether rows, and columns, outside the image are read."""
        g = self.geometry
        below = (g.output[1] - 1) * g.stride[0] - g.pad_top + self.height > g.input[1]
        return g.pad_top > 0 or below, len(self.inside) < self.span

    @property
    def partial(self) -> bool:
        """Whether kernel rows outside the image are left out: unless all of some window's are, or rows are dilated."""
        g = self.geometry
        tops = [y * g.stride[0] - g.pad_top for y in range(g.output[1])]
        return self.leaves[0] and self.height == g.kernel[0] and all(-g.kernel[0] < top < g.input[1] for top in tops)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The byte of each word of a turn: words of a pixel, and for each of them the kernel's columns."""
        found: list[int] = []
        for word in range(self.chunk):
            for tap in range(self.geometry.kernel[1]):
                place, phase = divmod(tap * self.geometry.dilation[1], self.stride)
                found.append(4 * ((word * self.stride + phase) * self.pitch + place))
        return tuple(place - self.bias for place in found + [0] * (self.tile.unroll - len(found)))

    @property
    def bias(self) -> int:
        """How far the pointer to a turn's words stands behind their start, for those that LDRD could not reach. (LDR reaches less far
        back: where pixels are read one by one the pointer stands at the start.)"""
        phases = min(self.stride, (self.geometry.kernel[1] - 1) * self.geometry.dilation[1] + 1)
        end = 4 * ((self.chunk - 1) * self.stride + phases) * self.pitch
        pairs_only = self.tile.pixels % 2 == 0 and self.geometry.output[2] % self.tile.pixels == 0
        return REACH if end > REACH and pairs_only else 0

    @cached_property
    def order(self) -> np.ndarray:
        """The input of each half of a window's words; -1 for one that doesn't matter."""
        kernel, depth = self.geometry.kernel, self.geometry.input[3]
        run = np.array(run_order(depth)).reshape(-1, self.chunk, 1, 2)
        taps = depth * (np.arange(kernel[0])[:, None] * kernel[1] + np.arange(kernel[1]))
        every = np.where(run[None] < 0, -1, run[None] + taps[:, None, None, :, None])
        turns = every.reshape(kernel[0] * len(run), -1)
        return np.pad(turns, ((0, 0), (0, 2 * self.tile.unroll - turns.shape[1])), constant_values=-1).reshape(-1)

    @property
    def step(self) -> int:
        """Bytes from one turn to the next; dilated rows are a turn each."""
        apart = self.geometry.dilation[0] if self.geometry.kernel[0] > 1 else 1
        return apart * self.row_nbytes * self.chunk // self.words

    @property
    def code_nbytes(self) -> int:
        return _WORD_NBYTES * self.tile.unroll + 700


def _shape(program: Program, layer: Layer) -> _Shape | str:
    """The sizes, or why not."""
    g = layer.geometry
    if g.kernel == (1, 1):
        return "a 1x1 kernel: no two windows overlap"
    if (
        g.pad_left >= g.input[2] + g.pad_left
        or g.pad_left >= (g.output[2] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1
    ):
        return "rows that read no column of the image"
    best = min(_candidates(program, layer), key=lambda shape: _row_instructions(layer, shape), default=None)
    if best is None:
        return "rows too wide to be expanded, or too deep for dilated ones"
    if best.nbytes > max(_MOST_SCRATCH_NBYTES, 8 * layer.weights[0].size):
        return f"{best.nbytes} bytes of expanded rows"
    if _row_instructions(layer, best) >= _window_instructions(layer):
        return "windows that overlap too little for expanded rows"
    return best


def _candidates(program: Program, layer: Layer) -> list[_Shape]:
    """Every way to divide the loops that LDRD's reach and the layer's share of code allow."""
    g = layer.geometry
    words, most = run_words(g.input[3]), min(_MOST_UNROLL, max(_LEAST_UNROLL, code_share(program, layer) // _WORD_NBYTES))
    found: list[_Shape] = []
    for pixels, pairs in block_choices(words, len(paired(len(layer.bias)))):
        for chunk in range(1, words + 1):
            unroll = chunk * g.kernel[1] + chunk * g.kernel[1] % 2
            dilated = g.dilation[0] > 1 and g.kernel[0] > 1
            if words % chunk or (unroll > most and chunk > 1) or (dilated and chunk < words):
                continue
            shape = _Shape(g, Tile(pixels, pairs, unroll, g.kernel[0] * words // chunk), chunk)
            if max(shape.places) + 4 * pixels <= REACH:
                found.append(shape)
    return found


def _row_instructions(layer: Layer, shape: _Shape) -> float:
    """What an output row is expected to take."""
    g, tile = layer.geometry, shape.tile
    pairs = len(paired(len(layer.bias))) / 2
    blocks = sum(divmod(g.output[2], tile.pixels))
    product = pairs * block_instructions(tile.words, g.output[2], tile.pixels, tile.pairs)
    turns = blocks * pairs / tile.pairs * tile.turns * _TURN
    fresh = min(g.stride[0], shape.height)
    expanded = fresh * (shape.span * (4.2 * shape.words + 6) + 40)
    moved = 1.4 * (shape.height - fresh) * shape.row_nbytes / 4
    return product + turns + blocks * 14 + expanded + moved


def _again_instructions(shape: _Shape) -> float:
    """What a step takes besides its rows: those that the step before had expanded are expanded again, not moved."""
    again = shape.height - min(shape.geometry.stride[0], shape.height)
    return again * (shape.span * (2.8 * shape.words + 4) + 30 - 1.4 * shape.row_nbytes / 4) + 40


def _window_instructions(layer: Layer) -> float:
    """What an output row takes where each window is gathered."""
    g = layer.geometry
    patches = Patches.of(layer)
    count, length = patches.runs
    words, pairs = len(patches.order) // 2, len(paired(len(layer.bias))) / 2
    product = min(block_instructions(words, g.output[2], *choice) for choice in block_choices(words, len(paired(len(layer.bias)))))
    turns = g.output[2] / 4 * pairs * words / 16 * _TURN
    return pairs * product + turns + g.output[2] * (g.kernel[0] * (count * (2.7 * run_words(length) + 4) + 8) + 20)


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer."""

    layer: Layer
    shape: _Shape
    packed: Packed
    aligned: bool = False

    @property
    def stage_at(self) -> int:
        """Byte of scratch at which a block's outputs stand before what is fused behind the layer goes over them."""
        return self.shape.nbytes

    @property
    def stage_nbytes(self) -> int:
        return 0 if self.layer.split.rest is None else -(-self.packed.tile.pixels * len(self.layer.bias) // 4) * 4

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        layer = self.layer
        if layer.split.rest is not None:
            return None
        zero_point = layer.instruction.left_zero_point
        return layer.geometry, layer.out, self.shape, self.packed.groups, self.packed.code, self.aligned, zero_point


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    source = plan.layer.instruction.left.buffer
    aligned = Patches.of(plan.layer, function.align_of(source)).aligned
    plan = replace(plan, aligned=aligned)
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "rows", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def emit(self) -> None:
        layer, dsp, builder = self.plan.layer, self.dsp, self.dsp.builder
        nbytes = self.output.nbytes
        first = builder.mul(self.frame.y0, I32(layer.out.row * nbytes))
        target = dsp.at(dsp.at(self.frame.target, layer.out.offset * nbytes), first)
        self.each_image(target, self._image)

    def _image(self, source: Value, out: Value, number: Value) -> None:
        """All output rows: expand the rows that are new, multiply, move up those that are needed again."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        g, row_nbytes = plan.layer.geometry, plan.shape.row_nbytes
        fresh = min(g.stride[0], plan.shape.height)
        again = plan.shape.height - fresh
        top = builder.sub(builder.mul(self.frame.y0, I32(g.stride[0])), I32(g.pad_top))
        if again:
            self._expand(source, self.frame.scratch, top, again)
        start = builder.add(top, I32(again))
        with dsp.repeat(builder.sub(self.frame.y1, self.frame.y0), [out, start, self.frame.y0]) as carried:
            here, row, y = carried.values
            self._expand(source, dsp.at(self.frame.scratch, again * row_nbytes), row, fresh)
            self._blocks(here, y, number, self._part(builder.sub(row, I32(again))))
            if again:
                with builder.if_then(builder.icmp_unsigned("!=", carried.index, I32(1))):
                    _move(dsp, dsp.at(self.frame.scratch, fresh * row_nbytes), self.frame.scratch, again * row_nbytes)
            forward = dsp.at(here, plan.layer.out.row * self.output.nbytes)
            carried.next = (forward, builder.add(row, I32(g.stride[0])), builder.add(y, I32(1)))

    def _part(self, top: Value) -> Sequence[Value] | None:
        """First kernel row inside the image, their number, and how many follow outside; None for all of them."""
        if not self.plan.shape.partial:
            return None
        builder, g = self.dsp.builder, self.plan.layer.geometry
        above = builder.select(builder.icmp_signed("<", top, I32(0)), builder.neg(top), I32(0))
        over = builder.sub(builder.add(top, I32(g.kernel[0])), I32(g.input[1]))
        below = builder.select(builder.icmp_signed(">", over, I32(0)), over, I32(0))
        return above, builder.sub(builder.sub(I32(g.kernel[0]), above), below), below

    def _blocks(self, out: Value, y: Value, number: Value, part: Sequence[Value] | None) -> None:
        """One output row, block by block."""
        plan, dsp = self.plan, self.dsp
        width, pixels = plan.layer.geometry.output[2], plan.packed.tile.pixels
        slots, column = dsp.at(self.frame.scratch, plan.shape.bias), I32(0)
        if part is not None:
            slots = dsp.at(slots, dsp.builder.mul(part[0], I32(plan.shape.row_nbytes)))
        for count, turns in ((pixels, width // pixels), (1, width % pixels)):
            if not turns:
                continue
            with dsp.repeat(turns, [slots, out, column]) as carried:
                slots, here, x = carried.values
                self._product(count, part, Placement(self.frame.table, slots, here, 0), x, {0: number, 1: y})
                forward = dsp.at(here, count * plan.layer.out.pixel * self.output.nbytes)
                carried.next = (dsp.at(slots, 4 * count), forward, dsp.builder.add(x, I32(count)))
            slots, out, column = carried.results

    def _product(self, count: int, part: Sequence[Value] | None, place: Placement, column: Value, axes: dict[int, Value]) -> None:
        """`count` pixels times all channels; `place` is complete but for the distance of pixels and the part of a group."""
        plan, dsp, layer, shape = self.plan, self.dsp, self.plan.layer, self.plan.shape
        tile = plan.packed.tile
        core = Core(plan.packed, count, 1, tile.unroll, shape.places, shape.step, shape.partial)
        if part is not None:
            turns = tile.turns // layer.geometry.kernel[0]
            row_nbytes = I32(4 * tile.pairs * tile.unroll * turns)
            before, after = (dsp.builder.mul(part[number], row_nbytes) for number in (0, 2))
            place = replace(place, before=before, after=after, turns=dsp.builder.mul(part[1], I32(turns)))
        if layer.split.rest is None:
            core.call(dsp, replace(place, pixel_step=layer.out.pixel))
            return
        stage = dsp.at(self.frame.scratch, plan.stage_at)
        core.call(dsp, replace(place, out=stage, pixel_step=len(layer.bias)))
        finish_block(dsp, self.output, stage, Finish(place.out, count, column, axes))

    def _expand(self, image: Value, into: Value, row: Value, count: int) -> None:
        """Expand `count` input rows from `row` on; those outside the image are zero, or left alone where nothing reads them."""
        plan, dsp = self.plan, self.dsp
        g, shape = plan.layer.geometry, plan.shape
        key = (
            g.input[1:],
            shape.span,
            shape.stride,
            shape.pitch,
            shape.inside,
            shape.leaves,
            shape.partial,
            plan.aligned,
            self._zero,
            *self.frame.image.code,
        )
        pointers = self.frame.image.pointers
        type = ir.FunctionType(ir.VoidType(), [POINTER] * (1 + len(pointers)) + [I32])
        expand = dsp.function.helper(f"row_{digest(key)}", type, self._build_row)
        with dsp.repeat(count, [into, row]) as carried:
            here, y = carried.values
            dsp.builder.call(expand, [image, *pointers[1:], here, y])
            carried.next = (dsp.at(here, shape.row_nbytes), dsp.builder.add(y, I32(1)))

    @property
    def _zero(self) -> int:
        return self.plan.layer.instruction.left_zero_point

    def _build_row(self, function: ir.Function) -> None:
        """image, place in scratch, input row -> that row expanded."""
        dsp = Dsp(self.dsp.function, ir.IRBuilder(function.append_basic_block("entry")))
        builder, shape = dsp.builder, self.plan.shape
        *pointers, into, row = function.args
        height = self.plan.layer.geometry.input[1]

        def expand() -> None:
            self._columns(dsp, self.frame.image.there(pointers).row(dsp, row), into)
            self._outside(dsp, into)

        if not shape.leaves[0]:
            expand()
        else:
            with builder.if_else(builder.icmp_unsigned("<", row, I32(height))) as (exists, missing):
                with exists:
                    expand()
                with missing:
                    if not shape.partial:
                        _clear(dsp, into, shape.row_nbytes)
        builder.ret_void()

    def _outside(self, dsp: Dsp, into: Value) -> None:
        """Zeros in the columns outside the image."""
        shape = self.plan.shape
        places = [c % shape.stride * shape.pitch + c // shape.stride for c in range(shape.span) if c not in shape.inside]
        if places:
            with dsp.repeat(shape.words, [into]) as carried:
                for place in places:
                    dsp.store_word(I32(0), carried.values[0], 4 * place)
                carried.next = (dsp.at(carried.values[0], 4 * shape.stride * shape.pitch),)

    def _columns(self, dsp: Dsp, source: Value, into: Value) -> None:
        """The columns inside the image, phase by phase, two at a time."""
        shape, depth = self.plan.shape, self.plan.layer.geometry.input[3]
        stride, inside = shape.stride, shape.inside
        for first in range(inside.start, min(inside.start + stride, inside.stop)):
            place = dsp.at(into, 4 * (first % stride * shape.pitch + first // stride))
            here, count = dsp.at(source, (first - inside.start) * depth), len(range(first, inside.stop, stride))
            for pixels, turns in ((2, count // 2), (1, count % 2)):
                if not turns:
                    continue
                layout = Pixels(pixels, stride * depth, stride * shape.pitch, self.plan.aligned, self._zero)
                with dsp.repeat(turns, [here, place]) as carried:
                    here, place = carried.values
                    gather_run(dsp, here, place, depth, layout)
                    carried.next = (dsp.at(here, pixels * stride * depth), dsp.at(place, 4 * pixels))
                here, place = carried.results


def _clear(dsp: Dsp, into: Value, nbytes: int) -> None:
    """`nbytes` bytes of zeros."""
    at_once = next(count for count in (4, 2, 1) if nbytes // 4 % count == 0)
    with dsp.repeat(nbytes // 4 // at_once, [into]) as carried:
        for number in range(at_once):
            dsp.store_word(I32(0), carried.values[0], 4 * number)
        carried.next = (dsp.at(carried.values[0], 4 * at_once),)


def _move(dsp: Dsp, source: Value, into: Value, nbytes: int) -> None:
    """Words towards the start of memory."""
    at_once = next(count for count in (8, 4, 2, 1) if nbytes // 4 % count == 0)
    with dsp.repeat(nbytes // 4 // at_once, [source, into]) as carried:
        here, there = carried.values
        for number in range(0, at_once, 2):
            if at_once == 1:
                dsp.store_word(dsp.word(here), there)
            else:
                dsp.store_pair(*dsp.pair(here, 4 * number), there, 4 * number)
        carried.next = tuple(dsp.at(pointer, 4 * at_once) for pointer in carried.values)
