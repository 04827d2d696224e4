# pyright: basic
"""Convolutions and dense layers on Cortex-M0: pixel by pixel, a window's inputs times all channels.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored, so that a fused operand may be overwritten
in place; nothing outside the image is read.

The product finds a window's inputs through a table of offsets: inside the image it reads them where they are; a window that leaves
the image is first copied to a patch in scratch, for which there is a table of its own. What is fused behind the requantisation reads
the pixel's int8 from scratch; where no requantisation is found, the sums go there, and the whole expression follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import word32
from aot.backends.cmsis_nn.dsp.gather import Patches
from aot.backends.cmsis_nn.shared import Body, Frame, emit_body
from aot.backends.cmsis_nn.thumb1.packing import Packed, pack
from aot.backends.cmsis_nn.thumb1.refusal import refusal
from aot.backends.cmsis_nn.thumb1.unpacking import grouped
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

_FARTHEST = 65535  # offset in a table of bytes or halfwords


def claim_convolution(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """Convolutions of any kernel, stride, dilation and padding."""
    layer = refusal(target) or read_layer(program, instruction, target, "conv", sums=True)
    if isinstance(layer, str):
        return layer
    return _implementations(program, layer, f"conv {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}")


def claim_dense(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """Fully connected layers on any number of rows: a convolution whose pixels are the rows."""
    layer = refusal(target) or read_layer(program, instruction, target, "dense", sums=True)
    return layer if isinstance(layer, str) else _implementations(program, layer, "dense")


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. table: offsets in the image, those in a patch if some windows need one, the packed weights, and
    where sums leave the product as they are, the biases.

    is_copied: every window goes through a patch, as the image is too large for the offsets."""

    layer: Layer
    patches: Patches
    packed: Packed
    table: np.ndarray
    is_copied: bool

    @property
    def weights_at(self) -> int:
        """Byte of the table at which the weights begin."""
        return _words((1 + self.patches.leaves) * self.offsets_nbytes)

    @property
    def offsets_nbytes(self) -> int:
        return self.packed.product.offset_nbytes * len(self.packed.order)

    @property
    def is_direct(self) -> bool:
        """Whether the product leaves its outputs where they belong."""
        return self.layer.split.rest is None and self.packed.product.rescaling is not None

    @property
    def has_patch(self) -> bool:
        return self.patches.leaves or self.is_copied

    @property
    def patch_nbytes(self) -> int:
        return _words(prod(self.layer.weights.shape[1:])) if self.has_patch else 0

    @property
    def row_nbytes(self) -> int:
        """Scratch for a pixel's results."""
        product = self.packed.product
        return 0 if self.is_direct else _words(product.element_nbytes * product.channels)

    @property
    def scratch_nbytes(self) -> int:
        return self.packed.product.parts_nbytes + self.row_nbytes + self.patch_nbytes

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        if not self.is_direct:
            return None
        return self.layer.geometry, self.layer.out, self.patches, self.packed.product.code, self.weights_at, self.is_copied

    @property
    def cost(self) -> Cost:
        product, geometry = self.packed.product, self.layer.geometry
        pixels = prod(geometry.output[:3])
        each = product.instructions + 30 + (0 if self.is_direct else 25 * product.channels)
        return Cost(round(pixels * each), len(product.code) + 250)


def _words(nbytes: int) -> int:
    """Bytes of whole words."""
    return -(-nbytes // 4) * 4


def _plan(layer: Layer, packed: Packed) -> _Plan:
    g = layer.geometry
    rows, columns, channels = np.indices((*g.kernel, g.input[3])).reshape(3, -1)
    inside = ((rows * g.dilation[0] * g.input[2]) + columns * g.dilation[1]) * g.input[3] + channels
    in_patch = np.arange(len(inside))
    is_copied = bool(inside.max() > _FARTHEST)
    patches = Patches.of(layer, 1)
    tables = [in_patch if is_copied else inside, *([in_patch] if patches.leaves else [])]
    nbytes = 1 if max(table.max() for table in tables) < 1 << 8 else 2
    packed = replace(packed, product=replace(packed.product, offset_nbytes=nbytes))
    chosen = [np.where(packed.order < 0, 0, table[packed.order]).astype(f"<u{nbytes}") for table in tables]
    raw = b"".join(table.tobytes() for table in chosen)
    raw += bytes(-len(raw) % 4) + packed.data.tobytes()
    if packed.product.rescaling is None:
        raw += np.array([word32(bias) for bias in layer.folded_bias], "<i4").tobytes()
    return _Plan(layer, patches, packed, np.frombuffer(raw, "<i4"), is_copied)


def _implementations(program: Program, layer: Layer, kernel: str) -> tuple[Implementation, ...] | str:
    depth = prod(layer.weights.shape[1:])
    if depth > _FARTHEST:
        return f"{depth} inputs of an output (at most {_FARTHEST})"
    both = pack(layer)
    found = [_implementation(program, layer, _plan(layer, packed), kernel) for packed in both]
    unpacked = grouped(layer, both[0], both[0].groups)
    if unpacked is not None:
        table = Buffer(
            f"{layer.instruction.out}.packed", DType.INT32, unpacked.table.shape, "constant", data=unpacked.table, align=4
        )
        found.append(
            replace(
                found[0],
                constants=(table,),
                emit=lambda function: emit_body(function, layer, table.name, unpacked.emit, "unpacked", unpacked.code),
                scratch_nbytes=unpacked.scratch_nbytes,
                skew=(),
                cost=unpacked.cost,
                variant="int8 weights, unpacked for all pixels",
            )
        )
    return tuple(found)


def _implementation(program: Program, layer: Layer, plan: _Plan, kernel: str) -> Implementation:
    instruction, product = layer.instruction, plan.packed.product
    table = Buffer(f"{instruction.out}.packed", DType.INT32, plan.table.shape, "constant", data=plan.table, align=4)
    expr = instruction.result if product.rescaling is None else layer.split.rest
    reads, constants = operands_of(program, instruction, expr)
    form = "sums requantised one by one" if product.rescaling is None else str(product.rescaling)
    groups = len(product.sizes)
    return Implementation(
        kernel=kernel,
        instruction=instruction,
        reads=reads,
        writes=(instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=plan.scratch_nbytes,
        overwrites=elementwise_overwrites(program, instruction),
        skew=skews(program, layer, pixel_by_pixel(layer, rereads=plan.is_direct)),
        rows=Rows(layer.geometry.output[1], 1, images=layer.geometry.output[0]),
        style="ordered",
        notes=(form, f"{product.depth / groups:.1f} products are summed in lanes before a split"),
        cost=plan.cost,
        variant="int8 weights" if product.is_small else "weights two in a word",
    )


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    plan = replace(plan, patches=Patches.of(plan.layer, function.align_of(plan.layer.instruction.left.buffer)))
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "channel_pairs", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def __init__(self, frame: Frame, plan: _Plan) -> None:
        super().__init__(frame, plan)
        product = plan.packed.product
        self.row = self.dsp.at(frame.scratch, product.parts_nbytes)
        self.patch = self.dsp.at(self.row, plan.row_nbytes)
        self.weights = self.dsp.at(frame.table, plan.weights_at)

    def emit(self) -> None:
        layer, dsp, builder, nbytes = self.plan.layer, self.dsp, self.dsp.builder, self.output.nbytes
        start = dsp.at(
            dsp.at(self.frame.target, layer.out.offset * nbytes), builder.mul(self.frame.y0, I32(layer.out.row * nbytes))
        )
        self.each_image(start, self._image)

    def _image(self, image: Value, out: Value, number: Value) -> None:
        layer, dsp, builder = self.plan.layer, self.dsp, self.dsp.builder
        rows = builder.sub(self.frame.y1, self.frame.y0)
        with dsp.repeat(1 if layer.geometry.output[1] == 1 else rows, [out, self.frame.y0]) as lines:
            line, row = lines.values
            self._line(image, line, row, number)
            lines.next = (dsp.at(line, layer.out.row * self.output.nbytes), builder.add(row, I32(1)))

    def _line(self, image: Value, out: Value, row: Value, number: Value) -> None:
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        (_, _, width, depth), geometry = plan.layer.geometry.input, plan.layer.geometry
        contiguous = plan.patches.contiguous
        source = dsp.at(image, builder.mul(row, I32(width * depth))) if contiguous else image
        with dsp.repeat(geometry.output[2], [source, out, I32(0)]) as carried:
            here, there, column = carried.values
            found, offsets = (here, self.frame.table) if contiguous else self._window(image, row, column)
            target = there if plan.is_direct else self.row
            plan.packed.product.call(dsp, found, offsets, self.weights, target, self.frame.scratch)
            if not plan.is_direct:
                self._finish(there, (number, row, column))
            following = dsp.at(here, depth) if contiguous else here
            forward = dsp.at(there, plan.layer.out.pixel * self.output.nbytes)
            carried.next = (following, forward, builder.add(column, I32(1)))

    def _window(self, image: Value, row: Value, column: Value) -> tuple[Value, Value]:
        """Where a window's inputs are, and by which offsets."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        if plan.is_copied:
            plan.patches.copy_window(dsp, image, row, column, self.patch)
            return self.patch, self.frame.table
        source, _, _ = plan.patches.window(dsp, image, row, column, self.patch)
        if not plan.patches.leaves:
            return source, self.frame.table
        in_patch = dsp.at(self.frame.table, plan.offsets_nbytes)
        copied = builder.icmp_unsigned("==", source, self.patch)
        return source, builder.select(copied, in_patch, self.frame.table)

    # What follows the product.

    def _finish(self, out: Value, pixel: Sequence[Value]) -> None:
        """A pixel's elements through what is fused, one by one."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        product = plan.packed.product
        axes = self._axes(pixel)
        with dsp.repeat(product.channels, [self.row, out, I32(0)]) as carried:
            from_, to, channel = carried.values
            found = {**axes, len(plan.layer.instruction.space) - 1: channel}
            if product.rescaling is None:
                bias = dsp.word(dsp.at(self.frame.table, builder.shl(channel, I32(2))), plan.table.nbytes - 4 * product.channels)
                self.output.finish(plan.layer.instruction.result, to, builder.add(dsp.word(from_), bias), found)
            else:
                self.output.store([(to, dsp.byte(from_), found)])
            forward = dsp.at(from_, product.element_nbytes), dsp.at(to, self.output.nbytes)
            carried.next = (*forward, builder.add(channel, I32(1)))

    def _axes(self, pixel: Sequence[Value]) -> dict[int, Value]:
        """The iteration axes of a pixel; a dense layer's row number is shared out to its row axes."""
        layer, builder = self.plan.layer, self.dsp.builder
        if layer.geometry.kind != "dense":
            return dict(enumerate(pixel))
        space = layer.instruction.space[:-1]
        found: dict[int, Value] = {}
        for axis in range(len(space)):
            if axis in layer.rest_axes and space[axis] > 1:
                inner = prod(space[axis + 1 :])
                quotient = pixel[2] if inner == 1 else builder.udiv(pixel[2], I32(inner))
                found[axis] = quotient if prod(space[:axis]) == 1 else builder.urem(quotient, I32(space[axis]))
        return found
