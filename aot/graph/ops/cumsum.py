"""CUMSUM along one axis, exclusive or not, forwards or backwards: float32, int8 (quantised), int32, int64.

float32 is exact to the bit: every sum is made in order from 0. Integers wrap. int8: TFLite Micro starts from minus the zero point.
Source: tflite-micro, tensorflow/lite/micro/kernels/cumsum.cc and kernels/internal/reference/cumsum.h; int32 and int64: LiteRT,
tflite/kernels/cumsum.cc.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph import arithmetic
from aot.graph.evaluate import requantise
from aot.graph.expr import Acc, Affine, Axis, Binary, Const, Expr, Load, Requantise, Select, affine, axis, fixed, integer
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.rescale import finish, finish_array, offset
from aot.graph.primitive import Reduce
from aot.graph.support import litert, micro

DTYPES = (DType.FLOAT32, DType.INT8, DType.INT32, DType.INT64)
SCALED_SHIFT = 19
"""int8: an element counts 2^19 (it is shifted left by 20, and multiplied by a half)."""
SHORTEST_BLOCK, MOST_BLOCKS = 32, 16


@dataclass(frozen=True)
class CumSum:
    exclusive: bool = False
    reverse: bool = False


def _read(options: Any) -> CumSum:
    return CumSum() if options is None else CumSum(bool(options.Exclusive()), bool(options.Reverse()))


def _attributes(site: Site) -> CumSum:
    assert isinstance(site.node.attributes, CumSum)
    return site.node.attributes


def _axis(site: Site) -> int:
    checks.require_counts(site, (2,))
    data, number = site.input(0), site.input(1)
    checks.require_elements(site, data)
    checks.require_dtype(site, number, DType.INT32)
    return checks.require_axis(site, data, checks.constant_number(site, number, "axis"))


def _infer(site: Site) -> tuple[Shape, ...]:
    _axis(site)
    return (site.input(0).shape,)


def _check(site: Site) -> None:
    _axis(site)
    data = site.input(0)
    checks.require_dtype(site, data, *DTYPES)
    checks.require_same_dtype(site, site.output, data)
    if data.dtype is DType.INT8:
        _rescaling(site)


def _rescaling(site: Site) -> tuple[int, int]:
    """Scaled sum to output: (multiplier, shift <= 0)."""
    input_scale, _ = checks.per_tensor(site, site.input(0))
    output_scale, _ = checks.per_tensor(site, site.output)
    _, _, real = arithmetic.sum_scales(input_scale, input_scale, output_scale, SCALED_SHIFT + 1)
    multiplier, shift = arithmetic.quantise_multiplier(real)
    if real >= 1 or shift > 0:
        raise site.error(f"its input's scale is {input_scale / output_scale:.3g} times its output's, more than 2^19")
    return multiplier, shift


def _compute(site: Site, data: np.ndarray, axis: np.ndarray) -> tuple[np.ndarray]:
    a, dtype = _attributes(site), site.input(0).dtype
    rows = np.moveaxis(data, _axis(site), -1)
    rows = rows[..., ::-1] if a.reverse else rows
    start = 0
    if dtype is DType.INT8:
        start = -checks.per_tensor(site, site.input(0))[1]
        rows = rows.astype(np.int32) + np.int32(start)
    first = np.full((*rows.shape[:-1], 1), start, rows.dtype)
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(np.concatenate([first, rows], axis=-1), axis=-1, dtype=rows.dtype)
    found = sums[..., :-1] if a.exclusive else sums[..., 1:]
    if dtype is DType.INT8:
        scaled = requantise((found.astype(np.int64) << SCALED_SHIFT).astype(np.int32), *_rescaling(site))
        found = finish_array(scaled, checks.per_tensor(site, site.output)[1], *dtype.limits, dtype)
    return (np.ascontiguousarray(np.moveaxis(found[..., ::-1] if a.reverse else found, -1, _axis(site))),)


# Lowering: the axis is cut into blocks. Each sum is the sum before its block, then of the block's elements up to its own.


@dataclass(frozen=True)
class _Sums:
    site: Site
    lowering: Lowering

    @property
    def acc(self) -> DType:
        return DType.INT32 if self.site.input(0).dtype is DType.INT8 else self.site.input(0).dtype

    @property
    def start(self) -> Const:
        if self.acc.is_float:
            return Const(0.0, self.acc)
        return integer(-self._zero_point, self.acc)

    @property
    def _zero_point(self) -> int:
        return checks.per_tensor(self.site, self.site.input(0))[1] if self.site.input(0).dtype is DType.INT8 else 0

    def index(self, along: Affine) -> tuple[Affine, ...]:
        """The element at this position of the axis, counted in the direction of the sum."""
        number, shape = _axis(self.site), self.site.input(0).shape
        if _attributes(self.site).reverse:
            along = Affine(tuple((term, -coefficient) for term, coefficient in along.terms), shape[number] - 1 - along.offset)
        return tuple(along if position == number else axis(position) for position in range(len(shape)))

    def space(self, extent: int) -> Shape:
        number, shape = _axis(self.site), self.site.input(0).shape
        return (*shape[:number], extent, *shape[number + 1 :])

    def term(self, along: Affine, fill: Const | None = None) -> Expr:
        """The element at this position of the axis, as it is added."""
        element = load(self.site.input(0), self.index(along), fill)
        return offset(element, self._zero_point) if element.dtype is DType.INT8 else element

    @property
    def swept(self) -> int:
        """The window's axis."""
        return len(self.site.input(0).shape)

    def result(self) -> Expr:
        site, total = self.site, Acc(self.acc)
        if site.output.dtype is not DType.INT8:
            return total
        multiplier, shift = _rescaling(site)
        scaled = Requantise(Binary("shl", total, integer(SCALED_SHIFT)), integer(multiplier), integer(shift))
        return finish(scaled, checks.per_tensor(site, site.output)[1], *DType.INT8.limits, DType.INT8)

    def append_first_block(self, stop: int) -> None:
        """The outputs before `stop`. The window of each ends at its own element, and is cut where the axis begins."""
        last = -stop if _attributes(self.site).exclusive else 1 - stop
        fill = Const(0.0 if self.acc.is_float else 0, self.site.input(0).dtype)
        term = self.term(affine({_axis(self.site): 1, self.swept: 1}, last), fill)
        store = self.index(axis(_axis(self.site)))
        self._append(self.site.output.name, stop, stop, self.start, term, self.result(), store, skip_fill=True)

    def append_block(self, start: int, stop: int, before: Expr) -> None:
        """The outputs of a later block; `before` is the sum before it. Elements after the output's own count 0."""
        compare = "lt" if _attributes(self.site).exclusive else "le"
        is_earlier = Binary(compare, Axis(self.swept), Axis(_axis(self.site)))
        zero = Const(0.0 if self.acc.is_float else 0, self.acc)
        term = Select(is_earlier, self.term(axis(self.swept, 1, start)), zero)
        store = self.index(axis(_axis(self.site), 1, start))
        self._append(self.site.output.name, stop - start, stop - start, before, term, self.result(), store)

    def append_carry(self, start: int, stop: int, before: Expr) -> Expr:
        """The sum before `stop`."""
        name = self.lowering.temporary("carry", self.acc, self.space(1))
        self._append(name, 1, stop - start, before, self.term(axis(self.swept, 1, start)), Acc(self.acc))
        number = _axis(self.site)
        rank = len(self.site.input(0).shape)
        return Load(name, tuple(fixed(0) if position == number else axis(position) for position in range(rank)), self.acc)

    def _append(
        self,
        out: str,
        extent: int,
        window: int,
        initial: Expr,
        term: Expr,
        result: Expr,
        store: tuple[Affine, ...] = (),
        skip_fill: bool = False,
    ) -> None:
        space, nodes = self.space(extent), (self.site.node.index,)
        self.lowering.append(Reduce(out, space, (window,), "add", initial, term, result, store, skip_fill, nodes))


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    size = max(SHORTEST_BLOCK, math.ceil(length / MOST_BLOCKS))
    return ((start, min(start + size, length)) for start in range(0, length, size))


def _lower(site: Site, lowering: Lowering) -> None:
    sums, length = _Sums(site, lowering), site.input(0).shape[_axis(site)]
    before: Expr = sums.start
    for start, stop in _blocks(length):
        if start:
            sums.append_block(start, stop, before)
        else:
            sums.append_first_block(stop)
        if stop < length:
            before = sums.append_carry(start, stop, before)


OPERATORS = (
    Operator("CUMSUM", "CumsumOptions", _read, _infer, _check, _compute, _lower).supports(
        micro("int8, float32"),
        litert("int32, int64"),
        notes="float32 is exact; integers wrap; int8 starts from minus the zero point, as in TFLite Micro.",
    ),
)
