"""Six bytes a channel: bias and requantisation for kernels that trade some speed for flash, and the sizes that their code reads.

Enters: a `Stage` and biases, or a layer's numbers. Leaves: `Compact` (a form, and its bytes), `Numbers` (a table's first bytes), and
the instructions that read them.
Invariant: a channel is stored in six bytes only if the form that they are read as has been proved equal to TFLite's definition.

A channel's multiplier is TFLite's, shifted such that all channels of a layer end with the same shift, to 28 bits, and its bias has 20
(coarse); or they have 31 and 17 (fine).
TFLite rounds twice: first the product, at a place of its own for each channel, then the sum. The second rounding is half of the last
place and the same for all channels; the first one is worth 128 >> CLZ(multiplier), as the leading zeros are what a channel was shifted by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.layers.requantise import Form, Stage, agreement, clamp_of, is_regular
from aot.llvm.types import I1, I16, I32, Value

NBYTES = 6
_PRE = 8  # accumulators are shifted left by it: an offset then has bits enough for both roundings
FINE, COARSE = 1, 4  # bits of a bias in the multiplier's word, beside the 16 of its own
_TRIED = (0, 1, -1, 2, -2)  # multipliers next to the nearest
_ROUNDING = 128  # the first rounding, of a multiplier without leading zeros


@dataclass(frozen=True)
class Compact:
    """A layer's channels. form: what they are read as. right: the shift at the end. low: bits of a bias in its multiplier's word."""

    form: Form
    right: int
    bias: np.ndarray
    low: int

    @property
    def words(self) -> np.ndarray:
        """(channels,): multiplier, and the low bits of the bias."""
        return self.form.multiplier << 1 | (self.bias & ((1 << self.low) - 1))

    @property
    def halves(self) -> np.ndarray:
        """(channels,): the other bits of the bias."""
        return self.bias >> self.low


def compact(stage: Stage, bias: np.ndarray, lows: tuple[int, ...] = (COARSE, FINE)) -> Compact | None:
    """The channels in six bytes each, in the first way of `lows` that all of them allow; None if there is none."""
    made = (_compact(stage, bias, low) for low in lows)
    return next((found for found in made if found is not None), None)


def _compact(stage: Stage, bias: np.ndarray, low: int) -> Compact | None:
    """With `low` bits of a bias in its multiplier's word."""
    reach, largest = np.maximum(-stage.acc_low, stage.acc_high).max(), 1 << (15 + low)
    if not is_regular(stage) or reach << _PRE >= 1 << 31 or bias.min() < -largest or bias.max() >= largest:
        return None
    down = stage.shift.max() - stage.shift
    right = _PRE - 1 - int(stage.shift.max())
    if not 1 <= right <= 30:
        return None
    dropped = low - 1  # bits of a multiplier of 31 that there is no room for
    nearest = ((stage.multiplier >> down) + (1 << dropped >> 1)) >> dropped
    zeros = np.zeros(stage.channels, np.int64)
    clamp, pre = clamp_of(stage), zeros + _PRE
    form = Form("saturate", pre, zeros, zeros, zeros, zeros, zeros + right - _PRE, False, clamp)
    done = np.zeros(stage.channels, bool)
    for step in _TRIED:
        multiplier = np.clip(nearest + step, 1, (1 << (31 - dropped)) - 1) << dropped
        multiplier = np.where(done, form.multiplier, multiplier)
        offset = (2 * stage.zero_point + 1 << (right - 1)) + (_ROUNDING >> _leading_zeros(multiplier))
        form = replace(form, multiplier=multiplier, offset=offset)
        done = agreement(stage, form)
        if done.all():
            return Compact(form, right, bias, low)
    return None


def _leading_zeros(words: np.ndarray) -> np.ndarray:
    """Of 32 bits."""
    return np.array([32 - int(word).bit_length() for word in words], np.int64)


def rounding(dsp: Dsp, odd: Value, right: Value) -> Value:
    """Zero point and second rounding, which all channels' offsets have, from a layer's numbers."""
    return dsp.builder.shl(odd, dsp.builder.sub(right, I32(1)))


class Channel:
    """A channel's numbers in registers, from its six bytes and what `rounding` says. low: see `Compact`."""

    def __init__(self, dsp: Dsp, word: Value, half: Value, rounding: Value, low: int) -> None:
        builder = dsp.builder
        self.bias = builder.or_(builder.shl(half, I32(low)), builder.and_(word, I32((1 << low) - 1)))
        self.multiplier = builder.lshr(builder.and_(word, I32(-1 << low)) if low > 1 else word, I32(1))
        type = ir.FunctionType(I32, [I32, I1])
        zeros = builder.call(dsp.function.intrinsic("llvm.ctlz.i32", type), [self.multiplier, I1(1)])
        self.offset = builder.add(rounding, builder.lshr(I32(_ROUNDING), zeros))


class Numbers:
    """A layer's numbers at the start of its table, as int16, by which one code serves layers of all sizes."""

    def __init__(self, **values: int) -> None:
        self.values = values

    @property
    def fit(self) -> bool:
        return all(-(1 << 15) <= value < 1 << 15 for value in self.values.values())

    @property
    def nbytes(self) -> int:
        return -(-2 * len(self.values) // 4) * 4

    @property
    def data(self) -> bytes:
        raw = np.array(list(self.values.values()), "<i2").tobytes()
        return raw + bytes(self.nbytes - len(raw))

    def address(self, dsp: Dsp, table: Value, name: str) -> Value:
        """Where a number stands, low byte first."""
        return dsp.at(table, 2 * list(self.values).index(name))

    def read(self, dsp: Dsp, table: Value, name: str) -> Value:
        """LDRSH, here and now: what is far from where it is needed would only take a register."""
        return dsp.builder.sext(dsp.volatile_load(self.address(dsp, table, name), I16, 2), I32)


def layer_numbers(stage: Stage, found: Compact) -> dict[str, int]:
    """The numbers of a layer that `Channel` needs."""
    return {"odd": 2 * stage.zero_point + 1, "right": found.right}


def words_of(raw: bytes) -> np.ndarray:
    """Bytes as a table of int32, padded."""
    return np.frombuffer(raw + bytes(-len(raw) % 4), "<i4")
