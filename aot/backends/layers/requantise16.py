"""Requantisation to int16: the upper word of one product, as TFLite's single rounding of 64-bit sums allows.

Enters: a layer of int16 activations. Leaves: a `Form`, or the sentence why there is none.
Invariant: no intermediate result leaves its register for any sum that the layer can reach, so that the form is the definition itself.

TFLite: y = (sum * factor + 2^(down - 1)) >> down, factor below 2^15. With D = down + left >= 33 the rounding's half lies in the upper
word: y = ((sum * (factor << left) >> 32) + 2^(D - 33)) >> (D - 32).
* saturate: sums of int32                                                                              SMMLA, SSAT
* long:     sums of int64                                                                              UMULL, MLA, ADD, SSAT
* exact:    sums that wrap in int32 and are rounded twice, as int8 ones (a layer whose bias is int32)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.backends.layers.operands import Layer
from aot.backends.layers.requantise import Form, exact
from aot.graph.ir import DType

_LEAST = 33
_MOST_BIAS = 1 << 47


def solve16(layer: Layer, channels: Sequence[int] | None = None) -> Form | str:
    """The form for these channels (all, in their order), or why there is none."""
    chosen = np.arange(len(layer.bias)) if channels is None else np.asarray(channels, np.int64)
    split = layer.split
    clamp = None if (split.low, split.high) == DType.INT16.limits else (split.low, split.high)
    if not split.rounds_once:
        made = exact(layer.multiplier[chosen], layer.shift[chosen], split.zero_point, clamp)
        return replace(made, bits=16)
    if ((layer.bias < -_MOST_BIAS) | (layer.bias > _MOST_BIAS)).any():
        return "a bias of more than 48 bits"
    reach = np.maximum(*(np.abs(end[chosen]) for end in layer.reach))
    return rounded_once(layer.multiplier[chosen], -layer.shift[chosen], reach, layer.fits_int32, clamp)


def rounded_once(
    factor: np.ndarray, down: np.ndarray, reach: np.ndarray, fits_int32: bool, clamp: tuple[int, int] | None
) -> Form | str:
    """The form of (sum * factor + 2^(down - 1)) >> down for sums of magnitudes up to `reach`, or why there is none."""
    own, zeros = np.maximum(down, _LEAST), np.zeros_like(factor)
    common = np.full_like(own, own[factor != 0].max(initial=_LEAST))
    for total, uniform in ((common, True), (own, False)):
        left = np.where(factor != 0, total - down, 0)
        scaled = factor << np.minimum(left, 30)
        most = reach.astype(np.float64) * scaled + 2.0 ** (total - 1)
        if left.max() <= 16 and scaled.max() < 1 << 31 and most.max() < 2.0**62.9:
            kind = "saturate" if fits_int32 else "long"
            return Form(kind, zeros, zeros, scaled, np.int64(1) << (total - 33), zeros, total - 32, uniform, clamp, bits=16)
    return "scales too large for a product of two words"
