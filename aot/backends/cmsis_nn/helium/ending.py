"""The end of every Helium kernel: four sums of 32 bits become four lanes to be narrowed, by instructions that equal TFLite's rounding.

Enters: a layer's requantisation, as the solver found it. Leaves: `Ending`: table bytes for four channels, and instructions.
Invariant: the same instructions serve all channels of a layer; what differs is in the table, in the order in which they read it.

* saturate: VADD (bias), VMULH, VADD (offset), then VQSHRN where all shifts are one number from 1 to 16, else VSHL and VQMOVN
* exact:    VADD, VSHL if any multiplier shifts left, VQRDMULH, VAND, VSHR, VQADD, VRSHL, VADD (zero point), VQMOVN
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import stage_of
from aot.backends.cmsis_nn.helium.mve import Helium
from aot.backends.cmsis_nn.operands import Layer
from aot.backends.cmsis_nn.requantise import Form, solve

_MOST_NARROW = 16


@dataclass(frozen=True)
class Ending:
    """form: of every channel. shift: VQSHRN's, or None where lanes have their own or none."""

    form: Form
    bias: np.ndarray

    @staticmethod
    def of(layer: Layer) -> Ending:
        channels = len(layer.bias)
        form = solve(stage_of(layer, range(channels)), (np.zeros(channels, np.int64),), ("saturate",))
        return Ending(form, layer.folded_bias + form.delta)

    @property
    def shift(self) -> int | None:
        """VQSHRN's shift; None where VSHL or VRSHL has shifted, or nothing."""
        form = self.form
        right = int(form.right[0])
        return right if form.kind == "saturate" and form.uniform and 1 <= right <= _MOST_NARROW else None

    @property
    def _shifts_left(self) -> bool:
        return self.form.left is not None and bool(self.form.left.any())

    @property
    def code(self) -> tuple:
        """All that the instructions depend on."""
        form = self.form
        return form.kind, self.shift, form.clamp, form.zero_point, self._shifts_left

    @property
    def vectors(self) -> int:
        """Vectors of 16 bytes that the table has for four channels."""
        if self.form.kind == "exact":
            return 3 + self._shifts_left
        return 3 + (self.shift is None)

    def table(self, channels: Sequence[int]) -> list[bytes]:
        """The vectors for the lanes of these channels, at most four, the bias first; lanes beyond are zero."""
        form, chosen = self.form, np.asarray(channels, np.int64)
        if form.kind == "exact":
            assert form.left is not None
            columns = [self.bias, *([form.left] if self._shifts_left else []), form.multiplier, -form.right]
        else:
            columns = [self.bias, form.multiplier, form.offset, *([] if self.shift is not None else [-form.right])]
        found = np.zeros((len(columns), 4), np.int64)
        for number, column in enumerate(columns):
            found[number, : len(chosen)] = column[chosen]
        return [row.tobytes() for row in (found & 0xFFFFFFFF).astype("<u4")]

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

        if not is_biased:
            step(code.vadd)
        if self.form.kind == "saturate":
            step(code.vmulh)
            step(code.vadd)
            if self.shift is None:
                step(code.vshl)
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
        code.vdup32(spare, number)
        for q in sums:
            code.vadd(q, q, spare)

    def halve(self, code: Helium, to: int, q: int, top: bool = False) -> None:
        """Lanes of 32 bits into halfwords."""
        if self.shift is not None:
            code.vqshrn32(to, q, self.shift, top)
        else:
            code.vqmovn(to, q, 32, top)

    def clamp(self, code: Helium, qs: Sequence[int], spare: int, number: int) -> None:
        """The clamp that saturation does not do, on bytes."""
        if self.form.clamp is None:
            return
        low, high = self.form.clamp
        for bound, ending, operation in ((low, -128, code.vmax8), (high, 127, code.vmin8)):
            if bound != ending:
                code.constant(number, bound & 0xFF)
                code.vdup8(spare, number)
                for q in qs:
                    operation(q, q, spare)

    def note(self) -> str:
        """How, for `--explain`."""
        if self.form.kind == "exact":
            return "requantised by VQRDMULH and VRSHL, ties mended as TFLite has them"
        if self.shift is None:
            return "requantised by VMULH and VADD, each channel with its own shift"
        return f"requantised by VMULH, VADD and VQSHRN #{self.shift}"
