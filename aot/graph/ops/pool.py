"""AVERAGE_POOL_2D and MAX_POOL_2D: int8, int16, uint8 and float32; L2_POOL_2D: float32. NHWC.

Source: tflite-micro, tensorflow/lite/micro/kernels/pooling_common.cc, l2_pool_2d.cc and
tensorflow/lite/kernels/internal/reference/integer_ops/pooling.h, pooling.h; uint8: LiteRT, tflite/kernels/pooling.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.arithmetic import FLOAT32_LOWEST, INT32_MAX, activation_name
from aot.graph.expr import Acc, Axis, Binary, Const, Expr, Load, Select, Unary, add, axis, cast, clamp, integer, mul, real, sub
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.contraction import clamp_array, clamp_expr
from aot.graph.ops.windows import Padding, Slide, padding_name, slides
from aot.graph.primitive import Reduce
from aot.graph.support import litert, micro

QUANTISED = (DType.INT8, DType.INT16, DType.UINT8)
SCALE_TOLERANCE = 1e-6
"""How far the scales of input and output may lie apart: TFLite Micro rescales nothing here."""


@dataclass(frozen=True)
class Pool2D:
    """Attributes of both pools; pairs are (height, width)."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: Padding = "same"
    activation: str = "none"


def _read(options: Any) -> Pool2D:
    if options is None:
        return Pool2D((0, 0), (0, 0))  # the schema's defaults, refused below
    return Pool2D(
        (options.FilterHeight(), options.FilterWidth()),
        (options.StrideH(), options.StrideW()),
        padding_name(options.Padding()),
        activation_name(options.FusedActivationFunction()),
    )


def _attributes(site: Site) -> Pool2D:
    assert isinstance(site.node.attributes, Pool2D)
    return site.node.attributes


def slides_of(site: Site) -> tuple[Slide, Slide]:
    """A pool's windows along height and width."""
    checks.require_counts(site, (1,))
    data, a = site.input(0), _attributes(site)
    checks.require_rank(site, data, 4)
    checks.require_elements(site, data)
    return slides(site, (data.shape[1], data.shape[2]), a.kernel, a.stride, (1, 1), a.padding)


def _infer(site: Site) -> tuple[Shape, ...]:
    rows, columns = slides_of(site)
    n, _, _, channels = site.input(0).shape
    return ((n, rows.out, columns.out, channels),)


def _check(site: Site) -> None:
    slides_of(site)
    data, out = site.input(0), site.output
    checks.require_dtype(site, data, *(() if site.node.op == "L2_POOL_2D" else QUANTISED), DType.FLOAT32)
    checks.require_same_dtype(site, out, data)
    checks.require_activation(site, _attributes(site).activation)
    if data.dtype in QUANTISED:
        _require_a_sum(site)
        checks.require_same_quantisation(site, data, out, SCALE_TOLERANCE)
        checks.output_range(site, _attributes(site).activation, out)


def _require_a_sum(site: Site) -> None:
    """No window may have so many elements that their sum leaves int32."""
    count = math.prod(min(slide.kernel, slide.size) for slide in slides_of(site))
    most = INT32_MAX // max(abs(bound) for bound in site.input(0).dtype.limits)
    if site.node.op == "AVERAGE_POOL_2D" and count > most:
        raise site.error(f"the sum of a window of {count} elements leaves int32, that of {most} does not")


def _taps(rows: Slide, columns: Slide):
    """For each position of the window, the outputs it reaches and the inputs it reads."""
    for ky in rows.taps:
        out_rows, in_rows = rows.reach(ky)
        for kx in columns.taps:
            out_columns, in_columns = columns.reach(kx)
            yield (slice(None), out_rows, out_columns), (slice(None), in_rows, in_columns)


def _lower(site: Site, lowering: Lowering, combine: str, initial: Const, term: Callable[[Load], Expr], result: Expr) -> None:
    """One Reduce: space (N, Ho, Wo, C), window (KH, KW); taps outside the input are skipped. `term`: of an element."""
    rows, columns = slides_of(site)
    data = site.input(0)
    index = (axis(0), rows.index(1, 4), columns.index(2, 5), axis(3))
    leaves = rows.leaves or columns.leaves
    fill = Const(initial.value, data.dtype) if leaves else None
    window = (rows.kernel, columns.kernel)
    nodes = (site.node.index,)
    lowering.append(
        Reduce(
            site.output.name,
            _infer(site)[0],
            window,
            combine,
            initial,
            term(load(data, index, fill)),
            result,
            skip_fill=leaves,
            nodes=nodes,
        )
    )


def _totals(site: Site, data: np.ndarray, dtype: type[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the elements inside each window, in window order, and how many they are, both in `dtype`."""
    shape = _infer(site)[0]
    total, count = np.zeros(shape, dtype), np.zeros((1, *shape[1:3], 1), dtype)
    for written, read in _taps(*slides_of(site)):
        total[written] += data[read]
        count[written] += 1
    return total, count


# AVERAGE_POOL_2D


def _average_compute(site: Site, data: np.ndarray) -> tuple[np.ndarray]:
    """Integers: the sum of the elements inside by their number, halves away from zero. float32: in window order."""
    activation, dtype = _attributes(site).activation, site.output.dtype
    if dtype is DType.FLOAT32:
        total, count = _totals(site, data, np.float32)
        return (clamp_array(total / count, activation),)
    total, count = _totals(site, data, np.int32)
    wide = total.astype(np.int64)
    average = np.sign(wide) * ((np.abs(wide) + count // 2) // count)
    return (np.clip(average, *checks.output_range(site, activation, site.output)).astype(dtype.np),)


def _average_lower(site: Site, lowering: Lowering) -> None:
    activation, dtype, count = _attributes(site).activation, site.output.dtype, _inside(site)
    if dtype is DType.FLOAT32:
        average = Binary("div", Acc(DType.FLOAT32), _real(count))
        _lower(site, lowering, "add", real(0.0), lambda element: element, clamp_expr(average, activation))
        return
    low, high = checks.output_range(site, activation, site.output)
    total = Acc(DType.INT32)
    half = integer(int(count.value) // 2) if isinstance(count, Const) else Binary("shr", count, integer(1))
    rounded = Select(Binary("gt", total, integer(0)), add(total, half), sub(total, half))
    average = cast(clamp(Binary("div", rounded, count), low, high), dtype)
    _lower(site, lowering, "add", integer(0), lambda element: cast(element, DType.INT32), average)


def _inside(site: Site) -> Expr:
    """How many elements of an output position's window lie inside the input."""
    rows, columns = slides_of(site)
    return _product(_count(rows, 1), _count(columns, 2))


def _real(count: Expr) -> Expr:
    return real(count.value) if isinstance(count, Const) else cast(count, DType.FLOAT32)


def _count(slide: Slide, out_axis: int) -> Expr:
    """How many taps of an output position lie inside the input."""
    if not slide.leaves:
        return integer(slide.kernel)
    start = Axis(out_axis) if slide.stride == 1 else mul(Axis(out_axis), integer(slide.stride))
    start = sub(start, integer(slide.before)) if slide.before else start
    end = Binary("min", add(start, integer(slide.kernel)), integer(slide.size))
    return sub(end, Binary("max", start, integer(0)))


def _product(a: Expr, b: Expr) -> Expr:
    match a, b:
        case Const(x), Const(y):
            return integer(int(x) * int(y))
        case _:
            pass
    return mul(a, b)


# L2_POOL_2D


def _l2_compute(site: Site, data: np.ndarray) -> tuple[np.ndarray]:
    """The square root of the mean of squares; to the bit."""
    with np.errstate(all="ignore"):
        total, count = _totals(site, data * data, np.float32)
        return (clamp_array(np.sqrt(total / count), _attributes(site).activation),)


def _l2_lower(site: Site, lowering: Lowering) -> None:
    root = Unary("sqrt", Binary("div", Acc(DType.FLOAT32), _real(_inside(site))))
    _lower(site, lowering, "add", real(0.0), lambda x: mul(x, x), clamp_expr(root, _attributes(site).activation))


# MAX_POOL_2D


def _lowest(dtype: DType) -> Const:
    return Const(FLOAT32_LOWEST if dtype is DType.FLOAT32 else dtype.limits[0], dtype)


def _max_compute(site: Site, data: np.ndarray) -> tuple[np.ndarray]:
    largest = np.full(_infer(site)[0], _lowest(site.input(0).dtype).value, data.dtype)
    for written, read in _taps(*slides_of(site)):
        largest[written] = np.where(largest[written] < data[read], data[read], largest[written])
    activation = _attributes(site).activation
    if data.dtype.kind == "f":
        return (clamp_array(largest, activation),)
    return (np.clip(largest, *checks.output_range(site, activation, site.output)).astype(data.dtype),)


def _max_lower(site: Site, lowering: Lowering) -> None:
    dtype, activation = site.input(0).dtype, _attributes(site).activation
    if dtype is DType.FLOAT32:
        result = clamp_expr(Acc(dtype), activation)
    else:
        low, high = checks.output_range(site, activation, site.output)
        result = Acc(dtype) if (low, high) == dtype.limits else clamp(Acc(dtype), low, high)
    _lower(site, lowering, "max", _lowest(dtype), lambda element: element, result)


def clamp_of(site: Site) -> tuple[int, int]:
    """The range of a quantised pool's outputs."""
    return checks.output_range(site, _attributes(site).activation, site.output)


OPERATORS = (
    Operator("AVERAGE_POOL_2D", "Pool2DOptions", _read, _infer, _check, _average_compute, _average_lower).supports(
        micro("int8, int16, float32"),
        litert("uint8"),
        notes="float32 sums in the order of memory; windows whose sum leaves int32 are refused.",
    ),
    Operator("MAX_POOL_2D", "Pool2DOptions", _read, _infer, _check, _max_compute, _max_lower).supports(
        micro("int8, int16, float32"), litert("uint8"), notes="Exact."
    ),
    Operator("L2_POOL_2D", "Pool2DOptions", _read, _infer, _check, _l2_compute, _l2_lower).supports(
        micro("float32"), notes="float32 sums in any order: within 2e-6 of the output's largest magnitude."
    ),
)
