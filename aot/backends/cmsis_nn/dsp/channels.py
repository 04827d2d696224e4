"""A depthwise layer's table: bias and requantisation constants of each channel, then the weights of each, as bytes, kernel column by
kernel column.

Enters: a depthwise layer. Leaves: the table, and where things lie in it.
Invariant: a layer's kernels read the same table, however they go over the image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import Place, constant_count, constants_of_form, word32
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.layers.operands import Layer, stage_of
from aot.backends.layers.requantise import Form, solve
from aot.backends.layers.requantise16 import solve16
from aot.graph.ir import DType
from aot.llvm.types import I32, Value
from aot.lower.program import Buffer


@dataclass(frozen=True)
class Channels:
    """The table of a layer. nbytes of weights: of one channel. centre: what weights are stored less."""

    form: Form
    weights_nbytes: int
    data: np.ndarray
    centre: int = 0

    @staticmethod
    def of(layer: Layer) -> Channels | str:
        """Solve the requantisation and lay out the table; or why there is no solution."""
        count = len(layer.bias)
        form = (
            solve16(layer)
            if layer.dtype is DType.INT16
            else solve(stage_of(layer, range(count)), (np.zeros(count, np.int64), np.full(count, 8)))
        )
        if isinstance(form, str):
            return form
        centre = centre_of(layer.weights)
        if centre is None:
            return "weights of nine bits and more than 256 values"
        bias = (layer.folded_bias + form.delta)[:, None]
        constants = np.array([constants_of_form(form, n) for n in range(count)], np.int64)
        words = np.concatenate([bias, constants], 1) & 0xFFFFFFFF
        raw = words.astype("<u4").tobytes() + (layer.weights - centre).swapaxes(1, 2).astype(np.int8).tobytes()
        kernel = layer.geometry.kernel
        return Channels(form, kernel[0] * kernel[1], np.frombuffer(raw + bytes(-len(raw) % 4), "<i4"), centre)

    @property
    def constants(self) -> int:
        """Words of bias and constants of a channel."""
        return 1 + constant_count(self.form)

    @property
    def constants_nbytes(self) -> int:
        return 4 * self.constants

    @property
    def weights_at(self) -> int:
        """Byte of the table at which weights begin."""
        return self.constants_nbytes * len(self.form.delta)

    @property
    def place(self) -> Place:
        return Place.of(self.form, 0, 1)

    def pair(self, dsp: Dsp, low: Value, high: Value) -> Value:
        """Two weights of a table, as halves of a word."""
        return centred(dsp, dsp.pack(low, high), self.centre)

    def buffer(self, out: str) -> Buffer:
        """The constant of the layer that writes `out`."""
        return Buffer(f"{out}.packed", DType.INT32, self.data.shape, "constant", data=self.data, align=4)


def centre_of(weights: np.ndarray) -> int | None:
    """What bytes hold a layer's weights less: 0 where they are int8; None where no number does."""
    low, high = int(weights.min()), int(weights.max())
    if high - low > 255:
        return None
    return high - 127 if high > 127 else min(low + 128, 0)


def centred(dsp: Dsp, pair: Value, centre: int) -> Value:
    """Two weights from their bytes, as halves."""
    if not centre:
        return pair
    return dsp.sadd16(pair, I32(word32((centre & 0xFFFF) * 0x10001)))
