"""SignalWindow, SignalFftAutoScale, SignalEnergy: what happens to samples before an FFT and to its bins after it.

Source: tflite-micro, signal/micro/kernels/{window,fft_auto_scale_kernel,energy}.cc, signal/src/{window,fft_auto_scale,max_abs,energy}.cc.
"""

from __future__ import annotations

import numpy as np

from aot.graph.expr import Acc, Axis, Binary, Expr, Load, Select, Table, Unary, add, affine, axis, cast, clamp, fixed, integer, mul
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.signal.options import option, read_options
from aot.graph.primitive import Map, Reduce
from aot.graph.support import micro

INT32 = DType.INT32

# SignalWindow: out = saturate((input * weights) >> shift), the weights repeating along the last dimension.


def _infer_window(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (2,))
    checks.require_rank(site, site.input(1), 1)
    shape, size = site.input(0).shape, site.input(1).shape[0]
    if not shape or size == 0 or shape[-1] % size:
        raise site.error(
            f"{checks.describe(site.input(0))} is {checks.shape_text(shape)}, whose rows are no multiple of its {size} weights"
        )
    return (shape,)


def _check_window(site: Site) -> None:
    for value in (site.input(0), site.input(1), site.output):
        checks.require_dtype(site, value, DType.INT16)
    _window_shift(site)


def _window_shift(site: Site) -> int:
    return option(site, "shift", 0, 31)


def _compute_window(site: Site, data: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray]:
    repeated = np.tile(weights, data.shape[-1] // weights.size).astype(np.int32)
    return (np.clip((data.astype(np.int32) * repeated) >> _window_shift(site), -32768, 32767).astype(np.int16),)


def _lower_window(site: Site, lowering: Lowering) -> None:
    data, weights = site.input(0), site.input(1)
    last, size = len(data.shape) - 1, weights.shape[0]
    place = axis(last) if size == data.shape[last] else Table(last, tuple(number % size for number in range(data.shape[last])))
    product = mul(cast(load(data), INT32), cast(load(weights, (place,)), INT32))
    value = clamp(Binary("shr", product, integer(_window_shift(site))), -32768, 32767)
    lowering.append(Map(site.output.name, data.shape, cast(value, DType.INT16), nodes=(site.node.index,)))


# SignalFftAutoScale: shifts all samples left until the largest uses all bits; the second output is the shift.


def _infer_scale(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,), 2)
    checks.require_rank(site, site.input(0), 1)
    return site.input(0).shape, ()


def _check_scale(site: Site) -> None:
    checks.require_dtype(site, site.input(0), DType.INT16)
    checks.require_dtype(site, site.outputs[0], DType.INT16)
    checks.require_dtype(site, site.outputs[1], DType.INT32)
    checks.require_elements(site, site.input(0))


def _largest(data: np.ndarray) -> int:
    """The largest magnitude as TFLite Micro finds it: its int16 overflows at -32768, after which it begins anew with the next sample.

    After such an overflow negative samples count as they are while they rise: `_lower_scale` leaves those out, for they are followed
    or preceded by a larger magnitude, or alone and then mean no shift.
    """
    found = 0
    for value in data.tolist():
        if value > found:
            found = value
        elif -value > found:
            found = -value if value > -32768 else -32768
    return found


def _compute_scale(site: Site, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = _largest(data)
    shift = 15 - found.bit_length() if found > 0 else 0
    return (data.astype(np.int32) << shift).astype(np.int16), np.array(shift, np.int32)


def _lower_scale(site: Site, lowering: Lowering) -> None:
    """Where the last -32768 is; the largest magnitude after it (the first sample on its own), and so the shift; the shifted samples."""
    data, (scaled, shift), nodes = site.input(0), site.outputs, (site.node.index,)
    sample = cast(load(data), INT32)
    last = lowering.temporary("overflow", INT32, ())
    position = Select(Binary("eq", sample, integer(-32768)), Axis(0), integer(-1))
    lowering.append(Reduce(last, (), data.shape, "max", integer(-1), position, Acc(INT32), nodes=nodes))
    overflow = Load(last, (), INT32)
    first, here, before = (cast(load(data, (place,)), INT32) for place in (fixed(0), axis(0, 1, 1), axis(0)))
    rises = Binary("and", Binary("lt", before, here), Binary("lt", here, integer(0)))
    skipped = Binary("or", rises, Binary("lt", Axis(0), overflow))
    initial = Select(Binary("lt", overflow, integer(0)), Unary("abs", first), integer(0))
    term, found = Select(skipped, integer(0), Unary("abs", here)), Acc(INT32)
    result = Select(Binary("gt", found, integer(0)), add(Unary("clz", found), integer(-17)), integer(0))
    lowering.append(Reduce(shift.name, (), (data.shape[0] - 1,), "max", initial, term, result, nodes=nodes))
    value = Binary("shl", sample, Load(shift.name, (), INT32))
    lowering.append(Map(scaled.name, data.shape, cast(value, DType.INT16), nodes=nodes))


# SignalEnergy: the squared magnitude of the bins in [start_index, end_index), as uint32; 0 elsewhere, where TFLite Micro writes nothing.


def _infer_energy(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    checks.require_rank(site, site.input(0), 1)
    return ((site.input(0).shape[0] // 2,),)


def _check_energy(site: Site) -> None:
    checks.require_dtype(site, site.input(0), DType.INT16)
    checks.require_dtype(site, site.output, DType.UINT32)
    _bins(site)


def _bins(site: Site) -> tuple[int, int]:
    start, end = option(site, "start_index", 0), option(site, "end_index", 0, site.input(0).shape[0] // 2)
    return (start, end) if start < end else (0, 0)


def _compute_energy(site: Site, bins: np.ndarray) -> tuple[np.ndarray]:
    (start, end), out = _bins(site), np.zeros(bins.size // 2, np.uint32)
    parts = bins[: 2 * out.size].astype(np.int64).reshape(-1, 2)[start:end]
    out[start:end] = (parts**2).sum(axis=1)
    return (out,)


def _lower_energy(site: Site, lowering: Lowering) -> None:
    bins, out, (start, end) = site.input(0), site.output, _bins(site)

    def square(offset: int) -> Expr:
        part = cast(load(bins, (affine({0: 2}, offset),)), INT32)
        return mul(part, part)

    energy = cast(add(square(2 * start), square(2 * start + 1)), DType.UINT32)
    spans = ((0, start, None), (start, end, energy), (end, out.shape[0], None))
    for first, beyond, value in spans:
        if beyond > first:
            filled = integer(0, DType.UINT32) if value is None else value
            lowering.append(Map(out.name, (beyond - first,), filled, (axis(0, 1, first),), nodes=(site.node.index,)))


OPERATORS = (
    Operator(
        "SignalWindow", "CUSTOM", read_options("shift"), _infer_window, _check_window, _compute_window, _lower_window
    ).supports(micro("int16"), notes="Exact."),
    Operator("SignalFftAutoScale", "CUSTOM", read_options(), _infer_scale, _check_scale, _compute_scale, _lower_scale).supports(
        micro("int16"), notes="Exact, with TFLite Micro's overflow at -32768."
    ),
    Operator(
        "SignalEnergy",
        "CUSTOM",
        read_options("start_index", "end_index"),
        _infer_energy,
        _check_energy,
        _compute_energy,
        _lower_energy,
    ).supports(micro("int16"), notes="Exact."),
)
