"""BATCH_MATMUL: matrices times matrices, broadcast over the dimensions before the last two.

Types: float32; int8 with int8; int16 with int16 and int16 with int8, without zero points. adj_x and adj_y transpose an operand.

Source: tflite-micro, tensorflow/lite/micro/kernels/batch_matmul.cc and tensorflow/lite/kernels/internal/reference/batch_matmul.h;
int16 with int8, which TFLite Micro lacks: LiteRT, tflite/kernels/batch_matmul.cc. None of them has scales per column: TFLite Micro
takes the first scale for all columns, LiteRT takes 0, so that int16 with int8 of several scales gives zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph import arithmetic
from aot.graph.expr import Acc, Affine, Const, Expr, Requantise, add, axis, cast, clamp, fixed, integer
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.rescale import Rescale, finish_array, rescale
from aot.graph.ops.wide import MOST_OF_INT16_BY_INT8, Wide, fits_int32, require_no_zero_point, wide
from aot.graph.primitive import Contract, Geometry
from aot.graph.support import litert, micro

MAX_RANK = 5


@dataclass(frozen=True)
class BatchMatMul:
    adj_x: bool = False
    adj_y: bool = False


def _read(options: Any) -> BatchMatMul:
    return BatchMatMul() if options is None else BatchMatMul(bool(options.AdjX()), bool(options.AdjY()))


# Shapes


@dataclass(frozen=True)
class _Layout:
    """Output (*batches, rows, columns); `transposed` says of each operand whether its last two dimensions are swapped."""

    batches: Shape
    rows: int
    columns: int
    depth: int
    transposed: tuple[bool, bool]

    @property
    def out(self) -> Shape:
        return (*self.batches, self.rows, self.columns)

    def index(self, shape: Shape, row: int, column: int, is_transposed: bool) -> tuple[Affine, ...]:
        """Where an operand is read: its own batch dimensions, then axes `row` and `column`."""
        skipped = len(self.batches) - (len(shape) - 2)
        batches = (fixed(0) if size == 1 else axis(number) for number, size in enumerate(shape[:-2], start=skipped))
        last = (axis(column), axis(row)) if is_transposed else (axis(row), axis(column))
        return (*batches, *last)


def _layout(site: Site) -> _Layout:
    checks.require_counts(site, (2,))
    attributes, left, right = site.node.attributes, site.input(0), site.input(1)
    assert isinstance(attributes, BatchMatMul)
    for value in (left, right):
        if not 2 <= len(value.shape) <= MAX_RANK:
            raise site.error(f"{checks.describe(value)} has {len(value.shape)} dimensions, not 2 to {MAX_RANK}")
    checks.require_elements(site, left, right)
    rows, depth = _matrix(left, attributes.adj_x)
    right_depth, columns = _matrix(right, attributes.adj_y)
    if depth != right_depth:
        raise site.error(
            f"rows of {depth} elements in {checks.describe(left)}, columns of {right_depth} in {checks.describe(right)}"
        )
    return _Layout(_batches(site, left, right), rows, columns, depth, (attributes.adj_x, attributes.adj_y))


def _matrix(value: Value, is_transposed: bool) -> tuple[int, int]:
    rows, columns = value.shape[-2:]
    return (columns, rows) if is_transposed else (rows, columns)


def _batches(site: Site, left: Value, right: Value) -> Shape:
    try:
        return np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise site.error(
            f"the batches of {checks.describe(left)}, {checks.shape_text(left.shape)}, and {checks.describe(right)}, "
            f"{checks.shape_text(right.shape)}, do not broadcast"
        ) from None


def _infer(site: Site) -> tuple[Shape, ...]:
    return (_layout(site).out,)


# Types and endings

_RIGHT = {DType.FLOAT32: (DType.FLOAT32,), DType.INT8: (DType.INT8,), DType.INT16: (DType.INT16, DType.INT8)}
"""For each type of the left operand, those of the right one."""


def _check(site: Site) -> None:
    layout, left, right = _layout(site), site.input(0), site.input(1)
    checks.require_dtype(site, left, *_RIGHT)
    checks.require_dtype(site, right, *_RIGHT[left.dtype])
    checks.require_same_dtype(site, site.output, left)
    _ending(site, layout)


@dataclass(frozen=True)
class _Narrow:
    """int32 sums to int8."""

    rescaling: Rescale
    left_zero_point: int
    right_zero_point: int
    zero_point: int
    sums: DType = DType.INT32

    def array(self, total: np.ndarray) -> np.ndarray:
        scaled = self.rescaling.array(total.astype(np.int64).astype(np.int32))
        with np.errstate(over="ignore"):
            return finish_array(scaled, self.zero_point, *DType.INT8.limits, DType.INT8)

    def result(self, lowering: Lowering) -> Expr:
        """In the form that kernels know, also where the factor is 1."""
        multiplier, shift = integer(self.rescaling.multiplier), integer(self.rescaling.shift)
        scaled = Requantise(Acc(DType.INT32), multiplier, shift)
        return cast(clamp(add(scaled, integer(self.zero_point)), *DType.INT8.limits), DType.INT8)


@dataclass(frozen=True)
class _Wide:
    """Sums of products of int16 to int16."""

    rescaling: Wide
    sums: DType
    left_zero_point: int = 0
    right_zero_point: int = 0

    def array(self, total: np.ndarray) -> np.ndarray:
        return self.rescaling.array(total)

    def result(self, lowering: Lowering) -> Expr:
        return self.rescaling.expression(lowering, cast(Acc(self.sums), DType.INT64), fixed(0))


@dataclass(frozen=True)
class _Real:
    """float32 sums."""

    sums: DType = DType.FLOAT32
    left_zero_point: int = 0
    right_zero_point: int = 0

    def array(self, total: np.ndarray) -> np.ndarray:
        return total.astype(np.float32)

    def result(self, lowering: Lowering) -> Expr:
        return Acc(DType.FLOAT32)


def _ending(site: Site, layout: _Layout) -> _Narrow | _Wide | _Real:
    """How sums become outputs."""
    left, right, output = site.input(0), site.input(1), site.output
    if left.dtype is DType.FLOAT32:
        return _Real()
    right_scale, right_zero_point = _first_quantisation(site, right)
    left_scale, left_zero_point = checks.per_tensor(site, left)
    output_scale, zero_point = checks.per_tensor(site, output)
    scales = arithmetic.convolution_scales(left_scale, (right_scale,), output_scale)
    if left.dtype is DType.INT8:
        return _Narrow(rescale(site, scales[0]), left_zero_point, right_zero_point, zero_point)
    require_no_zero_point(site, left, output)
    if right_zero_point:
        raise site.error(f"{checks.describe(right)} has a zero point that is not 0", "TFLite's int16 products have none")
    reach = _reach(right, layout)
    return _Wide(wide(site, scales, *DType.INT16.limits), DType.INT32 if fits_int32(-reach, reach) else DType.INT64)


def _first_quantisation(site: Site, right: Value) -> tuple[float, int]:
    """Scale and zero point of the right operand as the kernels see them: of several scales the first, beside int16 none."""
    found = checks.quantisation(site, right)
    if not found.per_axis:
        return checks.per_tensor(site, right)
    return (0.0 if site.input(0).dtype is DType.INT16 else found.scale), found.zero_point


def _reach(right: Value, layout: _Layout) -> int:
    """The largest magnitude of a sum of int16 numbers times the right operand."""
    if right.data is not None:
        depth_axis = -1 if layout.transposed[1] else -2
        return int(np.abs(right.data.astype(np.int64)).sum(depth_axis).max()) << 15
    return layout.depth * (MOST_OF_INT16_BY_INT8 if right.dtype is DType.INT8 else 1 << 30)


def _compute(site: Site, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray]:
    """Sums in float64, which holds every integer sum up to 2^53 exactly, and in int64 those that may be larger."""
    layout = _layout(site)
    ending = _ending(site, layout)
    exact = np.int64 if right.dtype == np.int16 else np.float64
    a, b = (
        (array.swapaxes(-1, -2) if is_transposed else array).astype(exact)
        for array, is_transposed in zip((left, right), layout.transposed)
    )
    with np.errstate(all="ignore"):
        return (ending.array((a - ending.left_zero_point) @ (b - ending.right_zero_point)),)


# Lowering


def _lower(site: Site, lowering: Lowering) -> None:
    """Space (*batches, rows, columns), window (depth)."""
    layout, left, right = _layout(site), site.input(0), site.input(1)
    ending, rank = _ending(site, layout), len(layout.out)
    lowering.append(
        Contract(
            site.output.name,
            layout.out,
            (layout.depth,),
            load(left, layout.index(left.shape, rank - 2, rank, layout.transposed[0])),
            load(right, layout.index(right.shape, rank, rank - 1, layout.transposed[1])),
            ending.left_zero_point,
            ending.right_zero_point,
            Const(0.0 if ending.sums.is_float else 0, ending.sums),
            ending.result(lowering),
            geometry=_geometry(site, layout),
            nodes=(site.node.index,),
        )
    )


def _geometry(site: Site, layout: _Layout) -> Geometry | None:
    """One right matrix for all rows is a dense layer."""
    left, right = site.input(0), site.input(1)
    if layout.transposed[0] or right.size != layout.depth * layout.columns:
        return None
    rows = left.size // layout.depth
    return Geometry("dense", (rows, 1, 1, layout.depth), (rows, 1, 1, layout.columns))


OPERATORS = (
    Operator("BATCH_MATMUL", "BatchMatMulOptions", _read, _infer, _check, _compute, _lower).supports(
        micro("int8, int16, float32"),
        litert("int16x8"),
        notes="int16 has no zero points; of several scales on the right the first counts, as in TFLite Micro (beside int16 none, as in LiteRT).",
    ),
)
