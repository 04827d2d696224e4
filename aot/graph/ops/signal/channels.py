"""SignalFilterBankSquareRoot, SpectralSubtraction, SignalPCAN and SignalFilterBankLog: what happens to each channel of a filter bank.

Invariant: numbers are unsigned and wrap as C's do. Source: tflite-micro, signal/micro/kernels/filter_bank_*.cc and pcan.cc, over
signal/src/{square_root_32,square_root_64,filter_bank_spectral_subtraction,pcan_argc_fixed,filter_bank_log,log,msb_32}.cc.
"""

from __future__ import annotations

import numpy as np

from aot.graph.expr import Binary, Const, Expr, Load, Lookup, Select, Unary, add, axis, cast, integer, mul, sub
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Memory, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.signal.options import Options, option, read_options
from aot.graph.primitive import Map
from aot.graph.support import micro

INT16, INT32, UINT32, UINT64 = DType.INT16, DType.INT32, DType.UINT32, DType.UINT64


def _word(value: int) -> Const:
    return integer(value, UINT32)


def _long(value: int) -> Const:
    return integer(value, UINT64)


def _shift(op: str, x: Expr, by: Expr | int) -> Expr:
    """`shl` or `ushr` of an unsigned number by a count."""
    return Binary(op, x, integer(by, x.dtype) if isinstance(by, int) else cast(by, x.dtype))


def _append(site: Site, lowering: Lowering, out: Value, value: Expr) -> None:
    lowering.append(Map(out.name, out.shape, value, nodes=(site.node.index,)))


def _vector(site: Site) -> Shape:
    checks.require_rank(site, site.input(0), 1)
    return site.input(0).shape


# SignalFilterBankSquareRoot: the nearest integer to sqrt(x), then shifted right by the second input.


def _infer_root(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    if site.input(1).shape not in ((), (1,)):
        raise site.error(f"{checks.describe(site.input(1))} is {checks.shape_text(site.input(1).shape)}, not a scalar")
    return (_vector(site),)


def _check_root(site: Site) -> None:
    checks.require_dtype(site, site.input(0), UINT64)
    checks.require_dtype(site, site.input(1), INT32)
    checks.require_dtype(site, site.output, UINT32)


def _compute_root(site: Site, x: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray]:
    """Roots round up above a half, but not to 2^16 of a number below 2^32, nor to 2^32. Only five bits of the shift count."""
    root = np.minimum(np.sqrt(x.astype(np.float64)), float((1 << 32) - 1)).astype(np.uint64)
    root -= root * root > x
    root += (root < (1 << 32) - 1) & ((root + 1) * (root + 1) <= x)
    most = np.where(x >> np.uint64(32) == 0, 0xFFFF, 0xFFFFFFFF).astype(np.uint64)
    root = np.minimum(root + (x - root * root > root), most)
    return ((root >> np.uint64(int(bits.reshape(())) & 31)).astype(np.uint32),)


def _lower_root(site: Site, lowering: Lowering) -> None:
    bits = site.input(1)
    by = cast(load(bits, tuple(axis(0, 0) for _ in bits.shape)), UINT32)
    _append(site, lowering, site.output, _shift("ushr", nearest_root(load(site.input(0))), Binary("and", by, _word(31))))


def nearest_root(x: Expr) -> Expr:
    """The root of a uint64 as uint32, rounded to nearest with the limits of `_compute_root`.

    By parts (Zimmermann's Karatsuba square root): x is shifted left by an even count until its top two bits are not both 0; 16 bits
    of the root come digit by digit from the upper half, the other 16 from one division; the remainder says how to round.
    """
    high, low = cast(_shift("ushr", x, 32), UINT32), cast(x, UINT32)
    is_short = Binary("eq", high, _word(0))
    leading = add(Unary("clz", Binary("or", Select(is_short, low, high), _word(1))), Select(is_short, _word(32), _word(0)))
    even = Binary("and", leading, _word(62))
    shifted = _shift("shl", x, even)
    top, rest = cast(_shift("ushr", shifted, 32), UINT32), cast(shifted, UINT32)
    root, remainder = _digits(top)
    third = _shift("ushr", rest, 16)
    numerator = Binary("or", _shift("shl", remainder, 15), _shift("ushr", third, 1))
    digit = Binary("min", Binary("div", numerator, root), _word(0xFFFF))
    guess = add(_shift("shl", root, 16), digit)
    square = mul(cast(guess, UINT64), cast(guess, UINT64))
    exact = sub(guess, Select(Binary("gt", square, shifted), _word(1), _word(0)))
    found = _shift("ushr", exact, _shift("ushr", even, 1))
    left = sub(x, mul(cast(found, UINT64), cast(found, UINT64)))
    most = Select(is_short, _word(0xFFFF), _word(0xFFFFFFFF))
    rounds = Binary("and", Binary("gt", left, cast(found, UINT64)), Binary("lt", found, most))
    return add(found, Select(rounds, _word(1), _word(0)))


def _digits(x: Expr) -> tuple[Expr, Expr]:
    """The root of a uint32, rounded down, and x minus its square: one binary digit at a time."""
    root: Expr = _word(0)
    for position in range(30, -1, -2):
        bit = _word(1 << position)
        trial = add(root, bit)
        fits = Binary("ge", x, trial)
        x = sub(x, Select(fits, trial, _word(0)))
        root = add(_shift("ushr", root, 1), Select(fits, bit, _word(0)))
    return root, x


# SignalFilterBankSpectralSubtraction: a noise estimate, smoothed over time, is taken off the signal. Outputs: signal, noise estimate, and
# (as memory) the noise estimate.

_SUBTRACTION = (
    "alternate_one_minus_smoothing",
    "alternate_smoothing",
    "clamping",
    "min_signal_remaining",
    "num_channels",
    "one_minus_smoothing",
    "smoothing",
    "smoothing_bits",
    "spectral_subtraction_bits",
)
MAX_CHANNELS = 1 << 16


def _subtraction_memories(options: Options, inputs: tuple[Value | None, ...]) -> tuple[Memory, ...]:
    """The estimate; of at least one channel, also where `_infer_subtraction` will refuse."""
    return (Memory("noise", UINT32, (min(max(options.get("num_channels"), 1), MAX_CHANNELS),)),)


def _infer_subtraction(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,), 3)
    count = option(site, "num_channels", 1, MAX_CHANNELS)
    if _vector(site) != (count,):
        raise site.error(f"{checks.describe(site.input(0))} has {site.input(0).shape[0]} channels, not num_channels {count}")
    return ((count,),) * 3


def _check_subtraction(site: Site) -> None:
    for value in (site.input(0), *site.outputs):
        checks.require_dtype(site, value, UINT32)
    for name in _SUBTRACTION:
        option(site, name, 0, _LIMITS.get(name, (1 << 31) - 1))


_LIMITS = {"clamping": 1, "smoothing_bits": 31, "spectral_subtraction_bits": 63}


def _by_channel(site: Site, name: str) -> list[int]:
    """A coefficient of each channel: odd ones have one of their own."""
    even, odd = option(site, name, 0), option(site, f"alternate_{name}", 0)
    return [odd if number % 2 else even for number in range(site.input(0).shape[0])]


def _compute_subtraction(site: Site, signal: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, ...]:
    smoothing, rest = (np.array(_by_channel(site, name), np.uint64) for name in ("smoothing", "one_minus_smoothing"))
    bits, fraction = option(site, "smoothing_bits", 0), np.uint64(option(site, "spectral_subtraction_bits", 0))
    scaled = signal << np.uint32(bits)
    estimate = ((scaled * smoothing + noise * rest) >> fraction).astype(np.uint32)
    removed = np.minimum(estimate, scaled)
    least = ((signal * np.uint64(option(site, "min_signal_remaining", 0))) >> fraction).astype(np.uint32)
    kept = np.maximum((scaled - removed) >> np.uint32(bits), least)
    after = removed if option(site, "clamping", 0) else estimate
    return kept, after, after.copy()


def _lower_subtraction(site: Site, lowering: Lowering) -> None:
    signal, noise, (kept, shown, after) = load(site.input(0)), load(site.input(1)), site.outputs
    bits, fraction = option(site, "smoothing_bits", 0), option(site, "spectral_subtraction_bits", 0)
    scaled = _shift("shl", signal, bits)
    parts = [
        mul(cast(x, UINT64), cast(_coefficient(site, lowering, name), UINT64))
        for x, name in ((scaled, "smoothing"), (noise, "one_minus_smoothing"))
    ]
    estimate = cast(_shift("ushr", add(*parts), fraction), UINT32)
    _append(site, lowering, after, Binary("min", estimate, scaled) if option(site, "clamping", 0) else estimate)
    _append(site, lowering, shown, load(after))
    removed = Binary("min", load(after), scaled)
    least = mul(cast(signal, UINT64), _long(option(site, "min_signal_remaining", 0)))
    rest = _shift("ushr", sub(scaled, removed), bits)
    _append(site, lowering, kept, Binary("max", rest, cast(_shift("ushr", least, fraction), UINT32)))


def _coefficient(site: Site, lowering: Lowering, name: str) -> Expr:
    numbers = _by_channel(site, name)
    if len(set(numbers)) == 1:
        return _word(numbers[0])
    return Load(lowering.constant(name, np.array(numbers, np.uint32)), (axis(0),), UINT32)


# SignalPCAN: gain control. The gain is a function of the noise estimate, by a table of quadratic polynomials, one for each power of two.

GAIN_TABLE_SIZE = 125


def _infer_gain(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (3,))
    checks.require_rank(site, site.input(2), 1)
    if site.input(1).shape != _vector(site):
        raise site.error(f"{checks.describe(site.input(0))} and {checks.describe(site.input(1))} have different shapes")
    if site.input(2).shape[0] < GAIN_TABLE_SIZE:
        raise site.error(f"its gain table {checks.describe(site.input(2))} has fewer than {GAIN_TABLE_SIZE} elements")
    return (site.input(0).shape,)


def _check_gain(site: Site) -> None:
    for value in (site.input(0), site.input(1), site.output):
        checks.require_dtype(site, value, UINT32)
    checks.require_dtype(site, site.input(2), INT16)
    _gain_shift(site)


def _gain_shift(site: Site) -> int:
    return option(site, "snr_shift", 0, 63)


def _bit_length(x: np.ndarray) -> np.ndarray:
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


def _compute_gain(site: Site, signal: np.ndarray, noise: np.ndarray, table: np.ndarray) -> tuple[np.ndarray]:
    wide, lut, length = noise.astype(np.int64), table.astype(np.int64), _bit_length(noise)
    first = np.where(wide <= 2, wide, 4 * length - 6)
    fraction = np.where(length < 11, wide << np.maximum(11 - length, 0), wide >> np.maximum(length - 11, 0)) & 0x3FF
    slope = ((lut[first + 2] * fraction) >> 5) + (lut[first + 1] << 5)
    curve = ((slope * fraction + (1 << 14)) >> 15) + lut[first]
    gain = np.where(wide <= 2, lut[first], curve).astype(np.int16).astype(np.uint32)
    ratio = ((signal.astype(np.uint64) * gain) >> np.uint64(_gain_shift(site))).astype(np.uint32)
    return (np.where(ratio < 1 << 13, (ratio * ratio) >> np.uint32(20), (ratio >> np.uint32(6)) - np.uint32(64)),)


def _lower_gain(site: Site, lowering: Lowering) -> None:
    """With the noise's bits shifted to the top, the ten after its first are the fraction; it is 0 for the numbers up to 2."""
    noise, table = load(site.input(1)), site.input(2).name
    leading = Unary("clz", noise)
    fraction = _after_first_bit(noise, leading, 10)
    first = Select(
        Binary("le", noise, _word(2)),
        cast(noise, INT32),
        sub(integer(4 * 32 - 6), Binary("shl", cast(leading, INT32), integer(2))),
    )
    base, slope, curve = (cast(Lookup(table, add(first, integer(number)), INT16), INT32) for number in range(3))
    both = add(Binary("shr", mul(curve, fraction), integer(5)), Binary("shl", slope, integer(5)))
    rounded = Binary("shr", add(mul(both, fraction), integer(1 << 14)), integer(15))
    gain = cast(cast(add(rounded, base), INT16), UINT32)
    ratio = cast(_shift("ushr", mul(cast(load(site.input(0)), UINT64), cast(gain, UINT64)), _gain_shift(site)), UINT32)
    small, large = _shift("ushr", mul(ratio, ratio), 20), sub(_shift("ushr", ratio, 6), _word(64))
    _append(site, lowering, site.output, Select(Binary("lt", ratio, _word(1 << 13)), small, large))


def _after_first_bit(x: Expr, leading: Expr, bits: int) -> Expr:
    """The `bits` bits after the first 1 of a uint32, as int32; 0 of 0."""
    top = _shift("shl", x, Binary("and", leading, _word(31)))
    return cast(Binary("and", _shift("ushr", top, 31 - bits), _word((1 << bits) - 1)), INT32)


# SignalFilterBankLog: min(log(x << input_correction_bits) * output_scale, 32767) as int16.

LOG_SEGMENTS, LN2 = 128, 45426
"""Segments of the table of log2(1 + x) - x, and ln 2, both with 16 fractional bits."""


def _log_table() -> np.ndarray:
    """One element more than there are segment ends."""
    x = np.arange(LOG_SEGMENTS + 1) / LOG_SEGMENTS
    return np.append(np.rint((np.log2(1 + x) - x) * 65536), 0).astype(np.int32)


def _infer_log(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    return (_vector(site),)


def _check_log(site: Site) -> None:
    checks.require_dtype(site, site.input(0), UINT32)
    checks.require_dtype(site, site.output, INT16)
    _log_options(site)


def _log_options(site: Site) -> tuple[int, int]:
    return option(site, "input_correction_bits", 0, 31), option(site, "output_scale", 0)


def _compute_log(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
    (bits, scale), table = _log_options(site), _log_table().astype(np.int64)
    scaled = (x << np.uint32(bits)).astype(np.int64)
    whole = np.maximum(_bit_length(scaled) - 1, 0)
    fraction = ((scaled << (31 - whole)) & 0x7FFFFFFF) >> 15
    segment = fraction >> 9
    between = ((table[segment + 1] - table[segment]) * (fraction & 511)) >> 16
    log2 = (whole << 16) + fraction + table[segment] + between
    natural = (LN2 * log2 + (1 << 15)) >> 16
    result = ((scale * natural + (1 << 15)) & 0xFFFFFFFF) >> 16
    return (np.where(scaled > 1, np.minimum(result, 32767), 0).astype(np.int16),)


def _lower_log(site: Site, lowering: Lowering) -> None:
    (bits, scale), table = _log_options(site), lowering.constant("log", _log_table().astype(np.int16))
    scaled = _shift("shl", load(site.input(0)), bits)
    leading = Unary("clz", scaled)
    fraction = _after_first_bit(scaled, leading, 16)
    segment = Binary("shr", fraction, integer(9))
    low, high = (cast(Lookup(table, add(segment, integer(number)), INT16), INT32) for number in range(2))
    between = Binary("shr", mul(sub(high, low), Binary("and", fraction, integer(511))), integer(16))
    whole = Binary("shl", sub(integer(31), cast(leading, INT32)), integer(16))
    log2 = cast(add(whole, add(add(fraction, low), between)), UINT32)
    natural = cast(_shift("ushr", add(mul(cast(log2, UINT64), _long(LN2)), _long(1 << 15)), 16), UINT32)
    result = _shift("ushr", add(mul(natural, _word(scale)), _word(1 << 15)), 16)
    least = Select(Binary("gt", scaled, _word(1)), Binary("min", result, _word(32767)), _word(0))
    _append(site, lowering, site.output, cast(least, INT16))


OPERATORS = (
    Operator("SignalFilterBankSquareRoot", "CUSTOM", read_options(), _infer_root, _check_root, _compute_root, _lower_root).supports(
        micro("uint64"), notes="To uint32."
    ),
    Operator(
        "SignalFilterBankSpectralSubtraction",
        "CUSTOM",
        read_options(*_SUBTRACTION),
        _infer_subtraction,
        _check_subtraction,
        _compute_subtraction,
        _lower_subtraction,
        memories=_subtraction_memories,
    ).supports(micro("uint32"), notes="The estimate of the noise is state."),
    Operator("SignalPCAN", "CUSTOM", read_options("snr_shift"), _infer_gain, _check_gain, _compute_gain, _lower_gain).supports(
        micro("uint32"), notes="Exact."
    ),
    Operator(
        "SignalFilterBankLog",
        "CUSTOM",
        read_options("input_correction_bits", "output_scale"),
        _infer_log,
        _check_log,
        _compute_log,
        _lower_log,
    ).supports(micro("uint32"), notes="To int16."),
)
