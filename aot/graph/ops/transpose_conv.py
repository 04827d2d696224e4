"""TRANSPOSE_CONV: float32, int8 and uint8, and int16 with int8 weights. NHWC; weights OHWI.

Where kernel position k lies on input position i, it adds to output position i * stride - padding + k. Seen from the output:
positions that leave the same remainder when divided by the stride (a *phase*) read the same kernel positions, `stride` apart, at
consecutive inputs. Each phase is an ordinary convolution of stride 1 with a part of the kernel, and no tap has to be tested.

Source: tflite-micro, tensorflow/lite/micro/kernels/transpose_conv.cc and tensorflow/lite/kernels/internal/reference/transpose_conv.h,
integer_ops/transpose_conv.h. uint8, which TFLite Micro lacks: LiteRT's kernel in the same file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from aot.graph import arithmetic
from aot.graph.expr import Acc, Affine, Expr, Load, affine, axis, rewrite
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.contraction import Ending, bias_element, bias_of, convolution_ending, fill_of
from aot.graph.ops.windows import PADDINGS, padding_name
from aot.graph.primitive import Contract, Geometry, Map
from aot.graph.support import litert, micro

MOST_PHASES = 16
"""As many phases become convolutions of their own, which kernels can claim; of more, those alike share a loop nest."""
_PHASED = (DType.INT8, DType.UINT8, DType.INT16)
"""Activations for which there are such kernels."""


@dataclass(frozen=True)
class TransposeConv:
    """Attributes; `stride` is (height, width)."""

    stride: tuple[int, int] = (0, 0)
    padding: str = "same"
    activation: str = "none"


def _read(options: Any) -> TransposeConv:
    if options is None:
        return TransposeConv()  # the schema's default strides, refused below
    return TransposeConv(
        (options.StrideH(), options.StrideW()),
        padding_name(options.Padding()),
        arithmetic.activation_name(options.FusedActivationFunction()),
    )


def _attributes(site: Site) -> TransposeConv:
    assert isinstance(site.node.attributes, TransposeConv)
    return site.node.attributes


def _convolution(site: Site) -> Site:
    """The site with a convolution's inputs: activation, weights, bias. (The first input is the shape of the output.)"""
    return replace(site, inputs=(site.input(2), site.input(1), site.optional(3)))


# One axis


@dataclass(frozen=True)
class Run:
    """Neighbouring phases along one axis that have equally many outputs (`steps`) and taps.

    Output `first` + phase + step * stride reads, at tap t, kernel position `kernel` + phase - t * stride and input step + t - `before`.
    """

    first: int
    phases: int
    steps: int
    taps: int
    stride: int
    kernel: int
    before: int


def runs(out: int, kernel: int, stride: int, padding: int, each: bool) -> tuple[Run, ...]:
    """The phases of an axis of `out` outputs, in as few runs as they form; with `each` in runs of one phase."""
    count = min(stride, out)
    ends = {0, count, -padding % stride, (kernel - padding) % stride, out % stride}
    starts = sorted(range(count + 1) if each else (end for end in ends if end <= count))
    return tuple(_run(start, end - start, out, kernel, stride, padding) for start, end in pairwise(starts))


def _run(first: int, phases: int, out: int, kernel: int, stride: int, padding: int) -> Run:
    whole, remainder = divmod(first + padding, stride)
    taps = max(-(-(kernel - remainder) // stride), 0)
    return Run(first, phases, -(-(out - first) // stride), taps, stride, remainder + (taps - 1) * stride, taps - 1 - whole)


def _paddings(out: Shape, kernel: Shape, stride: tuple[int, int], padding: str) -> tuple[int, int]:
    """Padding at the top and left: that of the convolution which leads from this operator's output back to its input.

    Source: tflite-micro, tensorflow/lite/kernels/padding.h, ComputePaddingHeightWidth; none where that finds no output size.
    """
    totals: list[int] = []
    for size, taps, step in zip(out, kernel, stride):
        reach = size + step - (1 if padding == "same" else taps)
        if reach <= -step:
            return 0, 0
        positions = max(reach, 0) // step
        totals.append(max((positions - 1) * step + taps - size, 0))
    return totals[0] // 2, totals[1] // 2


# Shapes and types


@dataclass(frozen=True)
class _Layout:
    """Sizes; pairs are (height, width)."""

    out: Shape
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def taps(self) -> Iterator[tuple[int, int, tuple[slice, ...], tuple[slice, ...]]]:
        """For each kernel position that meets an output: its row and column, the outputs it adds to, the inputs it reads."""
        rows, columns = (list(self._reaches(number)) for number in range(2))
        for (ky, out_rows, in_rows), (kx, out_columns, in_columns) in product(rows, columns):
            yield ky, kx, (slice(None), out_rows, out_columns), (slice(None), in_rows, in_columns)

    def _reaches(self, number: int) -> Iterator[tuple[int, slice, slice]]:
        size, out, stride = self.size[number], self.out[1 + number], self.stride[number]
        for tap in range(self.kernel[number]):
            offset = tap - self.padding[number]
            first, end = max(0, -(offset // stride)), min(size, (out - 1 - offset) // stride + 1)
            if first < end:
                start = first * stride + offset
                yield tap, slice(start, start + (end - 1 - first) * stride + 1, stride), slice(first, end)


def _layout(site: Site) -> _Layout:
    checks.require_counts(site, (3, 4))
    attributes, data, weights, out = _attributes(site), site.input(2), site.input(1), _out_shape(site)
    for value in (data, weights):
        checks.require_rank(site, value, 4)
    checks.require_elements(site, data, weights)
    channels, *kernel, depth = weights.shape
    if min(attributes.stride) < 1:
        raise site.error(f"the stride {attributes.stride[0]}x{attributes.stride[1]} must be at least 1")
    if attributes.padding not in PADDINGS:
        raise site.error(f"{attributes.padding} is not supported", "supported: same, valid")
    if depth != data.shape[3]:
        raise site.error(f"the input has {data.shape[3]} channels, the weights have {depth}")
    if (out[0], out[3]) != (data.shape[0], channels):
        raise site.error(
            f"the output shape {checks.shape_text(out)} does not fit {data.shape[0]} images and {channels} output channels"
        )
    bias_of(_convolution(site), channels)
    size, pair = (data.shape[1], data.shape[2]), (kernel[0], kernel[1])
    return _Layout(out, size, pair, attributes.stride, _paddings(out[1:3], pair, attributes.stride, attributes.padding))


def _out_shape(site: Site) -> Shape:
    """What the first input says; where it is known at run time only, what the file says of the output."""
    wanted = site.input(0)
    checks.require_dtype(site, wanted, DType.INT32)
    shape = site.output.shape if wanted.data is None else tuple(map(int, wanted.data.reshape(-1)))
    if len(shape) != 4 or min(shape) < 1:
        raise site.error(f"the output shape {checks.shape_text(shape)} is not one of four dimensions of at least 1")
    return shape


def _infer(site: Site) -> tuple[Shape, ...]:
    return (_layout(site).out,)


_TYPES = {
    DType.FLOAT32: (DType.FLOAT32, (DType.FLOAT32,)),
    DType.INT8: (DType.INT8, (DType.INT32,)),
    DType.UINT8: (DType.UINT8, (DType.INT32,)),
    DType.INT16: (DType.INT8, (DType.INT64, DType.INT16)),
}
"""For each type of the activations: that of the weights, those of the bias."""


def _check(site: Site) -> None:
    channels, site = _layout(site).out[3], _convolution(site)
    data, weights, bias = site.input(0), site.input(1), bias_of(site, channels)
    checks.require_dtype(site, data, *_TYPES)
    weights_dtype, bias_dtypes = _TYPES[data.dtype]
    checks.require_dtype(site, weights, weights_dtype)
    if data.dtype.is_integer:
        checks.require_constant(site, weights, "weights")
    checks.require_same_dtype(site, site.output, data)
    if bias is not None:
        checks.require_dtype(site, bias, *bias_dtypes)
        checks.require_constant(site, bias, "bias")
    _ending(site)


def _ending(site: Site) -> Ending:
    """How sums become outputs; `site` has a convolution's inputs."""
    return convolution_ending(site, _attributes(site).activation, 0)


def _compute(
    site: Site, wanted: np.ndarray | None, weights: np.ndarray, data: np.ndarray, bias: np.ndarray | None = None
) -> tuple[np.ndarray]:
    """Sums in float64, which holds every integer sum exactly; one matrix product for each kernel position."""
    layout, ending = _layout(site), _ending(_convolution(site))
    data = data.astype(np.float64) - ending.input_zero_point
    weights = weights.astype(np.float64) - ending.weights_zero_point
    total = np.zeros(layout.out)
    with np.errstate(all="ignore"):
        for ky, kx, written, read in layout.taps():
            total[written] += data[read] @ weights[:, ky, kx].T
    return (ending.finish(total, bias),)


# Lowering


@dataclass(frozen=True)
class _Loops:
    """A run's axes in the iteration space: its steps, and its phases if there are several."""

    run: Run
    step: int
    phase: int | None

    def store(self) -> Affine:
        return affine({self.step: self.run.stride, **self._phase}, self.run.first)

    def input(self, tap: int) -> Affine:
        return affine({self.step: 1, tap: 1}, -self.run.before)

    def kernel(self, tap: int) -> Affine:
        return affine({tap: -self.run.stride, **self._phase}, self.run.kernel)

    def leaves(self, size: int) -> bool:
        """Whether an input position lies outside an input of `size`."""
        return self.run.before > 0 or self.run.steps + self.run.taps - 2 - self.run.before >= size

    @property
    def _phase(self) -> dict[int, int]:
        return {} if self.phase is None else {self.phase: 1}


def _lower(site: Site, lowering: Lowering) -> None:
    layout, site = _layout(site), _convolution(site)
    ending = _ending(site)
    initial = bias_element(site, lowering, layout.out[3], axis(0), ending.sums)
    form = _Form(site, ending, initial, ending.result(lowering, axis(0)))
    each = site.input(0).dtype in _PHASED and max(layout.stride) <= MOST_PHASES >= layout.stride[0] * layout.stride[1]
    axes = zip(layout.out[1:3], layout.kernel, layout.stride, layout.padding)
    for rows, columns in product(*(runs(*sizes, each) for sizes in axes)):
        lowering.append(_primitive(form, layout, rows, columns))


@dataclass(frozen=True)
class _Form:
    """What all runs share; `initial` and `result` have the output channel on axis 0."""

    site: Site
    ending: Ending
    initial: Expr
    result: Expr

    def moved(self, channel: Affine) -> tuple[Expr, Expr]:
        """`initial` and `result` with the output channel on another axis."""
        initial, result = (
            rewrite(expr, lambda node: replace(node, index=(channel,)) if isinstance(node, Load) else None)
            for expr in (self.initial, self.result)
        )
        return initial, result


def _primitive(form: _Form, layout: _Layout, rows: Run, columns: Run) -> Map | Contract:
    """A convolution over the outputs of these runs; outputs that no tap reaches are those of an empty sum."""
    site, ending, (space, loops) = form.site, form.ending, _space(layout, rows, columns)
    channel = axis(len(space) - 1)
    initial, result = form.moved(channel)
    store = (axis(0), loops[0].store(), loops[1].store(), channel)
    if rows.taps == 0 or columns.taps == 0:
        value = rewrite(result, lambda node: initial if isinstance(node, Acc) else None)
        return Map(site.output.name, space, value, store, (site.node.index,))
    return Contract(
        site.output.name,
        space,
        (rows.taps, columns.taps, site.input(0).shape[3]),
        *_operands(site, ending, loops, len(space)),
        ending.input_zero_point,
        ending.weights_zero_point,
        initial,
        result,
        store,
        _geometry(site.input(0), rows, columns, layout.out[3]),
        (site.node.index,),
    )


def _space(layout: _Layout, rows: Run, columns: Run) -> tuple[Shape, tuple[_Loops, _Loops]]:
    """(N, steps, steps, Co), with an axis of phases after the steps of a run that has several."""
    space = [layout.out[0]]
    loops: list[_Loops] = []
    for run in (rows, columns):
        loops.append(_Loops(run, len(space), len(space) + 1 if run.phases > 1 else None))
        space += [run.steps, run.phases] if run.phases > 1 else [run.steps]
    return (*space, layout.out[3]), (loops[0], loops[1])


def _operands(site: Site, ending: Ending, loops: tuple[_Loops, _Loops], rank: int) -> tuple[Load, Load]:
    """The loads of an activation and of a weight; the window's axes are those from `rank` on."""
    data, (rows, columns) = site.input(0), loops
    leaves = rows.leaves(data.shape[1]) or columns.leaves(data.shape[2])
    left = (axis(0), rows.input(rank), columns.input(rank + 1), axis(rank + 2))
    right = (axis(rank - 1), rows.kernel(rank), columns.kernel(rank + 1), axis(rank + 2))
    return load(data, left, fill_of(data, ending.input_zero_point) if leaves else None), load(site.input(1), right)


def _geometry(data: Value, rows: Run, columns: Run, channels: int) -> Geometry | None:
    """Single phases are convolutions, unless they begin behind the first input."""
    if (rows.phases, columns.phases) != (1, 1) or min(rows.before, columns.before) < 0:
        return None
    out = (data.shape[0], rows.steps, columns.steps, channels)
    shape = (data.shape[0], data.shape[1], data.shape[2], data.shape[3])
    return Geometry("conv", shape, out, (rows.taps, columns.taps), pad_top=rows.before, pad_left=columns.before)


OPERATORS = (
    Operator("TRANSPOSE_CONV", "TransposeConvOptions", _read, _infer, _check, _compute, _lower).supports(
        micro("int8, int16x8, float32"),
        litert("uint8"),
        notes="float32 sums in any order: within 2e-6 of the output's largest magnitude.",
    ),
)
