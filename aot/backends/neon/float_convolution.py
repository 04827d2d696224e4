"""Float32 convolutions and dense layers: matrix products on windows where they lie, or on rows copied with their padding.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: nothing outside the image is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from aot.backends.neon.float_layer import FloatLayer, is_wide, read_float_layer
from aot.backends.neon.float_product import Block, Tiling, Window, choose_tiling, pack
from aot.backends.neon.float_rows import Frame, row_floats
from aot.backends.neon.float_streams import Streams
from aot.backends.neon.simd_float import LANES
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.program import Buffer, Program
from aot.target import Target

_L2_NBYTES = 256 << 10  # where a target does not say
_COPY = 0.45  # instructions for a float that is copied
_SLACK = 3 * 4  # bytes behind the last copied row that may be read
_INSTRUCTION_NBYTES = 4


def claim_convolution(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Convolutions of any kernel, stride, dilation and padding."""
    layer = read_float_layer(program, instruction, target, "conv")
    if isinstance(layer, str):
        return layer
    return _implementation(layer, target, f"float conv {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}")


def claim_dense(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Fully connected layers on any number of rows: a 1x1 convolution whose pixels are the rows."""
    layer = read_float_layer(program, instruction, target, "dense")
    return layer if isinstance(layer, str) else _implementation(layer, target, "float dense")


def _implementation(layer: FloatLayer, target: Target, kernel: str) -> Implementation:
    plan = _Plan(layer, 32 if is_wide(target) else 16, target.l2_nbytes or _L2_NBYTES)
    g, name = layer.geometry, f"{layer.instruction.out}.panels"
    data = pack(layer.weights.reshape(len(layer.bias), -1), layer.bias, plan.tiling.widths)
    panels = Buffer(name, DType.FLOAT32, data.shape, "constant", data=data, align=8)
    block = plan.tiling.block
    where = "copied with its padding" if plan.copies else "in place"
    return Implementation(
        kernel=kernel,
        instruction=layer.instruction,
        reads=layer.reads,
        writes=(layer.instruction.out,),
        constants=(panels, *layer.constants),
        emit=lambda function: _Emitter(function, plan, name).emit(),
        scratch_nbytes=plan.scratch_nbytes,
        overwrites=layer.overwrites,
        rows=Rows(g.output[1], 1, images=g.output[0]),
        scatters=plan.scatters,
        style="ordered",
        notes=(f"blocks of {block.pixels} pixels by {block.channels} channels; the input is read {where}",),
        cost=plan.cost,
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. registers: vectors that the core has. cached: bytes that its second cache holds."""

    layer: FloatLayer
    registers: int
    cached: int

    @property
    def geometry(self) -> Geometry:
        return self.layer.geometry

    @property
    def copies(self) -> bool:
        """Whether rows are copied because windows reach outside the image."""
        g = self.geometry
        reach = [(g.output[1 + at] - 1) * g.stride[at] + (g.kernel[at] - 1) * g.dilation[at] for at in range(2)]
        before = (g.pad_top, g.pad_left)
        return any(before) or any(reach[at] - before[at] >= g.input[1 + at] for at in range(2))

    @property
    def padded_width(self) -> int:
        """Pixels of a copied row: as far as windows reach."""
        g = self.geometry
        return (g.output[2] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1

    @property
    def row_nbytes(self) -> int:
        """From row to row of a window."""
        g = self.geometry
        return 4 * self.padded_width * g.input[3] if self.copies else 4 * row_floats(self.layer) * g.dilation[0]

    @property
    def scratch_nbytes(self) -> int:
        return self.geometry.kernel[0] * self.row_nbytes + -(-_SLACK // 4) * 4 if self.copies else 0

    @cached_property
    def tiling(self) -> Tiling:
        g = self.geometry
        depth = g.input[3]
        spread = g.dilation[1] > 1 and g.kernel[1] > 1
        columns = ((g.kernel[1], 4 * g.dilation[1] * depth),) if spread else ()
        run = depth if spread else g.kernel[1] * depth
        window = Window(((g.kernel[0], self.row_nbytes), *columns), run, self.copies)
        return choose_tiling(
            g.output[2], g.output[3], window, 4 * g.stride[1] * depth, self.layer.ending.instructions, self.registers
        )

    @property
    def turn(self) -> int:
        """Blocks of pixels that are multiplied by all panels before the next ones: their inputs stay in half of the second cache."""
        block = self.tiling.block
        return max(1, self.cached // 2 // (block.pixels * max(block.step, 4 * block.window.run)))

    @property
    def scatters(self) -> tuple[str, ...]:
        layer = self.layer
        in_one_piece = self.geometry.kernel[0] > 1 and not self.copies
        source = (layer.source,) if layer.scatters_input and not in_one_piece else ()
        return (*source, *((layer.instruction.out,) if layer.scatters_output else ()))

    @property
    def cost(self) -> Cost:
        images, height = self.geometry.output[:2]
        row = self.tiling.instructions(self.layer.ending.instructions) + 15
        if self.copies:
            row += self.geometry.kernel[0] * (12 + _COPY * self.row_nbytes / 4)
        code = sum(_code(block, self.layer.ending.instructions) for block, _ in self.tiling.blocks())
        return Cost(int(20 + images * height * row), _INSTRUCTION_NBYTES * int(code + 60), step_instructions=20)


def _code(block: Block, ending: int) -> float:
    """Instructions that stand in a block's code."""
    turn = min(LANES * block.unrolled, block.window.run)
    rest = block.window.run % turn
    per_tap = block.pixels * block.vectors + block.pixels / LANES + (block.vectors + 1) // 2
    return (turn + rest) * per_tap + block.pixels * block.vectors * (1.75 + ending) + 20


class _Emitter:
    """Emits one layer's function."""

    def __init__(self, function: KernelFunction, plan: _Plan, panels: str) -> None:
        self.function, self.plan, self.panels = function, plan, panels
        self.frame = Frame(function, plan.layer)
        self.floats = self.frame.floats

    def emit(self) -> None:
        if self.plan.copies:
            self._clear_edges()
        self.frame.each_row(self._row)

    def _clear_edges(self) -> None:
        """The columns of the copied rows that are outside the image."""
        g, plan = self.plan.geometry, self.plan
        depth, right = g.input[3], plan.padded_width - g.pad_left - g.input[2]
        for number in range(g.kernel[0]):
            row = self.floats.at(self.function.scratch, number * plan.row_nbytes)
            if g.pad_left:
                self.frame.clear(row, g.pad_left * depth)
            if right > 0:
                self.frame.clear(self.floats.at(row, 4 * (plan.padded_width - right) * depth), right * depth)

    def _row(self, image: Value, y: Value, out: Streams) -> None:
        g = self.plan.geometry
        if self.plan.copies:
            for number in range(g.kernel[0]):
                self._copy(image, y, number)
            source = self.function.scratch
        else:
            source = self.frame.input_row(image, self.frame.tap_row(y, 0))
        self._product(source, out)

    def _copy(self, image: Value, y: Value, number: int) -> None:
        """Row `number` of the windows of output row `y`, to scratch."""
        g, frame, builder = self.plan.geometry, self.frame, self.function.builder
        depth = g.input[3]
        count = min(g.input[2], self.plan.padded_width - g.pad_left) * depth
        target = self.floats.at(self.function.scratch, number * self.plan.row_nbytes + 4 * g.pad_left * depth)
        row = frame.tap_row(y, number)
        with builder.if_else(frame.is_inside(row)) as (inside, outside):
            with inside:
                frame.copy(frame.input_row(image, row), target, count)
            with outside:
                frame.clear(target, count)

    def _product(self, source: Value, out: Streams) -> None:
        """A row of windows by all panels."""
        tiling, turn = self.plan.tiling, self.plan.turn
        blocks, rest = divmod(tiling.pixels, tiling.block.pixels)
        if blocks <= turn:
            self._panels(source, out, I32(blocks), rest)
            return
        block, function = tiling.block, self.function
        moved = turn * block.pixels
        with function.carried_loop(0, blocks, [source, *out.pointers], turn) as carried:
            first, *pointers = carried.values
            left = function.builder.sub(I32(blocks), carried.index)
            count = function.builder.select(function.builder.icmp_signed("<", left, I32(turn)), left, I32(turn))
            streams = out.at(pointers)
            self._panels(first, streams, count, 0)
            carried.next = (self.floats.at(first, moved * block.step), *streams.moved(moved).pointers)
        if rest:
            behind = blocks * block.pixels
            self._panels(self.floats.at(source, behind * block.step), out.moved(behind), I32(0), rest)

    def _panels(self, source: Value, out: Streams, blocks: Value, rest: int) -> None:
        """So many blocks of pixels, and `rest` pixels, by all panels."""
        tiling = self.plan.tiling
        width, panels = tiling.block.channels, self.function.pointer(self.panels)
        last = tiling.channels - tiling.panels * width
        if tiling.panels > 1:
            with self.function.carried_loop(0, tiling.panels, [panels, *out.pointers]) as carried:
                panel, *pointers = carried.values
                streams = out.at(pointers)
                self._blocks(source, streams, panel, blocks, rest, width)
                carried.next = (self.floats.at(panel, tiling.panel_nbytes(width)), *streams.moved(channels=width).pointers)
            panels, out = carried.results[0], out.at(carried.results[1:])
        elif tiling.panels:
            self._blocks(source, out, panels, blocks, rest, width)
            panels, out = self.floats.at(panels, tiling.panel_nbytes(width)), out.moved(channels=width)
        if last:
            self._blocks(source, out, panels, blocks, rest, last)

    def _blocks(self, source: Value, out: Streams, panel: Value, blocks: Value, rest: int, channels: int) -> None:
        """So many blocks of pixels, and `rest` pixels, by one panel of `channels` channels."""
        block = self.plan.tiling.block
        width = -(-channels // LANES) * LANES
        whole = replace(block, channels=width)
        with self.function.carried_loop(0, blocks, [source, *out.pointers]) as carried:
            first, *pointers = carried.values
            streams = out.at(pointers)
            streams.store(whole.emit(self.floats, first, panel), channels)
            carried.next = (
                self.floats.at(first, block.pixels * block.step),
                *streams.moved(block.pixels).pointers,
            )
        if rest:
            source, out = carried.results[0], out.at(carried.results[1:])
            out.store(replace(block, pixels=rest, channels=width).emit(self.floats, source, panel), channels)
