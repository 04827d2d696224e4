"""The end of every kernel: an accumulator becomes an int8 or int16, goes through what is fused behind it, and is stored.

Enters: a `Form` (from the solver) and a layer. Leaves: table words for each channel, and instructions.
Invariant: for channel places with the same `pre`, the same instructions serve every channel; what differs is in the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.layers.operands import Layer
from aot.backends.layers.requantise import Form
from aot.errors import InternalError
from aot.graph.expr import Expr, Load
from aot.llvm.types import I8, I16, I32, I64, Value


def word32(value: int) -> int:
    """An integer modulo 2^32, as a signed word."""
    return ((int(value) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def constants_of_form(form: Form, n: int) -> list[int]:
    """The table words of channel n."""
    if form.kind == "sums":
        return []
    if form.kind == "exact":
        assert form.left is not None
        right = int(form.right[n])
        some = 1 if right else 0
        return [int(form.multiplier[n]), int(form.left[n]), -some, max(right - 1, 0), some]
    words = [int(form.multiplier[n]), int(form.offset[n])]
    if form.kind == "signed":
        words.append(int(form.correction[n]))
    if not form.uniform:
        words.append(int(form.right[n] + form.pre[n]))
    return [word32(word) for word in words]


def constant_count(form: Form) -> int:
    """Table words of a channel."""
    return 0 if form.kind == "sums" else 5 if form.kind == "exact" else 2 + (form.kind == "signed") + (not form.uniform)


@dataclass(frozen=True)
class Place:
    """A channel place of a kernel (first or second of a pair, or the only one): its `pre`, and its shift where that is uniform."""

    form: Form
    pre: int
    shift: int | None

    @staticmethod
    def of(form: Form, first: int, step: int) -> Place:
        """The place of channels first, first + step, ..."""
        pres = set(form.pre[first::step].tolist())
        shifts = set((form.right + form.pre)[first::step].tolist())
        if len(pres) != 1 or (form.uniform and len(shifts) != 1):
            raise InternalError("a place with different shifts")
        return Place(form, pres.pop(), shifts.pop() if form.uniform else None)

    @property
    def code(self) -> tuple[object, ...]:
        """All that the instructions depend on."""
        form = self.form
        return form.kind, self.pre, self.shift, form.uniform, form.clamp, form.zero_point, form.bits

    def requantise(self, dsp: Dsp, acc: Value, shifted: bool, words: Sequence[Value]) -> Value:
        """The output's integer (or the sum), as int32, from the accumulator; with `shifted`, from accumulator << pre."""
        form = self.form
        if form.kind == "sums":
            return dsp.builder.ashr(acc, I32(8)) if shifted else acc
        if form.kind == "exact":
            y = _exact(dsp, dsp.builder.ashr(acc, I32(8)) if shifted else acc, words, form.zero_point, form.bits)
        else:
            y = self._scaled(dsp, acc if shifted or not self.pre else dsp.builder.shl(acc, I32(self.pre)), words)
        return y if form.clamp is None or self._is_positive else _clamp(dsp, y, *form.clamp, form.bits)

    @property
    def _is_positive(self) -> bool:
        """Whether a clamp, to all that is not negative, is the saturation itself."""
        form = self.form
        return form.kind != "exact" and form.clamp == (0, (1 << form.bits - 1) - 1)

    def _scaled(self, dsp: Dsp, u: Value, words: Sequence[Value]) -> Value:
        shift = words[-1] if self.shift is None else self.shift
        bits, is_signed = self.form.bits - self._is_positive, not self._is_positive
        if self.form.kind != "signed":
            high = dsp.smmla if self.form.kind == "saturate" else dsp.smmla_long
            return dsp.saturated(high(u, words[0], words[1]), shift, bits, is_signed)
        correction = dsp.builder.and_(words[2], dsp.sign(u))
        return dsp.saturated(dsp.builder.add(dsp.smmla(u, words[0], correction), words[1]), shift)


def _clamp(dsp: Dsp, y: Value, low: int, high: int, bits: int) -> Value:
    builder, most = dsp.builder, (1 << bits - 1) - 1
    y = y if low == -most - 1 else builder.select(builder.icmp_signed("<", y, I32(low)), I32(low), y)
    return y if high == most else builder.select(builder.icmp_signed(">", y, I32(high)), I32(high), y)


def _exact(dsp: Dsp, acc: Value, words: Sequence[Value], zero_point: int, bits: int) -> Value:
    """Both roundings as TFLite does them, branch-free, then saturation with every wrap kept.

    words: multiplier, left shift, and for the right shift r: -1, r - 1, 1; or 0, 0, 0 for r = 0. With h the doubled high half,
    ((h - (h < 0) >> r - 1) + 1) >> 1 rounds half away from zero without overflow.
    """
    builder = dsp.builder
    multiplier, left, negative, first, second = words
    wide = builder.mul(builder.sext(builder.shl(acc, left), I64), builder.sext(multiplier, I64))
    high = builder.trunc(builder.ashr(builder.add(wide, I64(1 << 30)), I64(31)), I32)
    nudged = builder.add(high, builder.and_(negative, dsp.sign(high)))
    rounded = builder.ashr(builder.add(builder.ashr(nudged, first), second), second)
    return dsp.saturated(builder.add(rounded, I32(zero_point)), 0, bits)


class Output:
    """Where results go: evaluates what is fused behind the requantisation and stores.

    `axes` of each element are the iteration axes of the fused expression; elements of one call are all read before any is written.
    An operand of the fused expression that lies beside the output, element by element, is read at the output's address plus their distance.
    """

    def __init__(self, dsp: Dsp, layer: Layer) -> None:
        self.dsp, self.layer, self.rest = dsp, layer, layer.split.rest
        self.name = layer.instruction.out
        self.nbytes = dsp.function.buffer(self.name).dtype.nbytes
        self.distances = {load.buffer: self._distance(load.buffer) for load in layer.beside}

    def _distance(self, name: str) -> Value:
        """Bytes from an output element to the same element of another buffer."""
        function, builder = self.dsp.function, self.dsp.builder
        there, here = (builder.ptrtoint(function.pointer(each), I32) for each in (name, self.name))
        return builder.sub(there, here)

    def _loaded(self, address: Value) -> dict[Load, Value]:
        """The elements beside the one at `address`."""
        function = self.dsp.function
        return {
            load: function.load_at(load.buffer, self.dsp.at(address, self.distances[load.buffer])) for load in self.layer.beside
        }

    def beside(self, address: Value) -> tuple[Value, ...]:
        """Pointers to the elements of the operands beside the output's at `address`."""
        return tuple(self.dsp.at(address, distance) for distance in self.distances.values())

    @property
    def beside_nbytes(self) -> tuple[int, ...]:
        """Bytes of an element of each."""
        return tuple(self.dsp.function.buffer(name).dtype.nbytes for name in self.distances)

    def load_beside(self, pointers: Sequence[Value], number: int) -> dict[Load, Value]:
        """The elements `number` places after those that `beside` pointed to."""
        places = zip(self.distances, pointers, self.beside_nbytes, strict=True)
        found = {name: self.dsp.at(pointer, number * nbytes) for name, pointer, nbytes in places}
        return {load: self.dsp.function.load_at(load.buffer, found[load.buffer]) for load in self.layer.beside}

    def row_axes(self, row: Value) -> dict[int, Value]:
        """A dense layer's row number, shared out to those of its row axes that the fused expression asks for."""
        builder, space, wanted = self.dsp.builder, self.layer.instruction.space[:-1], self.layer.rest_axes
        found: dict[int, Value] = {}
        for number in range(len(space)):
            if number in wanted and space[number] > 1:
                inner = prod(space[number + 1 :])
                quotient = row if inner == 1 else builder.udiv(row, I32(inner))
                found[number] = quotient if prod(space[:number]) == 1 else builder.urem(quotient, I32(space[number]))
        return found

    def finished(self, value: Value, axes: Mapping[int, Value], loaded: Mapping[Load, Value]) -> Value:
        """What is fused behind a requantised element, which comes as int32."""
        assert self.rest is not None
        acc = self.dsp.builder.trunc(value, I8 if self.layer.dtype.nbytes == 1 else I16)
        return self.dsp.function.value(self.rest, axes, acc=acc, loaded=loaded)

    def finish(self, expr: Expr, address: Value, acc: Value, axes: dict[int, Value]) -> None:
        """Evaluate a whole expression of an accumulator and store it at `address`."""
        function = self.dsp.function
        function.store_at(self.name, address, function.value(expr, axes, acc=acc, loaded=self._loaded(address)))

    def store(self, elements: Sequence[tuple[Value, Value, dict[int, Value]]]) -> None:
        """(address, requantised value as int32, axes) of each element."""
        if self.rest is None:
            for address, value, _ in elements:
                self.dsp.store_element(value, address, self.nbytes)
            return
        finished = [self.finished(value, axes, self._loaded(address)) for address, value, axes in elements]
        for (address, _, _), value in zip(elements, finished, strict=True):
            self.dsp.function.store_at(self.name, address, value)
