"""Gathering pixels two in a word: x_a + (x_b << 16) for each k of two pixels' windows.

Enters: where windows lie. Leaves: words in scratch, for slots of `stride` pairs: X[k][pair] at (k * stride + pair) * 4.
Invariant: k runs over the window in the order of its weights: kernel rows, kernel columns, channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aot.backends.cmsis_nn.dsp.gather import Patches
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.llvm.types import I32, Value

_REACH = 4095  # of LDRSB
_UNROLL = 4
_STRAIGHT = 12  # longer runs are gathered by a loop


def gather_pixels(dsp: Dsp, source: Value, into: Value, depth: int, pixels: int) -> None:
    """Pixels that follow each other in memory, `depth` bytes each: an even number of them, which fills the slots."""
    near = max(1, (_REACH - _UNROLL) // depth + 1)  # pixels within reach of one pointer
    starts = [dsp.at(source, first * depth) for first in range(0, pixels, near)]

    def at(here: Sequence[Value], place: Value, k: int) -> None:
        words: list[Value] = []
        for first in range(0, pixels, 2):
            both = [dsp.byte(here[n // near], n % near * depth + k) for n in (first, first + 1)]
            words.append(joined(dsp, *both))
        store_words(dsp, words, place, 2 * pixels * k)

    def turn(here: Sequence[Value], place: Value, count: int) -> list[Value]:
        for k in range(count):
            at(here, place, k)
        return [*(dsp.at(pointer, count) for pointer in here), dsp.at(place, 2 * pixels * count)]

    rest = _loop(dsp, depth, [*starts, into], lambda values, count: turn(values[:-1], values[-1], count))
    turn(rest[:-1], rest[-1], _rest(depth))


def gather_pair(dsp: Dsp, first: Value, second: Value, into: Value, length: int, stride: int) -> Value:
    """One run of two pixels. Returns where the next run goes."""

    def turn(values: Sequence[Value], count: int) -> list[Value]:
        a, b, place = values
        for k in range(count):
            dsp.store_word(joined(dsp, dsp.byte(a, k), dsp.byte(b, k)), place, 4 * stride * k)
        return [dsp.at(a, count), dsp.at(b, count), dsp.at(place, 4 * stride * count)]

    rest = _loop(dsp, length, [first, second, into], turn)
    return turn(rest, _rest(length))[2]


def _loop(dsp: Dsp, length: int, initial: Sequence[Value], turn: Callable[[Sequence[Value], int], list[Value]]) -> list[Value]:
    """The whole turns of `_UNROLL` bytes of a long run."""
    if length <= _STRAIGHT:
        return list(initial)
    with dsp.repeat(length // _UNROLL, initial) as carried:
        carried.next = tuple(turn(carried.values, _UNROLL))
    return list(carried.results)


def _rest(length: int) -> int:
    """Bytes behind the loop."""
    return length if length <= _STRAIGHT else length % _UNROLL


def joined(dsp: Dsp, low: Value, high: Value) -> Value:
    """low + (high << 16): one ADD."""
    return dsp.builder.add(low, dsp.builder.shl(high, I32(16)))


def store_words(dsp: Dsp, words: Sequence[Value], into: Value, offset: int) -> None:
    """Neighbouring words, two by two."""
    for number in range(0, len(words) - 1, 2):
        dsp.store_pair(words[number], words[number + 1], into, offset + 4 * number)
    if len(words) % 2:
        dsp.store_word(words[-1], into, offset + 4 * (len(words) - 1))


def gather_windows(
    dsp: Dsp,
    patches: Patches,
    image: Value,
    pixels: Sequence[tuple[Value, Value]],
    slot: Value,
    stride: int,
    spare: Sequence[Value],
) -> None:
    """The windows of two output pixels (row, column). spare: a patch in scratch for each."""
    sources = [patches.window(dsp, image, row, column, patch) for (row, column), patch in zip(pixels, spare, strict=True)]
    count, length = patches.runs
    with dsp.repeat(patches.geometry.kernel[0], [*(source for source, _, _ in sources), slot]) as rows:
        a, b, into = rows.values
        with dsp.repeat(count, [a, b, into]) as taps:
            here, there, place = taps.values
            place = gather_pair(dsp, here, there, place, length, stride)
            forward = (dsp.at(pointer, step) for pointer, (_, _, step) in zip((here, there), sources))
            taps.next = (*forward, place)
        forward = (dsp.at(pointer, step) for pointer, (_, step, _) in zip((a, b), sources))
        rows.next = (*forward, taps.results[2])
