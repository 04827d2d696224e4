"""Convolutions and dense layers on Cortex-M3: gather a block of pixels two in a word, multiply it with all channels, go on.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored, so that a fused operand may be overwritten
in place; nothing outside the image is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from aot.backends.cmsis_nn.dsp.gather import Patches
from aot.backends.cmsis_nn.shared import Body, digest, emit_body
from aot.backends.cmsis_nn.swar.m3.gather import gather_pair, gather_pixels, gather_windows
from aot.backends.cmsis_nn.swar.m3.packing import Packed, pack
from aot.backends.cmsis_nn.swar.m3.product import Block
from aot.backends.cmsis_nn.swar.m3.refusal import refusal
from aot.backends.layers.fused import operands_of, skews
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.skews import pixel_by_pixel
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_SLOTS_NBYTES = 8192  # of scratch that a block of more than one pair may take
_USUAL_GROUP = 6  # products summed in lanes before they are split, where weights are not known yet


def claim_convolution(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Convolutions of any kernel, stride, dilation and padding."""
    layer = refusal(target) or read_layer(program, instruction, target, "conv")
    if isinstance(layer, str):
        return layer
    return _implementation(program, layer, f"conv {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}")


def claim_rows(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Fully connected layers on any number of rows: a convolution whose pixels are the rows."""
    layer = refusal(target) or read_layer(program, instruction, target, "dense")
    if not isinstance(layer, str) and prod(layer.geometry.output) == 1:
        return "a single output: generic code needs as few instructions, and no scratch"
    return layer if isinstance(layer, str) else _implementation(program, layer, "dense")


def _implementation(program: Program, layer: Layer, kernel: str) -> Implementation:
    plan = _plan(layer)
    instruction, packed = layer.instruction, plan.packed
    weights = Buffer(f"{instruction.out}.packed", DType.INT32, packed.data.shape, "constant", data=packed.data, align=4)
    reads, constants = operands_of(program, instruction, layer.split.rest)
    return Implementation(
        kernel=kernel,
        instruction=instruction,
        reads=reads,
        writes=(instruction.out,),
        constants=(weights, *constants),
        emit=lambda function: _emit(function, plan, weights.name),
        scratch_nbytes=plan.patches_at + 2 * plan.patches.patch_nbytes,
        overwrites=elementwise_overwrites(program, instruction),
        skew=skews(program, layer, pixel_by_pixel(layer)),
        rows=Rows(layer.geometry.output[1], plan.rows_per_step, images=layer.geometry.output[0]),
        style="ordered",
        notes=(
            str(packed.form),
            f"a block is {plan.pixels} x {min(2, packed.channels)} (pixels x channels)",
            f"{plan.depth * len(packed.groups) / sum(packed.groups):.1f} products are summed in lanes before a split",
        ),
        cost=plan.cost,
        variant="two pixels a word",
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. by_rows: rows are computed one at a time, else pixels run on across rows."""

    layer: Layer
    patches: Patches
    packed: Packed
    by_rows: bool
    rows_per_step: int

    @property
    def pixels(self) -> int:
        return 2 * self.packed.stride

    @property
    def depth(self) -> int:
        """Products of an output."""
        return prod(self.layer.weights.shape[1:])

    @property
    def work_at(self) -> int:
        """Byte of scratch at which accumulators and the sums of groups lie, behind the slots."""
        return 4 * self.packed.stride * self.depth

    @property
    def patches_at(self) -> int:
        return self.work_at + self.packed.work_nbytes

    @property
    def run(self) -> int:
        """Pixels that follow each other at most."""
        _, height, width, _ = self.layer.geometry.output
        return width if self.by_rows else width * height

    @property
    def left_over(self) -> frozenset[int]:
        """How many pixels the last block of a step can have, where that is not all."""
        _, height, width, _ = self.layer.geometry.output
        rows = [1] if self.by_rows or height == 1 else range(self.rows_per_step, height + 1, self.rows_per_step)
        return frozenset(width * count % self.pixels for count in rows) - {0}

    @property
    def cost(self) -> Cost:
        """Counted on the code: see `Block` for what a k and a group take."""
        images, height = self.layer.geometry.output[:2]
        runs = images * (height if self.by_rows else 1)
        blocks, left = divmod(self.run, self.pixels)
        pairs = [self.packed.stride] * blocks + ([-(-left // 2)] if left else [])
        found = 40.0
        widths = [2] * (self.packed.channels // 2) + [1] * (self.packed.channels % 2)
        for count in pairs:
            found += self._gather_cost * count + 30
            for width, groups in zip(widths, self.packed.groups, strict=True):
                found += self.depth * (1 + width + width * count) + groups * (5 + width * (3 + 2 * count)) + 12 + 14 * width * count
        return Cost(round(runs * found), 60, self._shared_code)

    @property
    def _shared_code(self) -> tuple[tuple[str, int], ...]:
        """Code that layers have in common: the machine code, and all of the body where nothing is fused behind."""
        sizes = {self.packed.stride} | {(left + 1) // 2 for left in self.left_over}
        widths = [2] * (self.packed.channels > 1) + [1] * (self.packed.channels % 2)
        blocks = [Block(pairs, width, self.packed.stride) for pairs in sorted(sizes) for width in widths]
        body = (200 if self.patches.contiguous else 600) + sum(40 * block.sums + 60 for block in blocks)
        name = self.layer.instruction.out if self.code is None else f"pairs_{digest(self.code)}"
        return (*((block.purpose, len(block.code())) for block in blocks), (name, body))

    @property
    def _gather_cost(self) -> float:
        """Instructions to gather a pair of pixels, on average: those whose window leaves the image are copied first."""
        if self.patches.contiguous:
            return 3.7 * self.depth
        g, (count, length) = self.layer.geometry, self.patches.runs
        inside = 1.0
        for axis, before in enumerate((g.pad_top, g.pad_left)):
            starts = [at * g.stride[axis] - before for at in range(g.output[1 + axis])]
            last = g.input[1 + axis] - self.patches.spans[axis]
            inside *= sum(0 <= start <= last for start in starts) / len(starts)
        words = g.input[3] if g.input[3] % 4 else g.input[3] // 4
        copied = 2 * (1 - inside) * g.kernel[0] * (8 + g.kernel[1] * (13 + 5 * words))
        return 75 + g.kernel[0] * (8 + count * (14 + 4.9 * length)) + copied

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        layer = self.layer
        if layer.split.rest is not None:
            return None
        return layer.geometry, layer.out, self.patches, self.packed.code, self.by_rows, self.rows_per_step


def _plan(layer: Layer) -> _Plan:
    _, height, width, _ = layer.geometry.output
    by_rows = bool(layer.rest_axes & layer.pixel_axes) or layer.out.row not in (0, width * layer.out.pixel)
    run, depth = width if by_rows else width * height, prod(layer.weights.shape[1:])
    sizes = [pairs for pairs in (3, 2, 1) if pairs == 1 or 4 * pairs * depth <= _SLOTS_NBYTES]
    stride = min(sizes, key=lambda pairs: (_pair_cost(run, pairs), pairs))
    steps = [rows for rows in (1, 2, 3) if not by_rows and height % rows == 0 and rows * width % (2 * stride) == 0]
    return _Plan(layer, Patches.of(layer), pack(layer, stride), by_rows, steps[0] if steps else 1)


def _pair_cost(run: int, stride: int) -> float:
    """Instructions for a k, two channels and `run` pixels in blocks of `stride` pairs."""
    blocks, left = divmod(run, 2 * stride)
    pairs = [stride] * blocks + ([-(-left // 2)] if left else [])
    return sum(3 + 2 * count + (11 + 4 * count) / _USUAL_GROUP for count in pairs)


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    plan = replace(plan, patches=Patches.of(plan.layer, function.align_of(plan.layer.instruction.left.buffer)))
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "pairs", plan.code)


@dataclass(frozen=True)
class _At:
    """A block of pixels. source: its first pixel where pixels are contiguous. row, column: output row at which its run starts, and
    pixels since then; left: pixels from here to the end of the run. number: its image's."""

    image: Value
    source: Value
    out: Value
    row: Value
    column: Value
    left: Value
    number: Value


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def emit(self) -> None:
        self.each_image(self.dsp.at(self.frame.target, self.plan.layer.out.offset * self.output.nbytes), self._image)

    def _image(self, source: Value, target: Value, number: Value) -> None:
        layer, dsp, builder = self.plan.layer, self.dsp, self.dsp.builder
        y0, y1 = self.frame.y0, self.frame.y1
        width, row_nbytes = layer.geometry.output[2], layer.out.row * self.output.nbytes
        if layer.geometry.output[1] == 1:
            self._line(source, target, I32(0), I32(width), number)
            return
        rows, start = builder.sub(y1, y0), dsp.at(target, builder.mul(y0, I32(row_nbytes)))
        if not self.plan.by_rows:
            self._line(source, start, y0, builder.mul(rows, I32(width)), number)
            return
        with dsp.repeat(rows, [start, y0]) as carried:
            out, row = carried.values
            self._line(source, out, row, I32(width), number)
            carried.next = (dsp.at(out, row_nbytes), builder.add(row, I32(1)))

    def _line(self, image: Value, out: Value, row: Value, count: Value, number: Value) -> None:
        """`count` pixels from the start of output row `row` on, in blocks."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        pixels, (_, _, width, depth) = plan.pixels, plan.layer.geometry.input
        source = dsp.at(image, builder.mul(row, I32(width * depth))) if plan.patches.contiguous else image
        blocks = builder.udiv(builder.add(count, I32(pixels - 1 if plan.left_over else 0)), I32(pixels))
        with dsp.repeat(blocks, [source, out, I32(0), count]) as carried:
            here, there, column, left = carried.values
            self._block(_At(image, here, there, row, column, left, number))
            forward = dsp.at(there, pixels * plan.layer.out.pixel * self.output.nbytes)
            following = dsp.at(here, pixels * depth) if plan.patches.contiguous else here
            carried.next = (following, forward, builder.add(column, I32(pixels)), builder.sub(left, I32(pixels)))

    def _block(self, at: _At) -> None:
        plan, builder = self.plan, self.dsp.builder
        if not plan.left_over:
            self._full(at)
            return
        if min(plan.left_over) == plan.run:  # no block is full
            self._last(at)
            return
        with builder.if_else(builder.icmp_signed(">=", at.left, I32(plan.pixels))) as (then, otherwise):
            with then:
                self._full(at)
            with otherwise:
                self._last(at)

    def _full(self, at: _At) -> None:
        plan, dsp = self.plan, self.dsp
        if plan.patches.contiguous:
            gather_pixels(dsp, at.source, self.frame.scratch, plan.layer.geometry.input[3], plan.pixels)
        else:
            self._gather(at, I32(plan.packed.stride), plan.packed.stride)
        self._multiply(at, plan.packed.stride, {plan.pixels})

    def _last(self, at: _At) -> None:
        """A block that is not full: as few pairs as it needs."""
        plan, builder = self.plan, self.dsp.builder
        pairs = builder.lshr(builder.add(at.left, I32(1)), I32(1))
        most = (max(plan.left_over) + 1) // 2
        self._gather(at, pairs, most)
        self._choose(at, pairs, sorted({(left + 1) // 2 for left in plan.left_over}))

    def _choose(self, at: _At, pairs: Value, sizes: Sequence[int]) -> None:
        """The code for one of these numbers of pairs."""
        first, *others = sizes

        def some() -> None:
            self._multiply(at, first, self.plan.left_over & {2 * first - 1, 2 * first})

        if not others:
            some()
            return
        with self.dsp.builder.if_else(self.dsp.builder.icmp_signed("==", pairs, I32(first))) as (then, otherwise):
            with then:
                some()
            with otherwise:
                self._choose(at, pairs, others)

    # Gathering.

    def _gather(self, at: _At, count: Value, most: int) -> None:
        """Pairs of pixels, one by one; a pixel without a partner is its own."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        patch = dsp.at(self.frame.scratch, plan.patches_at)
        spare = (patch, dsp.at(patch, plan.patches.patch_nbytes))
        depth, stride = plan.layer.geometry.input[3], plan.packed.stride
        with dsp.repeat(1 if most == 1 else count, [self.frame.scratch, at.source, at.column, at.left]) as carried:
            slot, source, column, left = carried.values
            has_partner = builder.icmp_signed(">", left, I32(1))
            if plan.patches.contiguous:
                partner = dsp.at(source, builder.select(has_partner, I32(depth), I32(0)))
                gather_pair(dsp, source, partner, slot, depth, stride)
            else:
                both = (column, builder.add(column, builder.zext(has_partner, I32)))
                pixels = [self._position(at.row, each) for each in both]
                gather_windows(dsp, plan.patches, at.image, pixels, slot, stride, spare)
            following = dsp.at(source, 2 * depth) if plan.patches.contiguous else source
            carried.next = (dsp.at(slot, 4), following, builder.add(column, I32(2)), builder.sub(left, I32(2)))

    def _position(self, row: Value, column: Value) -> tuple[Value, Value]:
        """Output row and column of a pixel of a run."""
        builder, (_, height, width, _) = self.dsp.builder, self.plan.layer.geometry.output
        if self.plan.by_rows or height == 1:
            return row, column
        rows = builder.udiv(column, I32(width))
        return builder.add(row, rows), builder.sub(column, builder.mul(rows, I32(width)))

    # Multiplying.

    def _multiply(self, at: _At, pairs: int, lives: frozenset[int] | set[int]) -> None:
        """All channels. lives: how many of the pixels there may be: all, or all but the last."""
        packed, dsp, builder = self.plan.packed, self.dsp, self.dsp.builder
        start = [self.frame.table, at.out, I32(0)]
        if packed.channels > 1:
            with dsp.repeat(packed.channels // 2, start) as carried:
                table, out, channel = carried.values
                behind = self._channels(at, pairs, lives, (table, out, channel), 2)
                carried.next = (behind, dsp.at(out, 2 * self.output.nbytes), builder.add(channel, I32(2)))
            start = list(carried.results)
        if packed.channels % 2:
            self._channels(at, pairs, lives, (start[0], start[1], start[2]), 1)

    def _channels(
        self, at: _At, pairs: int, lives: frozenset[int] | set[int], here: tuple[Value, Value, Value], channels: int
    ) -> Value:
        """A block of channels. Returns where the next one's table begins."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        (table, out, channel), packed, nbytes = here, plan.packed, self.output.nbytes
        block = Block(pairs, channels, packed.stride)
        work = dsp.at(self.frame.scratch, plan.work_at)
        behind = block.call(dsp, self.frame.scratch, dsp.at(table, packed.stream_at(channels)), work, table)
        axes = self._axes(at)
        for number in range(channels):
            accs = dsp.words(work, 8 * pairs * number, max(lives))
            words = dsp.words(table, packed.constants_at(number, channels), packed.constant_count)
            values = [packed.place.requantise(dsp, acc, False, words) for acc in accs]
            for pixel, value in enumerate(values):
                address = dsp.at(out, pixel * plan.layer.out.pixel * nbytes + number * nbytes)
                which = axes(pixel, builder.add(channel, I32(number))) if self.output.rest is not None else {}
                if pixel < min(lives):
                    self.output.store([(address, value, which)])
                else:
                    with builder.if_then(builder.icmp_signed(">", at.left, I32(pixel))):
                        self.output.store([(address, value, which)])
        return behind

    def _axes(self, at: _At) -> Callable[[int, Value], dict[int, Value]]:
        """The iteration axes of a block's elements, for what is fused."""
        layer, builder = self.plan.layer, self.dsp.builder
        space = layer.instruction.space

        def axes(pixel: int, channel: Value) -> dict[int, Value]:
            column = builder.add(at.column, I32(pixel))
            if layer.geometry.kind != "dense":
                return {0: at.number, 1: at.row, 2: column, len(space) - 1: channel}
            return {**self.output.row_axes(column), len(space) - 1: channel}

        return axes
