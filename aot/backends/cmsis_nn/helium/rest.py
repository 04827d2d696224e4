"""What is fused behind a Helium kernel: results of a run of pixels, from scratch, through the fused expression to the output.

Enters: a line of int8 or int16 results. Leaves: stores.
Invariant: an element's operands are read before it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aot.backends.cmsis_nn.dsp.ending import Output
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.helium.vectors import LANES, Vectors, refusal_of, run, widened
from aot.backends.cmsis_nn.shared import digest
from aot.backends.layers.operands import Layer
from aot.graph.expr import Load
from aot.llvm.types import I8, I16, I32, Value
from aot.lower.implementation import Cost

_CALL_NBYTES = 40  # of code that a layer has for itself


def instructions(layer: Layer) -> float:
    """What an element takes, about; 0 where nothing is fused."""
    return 0 if layer.split.rest is None else 14 if refusal_of(layer) else 4.5


def cost_of(instructions: float, functions: Sequence[tuple[str, int]], code: tuple[object, ...] | None, body_nbytes: int) -> Cost:
    """A layer's cost. functions: (name, bytes) of those that it calls. code: what its body depends on; None: the body is its own."""
    shared = list(functions)
    if code is not None:
        shared.append((f"body_{digest(code)}", body_nbytes))
    own = _CALL_NBYTES + (body_nbytes if code is None else 0)
    return Cost(round(instructions), own, tuple(shared))


@dataclass(frozen=True)
class Rest:
    """Four elements at a time where the expression allows it, else one by one."""

    dsp: Dsp
    output: Output
    layer: Layer

    def emit(self, line: Value, out: Value, count: Value, at: tuple[Value, Value, Value]) -> None:
        """`count` pixels; at: image, row and column of the first."""
        dsp, builder, layer = self.dsp, self.dsp.builder, self.layer
        channels, pixel, nbytes = layer.geometry.output[3], layer.out.pixel * self.output.nbytes, layer.dtype.nbytes
        if self._is_vector and layer.out.pixel == channels:
            self._run(line, out, builder.mul(count, I32(channels)), channels % LANES != 0)
            return
        image, row, column = at
        with dsp.repeat(count, [line, out, column]) as pixels:
            here, there, x = pixels.values
            if self._is_vector:
                self._run(here, there, I32(channels), channels % LANES != 0)
            else:
                with dsp.repeat(channels, [here, there, I32(0)]) as carried:
                    source, target, channel = carried.values
                    self.output.store([(target, self._result(source), self._axes(image, row, x, channel))])
                    carried.next = (dsp.at(source, nbytes), dsp.at(target, self.output.nbytes), builder.add(channel, I32(1)))
            pixels.next = (dsp.at(here, channels * nbytes), dsp.at(there, pixel), builder.add(x, I32(1)))

    def _result(self, address: Value) -> Value:
        """The result in the line, as int32."""
        type = I8 if self.layer.dtype.nbytes == 1 else I16
        return self.dsp.builder.sext(self.dsp.builder.load(address, align=type.width // 8, typ=type), I32)

    @property
    def _is_vector(self) -> bool:
        return not refusal_of(self.layer)

    def _run(self, line: Value, out: Value, count: Value, tail: bool) -> None:
        """`count` elements next to each other; a multiple of four unless there is a tail."""

        def one(here: Value, there: Value) -> None:
            self.output.store([(there, self._result(here), {})])

        run(self.dsp, count, [(line, self.layer.dtype.nbytes), (out, self.output.nbytes)], self._four, one, tail)

    def _four(self, line: Value, out: Value) -> None:
        dsp, layer = self.dsp, self.layer

        def load(which: Load | None, unsigned: bool) -> Value:
            if which is None:
                return widened(dsp, line, layer.dtype.nbytes, unsigned)
            return widened(dsp, dsp.at(out, self.output.distances[which.buffer]), which.dtype.nbytes, unsigned)

        assert layer.split.rest is not None
        Vectors(dsp, load).store(layer.split.rest, out)

    def _axes(self, image: Value, row: Value, column: Value, channel: Value) -> dict[int, Value]:
        """The iteration axes of an element."""
        layer, space = self.layer, self.layer.instruction.space
        geometry = layer.instruction.geometry
        assert geometry is not None
        if geometry.kind == "dense":
            return {**self.output.row_axes(column), len(space) - 1: channel}
        if geometry.kind == "depthwise" and layer.geometry.kind == "depthwise":
            each = layer.geometry.multiplier
            quotient = channel if each == 1 else self.dsp.builder.udiv(channel, I32(each))
            inner = I32(0) if each == 1 else self.dsp.builder.urem(channel, I32(each))
            return {0: image, 1: row, 2: column, 3: quotient, 4: inner}
        return {0: image, 1: row, 2: column, len(space) - 1: channel}
