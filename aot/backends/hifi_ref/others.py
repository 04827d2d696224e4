"""Pools, elementwise sums and products, softmax by Cadence's NN library.

Enters: a site. Leaves: `Draft`s, or the sentence why the library can't take it, or would not compute TFLite Micro's bytes.
Source of what is said of its arithmetic: nnlib-hifi4 4.1.0, xa_nn_avgpool_8.c, xa_nn_softmax_asym8_asym8.c, xa_nnlib_quant_macros.h.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Literal

import numpy as np

from aot.backends.hifi_ref.contractions import CHANNELS_LAST, MOST_IMAGES, Drafts, clamped, is_hifi5
from aot.backends.hifi_ref.scratch import average_nbytes, maximum_nbytes, softmax_nbytes
from aot.backends.library import Draft
from aot.backends.library.call import Argument, Data, Scratch
from aot.graph import arithmetic
from aot.graph.evaluate import requantise
from aot.graph.ir import DType, Site
from aot.graph.ops import softmax
from aot.graph.ops.binary import QuantisedProduct, QuantisedSum, form_of
from aot.graph.ops.pool import clamp_of, slides_of
from aot.graph.primitive import Geometry
from aot.target import Target

MOST_TAPS = 256
"""Up to so many elements of a window every release multiplies the sum by one reciprocal, which gives the average rounded half away."""
MOST_ROWS = 16
"""The softmax function takes one row: for more the bundle calls it one after another."""
LONGEST_ROW = 512
"""From this length on, TFLite Micro may shift by more bits than an int32 has."""
UNLIKE = {1 << 29: 6, 3 << 29: -2}
"""The fractions of a sum, in Q0.31, for which the library's reciprocal is not gemmlowp's, and by how much it is more: found by trying all
2^31 of them. Its products round halves away from zero, gemmlowp's up. (The exponentials are equal for all 2^31 arguments.)"""
_INT8 = DType.INT8


def draft_average_pool(site: Site, target: Target) -> Drafts:
    refusal = "" if not is_hifi5(target) else _HIFI5_SCRATCH
    rows, columns = slides_of(site)
    if not refusal and rows.kernel * columns.kernel > MOST_TAPS:
        refusal = f"a window of {rows.kernel * columns.kernel} elements: with more than {MOST_TAPS} some releases multiply two reciprocals"
    return refusal or _pool(site, "xa_nn_avgpool_8", average_nbytes)


def draft_max_pool(site: Site, target: Target) -> Drafts:
    return _HIFI5_SCRATCH if is_hifi5(target) else _pool(site, "xa_nn_maxpool_8", maximum_nbytes)


_HIFI5_SCRATCH = "its scratch on a HiFi 5 wants to be aligned to 16 bytes, the workspace's is to 8"


def _pool(site: Site, function: str, scratch: Callable[[Geometry], int]) -> Drafts:
    data, out = site.input(0), site.output
    if data.dtype is not _INT8:
        return _other_dtype(site)
    rows, columns = slides_of(site)
    images, height, width, channels = data.shape
    if images > MOST_IMAGES:
        return f"{images} images: each would be a call, more than {MOST_IMAGES}"
    if rows.kernel > height or columns.kernel > width:
        return "a window larger than the image"
    for slide in (rows, columns):
        if slide.before >= slide.kernel or (slide.out - 1) * slide.stride - slide.before >= slide.size:
            return "a window that lies outside the image"
    geometry = Geometry(
        "depthwise",
        (images, height, width, channels),
        (images, rows.out, columns.out, channels),
        (rows.kernel, columns.kernel),
        (rows.stride, columns.stride),
        pad_top=rows.before,
        pad_left=columns.before,
    )

    def arguments(image: int) -> tuple[Argument, ...]:
        start, end = image * prod(geometry.input[1:]), image * prod(geometry.output[1:])
        return (
            *(Data(out.name, end), Data(data.name, start), height, width, channels, rows.kernel, columns.kernel),
            *(columns.stride, rows.stride, columns.before, rows.before, rows.out, columns.out),
            *(CHANNELS_LAST, CHANNELS_LAST, Scratch()),
        )

    first, *others = (arguments(image) for image in range(images))
    draft = Draft(function, first, (data.name,), (out.name,), scratch(geometry), repeats=tuple(others), scratch_align=8)
    return (draft, *clamped(site, *clamp_of(site)))


def draft_add(site: Site, target: Target) -> Drafts:
    return _elementwise(site, "add")


def draft_sub(site: Site, target: Target) -> Drafts:
    return _elementwise(site, "sub")


def draft_mul(site: Site, target: Target) -> Drafts:
    return _elementwise(site, "mul")


def _elementwise(site: Site, combine: Literal["add", "sub", "mul"]) -> Drafts:
    left, right, out = site.input(0), site.input(1), site.output
    form = form_of(site, combine)
    if not isinstance(form, QuantisedSum | QuantisedProduct) or out.dtype is not _INT8:
        return f"{out.dtype}: the call is for int8"
    if left.size != out.size or right.size != out.size:
        return "inputs of different shapes"
    if out.size == 0:
        return "it has no elements"
    ending, scale = form.ending, form.output
    offsets = (-form.zero_points[0], -form.zero_points[1])
    result = (Data(out.name), ending.zero_point, scale.shift, scale.multiplier, ending.low, ending.high)
    if isinstance(form, QuantisedProduct):
        if 1 << 16 << max(0, scale.shift) > DType.INT32.limits[1]:
            return "a product of it could leave int32 when it is rescaled"
        arguments = (*result, Data(left.name), offsets[0], Data(right.name), offsets[1], out.size)
    else:
        if max(scale.shift, *(each.shift for each in form.inputs)) > 0:
            return "it is rescaled by more than 1, which the library refuses"
        operands = [
            (Data(value.name), offset, each.shift, each.multiplier)
            for value, offset, each in zip((left, right), offsets, form.inputs)
        ]
        arguments = (*result, *operands[0], *operands[1], form.left_shift, out.size)
    reads = tuple(dict.fromkeys((left.name, right.name)))
    return (Draft(f"xa_nn_elm_{combine}_asym8sxasym8s_asym8s", arguments, reads, (out.name,)),)


def draft_softmax(site: Site, target: Target) -> Drafts:
    data, out = site.input(0), site.output
    if (data.dtype, out.dtype) != (_INT8, _INT8):
        return f"{data.dtype} to {out.dtype}: the call is for int8"
    if data.size == 0:
        return "it has no elements"
    length = data.shape[-1]
    rows = data.size // length
    if rows > MOST_ROWS:
        return f"{rows} rows: each would be a call, more than {MOST_ROWS}"
    if length >= LONGEST_ROW:
        return f"rows of {length} elements: from {LONGEST_ROW} on shifts may leave an int32's bits"
    if is_hifi5(target):
        return "the softmax of a HiFi 5 is another, whose rounding has not been proven"
    if not _rounds_alike(site, length):
        return "a sum of its exponentials may have a reciprocal that the library rounds otherwise"
    multiplier, shift, radius = softmax.scaling_of(site)
    runs = tuple(
        (Data(out.name, row * length), Data(data.name, row * length), -radius, shift, multiplier, length, Scratch())
        for row in range(rows)
    )
    return (
        Draft(
            "xa_nn_vec_softmax_asym8s_asym8s",
            runs[0],
            (data.name,),
            (out.name,),
            softmax_nbytes(length),
            repeats=runs[1:],
            scratch_align=8,
        ),
    )


def _rounds_alike(site: Site, length: int) -> bool:
    """Whether every output is the same with the library's reciprocal, where that is not gemmlowp's: for each such sum that a row may have,
    and each exponential."""
    exponential = softmax.exponentials(site, softmax.beta_of(site))
    one = 1 << (31 - softmax.SUM_BITS)
    for fraction, more in UNLIKE.items():
        total = ((1 << 31) + fraction) >> softmax.SUM_BITS
        while total <= length * one:
            zeros = 32 - total.bit_length()
            reciprocal = int(arithmetic.reciprocal_of_one_plus(np.array(fraction)))
            shift = np.array(zeros - (softmax.SUM_BITS + 31 - _INT8.bits))
            results = [requantise(exponential, np.array(each), shift) for each in (reciprocal, reciprocal + more)]
            if (results[0] != results[1]).any():
                return False
            total <<= 1
    return True


def _other_dtype(site: Site) -> str:
    return f"{site.input(0).dtype}: the call is for int8"
