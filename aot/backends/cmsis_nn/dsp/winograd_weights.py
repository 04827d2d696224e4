"""Winograd's transformation of 3x3 weights, F(2,3) down and F(4,3) across, exact in integers, and their packing.

Enters: a `Layer`. Leaves: int32 words, group by group, and the requantisation's `Form`.
Invariant: every sum is exact modulo 2^32 and comes out as 48 times the accumulator, which `solve` proves to stay inside int32.

With the transformation matrices scaled to integers (by 2 down, by 24 across) no fraction is left: a tile of 2 x 4 outputs is A2' [ (G2 w G4')
* (B2' u B4) ] A4 / 48 for u, the 4 x 6 inputs as unsigned bytes. 24 products for 8 outputs, where the direct way takes 72.
Lavin, Gray: Fast algorithms for convolutional neural networks (2015); the points are 0, 1, -1 and 0, 1, -1, 2, -2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import constant_count, constants_of_form
from aot.backends.layers.operands import Layer, stage_of
from aot.backends.layers.requantise import Form, solve

DOWN = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
ACROSS = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]])
INPUT_ACROSS = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
FACTOR, PRE = 3, 4  # 48 = 3 << 4
LIFT = 2048
"""Added to the low half of a transformed word, so that it never borrows from the high half. It is taken out of the sums again."""
POSITIONS = (1, 2, 3, 4, 0, 5)
"""The order in which the positions across are summed; those of the positions down are BANDS."""
BANDS = (1, 2, 0, 3)
_LIFTS_OF_BANDS = (0, 2, 0, 0)  # B2' adds two rows in band 1, and subtracts one from another in the others


@dataclass(frozen=True)
class Winograd:
    """Packed weights. channels: that of each place, the last one twice where their number is odd. pairs: words of a pixel's channels."""

    channels: tuple[int, ...]
    at_once: int
    pairs: int
    form: Form
    data: np.ndarray

    @property
    def groups(self) -> int:
        return len(self.channels) // self.at_once

    @property
    def is_odd(self) -> bool:
        return self.channels[-1] == self.channels[-2]

    @property
    def constants_nbytes(self) -> int:
        """Bytes of a group's requantisation constants, with which it begins."""
        return 4 * self.at_once * constant_count(self.form)


def pairs_of(depth: int) -> int:
    """Words of a pixel: two channels each, in fours."""
    return 2 * -(-depth // 4)


def solved(layer: Layer, channels: tuple[int, ...]) -> Form | str:
    """The requantisation of 48 times the accumulator, or why there is none that is short."""
    stage = stage_of(layer, channels)
    form = solve(stage, (np.full(stage.channels, PRE),), factor=FACTOR)
    if form.kind == "exact":
        return "48 times its accumulators may pass int32, or have no short requantisation"
    return form


def pack(layer: Layer, form: Form, channels: tuple[int, ...], at_once: int) -> Winograd:
    """Groups of `at_once` channels: requantisation constants; then for each position the first sums, and for each band the weights,
    pair by pair of inputs."""
    depth = layer.geometry.input[3]
    pairs = pairs_of(depth)
    weights = layer.weights[list(channels)]
    transformed = np.einsum("vy,ix,nyxc->nivc", DOWN, ACROSS, weights)
    padded = np.zeros((*transformed.shape[:3], 2 * pairs), np.int64)
    padded[..., :depth] = transformed
    padded[:, :, 3] *= -1  # the lower row subtracts band 3
    low, high = (
        padded.reshape(*padded.shape[:3], pairs // 2, 4)[..., half : half + 2].reshape(*padded.shape[:3], pairs) for half in (0, 2)
    )
    first = -LIFT * (low.sum(-1) * np.array(_LIFTS_OF_BANDS)).sum(-1)
    bias = layer.folded_bias - 128 * layer.weights.reshape(len(layer.bias), -1).sum(1)
    first[:, 1] += 48 * (bias[list(channels)] + form.delta)
    words = (low & 0xFFFF) | (high & 0xFFFF) << 16
    stream: list[np.ndarray] = []
    for start in range(0, len(channels), at_once):
        group = range(start, start + at_once)
        stream.append(np.concatenate([np.array(constants_of_form(form, n)) for n in group]))
        for position in POSITIONS:
            stream.append(first[group.start : group.stop, position])
            stream += [words[group.start : group.stop, position, band].T.reshape(-1) for band in BANDS]
    data = (np.concatenate(stream) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    return Winograd(channels, at_once, pairs, form, data)
