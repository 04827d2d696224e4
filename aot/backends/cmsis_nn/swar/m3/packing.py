"""The table of a convolution or dense layer on Cortex-M3: int8 weights as streams, block by block of two channels.

Enters: a layer, the pairs of pixels that slots have room for. Leaves: `Packed`: the requantisation form and int32 words.
Invariant: a block is, word-aligned: for each channel what its lanes start from (2 words), for each channel its requantisation
constants, the stream of weights. The last block has one channel where their number is odd.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import Place, constant_count, constants_of_form, word32
from aot.backends.cmsis_nn.swar.m3.product import Block, starts
from aot.backends.layers.operands import Layer, stage_of
from aot.backends.layers.requantise import Form, solve, sums, varies


@dataclass(frozen=True)
class Packed:
    """stride: pairs of pixels in a slot. groups: of each block."""

    stride: int
    form: Form
    data: np.ndarray
    groups: tuple[int, ...]

    @property
    def channels(self) -> int:
        return len(self.form.multiplier)

    @property
    def place(self) -> Place:
        return Place.of(self.form, 0, 1)

    @property
    def constant_count(self) -> int:
        return constant_count(self.form)

    def constants_at(self, channel: int, channels: int) -> int:
        """Byte of a block at which a channel's requantisation constants begin."""
        return 4 * (2 * channels + channel * self.constant_count)

    def stream_at(self, channels: int) -> int:
        """Byte of a block at which its stream begins."""
        return self.constants_at(channels, channels)

    @property
    def work_nbytes(self) -> int:
        """Room for a block's accumulators and the sums of its groups."""
        widths = [2] * (self.channels // 2) + [1] * (self.channels % 2)
        return max(4 * self.stride * width * (2 + count) for width, count in zip(widths, self.groups, strict=True))

    @property
    def code(self) -> tuple[object, ...]:
        """All that code depends on."""
        return self.stride, self.channels, self.place.code, self.work_nbytes


def pack(layer: Layer, stride: int) -> Packed:
    """Solve the requantisation and lay out the streams. A channel with only one output gets weights of 0."""
    count = len(layer.bias)
    form, matters = solved(layer)
    bias = np.where(matters, layer.folded_bias + form.delta, 0)
    weights = layer.weights.reshape(count, -1) * matters[:, None]
    raw = bytearray()
    groups: list[int] = []
    for first in range(0, count, 2):
        some = range(first, min(first + 2, count))
        stream, number = Block(stride, len(some), stride).stream(weights[some.start : some.stop])
        words = [word for n in some for word in starts(int(bias[n]), number)]
        words += [word for n in some for word in constants_of_form(form, n)]
        raw += np.array([word32(word) for word in words], "<i4").tobytes() + stream
        raw += bytes(-len(raw) % 4)
        groups.append(number)
    return Packed(stride, form, np.frombuffer(bytes(raw), "<i4"), tuple(groups))


def solved(layer: Layer) -> tuple[Form, np.ndarray]:
    """The requantisation of all channels alike, and which channels' accumulators matter."""
    count = len(layer.bias)
    if layer.is_sums:
        return sums(count), np.ones(count, bool)
    stage = stage_of(layer, range(count))
    form = solve(stage, (np.zeros(count, np.int64), np.full(count, 8)))
    return form, np.ones(count, bool) if form.kind == "exact" else varies(stage)
