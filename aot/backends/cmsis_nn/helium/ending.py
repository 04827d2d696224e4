"""The end of every Helium kernel: four sums of 32 bits become four lanes to be narrowed, by instructions that equal TFLite's rounding.

Enters: a layer's requantisation, as the solver found it. Leaves: `Ending`: table bytes for four channels, and instructions.
Invariant: the same instructions serve all channels of a layer; what differs is in the table, in the order in which they read it.

* saturate: VADD (bias), VMULH, VADD (offset), then VQSHRN where all shifts are one number from 1 to 16, else VSHL and VQMOVN
* exact:    VADD, VSHL if any multiplier shifts left, VQRDMULH, VAND, VSHR, VQADD, VRSHL, VADD (zero point), VQMOVN
* sums:     VADD (bias); they are stored as they are
* long:     sums of 64 bits are scaled, as TFLite's are, by LDRD, LDRD, UMLAL, MLA, MOV, ASRL (in `product.py`); then VQMOVN
To int16, saturate's offset is a half, and VADD becomes part of VQRSHRN, or of VRSHL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aot.backends.cmsis_nn.helium.mve import Helium
from aot.backends.layers.operands import Layer, stage_of
from aot.backends.layers.requantise import Form, solve, sums
from aot.backends.layers.requantise16 import solve16
from aot.graph.ir import DType

_MOST_NARROW = 16


@dataclass(frozen=True)
class Ending:
    """form: of every channel."""

    form: Form
    bias: np.ndarray

    @staticmethod
    def of(layer: Layer) -> Ending:
        channels = len(layer.bias)
        if layer.is_sums:
            return Ending(sums(channels), layer.folded_bias)
        if layer.dtype is DType.INT16:
            form = solve16(layer)
            return Ending(_long(layer) if isinstance(form, str) or form.kind == "long" else form, layer.bias)
        form = solve(stage_of(layer, range(channels)), (np.zeros(channels, np.int64),), ("saturate",))
        return Ending(form, layer.folded_bias + form.delta)

    @property
    def nbytes(self) -> int:
        """Of an output."""
        return self.form.bits // 8

    @property
    def input_nbytes(self) -> int:
        """Of an activation that is read."""
        return 1 if self.form.kind == "sums" else self.nbytes

    @property
    def is_long(self) -> bool:
        """Whether sums have 64 bits."""
        return self.form.kind == "long"

    @property
    def shift(self) -> int | None:
        """VQSHRN's or VQRSHRN's shift; None where VSHL or VRSHL has shifted, or nothing."""
        form = self.form
        right = int(form.right[0])
        return right if form.kind == "saturate" and form.uniform and 1 <= right <= _MOST_NARROW else None

    @property
    def _rounds(self) -> bool:
        """Whether the offset is what a rounding shift adds."""
        form = self.form
        return form.kind == "saturate" and bool((form.right >= 1).all() and (form.offset == 1 << form.right - 1).all())

    @property
    def _shifts_left(self) -> bool:
        return self.form.left is not None and bool(self.form.left.any())

    @property
    def code(self) -> tuple[object, ...]:
        """All that the instructions depend on."""
        form = self.form
        return form.kind, form.bits, self.shift, form.clamp, form.zero_point, self._shifts_left, self._rounds

    @property
    def vectors(self) -> int:
        """Vectors of 16 bytes that the table has for four channels."""
        if self.form.kind == "exact":
            return 3 + self._shifts_left
        if self.form.kind == "sums":
            return 1
        return 4 if self.is_long else 2 + (not self._rounds) + (self.shift is None)

    def table(self, channels: Sequence[int]) -> list[bytes]:
        """The vectors for the lanes of these channels, at most four, the bias first; lanes beyond are zero."""
        form, chosen = self.form, np.asarray(channels, np.int64)
        if self.is_long:
            return self._scales(chosen)
        if form.kind == "exact":
            assert form.left is not None
            columns = [self.bias, *([form.left] if self._shifts_left else []), form.multiplier, -form.right]
        elif form.kind == "sums":
            columns = [self.bias]
        else:
            tail = [*([] if self._rounds else [form.offset]), *([] if self.shift is not None else [-form.right])]
            columns = [self.bias, form.multiplier, *tail]
        found = np.zeros((len(columns), 4), np.int64)
        for number, column in enumerate(columns):
            found[number, : len(chosen)] = column[chosen]
        return [row.tobytes() for row in (found & 0xFFFFFFFF).astype("<u4")]

    def _scales(self, channels: np.ndarray) -> list[bytes]:
        """For each channel what is added to its scaled sum, 64 bits (which wrap, as TFLite's do), the multiplier, the shift."""
        form = self.form
        multiplier, right = form.multiplier[channels], form.right[channels]
        added = self.bias[channels] * multiplier + (np.int64(1) << right - 1)
        words = np.zeros((4, 4), np.int64)
        words[: len(channels)] = np.stack([added, added >> 32, multiplier, right], 1)
        return [row.tobytes() for row in (words & 0xFFFFFFFF).astype("<u4")]

    def requantise(
        self, code: Helium, sums: Sequence[int], spares: tuple[int, int], table: int, number: int, is_biased: bool = False
    ) -> None:
        """q registers `sums` to the lanes that `halve` takes. `table` (a register) steps over its vectors; `number` is free. is_biased:
        the bias is in the sums already, and not in the table here."""
        spare, other = spares

        def step(operation: Callable[[int, int, int], None]) -> None:
            code.vload_post(spare, table, 16, "w")
            for q in sums:
                operation(q, q, spare)

        if self.is_long:
            return
        if not is_biased:
            step(code.vadd)
        if self.form.kind == "sums":
            return
        if self.form.kind == "saturate":
            step(code.vmulh)
            if not self._rounds:
                step(code.vadd)
            if self.shift is None:
                step(code.vrshl if self._rounds else code.vshl)
            return
        if self._shifts_left:
            step(code.vshl)
        step(code.vqrdmulh)
        code.vload_post(spare, table, 16, "w")
        for q in sums:  # ties of negative numbers round down: away from zero
            code.vand(other, q, spare)
            code.vsign(other, other)
            code.vqadd(q, q, other)
            code.vrshl(q, q, spare)
        code.constant(number, self.form.zero_point)
        code.vdup(spare, number, 32)
        for q in sums:
            code.vadd(q, q, spare)

    def halve(self, code: Helium, to: int, q: int, top: bool = False) -> None:
        """Lanes of 32 bits into halfwords."""
        if self.shift is not None:
            code.vqshrn32(to, q, self.shift, top, self._rounds)
        else:
            code.vqmovn(to, q, 32, top)

    def clamp(self, code: Helium, qs: Sequence[int], spare: int, number: int) -> None:
        """The clamp that saturation does not do, on bytes or halfwords."""
        form = self.form
        if form.clamp is None:
            return
        most = (1 << form.bits - 1) - 1
        for bound, end, operation in zip(form.clamp, (-most - 1, most), (code.vmax, code.vmin), strict=True):
            if bound != end:
                code.constant(number, bound & (1 << form.bits) - 1)
                code.vdup(spare, number, form.bits)
                for q in qs:
                    operation(q, q, spare, form.bits)

    def note(self) -> str:
        """How, for `--explain`."""
        if self.form.kind == "exact":
            return "requantised by VQRDMULH and VRSHL, ties mended as TFLite has them"
        if self.form.kind == "sums":
            return str(self.form)
        if self.is_long:
            return "sums of 64 bits, requantised by UMLAL, MLA and ASRL"
        if self._rounds:
            return "requantised by VMULH and " + ("VRSHL" if self.shift is None else f"VQRSHRN #{self.shift}")
        if self.shift is None:
            return "requantised by VMULH and VADD, each channel with its own shift"
        return f"requantised by VMULH, VADD and VQSHRN #{self.shift}"


def _long(layer: Layer) -> Form:
    """TFLite's own arithmetic, for sums of 64 bits and for scales that no product of 32 has."""
    zeros, split = np.zeros_like(layer.bias), layer.split
    clamp = None if (split.low, split.high) == DType.INT16.limits else (split.low, split.high)
    return Form("long", zeros, zeros, layer.multiplier, zeros, zeros, -layer.shift, False, clamp, bits=16)
