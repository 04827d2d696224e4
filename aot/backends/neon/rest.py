"""What is fused behind a layer: a line of int8 results in scratch, through the fused expression to the output.

Enters: a line of results, pixel by pixel. Leaves: stores.
Invariant: an element's operands are read before it is stored, so that the output may take the place of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from aot.backends.layers.operands import Layer
from aot.backends.neon.affine import Affine, affine_of
from aot.backends.neon.simd import BYTES16, Simd
from aot.backends.neon.vectors import LANES, Vectors, refusal
from aot.graph.expr import Acc, Load, rewrite
from aot.graph.ir import DType
from aot.llvm.types import I8, I32, I64, Value

_PER_VECTOR, _PER_SUM, _PER_ELEMENT = 45.0, 34.0, 20.0
"""Instructions for sixteen elements, about; for as many sums of two; for an element by itself."""


def instructions(layer: Layer) -> float:
    """What an element takes, about; 0 where nothing is fused."""
    if layer.split.rest is None:
        return 0.0
    return _PER_ELEMENT if rest_refusal(layer) else (_PER_VECTOR if _affine(layer) is None else _PER_SUM) / LANES


def rest_refusal(layer: Layer) -> str:
    """Why a layer's fused expression is computed element by element; empty if it need not be."""
    assert layer.split.rest is not None
    return "it asks where an element is" if layer.rest_axes else refusal(layer.split.rest, layer.beside)


def _affine(layer: Layer) -> Affine | None:
    """The form of a sum with one operand beside the output, as a residual's is."""
    if layer.split.rest is None or len(layer.beside) != 1:
        return None
    line = Load("line", (), DType.INT8)
    value = rewrite(layer.split.rest, lambda node: line if node == Acc(DType.INT8) else None)
    return affine_of(value, (line, layer.beside[0]))


@dataclass(frozen=True)
class Rest:
    """For one layer, in its function."""

    simd: Simd
    layer: Layer

    def emit(self, line: Value, out: Value, count: int, at: tuple[Value, Value, int]) -> None:
        """`count` pixels, all channels of each next to each other in the line. at: image, row and column of the first."""
        layer, function, builder = self.layer, self.simd.function, self.simd.builder
        channels = layer.geometry.output[3]
        nbytes = function.buffer(layer.instruction.out).dtype.nbytes
        pixel = layer.out.pixel * nbytes
        image, row, column = at
        distances = {load.buffer: self._distance(load.buffer) for load in layer.beside}
        if not rest_refusal(layer) and (layer.out.pixel == channels or count == 1):
            self._run(line, out, count * channels, distances)
            return
        with function.loop(0, count) as x:
            here = self.simd.at(line, builder.mul(x, I32(channels)))
            there = self.simd.at(out, builder.mul(x, I32(pixel)))
            if not rest_refusal(layer):
                self._run(here, there, channels, distances)
                return
            with function.loop(0, channels) as channel:
                axes = self._axes(image, row, builder.add(x, I32(column)), channel)
                self._one(self.simd.at(here, channel), self.simd.at(there, builder.mul(channel, I32(nbytes))), axes, distances)

    def _run(self, line: Value, out: Value, count: int, distances: Mapping[str, Value]) -> None:
        """`count` elements next to each other."""
        simd, whole = self.simd, count // LANES * LANES
        if whole:
            with simd.function.loop(0, whole, LANES) as index:
                self._sixteen(simd.at(line, index), simd.at(out, index), distances)
        if whole < count:
            with simd.function.loop(whole, count) as index:
                self._one(simd.at(line, index), simd.at(out, index), {}, distances)

    def _sixteen(self, line: Value, out: Value, distances: Mapping[str, Value]) -> None:
        def load(which: Load | None) -> Value:
            return self.simd.load(line if which is None else self._beside(out, distances[which.buffer]), BYTES16)

        assert self.layer.split.rest is not None
        form = _affine(self.layer)
        if form is None:
            self.simd.store(Vectors(self.simd, load).bytes(self.layer.split.rest), out)
            return
        other = self.layer.beside[0]
        self.simd.store(form.emit(self.simd, [(load(None), False), (load(other), other.dtype is DType.UINT8)]), out)

    def _one(self, line: Value, out: Value, axes: Mapping[int, Value], distances: Mapping[str, Value]) -> None:
        function, rest = self.simd.function, self.layer.split.rest
        assert rest is not None
        loaded = {load: function.load_at(load.buffer, self._beside(out, distances[load.buffer])) for load in self.layer.beside}
        acc = self.simd.builder.load(line, align=1, typ=I8)
        function.store_at(self.layer.instruction.out, out, function.value(rest, axes, acc=acc, loaded=loaded))

    def _distance(self, name: str) -> Value:
        """Bytes from an output element to the same element of another buffer."""
        function, builder = self.simd.function, self.simd.builder
        type = I64 if function.target.pointer_bits == 64 else I32
        there, here = (builder.ptrtoint(function.pointer(each), type) for each in (name, self.layer.instruction.out))
        return builder.sub(there, here)

    def _beside(self, out: Value, distance: Value) -> Value:
        return self.simd.builder.gep(out, [distance], source_etype=I8)

    def _axes(self, image: Value, row: Value, column: Value, channel: Value) -> dict[int, Value]:
        """The iteration axes of an element."""
        layer, builder, space = self.layer, self.simd.builder, self.layer.instruction.space
        assert layer.instruction.geometry is not None
        kind = layer.instruction.geometry.kind
        if kind == "depthwise" and layer.geometry.kind == "depthwise":
            each = I32(layer.geometry.multiplier)
            return {0: image, 1: row, 2: column, 3: builder.udiv(channel, each), 4: builder.urem(channel, each)}
        found = {0: image, 1: row, 2: column} if kind != "dense" else self._shared_out(column, sorted(layer.pixel_axes))
        channels = range(len(layer.pixel_axes), len(space))
        return found | self._shared_out(channel, channels)

    def _shared_out(self, number: Value, axes: range | list[int]) -> dict[int, Value]:
        """A number, shared out to several axes, of which the last runs fastest."""
        builder, space = self.simd.builder, self.layer.instruction.space
        found: dict[int, Value] = {}
        for axis in axes:
            inner = prod(space[after] for after in axes if after > axis)
            quotient = number if inner == 1 else builder.udiv(number, I32(inner))
            found[axis] = quotient if axis == axes[0] else builder.urem(quotient, I32(space[axis]))
        return found
