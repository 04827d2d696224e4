# pyright: basic
"""Convolutions and dense layers: gather a block of pixels, multiply it with all channels, go on.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored, so that a fused operand may be overwritten
in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.compact_pointwise import compact_pointwise
from aot.backends.cmsis_nn.dsp.costs import Expense, core, gathered
from aot.backends.cmsis_nn.dsp.finish import Finish, finish_block
from aot.backends.cmsis_nn.dsp.gather import Patches, Pixels, gather_run
from aot.backends.cmsis_nn.dsp.packing import Packed, Tile, pack, paired, refusal_of, solution
from aot.backends.cmsis_nn.dsp.product import Core, Placement
from aot.backends.cmsis_nn.dsp.spread import Spread, without_constants
from aot.backends.cmsis_nn.dsp.tiling import (
    STRAIGHT,
    TAIL_UNROLL,
    WIDE_STRAIGHT,
    block_choices,
    block_instructions,
    code_share,
    direct_tiles,
    equal_turns,
    has_tail,
    preferred_tile,
    single_row_tiles,
)
from aot.backends.cmsis_nn.shared import Body, digest, emit_body
from aot.backends.layers.fused import operands_of, overlaps, scatterable, skews
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.skews import pixel_by_pixel
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows, kind_of
from aot.lower.inplace import elementwise_overwrites
from aot.lower.narrow import fits, split
from aot.lower.program import Buffer, Program
from aot.target import Target

TAKES = (DType.INT8, DType.INT16)
MOST_ROWS = 64  # of a kernel that a depthwise kernel takes
_FEW_CHANNELS = 8
_SHORT = (16, 8)
_THROUGH_TABLE = 12  # instructions for each row of a window that is found through a table


def claim_pointwise(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """1x1 convolutions of any stride."""
    layer = read_layer(program, instruction, target, "conv", "dsp", TAKES, sums=True, nine_bits=True)
    if isinstance(layer, str):
        return layer
    if layer.geometry.kernel != (1, 1):
        return f"a {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]} kernel, not 1x1"
    usual = _implementations(program, layer, "conv 1x1")
    reads, _ = operands_of(program, layer.instruction, layer.split.rest)
    compact = compact_pointwise(layer, reads) if fits(layer.weights) else ()
    return usual if isinstance(usual, str) else (*usual, *compact)


def claim_convolution(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """Convolutions of any kernel, stride, dilation and padding."""
    layer = read_layer(program, instruction, target, "conv", "dsp", TAKES, sums=True, nine_bits=True)
    if isinstance(layer, str):
        return layer
    if layer.geometry.kernel == (1, 1) and kind_of(instruction) == "conv":
        return "a 1x1 kernel, which has a kernel of its own"
    if is_for_columns(layer):
        return FOR_COLUMNS
    return _implementations(program, layer, f"conv {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}")


def is_for_columns(layer: Layer) -> bool:
    """Whether a convolution of one channel costs less as a depthwise one: with a 3x3 kernel, whose columns give two rows of outputs,
    or with few output channels, which would not pay for gathering windows."""
    g, channels = layer.geometry, len(layer.bias)
    if (
        g.kind != "conv"
        or g.input[3] != 1
        or not layer.fits_int32
        or layer.is_sums
        or g.kernel == (1, 1)
        or layer.rest_axes
        or g.kernel[0] > MOST_ROWS
    ):
        return False
    two_rows = g.kernel[0] == 3 and g.kernel[1] <= 3 and g.stride[0] == 1 and g.dilation[0] == 1 and g.output[1] > 1
    return two_rows or channels == 1 or (channels <= _FEW_CHANNELS and min(g.kernel) >= 3)


FOR_COLUMNS = "one input channel: a depthwise kernel takes less"


def claim_dense(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """Fully connected layers on any number of rows."""
    layer = read_layer(program, instruction, target, "dense", "dsp", TAKES, sums=True, nine_bits=True)
    if not isinstance(layer, str) and layer.dtype is DType.INT8 and prod(layer.geometry.output) == 1:
        return "a single output: generic code needs as few instructions, and no scratch"
    return layer if isinstance(layer, str) else _implementations(program, layer, "dense")


def _implementations(program: Program, layer: Layer, kernel: str) -> tuple[Implementation, ...] | str:
    """The layer in several packings and tilings, the preferred one first."""
    varying, spread = without_constants(layer)
    refusal = refusal_of(layer)
    if refusal:
        return refusal
    return tuple(_implementation(program, layer, plan, kernel) for plan in _plans(program, varying, spread))


def _implementation(program: Program, layer: Layer, plan: _Plan, kernel: str) -> Implementation:
    instruction, packed, spread, tile = layer.instruction, plan.packed, plan.spread, plan.tile
    data = packed.data if spread is None else np.concatenate([packed.data, spread.words])
    weights = Buffer(f"{instruction.out}.packed", DType.INT32, data.shape, "constant", data=data, align=4)
    reads, constants = operands_of(program, instruction, layer.split.rest)
    notes = [str(packed.form), f"a block is {tile.pixels} x {2 * tile.pairs} (pixels x channels)"]
    if spread is not None:
        notes.append(f"{len(layer.bias) - spread.live} of {len(layer.bias)} channels only ever have one output")
    return Implementation(
        kernel=kernel,
        instruction=instruction,
        reads=reads,
        writes=(instruction.out,),
        constants=(weights, *constants),
        emit=lambda function: _emit(function, plan, weights.name),
        scratch_nbytes=plan.stage_at + plan.stage_nbytes,
        overwrites=elementwise_overwrites(program, instruction),
        scatters=() if plan.patches.contiguous else scatterable(program, layer),
        overlap=overlaps(program, layer, "forward" if plan.runs_forward(program[instruction.out]) else None),
        skew=() if plan.direct else skews(program, layer, pixel_by_pixel(layer)),
        rows=Rows(layer.geometry.output[1], plan.rows_per_step, images=layer.geometry.output[0]),
        style="ordered",
        cost=plan.cost,
        notes=tuple(notes),
        variant=tile.variant + "".join(f", {text}" for text, holds in plan.peculiar if holds),
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. by_rows: rows are computed one at a time, else pixels run on across rows. spread: where to the
    layer's channels go, if others of the output are constant. direct: pixels are multiplied where they lie, without slots. long_tail:
    code for single pixels, too, is unrolled as far as that for blocks. finds_rows: by rows, those of the input may lie anywhere."""

    layer: Layer
    patches: Patches
    packed: Packed
    by_rows: bool
    rows_per_step: int
    spread: Spread | None = None
    direct: bool = False
    long_tail: bool = False
    finds_rows: bool = False

    @property
    def peculiar(self) -> tuple[tuple[str, bool], ...]:
        """What tells it from others with its tile."""
        return ("two rows a step", self.rows_per_step > 1), ("not gathered", self.direct), ("long tail", self.long_tail)

    @property
    def tile(self) -> Tile:
        return self.packed.tile

    @property
    def slots_nbytes(self) -> int:
        return 0 if self.direct else 4 * self.tile.pixels * self.tile.words

    @property
    def stage_at(self) -> int:
        """Byte of scratch at which a block's outputs stand before what is fused behind the layer goes over them."""
        return self.slots_nbytes + self.patches.patch_nbytes

    @property
    def stage_nbytes(self) -> int:
        staged = self.layer.split.rest is not None or self.spread is not None
        return -(-self.tile.pixels * len(self.layer.bias) * self.packed.element_nbytes // 4) * 4 if staged else 0

    def runs_forward(self, out: Buffer) -> bool:
        """Whether each block of input pixels is gathered before its outputs are stored, and no later one lies where these do: output
        pixels take no more room than the input's between one and the next, or all follow each other in both."""
        layer, g = self.layer, self.layer.geometry
        if (
            g.kernel != (1, 1)
            or self.patches.leaves
            or self.direct
            or self.rows_per_step > 1
            or prod(layer.instruction.space) != out.size
        ):
            return False
        return self.patches.contiguous or layer.out.pixel * out.dtype.nbytes <= g.stride[1] * self.patches.pixel_nbytes

    @property
    def has_tail(self) -> bool:
        """Whether a step can end with fewer pixels than a block."""
        return has_tail(self.layer, self.tile.pixels, self.by_rows, self.rows_per_step)

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        layer = self.layer
        if layer.split.rest is not None:
            return None
        return (
            layer.geometry,
            layer.out,
            self.patches,
            self.tile,
            self.packed.groups,
            self.packed.code,
            self.by_rows,
            self.rows_per_step,
            self.spread and (self.spread.code, self.packed.data.nbytes),
            self.direct,
            self.tail_unroll,
        )

    @property
    def cost(self) -> Cost:
        """What the layer is expected to take."""
        layer, packed, pixels = self.layer, self.packed, self.tile.pixels
        images, height, width, _ = layer.geometry.output
        lines, run = (height, width) if self.by_rows else (1, height * width)
        block = core(layer, packed, pixels, pixels, self.tile.unroll, self.direct)
        gather = Expense(0, 0) if self.direct else gathered(layer, self.patches, pixels)
        single, one = core(layer, packed, 1, pixels, self.tail_unroll), gathered(layer, self.patches, 1)
        spreading, code_nbytes = (self.spread.instructions, self.spread.code_nbytes) if self.spread else (0, 0)

        def line(run: int) -> float:
            blocks, left = divmod(run, pixels)
            whole = blocks * (block.instructions + gather.instructions + 12)
            return whole + left * (single.instructions + one.instructions) + run * spreading + 20

        own, body = int(gather.code_nbytes + code_nbytes + 120), self.code
        each = self.rows_per_step * width
        kernel_rows = layer.geometry.kernel[0]
        through_table = _THROUGH_TABLE * kernel_rows * each if kernel_rows > 1 and self.finds_rows else 0
        apart = height // self.rows_per_step * (line(each) + through_table) - lines * line(run)
        return Cost(
            int(images * (lines * line(run) + 30)),
            own if body is None else 0,
            (
                *([] if body is None else [(f"body {digest(body)}", own)]),
                (self._core_name(pixels, self.tile.unroll), int(block.code_nbytes)),
                *([(self._core_name(1, self.tail_unroll), int(single.code_nbytes))] if self.has_tail else []),
            ),
            step_instructions=int(max(apart, 0) / max(height // self.rows_per_step - 1, 1)) + 20,
        )

    def _core_name(self, pixels: int, unroll: int) -> str:
        """What products with the same code have in common."""
        made = Core(self.packed, pixels, self.tile.pixels, unroll, direct=self.direct)
        return made.name((len(self.layer.bias) if self.stage_nbytes else self.layer.out.pixel) * self.packed.element_nbytes)

    @property
    def tail_unroll(self) -> int:
        """Words in a turn of the loop over single pixels at the end."""
        most = self.tile.unroll if self.long_tail else TAIL_UNROLL
        return next(step for step in range(most, 0, -1) if self.tile.words % step == 0)


def _plans(program: Program, layer: Layer, spread: Spread | None) -> list[_Plan]:
    """The preferred plan, one with more straight code, one with less code, that layers of all sizes share, one with int16 weights
    where several pixels at a time, or activations of int16, pay for them, and others for steps of single rows."""
    narrow, again = doubled(layer)
    usual, patches = Patches.of(layer), Patches.of(layer, again=again)
    by_rows = bool(layer.rest_axes & layer.pixel_axes) or layer.out.row not in (0, layer.geometry.output[2] * layer.out.pixel)
    _, height, width, _ = layer.geometry.output
    channels = paired(len(layer.bias))
    words = len(patches.order) // 2
    run = width if by_rows else width * height
    choices = block_choices(words, len(channels), not layer.fits_int32)
    pixels, pairs = min(choices, key=lambda choice: block_instructions(words, run, *choice))
    share = code_share(program, layer)
    finds_rows = program[program.storage(layer.instruction.left.buffer)].role != "input"
    straight = [(pixels, pairs, STRAIGHT)]
    if (2, 2) in choices and words >= STRAIGHT and (pixels > 1 or layer.dtype is DType.INT8):
        straight.append((2, 2, 2 * STRAIGHT))
    solutions = {wide: solution(layer if wide else narrow, wide, pixels == 1) for wide in (False, True)}

    def planned(tile: Callable[[bool], Tile], pixels: int, single: bool = False, direct: bool = False) -> _Plan:
        pairs_of_rows = not (by_rows or single) and height % 2 == 0 and width % pixels and 2 * width % pixels == 0
        rows_per_step = 2 if pairs_of_rows else 1
        made = tile(has_tail(layer, pixels, by_rows, rows_per_step))
        inputs, weighted = (usual, layer) if made.wide else (patches, narrow)
        packed = pack(weighted, inputs.order, made, solutions[made.wide])
        return _Plan(layer, inputs, packed, by_rows, rows_per_step, spread, direct, finds_rows=finds_rows)

    plans = [planned(lambda tail: preferred_tile(words, pixels, pairs, share, tail), pixels)]
    for across, deep, most in straight:
        plans.append(planned(lambda tail, turn=(across, deep, most): equal_turns(words, *turn, tail, False), across))
    for most in _SHORT:
        plans.append(planned(lambda tail, most=most: equal_turns(words, pixels, pairs, most, tail, True), pixels))
    if pixels > 1 or layer.dtype is DType.INT16:
        most = WIDE_STRAIGHT // pairs
        plans.append(planned(lambda tail: replace(equal_turns(words, pixels, pairs, most, tail, False), wide=True), pixels))
    if layer.dtype is DType.INT16:
        for most in _SHORT:
            wide = lambda tail, most=most: replace(equal_turns(words, pixels, pairs, most, tail, True), wide=True)  # noqa: E731
            plans.append(planned(wide, pixels))
    if height > 1 and width % pixels and not by_rows:
        for across, deep, most, wide in single_row_tiles(words, width, choices):
            tile = replace(equal_turns(words, across, deep, most, width % across != 0, False), wide=wide)
            row = planned(lambda _, tile=tile: tile, across, True)
            plans += [row, replace(row, long_tail=True)] if row.has_tail and row.tail_unroll < tile.unroll else [row]
    if pixels == 1 and patches.contiguous and layer.dtype is DType.INT8 and layer.geometry.input[3] % 4 == 0 and not patches.again:
        plans += [planned(lambda _, tile=tile: tile, 1, direct=True) for tile in direct_tiles(words, len(channels))]
    return list({(plan.tile, plan.rows_per_step, plan.direct, plan.long_tail): plan for plan in reversed(plans)}.values())[::-1]


def doubled(layer: Layer) -> tuple[Layer, tuple[int, ...]]:
    """The layer with int8 weights, and the inputs that have a second weight behind all the others."""
    again, weights = split(layer.weights.reshape(len(layer.bias), -1))
    return (replace(layer, weights=weights), again) if again else (layer, ())


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    source = plan.layer.instruction.left.buffer
    plan = replace(plan, patches=Patches.of(plan.layer, function.align_of(source), plan.patches.again))
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "convolution", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def emit(self) -> None:
        self.each_image(self.dsp.at(self.frame.target, self.plan.layer.out.offset * self.output.nbytes), self._image)

    def _image(self, source: Value, target: Value, number: Value) -> None:
        layer, dsp, builder = self.plan.layer, self.dsp, self.dsp.builder
        y0, y1 = self.frame.y0, self.frame.y1
        width, row_nbytes = layer.geometry.output[2], layer.out.row * self.output.nbytes
        rows = builder.sub(y1, y0)
        start = dsp.at(target, builder.mul(y0, I32(row_nbytes)))
        if self.plan.by_rows and layer.geometry.output[1] > 1:
            with dsp.repeat(rows, [start, y0]) as carried:
                out, row = carried.values
                self._line(source, out, row, I32(width), number)
                carried.next = (dsp.at(out, row_nbytes), builder.add(row, I32(1)))
        elif layer.geometry.output[1] == 1:
            self._line(source, target, I32(0), I32(width), number)
        else:
            self._line(source, start, y0, builder.mul(rows, I32(width)), number)

    def _line(self, image: Value, out: Value, row: Value, count: Value, number: Value) -> None:
        """`count` pixels from the start of output row `row` on, in blocks."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        pixels = plan.tile.pixels
        at = self._first(image, row)
        extra = pixels - 1 if plan.has_tail else 0
        blocks = builder.udiv(builder.add(count, I32(extra)), I32(pixels))
        with dsp.repeat(blocks, [*at, out, count, I32(0)]) as carried:
            *at, here, left, column = carried.values
            block = _Block(image, row, column, number, here)
            if plan.direct:
                at = self._full(block, at)
            else:
                at = self._with_tail(block, at, left) if plan.has_tail else self._full(block, self._gather(block, at, pixels))
            forward = dsp.at(here, pixels * plan.layer.out.pixel * self.output.nbytes)
            carried.next = (*at, forward, builder.sub(left, I32(pixels)), builder.add(column, I32(pixels)))

    def _with_tail(self, block: _Block, at: list[Value], left: Value) -> list[Value]:
        """A block that may be the last, shorter one: its pixels are then computed one by one."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        pixels = plan.tile.pixels
        is_full = builder.icmp_signed(">=", left, I32(pixels))
        if not plan.patches.contiguous:
            at = self._gather(block, at, builder.select(is_full, I32(pixels), left))
        with builder.if_else(is_full) as (then, otherwise):
            with then:
                self._full(block, self._gather(block, at, pixels) if plan.patches.contiguous else at)
            with otherwise:
                self._rest(block, at, left)
        return [dsp.at(at[0], pixels * plan.patches.pixel_nbytes)] if plan.patches.contiguous else at

    def _full(self, block: _Block, at: list[Value]) -> list[Value]:
        plan, tile = self.plan, self.plan.tile
        core = Core(plan.packed, tile.pixels, tile.pixels, tile.unroll, direct=plan.direct)
        self._product(core, block, at[0] if plan.direct else self._slots, tile.pixels)
        return [self.dsp.at(at[0], plan.patches.pixel_nbytes)] if plan.direct else at

    def _rest(self, block: _Block, at: list[Value], left: Value) -> None:
        """`left` pixels one by one, from their slots, or gathered into the first slot."""
        plan, dsp = self.plan, self.dsp
        tile, depth, nbytes = plan.tile, plan.layer.geometry.input[3], plan.patches.pixel_nbytes
        single = Core(plan.packed, 1, tile.pixels, plan.tail_unroll)
        with dsp.repeat(left, [at[0], self._slots, block.out, block.column]) as carried:
            source, slot, out, column = carried.values
            if plan.patches.contiguous:
                gather_run(dsp, source, slot, depth, Pixels(1, 0, tile.pixels, plan.patches.aligned, 0, plan.patches.element))
                plan.patches.repeat_inputs(dsp, slot, tile.pixels, 1)
            self._product(single, _Block(block.image, block.row, column, block.number, out), slot, 1)
            forward = dsp.at(out, plan.layer.out.pixel * self.output.nbytes)
            if plan.patches.contiguous:
                carried.next = (dsp.at(source, nbytes), slot, forward, dsp.builder.add(column, I32(1)))
            else:
                carried.next = (source, dsp.at(slot, 4), forward, dsp.builder.add(column, I32(1)))

    # Where pixels come from: a pointer to the next one (contiguous), or its output row and column.

    def _first(self, image: Value, row: Value) -> list[Value]:
        patches = self.plan.patches
        if patches.contiguous:
            return [self.dsp.at(image, self.dsp.builder.mul(row, I32(patches.geometry.input[2] * patches.pixel_nbytes)))]
        return [row, I32(0)]

    def _gather(self, block: _Block, at: list[Value], count: int | Value) -> list[Value]:
        """Gather `count` pixels into the slots; where the next pixel comes from."""
        plan, dsp = self.plan, self.dsp
        pixels, patches = plan.tile.pixels, plan.patches
        if patches.contiguous:
            layout = Pixels(pixels, patches.pixel_nbytes, pixels, patches.aligned, 0, patches.element)
            gather_run(dsp, at[0], self._slots, plan.layer.geometry.input[3], layout)
            patches.repeat_inputs(dsp, self._slots, pixels, pixels)
            return [dsp.at(at[0], pixels * patches.pixel_nbytes)]
        patch = dsp.at(self._slots, plan.slots_nbytes)
        with dsp.repeat(count, [*at, self._slots]) as carried:
            row, column, slot = carried.values
            plan.patches.gather(dsp, self.frame.image.at(block.image), row, column, slot, pixels, patch)
            carried.next = (*self._following(row, column), dsp.at(slot, 4))
        return list(carried.results[:2])

    def _following(self, row: Value, column: Value) -> tuple[Value, Value]:
        """The next output pixel."""
        builder, width = self.dsp.builder, self.plan.layer.geometry.output[2]
        right = builder.add(column, I32(1))
        if self.plan.by_rows or self.plan.layer.geometry.output[1] == 1:
            return row, right
        ends = builder.icmp_signed("==", right, I32(width))
        return builder.add(row, builder.zext(ends, I32)), builder.select(ends, I32(0), right)

    @property
    def _slots(self) -> Value:
        return self.frame.scratch

    def _product(self, core: Core, block: _Block, slots: Value, count: int) -> None:
        """Multiply the slots and store; what is fused behind the layer goes over a block in a loop of its own, from the stage."""
        layer, dsp, spread = self.plan.layer, self.dsp, self.plan.spread
        if layer.split.rest is None and spread is None:
            core.call(dsp, Placement(self.frame.table, slots, block.out, layer.out.pixel * self.output.nbytes))
            return
        stage = dsp.at(self._slots, self.plan.stage_at)
        core.call(dsp, Placement(self.frame.table, slots, stage, len(layer.bias) * layer.dtype.nbytes))
        if spread is not None:
            words = dsp.at(self.frame.table, self.plan.packed.data.nbytes)
            spread.emit(dsp, words, stage, block.out, count, layer.out.pixel)
            return
        finish_block(dsp, self.output, stage, Finish(block.out, count, block.column, {0: block.number, 1: block.row}))


@dataclass(frozen=True)
class _Block:
    """A block of pixels: its input image, output row, first column, image number, and its first output's address."""

    image: Value
    row: Value
    column: Value
    number: Value
    out: Value
