"""Gathering vectors whose elements lie apart, such as the columns of a matrix stored by rows, into slots as int16 pairs.

Enters: where the vectors' elements lie. Leaves: instructions.
Invariant: words are those that `gather.gather_run` makes of neighbouring elements in the same order; a half behind an odd end is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from aot.backends.cmsis_nn.dsp.gather import run_order
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.llvm.types import I32, Value

_TURN = 4  # elements of each vector in a turn


@dataclass(frozen=True)
class Vectors:
    """`count` vectors, `distance` elements apart, whose elements are `along` apart; slots are `stride` words apart. zero: what is taken off
    every element; element: its bytes. quads: words hold elements in the order that bytes are expanded in."""

    count: int
    distance: int
    along: int
    stride: int
    zero: int
    element: int
    quads: bool

    @property
    def in_pairs(self) -> bool:
        """Whether a word holds the elements of two vectors."""
        return self.element == 2 and self.distance == 1 and self.count % 2 == 0


def gather_across(dsp: Dsp, source: Value, into: Value, length: int, vectors: Vectors) -> None:
    """`length` elements of each vector (the first one's at `source`) into the slots from `into` on."""
    turns = length // _TURN
    if turns:
        with dsp.repeat(turns, [source, into]) as carried:
            here, there = carried.values
            _straight(dsp, here, there, _TURN, vectors)
            steps = (_TURN * vectors.along * vectors.element, _TURN // 2 * vectors.stride * 4)
            carried.next = tuple(dsp.at(pointer, step) for pointer, step in zip(carried.values, steps))
        source, into = carried.results
    _straight(dsp, source, into, length % _TURN, vectors)


def _straight(dsp: Dsp, source: Value, into: Value, length: int, vectors: Vectors) -> None:
    order = run_order(length, 1 if vectors.quads else 2)
    for word in range(len(order) // 2):
        values = _words(dsp, source, order[2 * word], order[2 * word + 1], vectors)
        place = 4 * word * vectors.stride
        for number in range(0, len(values) - 1, 2):
            dsp.store_pair(values[number], values[number + 1], into, place + 4 * number)
        if len(values) % 2:
            dsp.store_word(values[-1], into, place + 4 * (len(values) - 1))


def _words(dsp: Dsp, source: Value, first: int, second: int, vectors: Vectors) -> list[Value]:
    """The word of elements `first` and `second` (-1: none) of each vector."""
    rows = [None if number < 0 else dsp.at(source, number * vectors.along * vectors.element) for number in (first, second)]
    if not vectors.in_pairs:
        return [_word(dsp, rows, number * vectors.distance * vectors.element, vectors) for number in range(vectors.count)]
    found: list[Value] = []
    for number in range(0, vectors.count, 2):
        low, high = (I32(0) if row is None else dsp.any_word(row, 2 * number) for row in rows)
        found += [dsp.pack(low, high), dsp.pack_upper(low, high)]
    return found


def _word(dsp: Dsp, rows: list[Value | None], offset: int, vectors: Vectors) -> Value:
    """One vector's word."""
    low, high = (None if row is None else dsp.element(row, offset, vectors.element) for row in rows)
    if vectors.zero:
        low, high = (None if half is None else dsp.builder.sub(half, I32(vectors.zero)) for half in (low, high))
    assert low is not None
    return dsp.builder.and_(low, I32(0xFFFF)) if high is None else dsp.pack(low, high)
