"""Tilings of matrix products: how many pixels and channels a block has, and how far its loop is unrolled.

Enters: a layer's sizes. Leaves: `Tile`s and what they are expected to take.
Invariant: a slot is divided in equal turns.
"""

from __future__ import annotations

from aot.backends.cmsis_nn.dsp.packing import Tile
from aot.backends.layers.operands import Layer
from aot.graph.primitive import Contract
from aot.lower.program import Program

_CODE_NBYTES = 36 * 1024
"""What the inner loops of a whole model may take; each layer unrolls according to its share."""
TAIL_UNROLL = 8
_SLOTS_NBYTES = 4096  # of scratch that blocks of more than two pixels may take
_MOST_UNROLL = 40
_DIRECT_UNROLL = 32  # of words that are expanded for each group: layers of many sizes share them
STRAIGHT = 64  # words of four slots that LDRD reaches
WIDE_STRAIGHT = 64  # words of four slots, or of a pair's int16 weights, that LDRD reaches
_LONG, _AMPLE_NBYTES = 24, 4096  # words from which a layer shares the code of longer ones, unless its share of code is ample


def direct_tiles(words: int, channels: int) -> list[Tile]:
    """Tilings of a pixel that is not gathered: of all its words and no more."""
    unrolls = [unroll for unroll in range(2, _DIRECT_UNROLL + 1, 2) if words % unroll == 0]
    pairs = next(pairs for pairs in (4, 2, 1) if channels % (2 * pairs) == 0)
    return [Tile(1, pairs, unrolls[-1], words // unrolls[-1])] if unrolls else []


def single_row_tiles(words: int, width: int, choices: list[tuple[int, int]]) -> list[tuple[int, int, int, bool]]:
    """Pixels, pairs, words of a turn and whether weights are int16, for steps of single rows that no block divides: the tiling that
    leaves least to single pixels."""

    def row(choice: tuple[int, int]) -> float:
        left = width % choice[0] * words * (0.75 if choice[1] == 2 else 0)
        return block_instructions(words, width, *choice) - left

    pixels, pairs = min(choices, key=row)
    return [(pixels, pairs, STRAIGHT * pairs, False), (pixels, pairs, WIDE_STRAIGHT // pairs, True)]


def block_choices(words: int, channels: int, is_long: bool = False) -> list[tuple[int, int]]:
    """Pixels and pairs of channels that a block may have. Many pixels only while their slots stay small: two by two cost the same.
    is_long: sums take two registers."""
    every = ((4, 1), (3, 1), (2, 2), (2, 1), (1, 2), (1, 1))
    return [
        (pixels, pairs)
        for pixels, pairs in every
        if channels % (2 * pairs) == 0
        and (not is_long or pixels * pairs <= 2)
        and (pixels <= 2 or 4 * words * pixels <= _SLOTS_NBYTES)
    ]


def has_tail(layer: Layer, pixels: int, by_rows: bool, rows_per_step: int) -> bool:
    _, height, width, _ = layer.geometry.output
    if by_rows or height == 1:
        return width % pixels != 0
    return (width * rows_per_step) % pixels != 0


def block_instructions(words: int, run: int, pixels: int, pairs: int) -> float:
    """Instructions for a pair of channels and `run` pixels."""
    per_word = {(4, 1): 12, (3, 1): 10, (2, 2): 6, (2, 1): 6.5, (1, 2): 3.75, (1, 1): 4}[pixels, pairs]
    single = 0 if pixels == 1 else 4.5
    blocks, left = divmod(run, pixels)
    return blocks * (words * per_word + 7 * pixels + 14 / pairs) + left * (words * single + 21)


def code_share(program: Program, layer: Layer) -> int:
    """Bytes of code for this layer's inner loop: contractions share them by the square root of their work."""
    works = [one.geometry.macs**0.5 for one in program.instructions if isinstance(one, Contract) and one.geometry is not None]
    return int(_CODE_NBYTES * layer.geometry.macs**0.5 / max(sum(works), 1))


def preferred_tile(words: int, pixels: int, pairs: int, code_nbytes: int, tail: bool) -> Tile:
    """How far to unroll: all of a slot, or equal parts that fit the code size (and LDRD's reach)."""
    per_word = {(4, 1): 46, (3, 1): 40, (2, 2): 46, (2, 1): 26, (1, 2): 30, (1, 1): 16}[pixels, pairs]
    most = max(4, min(_MOST_UNROLL, code_nbytes // per_word))
    return equal_turns(words, pixels, pairs, most, tail, words >= _LONG and code_nbytes < _AMPLE_NBYTES)


def equal_turns(words: int, pixels: int, pairs: int, most: int, tail: bool, share_code: bool) -> Tile:
    """A slot in equal turns of at most about `most` words."""
    turns = -(-words // most)
    unroll = -(-words // turns)
    multiple = 4 if tail and turns * unroll > TAIL_UNROLL else 2
    return Tile(pixels, pairs, -(-unroll // multiple) * multiple, turns, share_code)
