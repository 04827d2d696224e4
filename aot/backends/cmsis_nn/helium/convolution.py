"""Convolutions and dense layers on Helium: where a run of pixels has its windows inside the image they are read there, else from a
padded copy of the rows, or from patches where the rows of a window are short.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: nothing outside the image is read, although the product reads windows in chunks of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from aot.backends.cmsis_nn.helium.ending import Ending
from aot.backends.cmsis_nn.helium.memory import Patches, Repeated
from aot.backends.cmsis_nn.helium.product import CHUNK, Product
from aot.backends.cmsis_nn.helium.rest import Rest, cost_of, instructions
from aot.backends.cmsis_nn.helium.strips import Strips
from aot.backends.cmsis_nn.shared import Body, emit_body
from aot.backends.layers import constant_channels
from aot.backends.layers.fused import operands_of
from aot.backends.layers.operands import Layer, read_layer
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

TAKES = (DType.INT8, DType.INT16)
_PATCHES_NBYTES = 4096  # of scratch, if one pixel's are less
_LINE_NBYTES = 2048  # of scratch for results that something fused takes
_BODY_NBYTES, _REST_NBYTES = 200, 120  # of code around the product, and for what is fused
_PER_CHUNK = 1.75  # instructions for a chunk, a pixel and a channel


def claim_convolution(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Convolutions of any kernel, stride, dilation and padding."""
    layer = read_layer(program, instruction, target, "conv", "mve", TAKES, sums=True)
    if isinstance(layer, str):
        return layer
    return _implementation(program, layer, f"conv {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}")


def claim_dense(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Fully connected layers on any number of rows: a 1x1 convolution whose pixels are the rows."""
    layer = read_layer(program, instruction, target, "dense", "mve", TAKES, sums=True)
    return layer if isinstance(layer, str) else _implementation(program, layer, "dense")


def _implementation(program: Program, layer: Layer, kernel: str) -> Implementation:
    plan, kept = _Plan(layer), constant_channels.varying(layer)
    kept[0] |= not kept.any()
    if not kept.all():
        shorter = _Plan(layer, tuple(np.flatnonzero(kept).tolist()))
        plan = min(plan, shorter, key=lambda one: one.cost.instructions)
    instruction = layer.instruction
    data = plan.table
    table = Buffer(f"{instruction.out}.packed", DType.INT32, data.shape, "constant", data=data, align=4)
    reads, constants = operands_of(program, instruction, layer.split.rest)
    how = "from patches" if plan.patches else "in place" if plan.strips.inside else "from padded rows"
    notes = [plan.product.ending.note(), f"windows are read {how}, {plan.product.rows} x {plan.product.chunks * CHUNK} bytes"]
    if plan.live:
        notes.append(f"{len(layer.bias) - len(plan.live)} of {len(layer.bias)} channels only ever have one output")
    return Implementation(
        kernel=kernel,
        instruction=instruction,
        reads=reads,
        writes=(instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=plan.scratch_nbytes,
        overwrites=elementwise_overwrites(program, instruction),
        rows=Rows(layer.geometry.output[1], 1, images=layer.geometry.output[0]),
        style="ordered",
        notes=tuple(notes),
        cost=plan.cost,
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. geometry: the layer's, but where pixels run on across rows, of a single row, and with bytes for input
    channels.

    live: the channels that come from the product, where it leaves out constant ones. patches: None where the product reads rows.
    product: over the windows as they lie.
    """

    layer: Layer
    live: tuple[int, ...] = ()
    geometry: Geometry = field(init=False)
    patches: Patches | None = field(init=False)
    product: Product = field(init=False)
    strips: Strips = field(init=False)

    def __post_init__(self) -> None:
        layer = self.layer
        _set(self, geometry=in_bytes(_flattened(layer), layer.dtype))
        g = self.geometry
        depth, run = g.input[3], g.kernel[1] * g.input[3]
        gathers = (g.dilation[1] > 1 and g.kernel[1] > 1) or _patches_pay(g)
        lasting = -(-g.kernel[0] * run // CHUNK) if gathers else -(-run // CHUNK)
        ending = Ending.of(self.computed)
        pixel_nbytes = layer.geometry.output[3] * layer.dtype.nbytes
        line = _LINE_NBYTES // pixel_nbytes if layer.split.rest is not None else g.output[2]
        most = min(line, _PATCHES_NBYTES // (lasting * CHUNK)) if gathers else line
        strips = Strips(g, layer.instruction.left_zero_point, 0 if gathers else lasting * CHUNK, max(1, most), self.has_rest)
        step = g.stride[1] * depth
        patches = Patches(_runs(g, strips.row_nbytes), step, lasting * CHUNK) if gathers else None
        out_step = pixel_nbytes if self.has_rest else layer.out.pixel * ending.nbytes
        rows, in_step = (1, lasting * CHUNK) if gathers else (g.kernel[0], step)
        product = Product(rows, lasting, in_step, out_step, ending, len(self.computed.bias), self.live)
        _set(self, patches=patches, product=product, strips=strips)

    @property
    def has_rest(self) -> bool:
        return self.layer.split.rest is not None

    @property
    def is_flat(self) -> bool:
        return self.geometry.output != self.layer.geometry.output

    @property
    def computed(self) -> Layer:
        """The layer of the channels that come from the product."""
        return constant_channels.only(self.layer, list(self.live)) if self.live else self.layer

    @property
    def constants(self) -> Repeated | None:
        """What is stored before the product: the outputs of channels that it leaves out."""
        return Repeated(self.layer.geometry.output[3] * self.layer.dtype.nbytes, self.product.out_step) if self.live else None

    @property
    def table(self) -> np.ndarray:
        """int32: the product's, then a pixel's constants."""
        layer = self.computed
        table = self.product.table(layer.weights.reshape(len(layer.bias), self.product.rows, -1))
        if not self.live:
            return table
        found = constant_channels.outputs(self.layer).astype(layer.dtype.np).tobytes()
        return np.concatenate([table, np.frombuffer(found + bytes(-len(found) % CHUNK), np.int32)])

    @property
    def patches_at(self) -> int:
        return self.strips.nbytes

    @property
    def line_at(self) -> int:
        return self.patches_at + (self.patches.step * self.strips.most + CHUNK if self.patches else 0)

    @property
    def scratch_nbytes(self) -> int:
        line = self.strips.most * self.geometry.output[3] * self.layer.dtype.nbytes if self.has_rest else 0
        return -(-(self.line_at + line) // 4) * 4

    @property
    def cost(self) -> Cost:
        """Counted on the code."""
        g, strips, product = self.geometry, self.strips, self.product
        found = 20.0
        per_pixel = (self.patches.instructions if self.patches else 0) + instructions(self.layer) * g.output[3]
        for count, copied in strips.pieces:
            found += product.instructions(count) + 15 + count * per_pixel + (strips.instructions(count) if copied else 0)
            found += self.constants.instructions(count) if self.constants else 0
        body = _BODY_NBYTES * (1 if strips.always_inside else 2) + _REST_NBYTES * self.has_rest
        functions = [(product.name(self.parity), product.code_nbytes(self.parity))]
        if self.constants:
            functions.append((self.constants.name, self.constants.code_nbytes))
        return cost_of(found * g.input[0], functions, self.code, body)

    @property
    def parity(self) -> tuple[bool, bool]:
        """Whether a run of pixels can be of an odd number, and of more than one."""
        return self.strips.parity(self.layer.geometry.output[2] if self.is_flat else 0)

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        if self.has_rest:
            return None
        patches = None if self.patches is None else (tuple(self.patches.runs), self.patches.step)
        return self.geometry, self.layer.geometry, self.layer.out, self.strips, patches, self.product.key


def _set(plan: _Plan, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(plan, name, value)


def in_bytes(g: Geometry, dtype: DType) -> Geometry:
    """The geometry with bytes of the input's pixels for channels."""
    return replace(g, input=(*g.input[:3], g.input[3] * dtype.nbytes))


def _flattened(layer: Layer) -> Geometry:
    """A 1x1 convolution as one on a single row of pixels, where rows follow each other in memory and nobody asks for a pixel's place."""
    g = layer.geometry
    whole = g.kernel == g.stride == (1, 1) and g.pad_top == g.pad_left == 0 and g.input[1:3] == g.output[1:3]
    if not whole or layer.rest_axes & layer.pixel_axes or layer.out.row not in (0, g.output[2] * layer.out.pixel):
        return g
    images, height, width, depth = g.input
    return Geometry("conv", (images, 1, height * width, depth), (images, 1, height * width, g.output[3]))


def _patches_pay(g: Geometry) -> bool:
    """Whether putting windows together costs less than multiplying the ends of their rows, which are padded to chunks."""
    rows, run = g.kernel[0], g.kernel[1] * g.input[3]
    saved = rows * -(-run // CHUNK) - -(-rows * run // CHUNK)
    vectors = rows * -(-run // CHUNK)
    copied = 3 * rows * (1 + g.stride[1] * g.input[3] / CHUNK)
    return saved * _PER_CHUNK * g.output[3] > 3 * vectors + copied + 6


def _runs(g: Geometry, row_nbytes: int) -> tuple[tuple[int, int], ...]:
    """The runs of the first window in padded rows."""
    depth = g.input[3]
    if g.dilation[1] == 1 or g.kernel[1] == 1:
        return tuple((row * row_nbytes, g.kernel[1] * depth) for row in range(g.kernel[0]))
    return tuple(
        (row * row_nbytes + column * g.dilation[1] * depth, depth) for row in range(g.kernel[0]) for column in range(g.kernel[1])
    )


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "helium", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def emit(self) -> None:
        self.each_image(self.dsp.at(self.frame.target, self.plan.layer.out.offset * self.output.nbytes), self._image)

    def _image(self, source: Value, target: Value, number: Value) -> None:
        layer, dsp, builder = self.plan.layer, self.dsp, self.dsp.builder
        y0, y1 = self.frame.y0, self.frame.y1
        _, height, width, _ = layer.geometry.output
        if self.plan.geometry.output[1] == 1:
            if height == 1:
                self._row(source, target, (number, I32(0)), I32(0), I32(width))
                return
            start, stop = (builder.mul(y, I32(width)) for y in (y0, y1))
            self._row(source, target, (number, I32(0)), start, stop)
            return
        row_nbytes = layer.out.row * self.output.nbytes
        first = dsp.at(target, builder.mul(y0, I32(row_nbytes)))
        with dsp.repeat(builder.sub(y1, y0), [y0, first]) as carried:
            y, out = carried.values
            self._row(source, out, (number, y), I32(0), I32(width))
            carried.next = (builder.add(y, I32(1)), dsp.at(out, row_nbytes))

    def _row(self, image: Value, target: Value, at: tuple[Value, Value], start: Value, stop: Value) -> None:
        """Pixels [start, stop) of row `at` (image and row number), piece by piece."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        pixel = plan.layer.out.pixel * self.output.nbytes
        strip = plan.strips.begin(dsp, image, at[1], self.frame.scratch)
        with dsp.until(start, stop, [dsp.at(target, builder.mul(start, I32(pixel)))]) as carried:
            x, out = carried.index, carried.values[0]
            rows, count, skip = strip.piece(x, stop)
            if plan.patches is not None:
                patches = dsp.at(self.frame.scratch, plan.patches_at)
                plan.patches.call(dsp, rows, patches, count)
                rows = patches
            line = dsp.at(self.frame.scratch, plan.line_at) if plan.has_rest else out
            if plan.constants is not None:
                behind = plan.table.nbytes - -(-plan.constants.nbytes // CHUNK) * CHUNK
                plan.constants.call(dsp, line, dsp.at(self.frame.table, behind), count)
            plan.product.call(dsp, rows, line, self.frame.table, count, skip, plan.parity)
            if plan.has_rest:
                Rest(dsp, self.output, plan.layer).emit(line, out, count, (*at, x))
            carried.next = (builder.add(x, count), dsp.at(out, builder.mul(count, I32(pixel))))
