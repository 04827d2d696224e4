# pyright: basic
"""The matrix product at the heart of convolutions and dense layers: slots of gathered pixels times packed weights.

Enters: packed weights and where slots, weights and outputs lie. Leaves: the loops over channel groups and words of a slot.
Invariant: at most eight accumulators are alive, which with weights, pixels and two pointers fill the registers and no more.

Cost of the inner loop for a word of 4 pixels and 2 channels: LDR weights, SXTB16, 2 LDRD pixels, 8 SMLAD = 12 instructions for 16
products; with wide weights LDRD weights, 2 LDRD pixels, 8 SMLAD = 11.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.compact import Channel
from aot.backends.cmsis_nn.dsp.ending import constant_count
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.dsp.packing import Packed
from aot.backends.cmsis_nn.shared import digest
from aot.errors import InternalError
from aot.llvm.types import I32, I64, POINTER, Value

Expansion = Callable[[], Value]


@dataclass(frozen=True)
class Core:
    """`pixels` slots, their words `stride` apart, times all channel groups; `unroll` words a turn (it divides the packing's words).

    places: the byte offset of each word of a turn, where they are not `stride` apart; then turns are `step` bytes apart, and
    neighbouring pixels are neighbours in memory. partial: a call may leave out some of a group's turns at its start and end. direct: the
    slot is a pixel as it is, of int8, and is taken apart anew for each group.

    A core with several turns takes the numbers of turns and groups and the distance of output pixels as arguments, so that layers
    of different sizes share it; one with a single turn has them in its code.
    """

    packed: Packed
    pixels: int
    stride: int
    unroll: int
    places: tuple[int, ...] = ()
    step: int = 0
    partial: bool = False
    direct: bool = False

    def __post_init__(self) -> None:
        if self.packed.tile.words % self.unroll or (self.direct and (self.pixels > 1 or self.unroll % 2)):
            raise InternalError(f"a slot of {self.packed.tile.words} words in turns of {self.unroll}")

    @property
    def turns(self) -> int:
        return self.packed.tile.words // self.unroll

    @property
    def turn_nbytes(self) -> int:
        """From the first word of a turn to that of the next."""
        if self.direct:
            return 2 * self.unroll
        return self.step if self.places else 4 * self.stride * self.unroll

    @property
    def is_long(self) -> bool:
        return self.turns > 1 or (self.packed.tile.share_code and self.unroll == self.packed.tile.unroll)

    def name(self, pixel_step: int) -> str:
        """What cores with the same code have in common."""
        own = () if self.is_long else (self.packed.groups, pixel_step)
        return f"core {digest((self.pixels, self.stride, self.unroll, self.packed.code, self.direct, own))}"

    def call(self, dsp: Dsp, place: Placement) -> None:
        """Call the core as a local function, which layers alike share and whose loops have all registers to themselves."""

        def build(function: ir.Function) -> None:
            inner = Dsp(dsp.function, ir.IRBuilder(function.append_basic_block("entry")))
            weights, slots, out, *numbers = function.args
            step = numbers[2] if numbers else place.pixel_step
            if self.packed.compact is None:
                here = Placement(weights, slots, out, step, *numbers[3:])
            else:
                here = Placement(weights, slots, out, step, rounding=numbers[3], right=numbers[4])
            self._emit(inner, here, *numbers[:2])
            inner.builder.ret_void()

        key = (self.pixels, self.stride, self.unroll, self.places, self.step, self.partial, self.packed.code)
        numbers: list[Value | None] = []
        key += ("direct",) if self.direct else ()
        if self.is_long:
            groups = I32(self.packed.groups) if place.groups is None else place.groups
            turns = I32(self.turns) if place.turns is None else place.turns
            step = I32(place.pixel_step) if isinstance(place.pixel_step, int) else place.pixel_step
            numbers = [groups, turns, step]
            numbers += [place.before, place.after] if self.partial else []
            numbers += [] if self.packed.compact is None else [place.rounding, place.right]
        else:
            key += (self.packed.groups, place.pixel_step)
        type = ir.FunctionType(ir.VoidType(), [POINTER] * 3 + [I32] * len(numbers))
        core = dsp.function.helper(f"product_{digest(key)}", type, build)
        dsp.builder.call(core, [place.weights, place.slots, place.out, *numbers])

    def _emit(self, dsp: Dsp, place: Placement, groups: int | Value = 0, turns: int | Value = 0) -> None:
        """Loop over the channel groups; `groups` and `turns` where they are not known to the code."""
        pairs = self.packed.tile.pairs
        busy = self._sum_registers > 4 and (not self.is_long or self.packed.compact is not None)
        kept = _Kept(dsp, [place.out], busy)
        first, common = self._common(dsp, place.weights)
        near = common if self.packed.compact else None
        with dsp.repeat(groups or self.packed.groups, [first, *kept.start]) as carried:
            weights, *values = carried.values
            sums, constants = self._sums(dsp, weights, place, turns or self.turns, near)
            (out,) = kept.read(values)
            behind = self._finish(dsp, place, sums, (constants, common), out, carried.index)
            carried.next = (behind, *kept.write([dsp.at(out, 2 * pairs * self.packed.element_nbytes)]))

    def _common(self, dsp: Dsp, table: Value) -> tuple[Value, Value | None]:
        """The first group, and the constants that all groups have in common, brought to the stack: there they need no pointer; or the
        place there for those of a compact pair."""
        if self.packed.compact:
            return table, dsp.stack(4)
        if not self.packed.common:
            return table, None
        count = 2 * self.packed.constant_count
        near = dsp.stack(count + count % 2)
        for number, word in enumerate(dsp.words(table, 0, count)):
            dsp.store_word(word, near, 4 * number)
        return dsp.at(table, 4 * count), near

    def _unpacked(self, dsp: Dsp, weights: Value, place: Placement, near: Value) -> list[Value]:
        """The biases of a compact pair; its constants go to the stack."""
        builder, found = dsp.builder, self.packed.compact
        assert found is not None
        first, second, halves = dsp.words(weights, 0, 3)
        channels = [
            Channel(dsp, word, half, place.rounding, found.low)
            for word, half in ((first, dsp.signed_half(halves)), (second, builder.ashr(halves, I32(16))))
        ]
        for number, channel in enumerate(channels):
            dsp.store_pair(channel.multiplier, channel.offset, near, 8 * number)
        first, second = (channel.bias for channel in channels)
        return [builder.add(second, builder.shl(first, I32(8))), second]

    def _sums(
        self, dsp: Dsp, weights: Value, place: Placement, turns: int | Value, near: Value | None
    ) -> tuple[list[list[Value]], Value]:
        """The accumulators [place][pixel] of a group, and where its constants lie. near: where those of a compact pair go."""
        tile, header = self.packed.tile, self.packed.header_nbytes
        biases = self._biases(dsp, weights) if near is None else self._unpacked(dsp, weights, place, near)
        sums = [[bias] * self.pixels for bias in biases]
        if not self.is_long:
            self._turn(dsp, weights, header, place.slots, sums)
            return sums, dsp.at(weights, header + self.packed.word_nbytes * tile.words)
        flat = [acc for pixels in sums for acc in pixels]
        start = dsp.at(dsp.at(weights, header), place.before)
        with dsp.repeat(turns, [start, place.slots, *flat]) as carried:
            words, pixels, *accs = carried.values
            sums = [accs[first : first + self.pixels] for first in range(0, len(accs), self.pixels)]
            self._turn(dsp, words, 0, pixels, sums)
            flat = [acc for each in sums for acc in each]
            carried.next = (dsp.at(words, self.packed.word_nbytes * self.unroll), dsp.at(pixels, self.turn_nbytes), *flat)
        words, _, *accs = carried.results
        return [list(accs[first : first + self.pixels]) for first in range(0, len(accs), self.pixels)], dsp.at(words, place.after)

    def _biases(self, dsp: Dsp, weights: Value) -> list[Value]:
        """Where a group's sums begin."""
        if not any(self.packed.long_places):
            return dsp.words(weights, 0, 2 * self.packed.tile.pairs)
        offset = 0
        found: list[Value] = []
        for is_long in self.packed.long_places * self.packed.tile.pairs:
            found.append((dsp.long if is_long else dsp.word)(weights, offset))
            offset += 8 if is_long else 4
        return found

    def _turn(self, dsp: Dsp, weights: Value, offset: int, slots: Value, sums: list[list[Value]]) -> None:
        """Straight code over `unroll` words. Weights are expanded just before their first use, pixels loaded two at a time."""
        read_pixels, read_weights = self._pixel_reader(dsp, slots), self._weight_reader(dsp, weights, offset)
        multiply = [dsp.smlald if is_long else dsp.smlad for is_long in self.packed.long_places]
        for word in range(self.unroll):
            expand = read_weights(word)
            halves: list[Value] = []
            for first in range(0, self.pixels, 2):
                here = range(first, min(first + 2, self.pixels))
                pixels = read_pixels(word, here)
                for number in range(len(sums)):
                    if first == 0:
                        halves.append(expand[number]())
                    for pixel, x in zip(here, pixels, strict=True):
                        sums[number][pixel] = multiply[number % 2](halves[number], x, sums[number][pixel])

    def _pixel_reader(self, dsp: Dsp, slots: Value) -> Callable[[int, range], Sequence[Value]]:
        """Reads one or two pixels' word; a single slot's words are read two at a time."""
        ahead: dict[int, Value] = {}

        def read_direct(word: int, _: range) -> Sequence[Value]:
            if word % 2 == 0:
                ahead[word + 1] = dsp.any_word(slots, 2 * word)
            return (dsp.sxtb16_odd(ahead.pop(word)) if word % 2 else dsp.sxtb16(ahead[word + 1]),)

        def read(word: int, pixels: range) -> Sequence[Value]:
            offset = (self.places[word] if self.places else 4 * word * self.stride) + 4 * pixels[0]
            if len(pixels) == 2:
                return dsp.pair(slots, offset)
            if self.stride > 1 or self.places:
                return (dsp.word(slots, offset),)
            if word not in ahead:
                both = dsp.words(slots, offset, min(2, self.unroll - word))
                ahead.update({word + number: x for number, x in enumerate(both)})
            return (ahead.pop(word),)

        return read_direct if self.direct else read

    def _weight_reader(self, dsp: Dsp, weights: Value, offset: int) -> Callable[[int], list[Expansion]]:
        """For a word of the slots: loads the weights; answers with what makes the halves for each place of the group of them.

        Where sums take eight registers, weights that need a register while they are expanded are loaded as late as can be.
        """
        way, each = self.packed.way, self.packed.word_nbytes // 4
        is_late = way == "wide" or self.pixels > 1 if way != "interleaved" else self.packed.is_long
        is_tight = self._sum_registers >= 8 and is_late
        pairs_only = way == "wide" or not (is_tight or (each == 1 and self.pixels > 2))
        block, ahead = 2 if pairs_only else 1, {}

        def held(number: int) -> Value:
            if number not in ahead:
                loaded = dsp.words(weights, offset + 4 * number, min(block, self.unroll * each - number))
                ahead.update({number + step: x for step, x in enumerate(loaded)})
            return ahead[number]

        def read(word: int) -> list[Expansion]:
            numbers = range(word * each, (word + 1) * each)
            if not is_tight and not self.direct:
                for number in numbers:
                    held(number)
            if way == "wide":
                return [lambda number=number: held(number) for number in numbers]
            first = (lambda w: w) if way == "interleaved" else dsp.sxtb16
            second = dsp.sxtb16 if way == "interleaved" else dsp.sxtb16_odd
            return [lambda number=number, make=make: make(held(number)) for number in numbers for make in (first, second)]

        return read

    @property
    def _sum_registers(self) -> int:
        return self.pixels * self.packed.tile.pairs * self.packed.sum_words

    def _finish(
        self,
        dsp: Dsp,
        place: Placement,
        sums: list[list[Value]],
        constants: tuple[Value, Value | None],
        out: Value,
        groups_left: Value,
    ) -> Value:
        """Requantise and store each pixel's pair of channels. constants: behind the group's weights, or those in common. Returns
        where the next group begins."""
        packed, nbytes = self.packed, self.packed.element_nbytes
        own, common = constants
        for pair in range(packed.tile.pairs):
            words = self._words(dsp, place, pair, constants)
            is_last = packed.is_odd and pair == packed.tile.pairs - 1
            step = self._step(dsp, groups_left) if is_last else nbytes
            start = dsp.at(out, 2 * pair * nbytes)
            for pixel in range(self.pixels):
                first, second = sums[2 * pair][pixel], sums[2 * pair + 1][pixel]
                shifted = packed.interleaved and not packed.long_places[0]
                if packed.interleaved:
                    first = dsp.builder.sub(first, second) if shifted else self._apart(dsp, first, second)
                values = [
                    packed.places[0].requantise(dsp, first, shifted, words[0]),
                    packed.places[1].requantise(dsp, second, False, words[1]),
                ]
                dsp.store_element(values[0], start, nbytes)
                dsp.store_element(values[1], dsp.at(start, step), nbytes)
                start = dsp.at(start, place.pixel_step)
        return dsp.at(own, 8 * packed.tile.pairs * packed.constant_count) if common is None else own

    def _words(
        self, dsp: Dsp, place: Placement, pair: int, constants: tuple[Value, Value | None]
    ) -> tuple[list[Value], list[Value]]:
        """What requantises each place of a pair."""
        own, common = constants
        count = constant_count(self.packed.form)
        if self.packed.compact:
            words = dsp.words(common, 0, 4)
            return [*words[:2], place.right], [*words[2:], place.right]
        words = dsp.words(own, 8 * pair * count, 2 * count) if common is None else dsp.words(common, 0, 2 * count)
        return words[:count], words[count:]

    def _apart(self, dsp: Dsp, both: Value, second: Value) -> Value:
        """The first of two sums, of the int64 256 * first + second."""
        builder = dsp.builder
        first = builder.ashr(builder.sub(both, second if self.packed.is_long else builder.sext(second, I64)), I64(8))
        return first if self.packed.is_long else builder.trunc(first, I32)

    def _step(self, dsp: Dsp, groups_left: Value) -> int | Value:
        """Bytes from a pair's first channel to its second: 0 in the last group of an odd number of channels (both are the same one)."""
        if self.packed.groups == 1:
            return 0
        step = dsp.builder.zext(dsp.builder.icmp_signed("!=", groups_left, I32(1)), I32)
        nbytes = self.packed.element_nbytes
        return step if nbytes == 1 else dsp.builder.shl(step, I32(nbytes // 2))


class _Kept:
    """Values that a loop carries but its inner part does not need: on the stack, where that part needs all registers.

    LLVM would rather spill accumulators: where inner part and loop are one block, it takes them for equally busy.
    """

    def __init__(self, dsp: Dsp, values: Sequence[Value], on_stack: bool) -> None:
        self.dsp = dsp
        self.slots = [dsp.stack(1) for _ in values] if on_stack else []
        self.types = [value.type for value in values]
        self.start = self.write(values)

    def read(self, carried: Sequence[Value]) -> list[Value]:
        """The values at this turn, from what the loop carries."""
        loads = zip(self.slots, self.types)
        return [self.dsp.volatile_load(slot, type, 4) for slot, type in loads] if self.slots else list(carried)

    def write(self, values: Sequence[Value]) -> list[Value]:
        """Keep them for the next turn; what the loop has to carry."""
        for slot, value in zip(self.slots, values):
            self.dsp.volatile_store(value, slot, 4)
        return [] if self.slots else list(values)


@dataclass(frozen=True)
class Placement:
    """Where a core reads and writes. out: the first pixel's first channel; pixels are `pixel_step` bytes apart.

    Of a partial core: bytes of a group's weights left out before and after its `turns`. turns, groups: where they are not known at
    compile time. rounding, right: what compact channels are read with.
    """

    weights: Value
    slots: Value
    out: Value
    pixel_step: int | Value
    before: int | Value = 0
    after: int | Value = 0
    turns: Value | None = None
    groups: Value | None = None
    rounding: Value | None = None
    right: Value | None = None
