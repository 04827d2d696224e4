"""Channels with only one output, whatever the input: left out of the product, and put between the others' outputs afterwards.

Enters: a `Layer`. Leaves: the layer of the channels that vary, and how their outputs spread: a pixel's constants, and the places of the
others, as words for the kernel's table.
Invariant: a channel is left out only if it is proved to have one output (`constant_channels.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.layers import constant_channels
from aot.backends.layers.operands import Layer
from aot.graph.ir import DType
from aot.llvm.types import I8, I16, I32, Value

_PRODUCT = 0.8
"""Instructions for a multiply-accumulate, about (`costs.core` has it exactly): what leaving one out saves."""


@dataclass(frozen=True)
class Spread:
    """channels: of a pixel; live: how many of them come from the product. words: the constants of a pixel (0 for the live ones), then the
    places of the live ones as bytes or, beyond 256 channels, halves."""

    channels: int
    live: int
    words: np.ndarray

    @property
    def code(self) -> tuple[int, int]:
        """All that the code depends on."""
        return self.channels, self.live

    @property
    def instructions(self) -> float:
        """For a pixel."""
        return 1.1 * self.channels + 4 * self.live + 12 if self.channels % 4 == 0 else 2.7 * self.channels + 4 * self.live + 12

    @property
    def code_nbytes(self) -> int:
        return 120

    @property
    def _places_at(self) -> int:
        """Byte of the words at which places begin."""
        return -(-self.channels // 4) * 4

    def emit(self, dsp: Dsp, words: Value, stage: Value, out: Value, pixels: int, pixel_step: int) -> None:
        """Bring `pixels` pixels from the stage, where live channels lie side by side, to `out`."""
        with dsp.repeat(pixels, [stage, out]) as carried:
            here, there = carried.values
            self._constants(dsp, words, there)
            self._live(dsp, dsp.at(words, self._places_at), here, there)
            carried.next = (dsp.at(here, self.live), dsp.at(there, pixel_step))

    def _constants(self, dsp: Dsp, words: Value, out: Value) -> None:
        """The constants of a pixel, by words (at any address) where they are whole."""
        type, nbytes = (I8, 1) if self.channels % 4 else (I32, 4)
        count = self.channels // nbytes
        at_once = next(number for number in (8, 4, 2, 1) if count % number == 0)
        with dsp.repeat(count // at_once, [words, out]) as carried:
            here, there = carried.values
            for number in range(at_once):
                value = dsp.volatile_load(dsp.at(here, number * nbytes), type, nbytes)
                dsp.builder.store(value, dsp.at(there, number * nbytes), align=1)
            carried.next = (dsp.at(here, at_once * nbytes), dsp.at(there, at_once * nbytes))

    def _live(self, dsp: Dsp, places: Value, stage: Value, out: Value) -> None:
        type, nbytes = (I8, 1) if self.channels <= 256 else (I16, 2)
        at_once = next(number for number in (4, 2, 1) if self.live % number == 0)
        with dsp.repeat(self.live // at_once, [places, stage]) as carried:
            here, source = carried.values
            for number in range(at_once):
                place = dsp.builder.zext(dsp.volatile_load(dsp.at(here, number * nbytes), type, nbytes), I32)
                dsp.store_byte(dsp.byte(source, number), dsp.at(out, place))
            carried.next = (dsp.at(here, at_once * nbytes), dsp.at(source, at_once))


def without_constants(layer: Layer) -> tuple[Layer, Spread | None]:
    """The layer of the channels that vary (an even number of them), and the spread; the layer itself where that does not pay, where
    something is fused behind it, or where it is not known (int16, sums)."""
    count = len(layer.bias)
    if layer.split.rest is not None or layer.is_sums or layer.dtype is not DType.INT8:
        return layer, None
    kept = constant_channels.varying(layer)
    dead = np.flatnonzero(~kept)
    if kept.sum() % 2 or not kept.any():
        kept[dead[: 1 if kept.any() else 2]] = True
    live = np.flatnonzero(kept)
    products = layer.weights[0].size * (count - len(live))
    found = Spread(count, len(live), _words(layer, live))
    if len(live) == count or _PRODUCT * products < found.instructions:
        return layer, None
    return constant_channels.only(layer, live), found


def _words(layer: Layer, live: np.ndarray) -> np.ndarray:
    count = len(layer.bias)
    constants = constant_channels.outputs(layer)
    constants[live] = 0
    places = live.astype("<u1" if count <= 256 else "<u2").tobytes()
    raw = constants.astype(np.int8).tobytes()
    raw += bytes(-len(raw) % 4) + places
    return np.frombuffer(raw + bytes(-len(raw) % 4), "<i4")
