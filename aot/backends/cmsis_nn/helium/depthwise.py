"""Depthwise convolutions on Helium: row by row from the image, or from a ring of padded rows, of which each output row brings the new
ones.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: nothing outside the image is read; the ring has room behind it for vectors that reach beyond a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aot.backends.cmsis_nn.helium.channels import VECTOR, Channels
from aot.backends.cmsis_nn.helium.convolution import TAKES
from aot.backends.cmsis_nn.helium.ending import Ending
from aot.backends.cmsis_nn.helium.memory import Phases, pad_row
from aot.backends.cmsis_nn.helium.mve import REACH
from aot.backends.cmsis_nn.helium.rest import Rest, cost_of, instructions
from aot.backends.cmsis_nn.shared import Body, emit_body
from aot.backends.layers.fused import operands_of
from aot.backends.layers.operands import HELIUM_TAPS, Layer, read_layer
from aot.graph.ir import DType
from aot.graph.primitive import Geometry, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I16, I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_BODY_NBYTES, _RING_NBYTES, _REST_NBYTES = 150, 250, 120  # of code around the product, for the ring, and for what is fused
_LINE_NBYTES = 2048  # of scratch for results that something fused takes
_SLACK = 2 * VECTOR  # bytes behind the ring


def claim_depthwise(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Depthwise convolutions of any kernel (up to 128 taps), stride, dilation, padding and multiplier."""
    layer = read_layer(program, instruction, target, "depthwise", "mve", TAKES)
    if isinstance(layer, str):
        return layer
    height, width = layer.geometry.kernel
    if height * width > HELIUM_TAPS:
        return f"a {height}x{width} kernel: more than {HELIUM_TAPS} taps"
    ending = Ending.of(layer)
    if ending.is_long:
        return "its sums need 64 bits, or its scales do"
    plan = _Plan(layer, ending)
    data = plan.product.table()
    table = Buffer(f"{layer.instruction.out}.packed", DType.INT32, data.shape, "constant", data=data, align=4)
    reads, constants = operands_of(program, layer.instruction, layer.split.rest)
    product = plan.product
    sums = f"{'+'.join(map(str, product.cuts))} taps are summed in 16 bits, " if product.cuts else ""
    return Implementation(
        kernel=f"depthwise {height}x{width}",
        instruction=layer.instruction,
        reads=reads,
        writes=(layer.instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=plan.scratch_nbytes,
        overwrites=elementwise_overwrites(program, layer.instruction),
        rows=Rows(layer.geometry.output[1], 1, images=layer.geometry.output[0]),
        style="ordered",
        notes=(
            product.ending.note(),
            f"{sums}rows are read {'from a ring of padded ones' if plan.has_ring else 'in place'}",
        ),
        cost=plan.cost,
    )


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer."""

    layer: Layer
    ending: Ending
    product: Channels = field(init=False)
    phases: Phases | None = field(init=False)
    has_ring: bool = field(init=False)

    def __post_init__(self) -> None:
        layer = self.layer
        g = layer.geometry
        pixel, has_rest = self.pixel_nbytes, layer.split.rest is not None
        side_by_side = has_rest or layer.out.pixel == g.output[3]
        pixels = max(1, VECTOR // pixel) if side_by_side and g.stride[1] * pixel <= REACH else 1
        phases = Phases(self.columns, g.stride[1], pixel) if g.stride[1] > 1 and pixels > 1 else None
        object.__setattr__(self, "phases", phases)
        columns = [column * g.dilation[1] for column in range(g.kernel[1])]
        at = tuple(phases.at(column) if phases else column * pixel for column in columns)
        in_step = pixels * pixel * (1 if phases else g.stride[1])
        out_step = pixels * (pixel if has_rest else layer.out.pixel * layer.dtype.nbytes)
        product = Channels(layer.weights, self.ending, pixels, at, in_step, out_step)
        object.__setattr__(self, "product", product)
        padded = g.pad_top or g.pad_left or _reach(g, 0) > g.input[1] or _reach(g, 1) > g.input[2]
        object.__setattr__(self, "has_ring", bool(padded or g.multiplier > 1 or pixel % VECTOR))

    @property
    def has_rest(self) -> bool:
        return self.layer.split.rest is not None

    @property
    def pixel_nbytes(self) -> int:
        """Of a pixel's results, and of its inputs, each channel as many times as it has filters."""
        return self.layer.geometry.output[3] * self.layer.dtype.nbytes

    @property
    def slots(self) -> int:
        """Rows of the ring."""
        g = self.layer.geometry
        return (g.kernel[0] - 1) * g.dilation[0] + 1

    @property
    def columns(self) -> int:
        """Columns of a padded row."""
        g = self.layer.geometry
        return (g.output[2] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1

    @property
    def row_nbytes(self) -> int:
        """Of a row of the ring."""
        return self.phases.row_nbytes if self.phases else self.columns * self.pixel_nbytes

    @property
    def plain_at(self) -> int:
        """Where a row lies in scratch before it is put in order by phases."""
        return self.slots * self.row_nbytes + _SLACK

    @property
    def _ring_nbytes(self) -> int:
        plain = self.columns * self.pixel_nbytes + VECTOR if self.phases else 0
        return self.plain_at + plain if self.has_ring else 0

    @property
    def pointers_at(self) -> int:
        """Where the pointers to a window's rows lie in scratch, behind the ring."""
        return -(-self._ring_nbytes // 4) * 4

    @property
    def line_at(self) -> int:
        return self.pointers_at + 4 * self.layer.geometry.kernel[0]

    @property
    def most(self) -> int:
        """Pixels at a time."""
        width = self.layer.geometry.output[2]
        if not self.has_rest:
            return width
        pixels = self.product.pixels
        return min(width, max(1, _LINE_NBYTES // self.pixel_nbytes // pixels) * pixels)

    @property
    def scratch_nbytes(self) -> int:
        line = self.most * self.pixel_nbytes if self.has_rest else 0
        return -(-(self.line_at + line) // 4) * 4

    @property
    def cost(self) -> Cost:
        """Counted on the code."""
        g = self.layer.geometry
        row: float = self.product.instructions(g.output[2]) + 30 + 8 * g.kernel[0]
        row += instructions(self.layer) * g.output[2] * g.output[3]
        if self.has_ring:
            copied = (
                3 * self.row_nbytes / VECTOR
                if g.multiplier == 1
                else 2 * self.row_nbytes / self.layer.dtype.nbytes + 5 * g.input[2] * g.input[3]
            )
            ordered = 3 * self.columns + 20 if self.phases else 0
            row += min(g.stride[0], self.slots) * (55 + copied + ordered)
        body = _BODY_NBYTES + _RING_NBYTES * self.has_ring + _REST_NBYTES * self.has_rest
        product = (self.product.name, self.product.code_nbytes)
        return cost_of(row * g.output[0] * g.output[1], [product], self.code, body)

    @property
    def code(self) -> tuple[object, ...] | None:
        """All that the code depends on; None where something is fused behind, which is code of its own."""
        layer = self.layer
        return None if self.has_rest else (layer.geometry, layer.out, layer.instruction.left_zero_point, self.product.key)


def _reach(g: Geometry, axis: int) -> int:
    """Rows or columns of the input, with the padding before it, that the output needs."""
    return (g.output[1 + axis] - 1) * g.stride[axis] + (g.kernel[axis] - 1) * g.dilation[axis] + 1


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "helium_depthwise", plan.code)


class _Emitter(Body[_Plan]):
    """Emits one layer's body."""

    def emit(self) -> None:
        builder, out, nbytes = self.dsp.builder, self.plan.layer.out, self.output.nbytes
        start = builder.add(builder.mul(self.frame.y0, I32(out.row * nbytes)), I32(out.offset * nbytes))
        self.each_image(self.dsp.at(self.frame.target, start), self._image)

    def _image(self, source: Value, target: Value, number: Value) -> None:
        """Row by row."""
        dsp, builder = self.dsp, self.dsp.builder
        y0, y1, row_nbytes = self.frame.y0, self.frame.y1, self.plan.layer.out.row * self.output.nbytes
        with dsp.repeat(builder.sub(y1, y0), [y0, target, I32(0)]) as rows:
            y, here, slot = rows.values
            slot = self._window(source, y, slot)
            self._row(here, number, y)
            rows.next = (builder.add(y, I32(1)), dsp.at(here, row_nbytes), slot)

    def _row(self, target: Value, number: Value, y: Value) -> None:
        """The pixels of an output row, whose window's rows are known."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        g = plan.layer.geometry
        width = g.output[2]
        pointers, line = dsp.at(self.frame.scratch, plan.pointers_at), dsp.at(self.frame.scratch, plan.line_at)
        if not plan.has_rest:
            plan.product.call(dsp, pointers, target, self.frame.table, I32(width), I32(0))
            return
        with dsp.until(I32(0), I32(width), [target]) as carried:
            x, here = carried.index, carried.values[0]
            left = builder.sub(I32(width), x)
            count = builder.select(builder.icmp_signed("<", left, I32(plan.most)), left, I32(plan.most))
            first = builder.mul(x, I32(plan.pixel_nbytes if plan.phases else g.stride[1] * plan.pixel_nbytes))
            plan.product.call(dsp, pointers, line, self.frame.table, count, first)
            Rest(dsp, self.output, plan.layer).emit(line, here, count, (number, y, x))
            forward = builder.mul(count, I32(plan.layer.out.pixel * self.output.nbytes))
            carried.next = (builder.add(x, count), dsp.at(here, forward))

    def _window(self, image: Value, y: Value, slot: Value) -> Value:
        """Leave pointers to the window's rows in scratch. slot: byte of the ring where its first row is. Returns the next row's slot."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        g = plan.layer.geometry
        top = builder.sub(builder.mul(y, I32(g.stride[0])), I32(g.pad_top))
        pointers = dsp.at(self.frame.scratch, plan.pointers_at)
        if not plan.has_ring:
            nbytes = g.input[2] * plan.pixel_nbytes
            row = dsp.at(image, builder.mul(top, I32(nbytes)))
            for number in range(g.kernel[0]):
                self._point(pointers, number, dsp.at(row, number * g.dilation[0] * nbytes))
            return slot
        if g.stride[0] >= plan.slots:
            self._fill(image, top, I32(0), I32(0))
            following = slot
        else:
            fresh = builder.icmp_signed("==", y, self.frame.y0)
            self._fill(image, top, slot, builder.select(fresh, I32(0), I32(plan.slots - g.stride[0])))
            following = self._wrapped(builder.add(slot, I32(g.stride[0] * plan.row_nbytes)))
        for number in range(g.kernel[0]):
            at = self._wrapped(builder.add(slot, I32(number * g.dilation[0] * plan.row_nbytes)))
            self._point(pointers, number, dsp.at(self.frame.scratch, at))
        return following

    def _point(self, pointers: Value, number: int, to: Value) -> None:
        dsp = self.dsp
        dsp.store_word(dsp.builder.ptrtoint(to, I32), pointers, 4 * number)

    def _wrapped(self, at: Value) -> Value:
        builder, end = self.dsp.builder, I32(self.plan.slots * self.plan.row_nbytes)
        return builder.select(builder.icmp_signed(">=", at, end), builder.sub(at, end), at)

    def _fill(self, image: Value, top: Value, slot: Value, first: Value) -> None:
        """Rows `first` and on of a window, whose row 0 is input row `top` and lies at `slot`."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        start = self._wrapped(builder.add(slot, builder.mul(first, I32(plan.row_nbytes))))
        with dsp.until(first, I32(plan.slots), [start]) as carried:
            number, at = carried.index, carried.values[0]
            to = dsp.at(self.frame.scratch, at)
            plain = dsp.at(self.frame.scratch, plan.plain_at) if plan.phases else to
            self._copy(image, builder.add(top, number), plain)
            if plan.phases:
                plan.phases.call(dsp, to, plain)
            carried.next = (builder.add(number, I32(1)), self._wrapped(builder.add(at, I32(plan.row_nbytes))))

    def _copy(self, image: Value, row: Value, to: Value) -> None:
        """An input row, padded and with each channel as many times as it has filters."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        g = plan.layer.geometry
        width, depth, nbytes = g.input[2], g.input[3], plan.layer.dtype.nbytes
        before = min(g.pad_left, plan.columns)
        middle = max(0, min(width, plan.columns - before))
        after = plan.columns - before - middle
        exists = builder.icmp_unsigned("<", row, I32(g.input[1]))
        source = dsp.at(image, builder.mul(builder.select(exists, row, I32(0)), I32(width * depth * nbytes)))
        zero_point, none = I32(plan.layer.instruction.left_zero_point), I32(0)
        whole = [I32(count * plan.pixel_nbytes) for count in (before, middle, after)]
        row_nbytes = I32(plan.columns * plan.pixel_nbytes)
        if g.multiplier == 1:
            empty = [row_nbytes, none, none]
            pad_row(dsp, to, source, [builder.select(exists, a, b) for a, b in zip(whole, empty, strict=True)], zero_point)
            return
        behind = pad_row(dsp, to, source, [builder.select(exists, whole[0], row_nbytes), none, none], zero_point)
        if not middle:
            return
        with builder.if_then(exists):
            with dsp.repeat(middle * depth, [source, behind]) as carried:
                here, there = carried.values
                value = builder.load(here, align=nbytes, typ=I8 if nbytes == 1 else I16)
                for number in range(g.multiplier):
                    builder.store(value, dsp.at(there, number * nbytes), align=nbytes)
                carried.next = (dsp.at(here, nbytes), dsp.at(there, g.multiplier * nbytes))
            pad_row(dsp, carried.results[1], source, [whole[2], none, none], zero_point)
