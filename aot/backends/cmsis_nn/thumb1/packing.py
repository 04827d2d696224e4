"""The table of a convolution or dense layer on Cortex-M0: two output channels' weights in a word, in the order in which the code reads
them.

Enters: a layer. Leaves: `Packed`: the order of k, the shape of the code, the requantisation, and the words.
Invariant: every group of k's is proven for its lanes for all channels (see `lanes`), so that one piece of code serves all channels.

k's are computed in chunks that have groups of the same sizes, so that one piece of code serves all chunks too: where a group is
smaller than its place, k's with weights of 0 fill it. Chunk by chunk, block by block (a block is 1 to 3 words of channels), the words
of each k; in the last chunk each block's requantisation constants follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import stage_of, word32
from aot.backends.cmsis_nn.operands import Layer
from aot.backends.cmsis_nn.swar import lanes
from aot.backends.cmsis_nn.thumb1.product import Product
from aot.backends.cmsis_nn.thumb1.rescale import solve

_CHUNK = 144  # k's that a chunk has at most, but for what fills it
_LARGEST = 64  # group: what fills a chunk then leaves it within reach of the stack pointer


@dataclass(frozen=True)
class Packed:
    """order: for each k of the chunks its number in the window, -1 for one that fills. data: int32 words."""

    product: Product
    order: np.ndarray
    data: np.ndarray


def pack(layer: Layer) -> Packed:
    channels, depth = len(layer.bias), prod(layer.weights.shape[1:])
    weights = layer.weights.reshape(channels, depth)
    rescaling = solve(stage_of(layer, range(channels)), layer.folded_bias)
    sizes, order = _chunked(lanes.partition(weights), max(1, -(-depth // _CHUNK)))
    product = Product(sizes, len(order) // sum(sizes), _blocks(channels), channels, rescaling)
    padded = np.zeros((2 * product.words, depth + 1), np.int64)
    padded[:channels, :depth] = weights
    words = lanes.pack(padded[0::2], padded[1::2])[:, order]
    table: list[int] = []
    for chunk in range(product.chunks):
        ks = slice(chunk * product.depth, (chunk + 1) * product.depth)
        first = 0
        for width, count in product.blocks:
            for _ in range(count):
                table += words[first : first + width, ks].T.reshape(-1).tolist()
                if rescaling is not None and chunk + 1 == product.chunks:
                    live = range(2 * first, min(2 * (first + width), channels))
                    table += [word32(word) for n in live for word in rescaling.words(n)]
                first += width
    return Packed(product, order, np.array(table, "<i4"))


def _chunked(groups: tuple[lanes.Group, ...], chunks: int) -> tuple[tuple[int, ...], np.ndarray]:
    """Sizes of a chunk's groups, and the k's of all chunks. Groups come largest first, so that neighbours have about one size."""
    pieces = [group[first : first + _LARGEST] for group in groups for first in range(0, len(group), _LARGEST)]
    groups = tuple(sorted(pieces, key=lambda group: -len(group)))
    places = [groups[first : first + chunks] for first in range(0, len(groups), chunks)]
    sizes = tuple(len(place[0]) for place in places)
    order: list[int] = []
    for chunk in range(chunks):
        for size, place in zip(sizes, places, strict=True):
            group = place[chunk] if chunk < len(place) else ()
            order += [*group, *[-1] * (size - len(group))]
    return sizes, np.array(order)


def _blocks(channels: int) -> tuple[tuple[int, int], ...]:
    """(words, how many such blocks): 3 words in a block as often as possible, then the rest."""
    threes, rest = divmod(-(-channels // 2), 3)
    if rest == 1 and threes == 1:
        return ((2, 2),)
    return tuple((width, count) for width, count in ((3, threes), (rest, 1)) if width and count)
