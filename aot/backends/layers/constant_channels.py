"""Channels with only one output, whatever the input: which they are, what they hold, and the layer of the others.

Enters: a `Layer`. Leaves: channels, numbers, a `Layer`.
Invariant: a channel counts as constant only if no accumulator it can reach changes its output: requantisation is monotone, so that both
ends of the reach prove it.

Trained models have many such channels: a third and more of some networks' weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.backends.layers.operands import Layer, stage_of
from aot.backends.layers.requantise import is_regular, tflite

_FAR = 2.0**62


def varying(layer: Layer) -> np.ndarray:
    """Which channels have more than one output; all where numbers wrap."""
    ends = _ends(layer)
    return np.ones(len(layer.bias), bool) if ends is None else ends[:, 0] != ends[:, 1]


def outputs(layer: Layer) -> np.ndarray:
    """The output (int64) of each channel that does not vary; some output of the others."""
    ends = _ends(layer)
    return np.zeros(len(layer.bias), np.int64) if ends is None else ends[:, 0]


def only(layer: Layer, channels: Sequence[int] | np.ndarray) -> Layer:
    """The layer of these channels; its instruction and geometry are still those of all."""
    arrays = {name: getattr(layer, name)[channels] for name in ("weights", "bias", "multiplier", "shift")}
    return replace(layer, **arrays)


def _ends(layer: Layer) -> np.ndarray | None:
    """(channels, 2): the outputs at both ends of each channel's reach; None where something wraps, or where sums are
    the outputs."""
    if layer.is_sums:
        return None
    split, reach = layer.split, np.stack(layer.reach, 1)
    if split.rounds_once:
        multiplier, down = layer.multiplier[:, None], -layer.shift[:, None]
        scaled = np.abs(reach).astype(np.float64) * multiplier + 2.0**down
        if scaled.max() >= _FAR or (scaled / 2.0**down).max() >= 2.0**31:
            return None
        return np.clip((reach * multiplier + (np.int64(1) << down - 1)) >> down, split.low, split.high)
    stage = stage_of(layer, range(len(layer.bias)))
    return np.clip(tflite(stage, reach), split.low, split.high) if is_regular(stage) else None
