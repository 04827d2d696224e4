"""LOGISTIC and TANH of int16, in int32 arithmetic: interpolation in a table of the logistic function, for tanh x = 2 logistic(2x) - 1.

Enters: a site and its int16 element. Leaves: the int16 expression, of scale 1/32768.
Invariant: no step leaves int32. A scale so large that TFLite's own product would is refused.
Source: tflite-micro, tensorflow/lite/micro/kernels/logistic_common.cc, tanh.cc and
tensorflow/lite/kernels/internal/reference/integer_ops/logistic.h, tanh.h; internal/common.h, sigmoid_table_uint16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aot.graph.expr import Binary, Expr, Lookup, Select, Unary, add, cast, integer, mul, sub
from aot.graph.ir import DType, Site
from aot.graph.ops import checks
from aot.graph.ops.single import Constant, require_no_zero_points

_STEPS_PER_UNIT = 24
_LAST = 255
"""From this step on the function is 1."""

_LARGEST_MULTIPLIER = 0xFFFF
"""Its product with -32768 is the last that fits into int32."""


@dataclass(frozen=True)
class _Form:
    """What LOGISTIC and TANH do differently.

    Positions are (x in units of 1 / 12288); one step of the table is 2^step_bits of them. `largest`: the result that stands for 1.
    The interpolated number is in units of 2^-(16 + step_bits); `zero` of them make the result's 0, and it is shifted right to int16.
    """

    step_bits: int
    largest: int
    zero: int
    mirror: int
    half: int
    shift: int
    powers: tuple[int, ...]


_FORMS = {
    "LOGISTIC": _Form(9, 0x7FFF << 10, 0, 1 << 25, 1 << 9, 10, (0,)),
    "TANH": _Form(8, 0xFFFF << 8, 1 << 23, 1 << 23, 1 << 7, 8, (0, 1)),
}
"""`powers`: input scales 2^power / 4096 that need no multiplier."""


def check(site: Site) -> None:
    require_no_zero_points(site)
    scale, _ = checks.per_tensor(site, site.output)
    if _power_of_two(scale) != -15:
        raise site.error(f"the int16 output must have scale 1/32768, not {scale:.3g}")
    scale, _ = checks.per_tensor(site, site.input(0))
    multiplier, _ = _multiplier(site)
    if not multiplier:  # which TFLite takes for the sign of a power of two
        raise site.error(f"the input's scale {scale:.3g} is too small for int16 {site.node.op}", "at least 3.8e-14")
    if multiplier > _LARGEST_MULTIPLIER:
        raise site.error(f"the input's scale {scale:.3g} is too large for int16 {site.node.op}", "at most 5.33")


def element(site: Site, x: Expr, constant: Constant) -> Expr:
    """The result, for the input's scale."""
    multiplier, shift = _multiplier(site)
    return interpolated(site.node.op, x, constant("logistic", table()), multiplier, shift)


def interpolated(op: str, x: Expr, entries: str, multiplier: int, shift: int = 0) -> Expr:
    """LOGISTIC or TANH of an int16, by symmetry from that of the absolute value. `entries` holds `table()`.

    x * multiplier / 2^shift is in units of 1 / 12288; the product fits into int32.
    """
    form = _FORMS[op]
    position = mul(cast(x, DType.INT32), integer(multiplier))
    if shift:
        position = Binary("shr", add(position, integer(1 << (shift - 1))), integer(shift))
    value = _interpolated(form, Unary("abs", position), entries)
    above = add(value, integer(form.half - form.zero))
    below = sub(integer(form.mirror + form.half - 1), value)
    result = Select(Binary("ge", position, integer(0)), above, below)
    return cast(Binary("shr", result, integer(form.shift)), DType.INT16)


def _interpolated(form: _Form, position: Expr, entries: str) -> Expr:
    step = Binary("ushr", position, integer(form.step_bits))
    inside = Binary("min", step, integer(_LAST - 1))
    start, end = (cast(Lookup(entries, index, DType.UINT16), DType.INT32) for index in (inside, add(inside, integer(1))))
    part = mul(Binary("and", position, integer((1 << form.step_bits) - 1)), sub(end, start))
    between = add(Binary("shl", start, integer(form.step_bits)), part)
    return Select(Binary("lt", step, integer(_LAST)), between, integer(form.largest))


def table() -> np.ndarray:
    """logistic(i / 24) for i = 0..255 in units of 2^-16, as uint16.

    Each entry is half of the interpolation's error in the middle of its step higher; the last is 65535.
    """
    steps = np.arange(256)
    start, middle, end = (65536 / (1 + np.exp(-(steps + part) / _STEPS_PER_UNIT)) for part in (0.0, 0.5, 1.0))
    entries = np.floor(start + (middle - (start + end) / 2) / 2 + 0.5)
    entries[-1] = 65535
    return entries.astype(np.uint16)


def _multiplier(site: Site) -> tuple[int, int]:
    """(multiplier, right shift) of the input to units of 1 / 12288.

    A power of two within 0.1 % is taken as one. The multiplier is cut off, not rounded, and has 15 bits, or more if it needs no shift.
    """
    scale, _ = checks.per_tensor(site, site.input(0))
    power = _power_of_two(scale)
    if power is not None and power + 12 in _FORMS[site.node.op].powers:
        return 3 << (power + 12), 0
    multiplier, shift = float(np.float32(scale)) * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier, shift = multiplier * 2.0, shift + 1
    return int(multiplier), shift


def _power_of_two(scale: float) -> int | None:
    """n where the scale is 2^n, or as good as that."""
    power, rest = nearest_power(scale)
    return power if abs(rest) < 1e-3 else None


def nearest_power(scale: float) -> tuple[int, float]:
    """The n for which 2^n is nearest to a scale, and how much its logarithm is above n. Source: quantization_util.cc, CheckedLog2."""
    logarithm = np.float32(math.log(np.float32(scale))) * (np.float32(1) / np.float32(math.log(2.0)))
    nearest = math.floor(abs(float(logarithm)) + 0.5) * (1 if logarithm >= 0 else -1)
    return nearest, float(np.float32(logarithm - np.float32(nearest)))
