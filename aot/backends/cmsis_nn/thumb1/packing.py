"""The table of a convolution or dense layer on Cortex-M0: two output channels' weights in a word, in the order in which the code reads
them.

Enters: a layer. Leaves: `Packed`: the order of k, the shape of the code, the requantisation, and the words.
Invariant: every group of k's is proven for its lanes for all channels (see `lanes`), so that one piece of code serves all channels.

k's are computed in chunks that have groups of the same sizes, so that one piece of code serves all chunks too: where a group is
smaller than its place, k's with weights of 0 fill it. Chunk by chunk, block by block (a block is 1 to 3 words of channels), the words
of each k; in the last chunk each block's requantisation constants follow. Where the table has bytes, a word holds two k's of two
channels, and blocks have up to 2 words.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import word32
from aot.backends.cmsis_nn.swar import lanes
from aot.backends.cmsis_nn.thumb1.product import Product
from aot.backends.cmsis_nn.thumb1.rescale import Rescaling, solve
from aot.backends.layers.operands import Layer, stage_of

_CHUNK = 144  # k's that a chunk has at most, but for what fills it
_LARGEST = 64  # group: what fills a chunk then leaves it within reach of the stack pointer


@dataclass(frozen=True)
class Packed:
    """order: for each k of the chunks its number in the window, -1 for one that fills. data: int32 words. groups: of k's."""

    product: Product
    order: np.ndarray
    data: np.ndarray
    groups: tuple[lanes.Group, ...]


def pack(layer: Layer) -> tuple[Packed, Packed]:
    """The table with words, and the one with bytes."""
    channels, depth = len(layer.bias), prod(layer.weights.shape[1:])
    weights = layer.weights.reshape(channels, depth)
    rescaling = None if layer.is_sums else solve(stage_of(layer, range(channels)), layer.folded_bias)
    groups = lanes.partition(weights)
    return _packed(weights, groups, rescaling, False), _packed(weights, groups, rescaling, True)


def packed_channels(weights: np.ndarray, channels: range, groups: tuple[lanes.Group, ...], rescaling: Rescaling) -> Packed:
    """The table with words of some of a layer's channels."""
    return _packed(weights[channels.start : channels.stop], groups, rescaling, False, channels.start)


def _packed(
    weights: np.ndarray, groups: tuple[lanes.Group, ...], rescaling: Rescaling | None, is_small: bool, first_channel: int = 0
) -> Packed:
    channels, depth = weights.shape
    product, order = _shape(channels, groups, rescaling, is_small, max(1, -(-depth // _CHUNK)))
    padded = np.zeros((2 * product.words, depth + 1), np.int64)
    padded[:channels, :depth] = weights
    low, high = padded[0::2, order], padded[1::2, order]
    if is_small:
        words = sum(
            ((half[:, at::2] + 128) << shift for half, at, shift in ((low, 0, 0), (low, 1, 8), (high, 0, 16), (high, 1, 24)))
        )
    else:
        words = lanes.pack(low, high)
    assert isinstance(words, np.ndarray)
    table: list[int] = []
    for chunk, one in enumerate(np.split(words, product.chunks, axis=1)):
        first = 0
        for width, count in product.blocks:
            for _ in range(count):
                table += one[first : first + width].T.reshape(-1).tolist()
                if rescaling is not None and chunk + 1 == product.chunks:
                    live = range(2 * first, min(2 * (first + width), channels))
                    table += [word for n in live for word in rescaling.words(first_channel + n)]
                first += width
    return Packed(product, order, np.array([word32(word) for word in table], "<i4"), groups)


def _shape(
    channels: int, groups: tuple[lanes.Group, ...], rescaling: Rescaling | None, is_small: bool, chunks: int
) -> tuple[Product, np.ndarray]:
    """The product, with as few chunks from `chunks` on as leave its frame within reach, and the k's of all chunks."""
    blocks = _blocks(channels, 2 if is_small else 3)
    while True:
        sizes, order = _chunked(groups, chunks, is_small)
        product = Product(sizes, chunks, blocks, channels, rescaling, is_small)
        if product.is_within_reach:
            return product, order
        chunks += 1


def _chunked(groups: tuple[lanes.Group, ...], chunks: int, is_even: bool) -> tuple[tuple[int, ...], np.ndarray]:
    """Sizes of a chunk's groups, and the k's of all chunks. Groups come largest first, so that neighbours have about one size."""
    pieces = [group[first : first + _LARGEST] for group in groups for first in range(0, len(group), _LARGEST)]
    pieces.sort(key=lambda group: -len(group))
    places = [pieces[first : first + chunks] for first in range(0, len(pieces), chunks)]
    sizes = [len(place[0]) for place in places]
    sizes[-1] += sum(sizes) % 2 if is_even else 0
    order: list[int] = []
    for chunk in range(chunks):
        for size, place in zip(sizes, places, strict=True):
            group = place[chunk] if chunk < len(place) else ()
            order += [*group, *[-1] * (size - len(group))]
    return tuple(sizes), np.array(order)


def _blocks(channels: int, most: int) -> tuple[tuple[int, int], ...]:
    """(words, how many such blocks): as many words in a block as there can be, then the rest."""
    full, rest = divmod(-(-channels // 2), most)
    if most == 3 and rest == 1 and full == 1:
        return ((2, 2),)
    return tuple((width, count) for width, count in ((most, full), (rest, 1)) if width and count)
