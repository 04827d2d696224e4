"""Packing of weights for matrix products: two output channels in the bytes that one would take as int16.

Enters: weights by channel, a requantisation form. Leaves: int32 words, group by group: biases, weights, requantisation constants
(these once, before all groups, where they are the same for every pair).
Invariant: SMLAD over a group's words leaves 256 * A + B and B in two accumulators (interleaved), or A and B themselves.

Interleaved: a half is 256 * a + b for weights a, b of the two channels, so that SMLAD(word, x) sums 256 * A + B,
SMLAD(SXTB16(word), x) sums B, and their difference is 256 * A modulo 2^32: exact while A stays inside 24 bits, which is proved for
each channel from its weights. Of inputs of int16 256 * A + B is an int64, by SMLALD, and A may have 32 bits. Coupled: bytes a, b, a', b',
of which SXTB16 makes (a, a') and, with ROR #8, (b, b'): for sums too large, or too many for their registers. Wide: (a, a') and (b, b')
themselves, int16, in twice the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from aot.backends.cmsis_nn.dsp.compact import COARSE, FINE, Compact, compact
from aot.backends.cmsis_nn.dsp.compact import NBYTES as COMPACT_NBYTES
from aot.backends.cmsis_nn.dsp.ending import Place, constant_count, constants_of_form
from aot.backends.layers.operands import Layer, stage_of
from aot.backends.layers.requantise import Form, Stage, solve, sums, unified, varies
from aot.backends.layers.requantise16 import solve16
from aot.errors import InternalError
from aot.graph.ir import DType

Way = Literal["interleaved", "coupled", "wide"]
"""How the weights of a pair of channels stand in a word, or in two."""
_ROOM = (1 << 23) - (1 << 18)  # A's range, with room for the solver's delta


@dataclass(frozen=True)
class Tile:
    """What one turn of the inner loops computes: `pixels` times `pairs` of channels, `unroll` words of a slot in each of `turns`.

    share_code: prefer code that layers of other sizes can use too, although it is a little slower. wide: weights are int16.
    """

    pixels: int
    pairs: int
    unroll: int
    turns: int
    share_code: bool = False
    wide: bool = False

    @property
    def words(self) -> int:
        """Words of a slot, padding included."""
        return self.unroll * self.turns

    @property
    def variant(self) -> str:
        """What tells a layer's tilings apart."""
        rest = (", shared" if self.share_code else "") + (", int16 weights" if self.wide else "")
        return f"{self.pixels} x {2 * self.pairs}, {self.unroll} words a turn{rest}"


@dataclass(frozen=True)
class Packed:
    """Packed weights and how they are packed. `channels`: the channel at each place, the last one twice where their number is
    odd. common: one pair's requantisation constants serve all and stand before the first group. compact: instead of biases and
    constants, channels have six bytes at the start of their group."""

    channels: tuple[int, ...]
    interleaved: bool
    form: Form
    tile: Tile
    data: np.ndarray
    common: bool = False
    compact: Compact | None = None

    @property
    def groups(self) -> int:
        return len(self.channels) // (2 * self.tile.pairs)

    @property
    def is_odd(self) -> bool:
        """Whether the last place repeats the channel before it."""
        return self.channels[-1] == self.channels[-2]

    @property
    def way(self) -> Way:
        return "interleaved" if self.interleaved else "wide" if self.tile.wide else "coupled"

    @property
    def is_long(self) -> bool:
        """Whether sums are int64."""
        return self.form.kind == "long"

    @property
    def element_nbytes(self) -> int:
        """Of an output."""
        return self.form.bits // 8

    @property
    def long_places(self) -> tuple[bool, bool]:
        """Whether the sums of a pair's first channel, and of its second, are int64."""
        return _long_places(self.form, self.interleaved)

    @property
    def sum_words(self) -> int:
        """Words of a pair's sums."""
        return 2 + sum(self.long_places)

    @property
    def header_nbytes(self) -> int:
        """Biases at the start of a group, or all that compact channels have beside weights."""
        if self.compact is not None:
            return 2 * COMPACT_NBYTES * self.tile.pairs
        return 4 * self.sum_words * self.tile.pairs

    @property
    def word_nbytes(self) -> int:
        """Weights of a group for one word of a slot."""
        return (8 if self.tile.wide else 4) * self.tile.pairs

    @property
    def constant_count(self) -> int:
        """Words of a channel behind a group's weights."""
        return constant_count(self.form) if self.compact is None else 0

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code of a product depends on, sizes apart."""
        return (
            self.tile.pairs,
            self.is_odd and (self.groups == 1),
            self.is_odd,
            self.way,
            self.common,
            self.compact and self.compact.low,
            tuple(place.code for place in self.places),
        )

    @property
    def places(self) -> tuple[Place, Place]:
        return Place.of(self.form, 0, 2), Place.of(self.form, 1, 2)


def paired(count: int) -> tuple[int, ...]:
    """Channels in places of two; an odd last one comes twice."""
    return (*range(count), *([count - 1] if count % 2 else []))


@dataclass(frozen=True)
class Solution:
    """A layer's requantisation, for all packings of it with int8 weights, or all with int16 ones. live: the channels with more than one
    output. unified: the same with one set of constants for all pairs, if there is one."""

    channels: tuple[int, ...]
    live: np.ndarray
    form: Form
    interleaved: bool
    unified: Form | None


def refusal_of(layer: Layer) -> str:
    """Why a layer can't be requantised; empty if it can."""
    form = solve16(layer) if layer.dtype is DType.INT16 else ""
    return form if isinstance(form, str) else ""


def solution(layer: Layer, wide: bool = False, single: bool = False) -> Solution:
    """Solve the requantisation; of int8 weights for interleaved channels if that can be proved, beside int16 activations only for
    products of single pixels: the sums take three registers."""
    if layer.dtype is DType.INT16:
        return _solution16(layer, single and not wide)
    channels = paired(len(layer.bias))
    stage = stage_of(layer, channels)
    weights = layer.weights.reshape(len(layer.bias), -1)[list(channels)]
    if layer.is_sums:
        return Solution(channels, np.ones(len(channels), bool), sums(len(channels)), not wide and _all_fit(stage, weights), None)
    live = varies(stage)
    form, interleaved = (_solve_apart(stage), False) if wide else _solved(stage, weights, live)
    return Solution(channels, live, form, interleaved, _unified(stage, weights, form, interleaved))


def _long_places(form: Form, interleaved: bool) -> tuple[bool, bool]:
    return form.kind == "long" or (interleaved and form.bits == 16), form.kind == "long"


def _solution16(layer: Layer, interleaved: bool) -> Solution:
    channels = paired(len(layer.bias))
    interleaved = interleaved and _halves_fit(layer.weights.reshape(len(layer.bias), -1)[list(channels)])
    form = solve16(layer, channels)
    if isinstance(form, str):
        raise InternalError(form)
    alike = (form.multiplier, form.right, form.offset, form.right if form.left is None else form.left)
    same = form if all((array == array[0]).all() for array in alike) else None
    return Solution(channels, np.ones(len(channels), bool), form, interleaved, same)


def pack(layer: Layer, order: np.ndarray, tile: Tile, solved: Solution | None = None, centred: bool = False) -> Packed:
    """Pack; int8 weights interleaved if that can be proved. `order`: the input of each half of a slot, -1 for none; `tile.words` cover it.
    A channel with only one output gets weights of 0. solved: the layer's `solution`, where it is known already. centred: slots hold
    inputs less their zero point."""
    solved = solved or solution(layer, tile.wide)
    channels, live, form, interleaved = solved.channels, solved.live, solved.form, solved.interleaved
    weights = layer.weights.reshape(len(layer.bias), -1)[list(channels)]
    same = solved.unified if len(channels) > 2 * tile.pairs else None  # several groups would read them
    form = form if same is None else same
    matters = np.ones(len(channels), bool) if form.kind in ("exact", "sums") or same is not None else live
    bias = np.where(matters, (layer.bias if centred else layer.folded_bias)[list(channels)] + form.delta, 0)
    ordered = _ordered(weights * matters[:, None], order, 2 * tile.words)
    words = _interleaved(ordered) if interleaved else _wide(ordered) if tile.wide else _coupled(ordered)
    biases = (256 * bias[0::2] + bias[1::2] if interleaved else bias[0::2], bias[1::2])
    long = _long_places(form, interleaved)
    header = np.stack([word for each, two in zip(biases, long) for word in ((each, each >> 32) if two else (each,))], 1)
    constants = np.array([constants_of_form(form, n) for n in range(len(channels))], np.int64)
    step = 2 if tile.wide else 1
    if same is None:
        return Packed(channels, interleaved, form, tile, _grouped(header, words.reshape(len(header), -1, step), constants, tile))
    groups = _grouped(header, words.reshape(len(header), -1, step), np.zeros((len(channels), 0), np.int64), tile)
    return Packed(channels, interleaved, form, tile, np.concatenate([_words32(constants[:2].reshape(-1)), groups]), True)


def replicated(form: Form, count: int) -> Form:
    """A form of one channel for several."""
    arrays = {
        name: np.repeat(getattr(form, name), count) for name in ("pre", "delta", "multiplier", "offset", "correction", "right")
    }
    return replace(form, left=None if form.left is None else np.repeat(form.left, count), **arrays)


def pack_compact(layer: Layer, order: np.ndarray, tile: Tile) -> Packed | None:
    """Pack with six bytes a channel, interleaved, for inputs less their zero point; None where that can't be. Tiles have one pair."""
    channels = paired(len(layer.bias))
    stage = stage_of(layer, channels)
    found = compact(stage, layer.bias[list(channels)], (FINE, COARSE))
    weights = layer.weights.reshape(len(layer.bias), -1)[list(channels)]
    if found is None or not _all_fit(stage, weights):
        return None
    low, high = found.halves[0::2] & 0xFFFF, found.halves[1::2]
    header = np.stack([found.words[0::2], found.words[1::2], low | high << 16], 1)
    words = _interleaved(_ordered(weights, order, 2 * tile.words))
    data = _grouped(header, words.reshape(len(header), -1, 1), np.zeros((len(channels), 0), np.int64), tile)
    return Packed(channels, True, found.form, tile, data, compact=found)


def _solved(stage: Stage, weights: np.ndarray, live: np.ndarray) -> tuple[Form, bool]:
    """The form, and whether channels are interleaved: every half fits int16, every first channel that varies 24 bits."""
    first = np.arange(stage.channels) % 2 == 0
    if _halves_fit(weights * live[:, None]) and (_narrow(stage) | ~live)[first].all():
        form = solve(stage, (np.where(first, 8, 0), np.full(stage.channels, 8)))
        if form.kind != "exact" or _all_fit(stage, weights):
            return form, True
    return _solve_apart(stage), False


def _solve_apart(stage: Stage) -> Form:
    """The form for channels that each have an accumulator of their own."""
    return solve(stage, (np.zeros(stage.channels, np.int64), np.full(stage.channels, 8)))


def _unified(stage: Stage, weights: np.ndarray, form: Form, interleaved: bool) -> Form | None:
    """The form with the same constants for every pair of channels, if there is one.

    A channel with only one output then takes part like all others: its accumulator must fit its place.
    """
    if interleaved and not _all_fit(stage, weights):
        return None
    return unified(stage, form)


def _all_fit(stage: Stage, weights: np.ndarray) -> bool:
    """Whether channels can be interleaved even if those with only one output keep their weights."""
    return bool(_halves_fit(weights) and _narrow(stage)[0::2].all())


def _halves_fit(weights: np.ndarray) -> bool:
    """Whether int16 holds every half: it does not hold 256 * -128 and less."""
    halves = 256 * weights[0::2].astype(np.int64) + weights[1::2]
    return bool(halves.min() >= -(1 << 15) and halves.max() < 1 << 15)


def _narrow(stage: Stage) -> np.ndarray:
    """Which channels' accumulators fit the first place of an interleaved pair."""
    return (stage.acc_low >= -_ROOM) & (stage.acc_high < _ROOM)


def _ordered(weights: np.ndarray, order: np.ndarray, halves: int) -> np.ndarray:
    """(channels, halves): weights in the order of a slot's halves, 0 where nothing belongs."""
    found = np.zeros((len(weights), halves), np.int64)
    found[:, : len(order)] = np.where(order < 0, 0, weights[:, np.maximum(order, 0)])
    return found


def _interleaved(weights: np.ndarray) -> np.ndarray:
    """(pairs, words)."""
    halves = (256 * weights[0::2] + weights[1::2]) & 0xFFFF
    return halves[:, 0::2] | halves[:, 1::2] << 16


def _coupled(weights: np.ndarray) -> np.ndarray:
    """(pairs, words)."""
    both = (weights[0::2] & 0xFF) | (weights[1::2] & 0xFF) << 8
    return both[:, 0::2] | both[:, 1::2] << 16


def _wide(weights: np.ndarray) -> np.ndarray:
    """(pairs, words): for every word of a slot, two halves of the first and two of the second channel."""
    halves = weights & 0xFFFF
    words = halves[:, 0::2] | halves[:, 1::2] << 16
    return np.stack([words[0::2], words[1::2]], 2).reshape(len(weights) // 2, -1)


def _grouped(header: np.ndarray, words: np.ndarray, constants: np.ndarray, tile: Tile) -> np.ndarray:
    """The stream of groups. The weights (pairs, steps, words a step) of a group's pairs alternate step by step, as they are
    loaded."""
    groups = len(header) // tile.pairs
    blocks = words.reshape(groups, tile.pairs, *words.shape[1:]).swapaxes(1, 2).reshape(groups, -1)
    stream = np.concatenate([header.reshape(groups, -1), blocks, constants.reshape(groups, -1)], 1)
    return _words32(stream.reshape(-1))


def _words32(numbers: np.ndarray) -> np.ndarray:
    """Integers modulo 2^32 as int32."""
    return (numbers & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
