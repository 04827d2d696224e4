"""Gathering pixels: inputs become int16 pairs in scratch, in the order in which the packed weights want them.

Enters: a convolution's geometry. Leaves: the order of inputs (for packing), scratch sizes, and instructions.
Invariant: `order` and the instructions are two views of the same runs: word k of a pixel's slot holds the inputs order[2k],
order[2k + 1];
-1 stands for a half whose weights are 0 (it may hold anything).

A run is a row of neighbouring inputs. Four bytes b0..b3 become (b0, b2) and (b1, b3): LDR, SXTB16, SXTB16 with ROR #8; inputs of int16 are
pairs already. A slot's words are `stride` words apart, so that the same word of neighbouring pixels is one LDRD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.instructions import Dsp, Image
from aot.backends.layers.operands import Layer
from aot.graph.primitive import Geometry
from aot.llvm.types import I8, I16, I32, Value

_STRAIGHT = 24  # inputs (times pixels) that are gathered without a loop


def run_order(length: int, element: int = 1) -> list[int]:
    """The order of a run's inputs, of `element` bytes, in pairs."""
    if element == 2:
        return [*range(length), *([-1] if length % 2 else [])]
    whole = length - length % 4
    order = [first + step for first in range(0, whole, 4) for step in (0, 2, 1, 3)]
    tail = list(range(whole, length))
    return order + tail + [-1] * (len(tail) % 2)


def run_words(length: int) -> int:
    """Words of a run in a slot, whatever its type."""
    return -(-length // 2)


@dataclass(frozen=True)
class Pixels:
    """Pixels that are gathered together: `count` of them, `distance` bytes apart, slots `stride` words apart (>= count). zero: what
    is taken off every input. element: bytes of an input."""

    count: int
    distance: int
    stride: int
    aligned: bool
    zero: int = 0
    element: int = 1


def gather_run(dsp: Dsp, source: Value, into: Value, length: int, pixels: Pixels) -> Value:
    """Gather a run of `length` inputs of each pixel (the first one's at `source`) into the slots from `into` on. Returns where the next run goes."""
    step = _loop_step(length, pixels)
    rounds = length // step if step else 0
    if rounds > 1:
        with dsp.repeat(rounds, [source, into]) as carried:
            here, slot = carried.values
            _straight(dsp, here, slot, step, pixels)
            carried.next = (dsp.at(here, step * pixels.element), dsp.at(slot, run_words(step) * pixels.stride * 4))
        source, into = carried.results
    else:
        rounds = 0
    rest = length - rounds * step
    _straight(dsp, source, into, rest, pixels)
    return dsp.at(into, run_words(rest) * pixels.stride * 4)


def _loop_step(length: int, pixels: Pixels) -> int:
    """Inputs a turn; 0 for no loop."""
    if length * pixels.count <= _STRAIGHT:
        return 0
    wide = 8 if pixels.aligned or pixels.element == 2 else 4
    return wide if pixels.count > 1 else 2 * wide


def _straight(dsp: Dsp, source: Value, into: Value, length: int, pixels: Pixels) -> None:
    """Gather `length` inputs of each pixel without a loop, two pixels at a time."""
    position = word = 0
    least = 4 // pixels.element
    while length - position >= least:
        wide = 8 if (pixels.aligned or pixels.element == 2) and length - position >= 2 * least else 4
        for first in range(0, pixels.count, 2):
            both = range(first, min(first + 2, pixels.count))
            halves = [_expanded(dsp, source, position * pixels.element + number * pixels.distance, wide, pixels) for number in both]
            _store(dsp, halves, into, (word * pixels.stride + first) * 4, pixels.stride)
        position, word = position + wide // pixels.element, word + wide // (2 * pixels.element)
    while position < length:
        last = position + 1 == length
        for number in range(pixels.count):
            offset = position * pixels.element + number * pixels.distance
            low = dsp.element(source, offset, pixels.element)
            pair = low if last else dsp.pack(low, dsp.byte(source, offset + 1))
            dsp.store_word(_without(dsp, pair, pixels.zero), into, (word * pixels.stride + number) * 4)
        position, word = position + 2, word + 1


def _expanded(dsp: Dsp, source: Value, offset: int, wide: int, pixels: Pixels) -> list[Value]:
    """The words made of 4 or 8 bytes, less the zero point."""
    if wide == 8 and pixels.aligned:
        loaded = dsp.pair(source, offset)
    else:
        loaded = [dsp.any_word(source, offset + byte) for byte in range(0, wide, 4)]
    zero = pixels.zero
    if pixels.element == 2:
        return list(loaded)
    if zero == -128:
        flipped = [dsp.builder.xor(word, I32(-0x7F7F7F80)) for word in loaded]
        return [half for word in flipped for half in (dsp.uxtb16(word), dsp.uxtb16_odd(word))]
    return [_without(dsp, half, zero) for word in loaded for half in (dsp.sxtb16(word), dsp.sxtb16_odd(word))]


def _without(dsp: Dsp, pair: Value, zero: int) -> Value:
    """Two halves, less `zero`."""
    if not zero:
        return pair
    half = zero & 0xFFFF
    word = half | half << 16
    return dsp.ssub16(pair, I32(word - (1 << 32) if word >> 31 else word))


def _store(dsp: Dsp, pixels: list[list[Value]], into: Value, offset: int, stride: int) -> None:
    """Store one or two pixels' words: pairs of pixels, or of words where slots are not interleaved, by STRD."""
    if len(pixels) == 2:
        for number, (first, second) in enumerate(zip(*pixels, strict=True)):
            dsp.store_pair(first, second, into, offset + number * stride * 4)
        return
    (words,) = pixels
    if stride == 1:
        for number in range(0, len(words) - 1, 2):
            dsp.store_pair(words[number], words[number + 1], into, offset + number * 4)
        if len(words) % 2:
            dsp.store_word(words[-1], into, offset + (len(words) - 1) * 4)
        return
    for number, word in enumerate(words):
        dsp.store_word(word, into, offset + number * stride * 4)


@dataclass(frozen=True)
class Patches:
    """How the inputs of one output pixel are found: the runs of its window.

    A window that leaves the image is first copied to a patch in scratch, with the zero point around it; then both are gathered
    alike. aligned: whether every run starts at a word. element: bytes of an input. again: inputs that stand in a slot a second time,
    behind the runs, because the sum of two int8 weights multiplies them.
    """

    geometry: Geometry
    zero_point: int
    aligned: bool
    element: int = 1
    again: tuple[int, ...] = ()

    @staticmethod
    def of(layer: Layer, align: int = 4, again: tuple[int, ...] = ()) -> Patches:
        """`align`: known alignment in bytes of the image, which is 1 where a caller's pointer leads to it."""
        depth, element = layer.geometry.input[3], layer.dtype.nbytes
        aligned = depth * element % 4 == 0 and align % 4 == 0
        return Patches(layer.geometry, layer.instruction.left_zero_point, aligned, element, again)

    @property
    def pixel_nbytes(self) -> int:
        """Bytes of an input pixel."""
        return self.geometry.input[3] * self.element

    @property
    def contiguous(self) -> bool:
        """Whether pixels follow each other in memory, window by window: a 1x1 kernel without stride."""
        g = self.geometry
        return g.kernel == (1, 1) and g.stride == (1, 1) and not g.pad_top and not g.pad_left and g.input[1:3] == g.output[1:3]

    @property
    def runs(self) -> tuple[int, int]:
        """Runs of a window row, and inputs of each: one run where taps are neighbours."""
        taps, depth = self.geometry.kernel[1], self.geometry.input[3]
        return (1, taps * depth) if self.geometry.dilation[1] == 1 or taps == 1 else (taps, depth)

    @property
    def order(self) -> np.ndarray:
        """Input numbers (in the window, row-major) in the order of a slot's halves; -1 for a half that doesn't matter. Those that come
        again have further numbers."""
        inputs = prod(self.geometry.kernel) * self.geometry.input[3]
        repeated = [*range(inputs, inputs + len(self.again)), *([-1] if len(self.again) % 2 else [])]
        return np.concatenate([self.first_order, np.array(repeated, np.int64)])

    @property
    def first_order(self) -> np.ndarray:
        """That of the runs."""
        count, length = self.runs
        one = np.array(run_order(length, self.element))
        total: list[np.ndarray] = []
        for run in range(self.geometry.kernel[0] * count):
            total.append(np.where(one < 0, -1, one + run * length))
        return np.concatenate(total)

    @property
    def leaves(self) -> bool:
        """Whether some window leaves the image."""
        g = self.geometry
        below = (g.output[1] - 1) * g.stride[0] - g.pad_top + self.spans[0] > g.input[1]
        right = (g.output[2] - 1) * g.stride[1] - g.pad_left + self.spans[1] > g.input[2]
        return bool(g.pad_top > 0 or g.pad_left > 0 or below or right)

    @property
    def spans(self) -> tuple[int, int]:
        """Rows and columns from the first to the last tap, both included."""
        g = self.geometry
        return (g.kernel[0] - 1) * g.dilation[0] + 1, (g.kernel[1] - 1) * g.dilation[1] + 1

    @property
    def patch_nbytes(self) -> int:
        g = self.geometry
        return -(-g.kernel[0] * g.kernel[1] * self.pixel_nbytes // 4) * 4 if self.leaves else 0

    def repeat_inputs(self, dsp: Dsp, slots: Value, stride: int, pixels: int) -> None:
        """The inputs that come again, behind the runs of `pixels` pixels that have been gathered to `slots`."""
        place = {int(number): half for half, number in enumerate(self.first_order)}
        first = len(self.first_order) // 2
        for number in range(0, len(self.again), 2):
            for pixel in range(pixels):
                at = [4 * (place[each] // 2 * stride + pixel) + place[each] % 2 * 2 for each in self.again[number : number + 2]]
                halves = [dsp.half(slots, offset) for offset in at]
                word = dsp.pack(*halves) if len(halves) == 2 else halves[0]
                dsp.store_word(word, slots, 4 * ((first + number // 2) * stride + pixel))

    def gather(self, dsp: Dsp, image: Image, row: Value, column: Value, slot: Value, stride: int, patch: Value) -> None:
        """Gather the window of output pixel (row, column) into `slot`."""
        if image.offsets is not None:
            self._gather_scattered(dsp, image, row, column, slot, stride, patch)
        else:
            self._gather_whole(dsp, image, row, column, slot, stride, patch)
        self.repeat_inputs(dsp, slot, stride, 1)

    def _gather_whole(self, dsp: Dsp, image: Image, row: Value, column: Value, slot: Value, stride: int, patch: Value) -> None:
        """From an image in one piece."""
        g = self.geometry
        source, row_step, tap_step = self.window(dsp, image.base, row, column, patch)
        count, length = self.runs
        with dsp.repeat(g.kernel[0], [source, slot]) as rows:
            start, into = rows.values
            with dsp.repeat(count, [start, into]) as taps:
                here, place = taps.values
                place = gather_run(dsp, here, place, length, Pixels(1, 0, stride, self.aligned, 0, self.element))
                taps.next = (dsp.at(here, tap_step), place)
            rows.next = (dsp.at(start, row_step), taps.results[1])

    def _gather_scattered(self, dsp: Dsp, image: Image, row: Value, column: Value, slot: Value, stride: int, patch: Value) -> None:
        """Row by row, each from its own address or, where the window leaves the image, from the patch."""
        g, builder = self.geometry, dsp.builder
        nbytes, (count, length) = self.pixel_nbytes, self.runs
        top, left = _scaled(dsp, row, g.stride[0], -g.pad_top), _scaled(dsp, column, g.stride[1], -g.pad_left)
        fits, tap_step = None, I32(g.dilation[1] * nbytes)
        if self.leaves:
            fits = self._fits(dsp, top, left)
            with builder.if_then(builder.not_(fits)):
                self._fill_patch(dsp, image, top, left, patch)
            tap_step = builder.select(fits, tap_step, I32(nbytes))
        skipped = builder.mul(left, I32(nbytes))
        with dsp.repeat(g.kernel[0], [top, patch, slot]) as rows:
            number, spare, into = rows.values
            start = self._start(dsp, fits, lambda: dsp.at(image.row(dsp, number), skipped), spare)
            with dsp.repeat(count, [start, into]) as taps:
                here, place = taps.values
                place = gather_run(dsp, here, place, length, Pixels(1, 0, stride, self.aligned, 0, self.element))
                taps.next = (dsp.at(here, tap_step), place)
            rows.next = (builder.add(number, I32(g.dilation[0])), dsp.at(spare, g.kernel[1] * nbytes), taps.results[1])

    def _start(self, dsp: Dsp, fits: Value | None, direct: Callable[[], Value], spare: Value) -> Value:
        """`direct()` where the window fits, else `spare`."""
        if fits is None:
            return direct()
        builder = dsp.builder
        before = builder.block
        with builder.if_then(fits):
            inside, block = direct(), builder.block
        start = builder.phi(spare.type)
        start.add_incoming(inside, block)
        start.add_incoming(spare, before)
        return start

    def _fits(self, dsp: Dsp, top: Value, left: Value) -> Value:
        """Whether a window lies inside the image."""
        builder, (_, height, width, _) = dsp.builder, self.geometry.input
        fits = [
            builder.icmp_unsigned("<", at, I32(max(size - span + 1, 0)))
            for at, size, span in zip((top, left), (height, width), self.spans)
        ]
        return builder.and_(*fits)

    def window(self, dsp: Dsp, image: Value, row: Value, column: Value, patch: Value) -> tuple[Value, Value, Value]:
        """First byte of an output pixel's window, and the distances in bytes of its rows and taps: in the image, or in the patch."""
        g = self.geometry
        top = _scaled(dsp, row, g.stride[0], -g.pad_top)
        left = _scaled(dsp, column, g.stride[1], -g.pad_left)
        builder = dsp.builder
        _, _, width, _ = g.input
        nbytes = self.pixel_nbytes
        inside = (I32(g.dilation[0] * width * nbytes), I32(g.dilation[1] * nbytes))
        if not self.leaves:
            return (self._pixel(dsp, image, top, left), *inside)
        with builder.if_else(self._fits(dsp, top, left)) as (then, otherwise):
            with then:
                direct, direct_block = self._pixel(dsp, image, top, left), builder.block
            with otherwise:
                self._fill_patch(dsp, image, top, left, patch)
                patch_block = builder.block
        choices = ((direct, patch), (inside[0], I32(g.kernel[1] * nbytes)), (inside[1], I32(nbytes)))
        found: list[Value] = []
        for here, there in choices:
            phi = builder.phi(here.type)
            phi.add_incoming(here, direct_block)
            phi.add_incoming(there, patch_block)
            found.append(phi)
        return found[0], found[1], found[2]

    def copy_window(self, dsp: Dsp, image: Value, row: Value, column: Value, patch: Value) -> None:
        """Copy an output pixel's window to a patch, wherever it lies."""
        g = self.geometry
        top, left = _scaled(dsp, row, g.stride[0], -g.pad_top), _scaled(dsp, column, g.stride[1], -g.pad_left)
        self._fill_patch(dsp, image, top, left, patch)

    def _pixel(self, dsp: Dsp, image: Image | Value, row: Value, column: Value) -> Value:
        """image: its first byte, unless its rows are scattered."""
        builder = dsp.builder
        if isinstance(image, Image):
            return dsp.at(image.row(dsp, row), builder.mul(column, I32(self.pixel_nbytes)))
        number = builder.add(builder.mul(row, I32(self.geometry.input[2])), column)
        return dsp.at(image, builder.mul(number, I32(self.pixel_nbytes)))

    def _fill_patch(self, dsp: Dsp, image: Image | Value, top: Value, left: Value, patch: Value) -> None:
        """Copy the window tap by tap; taps outside become the zero point."""
        g = self.geometry
        builder = dsp.builder
        _, height, width, _ = g.input
        with dsp.repeat(g.kernel[0], [patch, top]) as rows:
            into, row = rows.values
            with dsp.repeat(g.kernel[1], [into, left]) as taps:
                here, column = taps.values
                valid = builder.and_(builder.icmp_unsigned("<", row, I32(height)), builder.icmp_unsigned("<", column, I32(width)))
                with builder.if_else(valid) as (then, otherwise):
                    with then:
                        self._copy(dsp, self._pixel(dsp, image, row, column), here)
                    with otherwise:
                        self._copy(dsp, None, here)
                taps.next = (dsp.at(here, self.pixel_nbytes), builder.add(column, I32(g.dilation[1])))
            rows.next = (taps.results[0], builder.add(row, I32(g.dilation[0])))

    def _copy(self, dsp: Dsp, source: Value | None, into: Value) -> None:
        """One tap's channels, by words where these are whole; the zero point without a source."""
        nbytes = self.element if self.pixel_nbytes % 4 else 4
        type = {1: I8, 2: I16, 4: I32}[nbytes]
        align = nbytes if self.aligned else 1
        zero = self.zero_point.to_bytes(self.element, "little", signed=True)
        filled = int.from_bytes(zero * (nbytes // self.element), "little", signed=True)
        starts = [into] if source is None else [into, source]
        with dsp.repeat(self.pixel_nbytes // nbytes, starts) as carried:
            value = type(filled) if source is None else dsp.builder.load(carried.values[1], align=align, typ=type)
            dsp.volatile_store(value, carried.values[0], nbytes)
            carried.next = tuple(dsp.at(pointer, nbytes) for pointer in carried.values)


def _scaled(dsp: Dsp, value: Value, factor: int, offset: int) -> Value:
    builder = dsp.builder
    value = value if factor == 1 else builder.mul(value, I32(factor))
    return value if offset == 0 else builder.add(value, I32(offset))
