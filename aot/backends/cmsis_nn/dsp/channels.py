"""A depthwise layer's table: bias and requantisation constants of each channel, then the weights of each, as bytes, kernel column by
kernel column.

Enters: a depthwise layer. Leaves: the table, and where things lie in it.
Invariant: a layer's kernels read the same table, however they go over the image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import Place, constant_count, constants_of_form, stage_of
from aot.backends.cmsis_nn.operands import Layer
from aot.backends.cmsis_nn.requantise import Form, solve
from aot.backends.cmsis_nn.requantise16 import solve16
from aot.graph.ir import DType
from aot.lower.program import Buffer


@dataclass(frozen=True)
class Channels:
    """The table of a layer. nbytes of weights: of one channel."""

    form: Form
    weights_nbytes: int
    data: np.ndarray

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
        bias = (layer.folded_bias + form.delta)[:, None]
        constants = np.array([constants_of_form(form, n) for n in range(count)], np.int64)
        words = np.concatenate([bias, constants], 1) & 0xFFFFFFFF
        raw = words.astype("<u4").tobytes() + layer.weights.swapaxes(1, 2).astype(np.int8).tobytes()
        kernel = layer.geometry.kernel
        return Channels(form, kernel[0] * kernel[1], np.frombuffer(raw + bytes(-len(raw) % 4), "<i4"))

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

    def buffer(self, out: str) -> Buffer:
        """The constant of the layer that writes `out`."""
        return Buffer(f"{out}.packed", DType.INT32, self.data.shape, "constant", data=self.data, align=4)
