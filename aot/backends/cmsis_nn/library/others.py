"""Pools, elementwise sums and products, softmax by CMSIS-NN.

Enters: a site. Leaves: a `Draft`, or the sentence why the library can't take it, or would not compute TFLite Micro's bytes.
"""

from __future__ import annotations

from typing import Literal

from aot.backends.cmsis_nn.library.facts import average_scratch, core_of
from aot.backends.library.call import Constant, Data, Draft, Record, Scratch, Words
from aot.graph.ir import DType, Site
from aot.graph.ops import softmax, softmax16
from aot.graph.ops.binary import QuantisedProduct, QuantisedSum, form_of
from aot.graph.ops.pool import clamp_of, slides_of
from aot.target import Target

LONGEST_ROW = 512
"""From this length on, the library shifts by more bits than an int32 has where the row's largest element stands many times."""
LONGEST_ROW16 = 8
"""With more elements a sum of exponentials may have 18 leading ones: it is rounded to a position that wraps in the library's int16."""
_INT8 = DType.INT8
_SUFFIX = {DType.INT8: "s8", DType.INT16: "s16"}


def draft_average_pool(site: Site, target: Target) -> Draft | str:
    return _pool(site, "arm_avgpool_s8", average_scratch(site.input(0).shape[3], core_of(target)))


def draft_max_pool(site: Site, target: Target) -> Draft | str:
    return _pool(site, "arm_max_pool_s8", 0)


def _pool(site: Site, function: str, scratch_nbytes: int) -> Draft | str:
    data, out = site.input(0), site.output
    if data.dtype is not _INT8:
        return _other_dtype(site)
    rows, columns = slides_of(site)
    if data.shape[0] != 1:
        return f"{data.shape[0]} images: CMSIS-NN's pools take one before 6.0.0"
    for slide in (rows, columns):
        if slide.before >= slide.kernel or (slide.out - 1) * slide.stride - slide.before >= slide.size:
            return "a window that lies outside the image"
    pairs = ((columns.stride, rows.stride), (columns.before, rows.before))
    arguments = (
        Record((Scratch() if scratch_nbytes else None, scratch_nbytes)),
        Words((*pairs[0], *pairs[1], *clamp_of(site))),
        *(Words(data.shape), Data(data.name), Words((1, rows.kernel, columns.kernel, 1)), Words(out.shape), Data(out.name)),
    )
    return Draft(function, arguments, (data.name,), (out.name,), scratch_nbytes)


def draft_add(site: Site, target: Target) -> Draft | str:
    return _elementwise(site, "add")


def draft_mul(site: Site, target: Target) -> Draft | str:
    return _elementwise(site, "mul")


def _elementwise(site: Site, combine: Literal["add", "mul"]) -> Draft | str:
    left, right, out = site.input(0), site.input(1), site.output
    form = form_of(site, combine)
    if not isinstance(form, QuantisedSum | QuantisedProduct) or out.dtype not in _SUFFIX:
        return f"{out.dtype}: the calls are for int8 and int16"
    if left.size != out.size or right.size != out.size:
        return "inputs of different shapes"
    if out.size == 0:
        return "it has no elements"
    ending, scale = form.ending, form.output
    if out.dtype is DType.INT16 and (any(form.zero_points) or ending.zero_point):
        return "int16 with a zero point that is not 0"
    offsets = (-form.zero_points[0], -form.zero_points[1])
    end = (ending.zero_point, scale.multiplier, scale.shift, ending.low, ending.high, out.size)
    data = (Data(left.name), Data(right.name))
    if isinstance(form, QuantisedProduct):
        most = 1 << 16 if out.dtype is _INT8 else 1 << 30
        if most << max(0, scale.shift) > DType.INT32.limits[1]:
            return "a product of it could leave int32 when it is rescaled"
        arguments = (*data, *offsets, Data(out.name), *end)
    else:
        terms = [(offset, each.multiplier, each.shift) for offset, each in zip(offsets, form.inputs)]
        arguments = (*data, *terms[0], *terms[1], form.left_shift, Data(out.name), *end)
    reads = tuple(dict.fromkeys((left.name, right.name)))
    return Draft(f"arm_elementwise_{combine}_{_SUFFIX[out.dtype]}", arguments, reads, (out.name,))


def draft_softmax(site: Site, target: Target) -> Draft | str:
    data, out = site.input(0), site.output
    pair = (data.dtype, out.dtype)
    if pair == (DType.INT16, DType.INT16):
        return _softmax16(site)
    if data.dtype is not _INT8:
        return _other_dtype(site)
    length = data.shape[-1]
    if length >= LONGEST_ROW:
        return f"rows of {length} elements: from {LONGEST_ROW} on the library's shifts may leave an int32's bits"
    if data.size == 0:
        return "it has no elements"
    multiplier, shift, radius = softmax.scaling_of(site)
    function = "arm_softmax_s8" if out.dtype is _INT8 else "arm_softmax_s8_s16"
    arguments = (Data(data.name), data.size // length, length, multiplier, shift, -radius, Data(out.name))
    return Draft(function, arguments, (data.name,), (out.name,), checked=False)


def _softmax16(site: Site) -> Draft | str:
    data, out = site.input(0), site.output
    multiplier, shift = softmax16.scaling_of(site, softmax.beta_of(site))
    if 65535 << max(0, shift) > DType.INT32.limits[1]:
        return "a difference of it could leave int32 when it is rescaled"
    length = data.shape[-1]
    if length > LONGEST_ROW16:
        return f"int16 rows of {length} elements: with more than {LONGEST_ROW16} the library's reciprocal may wrap where TFLite Micro's saturates"
    if data.size == 0:
        return "it has no elements"
    tables = (Constant("exponentials", softmax16.exponentials()), Constant("reciprocals", softmax16.reciprocals()))
    arguments = (Data(data.name), data.size // length, length, multiplier, shift, Record(tables), Data(out.name))
    return Draft("arm_softmax_s16", arguments, (data.name,), (out.name,))


def _other_dtype(site: Site) -> str:
    return f"{site.input(0).dtype}: the call is for int8"
