"""SignalFilterBank: channels of a spectrum, each a weighted sum of a band of its bins and of the band before; uint32 to uint64.

Source: tflite-micro, signal/micro/kernels/filter_bank.cc, signal/src/filter_bank.cc. Sums wrap at 64 bits.

Lowering: both bands of a channel are one row of coefficients over the bins that they cover. Channels of similar width share one
`Reduce`, whose rows start where a constant says. Coefficients that are never negative are uint16: one long multiply-accumulate each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from aot.graph.expr import Acc, Axis, Expr, Load, Lookup, Table, add, axis, cast, integer, mul
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks
from aot.graph.ops.signal.options import option, read_options
from aot.graph.primitive import Reduce
from aot.graph.support import micro

MAX_CHANNELS = 4096
MAX_TERMS = 1 << 20
WIDTH_STEP = 8
"""Rows are made as long as a multiple of this many bins: few loops, few products with 0."""
_TABLES = ((1, "weights"), (2, "unweights"), (3, "frequency starts"), (4, "weight starts"), (5, "widths"))


@dataclass(frozen=True)
class _Band:
    """Bins start.. of the spectrum: what they are multiplied by for their own channel, and for the one after."""

    start: int
    weights: tuple[int, ...]
    unweights: tuple[int, ...]


def _infer(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (6,))
    for position in range(6):
        checks.require_rank(site, site.input(position), 1)
    return ((option(site, "num_channels", 1, MAX_CHANNELS),),)


def _check(site: Site) -> None:
    checks.require_dtype(site, site.input(0), DType.UINT32)
    checks.require_dtype(site, site.output, DType.UINT64)
    for position, purpose in _TABLES:
        checks.require_dtype(site, site.input(position), DType.INT16)
        checks.require_constant(site, site.input(position), purpose)
    _bands(site)


def _bands(site: Site) -> list[_Band]:
    """num_channels + 1 bands; the first gives only what it has for the channel after."""
    weights, unweights, frequencies, starts, widths = (
        checks.require_constant(site, site.input(position), purpose).tolist() for position, purpose in _TABLES
    )
    count = option(site, "num_channels", 1, MAX_CHANNELS) + 1
    if min(len(frequencies), len(starts), len(widths)) < count:
        raise site.error(f"its tables are too short for {count - 1} channels and one before them")
    if sum(max(width, 0) for width in widths[:count]) > MAX_TERMS:
        raise site.error(f"its bands have more than {MAX_TERMS} bins")
    bins, taps = site.input(0).shape[0], min(len(weights), len(unweights))
    found: list[_Band] = []
    for number in range(count):
        width, start, tap = max(widths[number], 0), frequencies[number], starts[number]
        if width and not (0 <= start <= bins - width and 0 <= tap <= taps - width):
            raise site.error(f"its band {number} lies outside the {bins} bins or the {taps} weights")
        found.append(
            _Band(start, tuple(weights[tap : tap + width]), tuple(unweights[tap : tap + width])) if width else _Band(0, (), ())
        )
    return found


def _compute(site: Site, bins: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    bands, wide = _bands(site), bins.astype(np.uint64)
    out = np.zeros(len(bands) - 1, np.uint64)
    for number, (before, own) in enumerate(pairwise(bands)):
        for band, factors in ((before, before.unweights), (own, own.weights)):
            products = wide[band.start : band.start + len(factors)] * np.array(factors, np.int64).astype(np.uint64)
            out[number : number + 1] += products.sum(dtype=np.uint64)
    return (out,)


@dataclass(frozen=True)
class _Row:
    """A channel as one sum: coefficients of the bins from `start`."""

    start: int
    factors: tuple[int, ...]


def _row(before: _Band, own: _Band) -> _Row:
    """Both bands together, without zeros at the ends."""
    factors: dict[int, int] = {}
    for band, numbers in ((before, before.unweights), (own, own.weights)):
        for place, factor in enumerate(numbers, band.start):
            factors[place] = factors.get(place, 0) + factor
    used = sorted(place for place, factor in factors.items() if factor)
    if not used:
        return _Row(0, ())
    return _Row(used[0], tuple(factors.get(place, 0) for place in range(used[0], used[-1] + 1)))


def _padded(row: _Row, width: int, bins: int) -> _Row:
    """The same sum over `width` bins, all inside the spectrum."""
    start = max(min(row.start, bins - width), 0)
    ahead = row.start - start if row.factors else 0
    factors = (0,) * ahead + row.factors
    return _Row(start, factors + (0,) * (width - len(factors)))


def _lower(site: Site, lowering: Lowering) -> None:
    bands, bins = _bands(site), site.input(0).shape[0]
    rows = [_row(before, own) for before, own in pairwise(bands)]
    classes: dict[int, list[int]] = {}
    for channel, row in enumerate(rows):
        width = min(-(-len(row.factors) // WIDTH_STEP) * WIDTH_STEP, bins)
        classes.setdefault(width, []).append(channel)
    for width, channels in sorted(classes.items()):
        _append(site, lowering, channels, [_padded(rows[channel], width, bins) for channel in channels], width)


def _append(site: Site, lowering: Lowering, channels: list[int], rows: list[_Row], width: int) -> None:
    """One Reduce over channels of the same width."""
    factors = np.array([row.factors for row in rows], np.int64).reshape(len(rows), width)
    unsigned = not factors.size or (factors.min() >= 0 and factors.max() < 1 << 16)
    table = lowering.constant("weights", factors.astype(np.uint16 if unsigned else np.int32))
    starts = lowering.constant("starts", np.array([row.start for row in rows], np.int32))
    place = add(Load(starts, (axis(0),), DType.INT32), Axis(1))
    bin_value: Expr = Lookup(site.input(0).name, place, DType.UINT32)
    factor = Load(table, (axis(0), axis(1)), DType.UINT16 if unsigned else DType.INT32)
    term = mul(cast(bin_value, DType.UINT64), cast(factor, DType.UINT64))
    store = (Table(0, tuple(channels)),)
    zero, nodes = integer(0, DType.UINT64), (site.node.index,)
    lowering.append(Reduce(site.output.name, (len(rows),), (width,), "add", zero, term, Acc(DType.UINT64), store, nodes=nodes))


OPERATORS = (
    Operator("SignalFilterBank", "CUSTOM", read_options("num_channels"), _infer, _check, _compute, _lower).supports(
        micro("uint32"), notes="To uint64; sums wrap."
    ),
)
