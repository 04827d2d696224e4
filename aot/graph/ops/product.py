"""REDUCE_PROD of quantised int8 and int16: a product that is rescaled after every factor, so that it stays in int32.

Enters: a site of `reduce.py`. Leaves: its result as an array and as primitives.
Source: LiteRT, tflite/kernels/reduce.cc, PrepareProd, and kernels/internal/reference/reduce.h, QuantizedReduceProd; the rescaling:
kernels/internal/common.cc, MultiplyByQuantizedMultiplier of an int64 (16-bit multiplier, one rounding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.graph import arithmetic
from aot.graph.expr import Affine, Binary, Expr, IndexMap, Load, add, axis, cast, fixed, integer, mul
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, load
from aot.graph.ops import checks, reduction
from aot.graph.ops.rescale import finish, finish_array, offset
from aot.graph.primitive import Map, identity

MOST_FACTORS = 32
"""Each factor is an instruction of its own."""
MAX_SHIFT = 7
"""The largest left shift of the int64 rescaling."""


@dataclass(frozen=True)
class _Scaling:
    """Multiplication by multiplier / 2^right, halves up; wraps to int32."""

    multiplier: int
    right: int

    def array(self, x: np.ndarray) -> np.ndarray:
        return ((x * self.multiplier + (1 << (self.right - 1))) >> self.right).astype(np.int32)

    def expression(self, x: Expr) -> Expr:
        half = integer(1 << (self.right - 1), DType.INT64)
        product = add(mul(x, integer(self.multiplier, DType.INT64)), half)
        return cast(Binary("shr", product, integer(self.right, DType.INT64)), DType.INT32)


def check(site: Site) -> None:
    checks.require_dtype(site, site.input(0), DType.INT8, DType.INT16)
    if reduction.count(site) > MOST_FACTORS:
        raise site.error(f"a product of {reduction.count(site)} quantised numbers is not supported", f"at most {MOST_FACTORS}")
    _scaling(site)


def _scaling(site: Site) -> _Scaling:
    """By input scale / (output scale)^(1/count), applied count times."""
    input_scale, _ = checks.per_tensor(site, site.input(0))
    output_scale, _ = checks.per_tensor(site, site.output)
    real = float(np.float32(input_scale)) / float(np.float32(output_scale)) ** (1 / reduction.count(site))
    multiplier, shift = arithmetic.quantise_multiplier(real)
    if shift > MAX_SHIFT:
        raise site.error(f"its scales would multiply every factor by {real:.3g}, more than its arithmetic can")
    return _Scaling((multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF, 15 - shift)


def compute(site: Site, data: np.ndarray) -> np.ndarray:
    scaling, zero_point = _scaling(site), checks.per_tensor(site, site.input(0))[1]
    factors = reduction.rows(site, data).astype(np.int64) - zero_point
    total = factors[:, 0].astype(np.int32)
    for factor in factors.T[1:]:
        total = scaling.array(total * factor)
    dtype = site.output.dtype
    scaled = scaling.array(total.astype(np.int64))
    return finish_array(scaled, checks.per_tensor(site, site.output)[1], *dtype.limits, dtype).reshape(reduction.infer(site)[0])


def lower(site: Site, lowering: Lowering) -> None:
    """A Map for each factor after the first."""
    scaling, zero_point = _scaling(site), checks.per_tensor(site, site.input(0))[1]
    (shape,), nodes, dtype = reduction.infer(site), (site.node.index,), site.output.dtype
    total: Expr = offset(_factor(site, 0), zero_point)
    for number in range(1, reduction.count(site)):
        name = lowering.temporary("product", DType.INT32, shape)
        wide = mul(cast(total, DType.INT64), cast(offset(_factor(site, number), zero_point), DType.INT64))
        lowering.append(Map(name, shape, scaling.expression(wide), nodes=nodes))
        total = Load(name, identity(len(shape)), DType.INT32)
    scaled = scaling.expression(cast(total, DType.INT64))
    value = finish(scaled, checks.per_tensor(site, site.output)[1], *dtype.limits, dtype)
    lowering.append(Map(site.output.name, shape, value, nodes=nodes))


def _factor(site: Site, number: int) -> Load:
    """The element of this number, in the order of memory, for an output position."""
    swept = reduction.element(site)
    rank, window = len(reduction.infer(site)[0]), _window(site)
    positions = tuple(int(position) for position in np.unravel_index(number, window)) if window else ()
    return load(site.input(0), tuple(_fixed_at(index, rank, positions) for index in swept.index))


def _window(site: Site) -> Shape:
    return tuple(site.input(0).shape[number] for number in reduction.reduced_axes(site))


def _fixed_at(index: IndexMap, rank: int, positions: Sequence[int]) -> Affine:
    """An index of `reduction.element` with the window's axes at these positions."""
    assert isinstance(index, Affine)
    ((number, _),) = index.terms
    return fixed(positions[number - rank]) if number >= rank else axis(number)
