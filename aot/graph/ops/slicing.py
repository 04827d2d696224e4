"""STRIDED_SLICE, SLICE: a part of a value of any type, a `Map` of one load; DYNAMIC_UPDATE_SLICE, which replaces a part.

A begin may be computed at run time where the output's shape does not depend on it: SLICE with a constant
size, STRIDED_SLICE for entries that are shrunk. It is clamped, so that the part lies inside (a negative begin of STRIDED_SLICE
counts from the end first). Then, and for DYNAMIC_UPDATE_SLICE, elements come from `Lookup`.
Sources: tflite-micro, tensorflow/lite/kernels/internal/strided_slice_logic.h and
tensorflow/lite/micro/kernels/strided_slice_common.cc, slice.cc, dynamic_update_slice.cc. Masks for new axes and an ellipsis, and a
begin at run time for STRIDED_SLICE, which TFLite Micro lacks: LiteRT.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aot.graph.expr import Affine, Axis, Binary, Expr, Lookup, Select, add, axis, clamp, fixed, integer, mul, sub
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.movement import append_move, check_movable, constant_integers
from aot.graph.ops.positions import INDICES, both, clamped, clamped_array, element, flat, strides
from aot.graph.primitive import Map
from aot.graph.support import litert, micro

# STRIDED_SLICE

MAX_ENTRIES = 32
"""As many as a mask has bits."""


@dataclass(frozen=True)
class StridedSlice:
    """Bit i of a mask is about entry i of begin, end and strides."""

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    offset: bool = False


def _read_strided_slice(options: Any) -> StridedSlice:
    if options is None:
        return StridedSlice()
    masks = (options.BeginMask(), options.EndMask(), options.EllipsisMask(), options.NewAxisMask(), options.ShrinkAxisMask())
    return StridedSlice(*masks, bool(options.Offset()))


@dataclass(frozen=True)
class Range:
    """`count` positions of one input axis from `start` on, `step` apart; `kept`: the output has this axis.

    `entry`: the start is that entry of the begin, at run time.
    """

    start: int
    step: int
    count: int
    kept: bool = True
    entry: int | None = None

    @property
    def slice(self) -> slice | int:
        end = self.start + self.step * self.count
        return slice(self.start, end if end >= 0 else None, self.step) if self.kept else self.start


def strided_ranges(site: Site) -> tuple[Range | None, ...]:
    """A range for each input axis, in order, with None where the output gets an axis more."""
    a = site.node.attributes
    assert isinstance(a, StridedSlice)
    if a.offset:
        raise site.error("an end that is an offset from the begin is not supported")
    entries = _entries(site)
    shape = site.input(0).shape
    added = sum(_bit(a.new_axis_mask, entry) and not _bit(a.ellipsis_mask, entry) for entry in range(len(entries)))
    ellipses = sum(_bit(a.ellipsis_mask, entry) for entry in range(len(entries)))
    whole = len(shape) - (len(entries) - added - ellipses)
    if ellipses > 1 or whole < 0:
        raise site.error(f"{len(entries)} entries with these masks do not fit an input of {len(shape)} dimensions")
    ranges: list[Range | None] = []
    position = 0
    for number, (begin, end, stride) in enumerate(entries):
        if _bit(a.ellipsis_mask, number):
            ranges += [Range(0, 1, size) for size in shape[position : position + whole]]
            position += whole
        elif _bit(a.new_axis_mask, number):
            ranges.append(None)
        else:
            ranges.append(_range(site, number, begin, end, stride, shape[position]))
            position += 1
    return (*ranges, *(Range(0, 1, size) for size in shape[position:]))


Entry = tuple[int | None, int | None, int]
"""begin, end, stride; None: computed at run time."""


def _entries(site: Site) -> list[Entry]:
    checks.require_counts(site, (4,))
    sizes = [site.input(position).size for position in (1, 2, 3)]
    if len(set(sizes)) != 1:
        raise site.error(f"begin, end and strides have {', '.join(map(str, sizes))} entries")
    if sizes[0] > MAX_ENTRIES:
        raise site.error(f"begin, end and strides have {sizes[0]} entries, more than {MAX_ENTRIES}")
    begin, end = (_numbers(site, position) for position in (1, 2))
    return list(zip(begin, end, constant_integers(site, 3, "strides").reshape(-1).tolist()))


def _numbers(site: Site, position: int) -> list[int] | list[None]:
    value = site.input(position)
    checks.require_dtype(site, value, DType.INT32, DType.INT64)
    return [None] * value.size if value.data is None else value.data.reshape(-1).tolist()


def _range(site: Site, number: int, begin: int | None, end: int | None, stride: int, size: int) -> Range:
    """One axis. A shrunk axis takes the element at `begin` alone, whatever end and stride say."""
    a = site.node.attributes
    assert isinstance(a, StridedSlice)
    if stride == 0:
        raise site.error(f"the stride of entry {number} is 0")
    begin = 0 if _bit(a.begin_mask, number) else begin
    if begin is None and _bit(a.shrink_axis_mask, number) and stride > 0 and size > 0:
        return Range(0, 1, 1, kept=False, entry=number)
    if begin is None:
        raise site.error(f"the begin {checks.describe(site.input(1))} must be constant", "but for entries that are shrunk")
    end = 0 if _bit(a.end_mask | a.shrink_axis_mask, number) else end
    if end is None:
        raise site.error(f"the end {checks.describe(site.input(2))} must be constant", "but for entries that are shrunk")
    first, last = (0, size) if stride > 0 else (-1, size - 1)
    if _bit(a.begin_mask, number):
        start = 0 if stride > 0 else size - 1
    else:
        start = min(max(begin + size if begin < 0 else begin, first), last)
    if _bit(a.shrink_axis_mask, number):
        if not 0 <= start < size or stride < 0:
            raise site.error(f"entry {number} selects element {begin} with stride {stride} of an axis of {size}")
        return Range(start, 1, 1, kept=False)
    far = size if stride > 0 else -1
    stop = far if _bit(a.end_mask, number) else min(max(end + size if end < 0 else end, first), last)
    return Range(start, stride, max(0, -((start - stop) // stride)))


def _bit(mask: int, number: int) -> bool:
    return bool(mask >> number & 1)


def _infer_strided_slice(site: Site) -> tuple[Shape, ...]:
    ranges = strided_ranges(site)
    return (tuple(1 if part is None else part.count for part in ranges if part is None or part.kept),)


def _compute_strided_slice(site: Site, x: np.ndarray, begin: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    parts = (_resolved(part, begin, size) for part, size in _with_sizes(site))
    index = tuple(np.newaxis if part is None else part.slice for part in parts)
    return (np.array(x[index], x.dtype, order="C"),)


def _with_sizes(site: Site) -> list[tuple[Range | None, int]]:
    """Each range with the size of its input axis (0 for a new axis)."""
    sizes = iter(site.input(0).shape)
    return [(part, 0 if part is None else next(sizes)) for part in strided_ranges(site)]


def _resolved(part: Range | None, begin: np.ndarray, size: int) -> Range | None:
    """The range with a start that is computed at run time put in."""
    if part is None or part.entry is None:
        return part
    start = begin.reshape(-1)[part.entry].astype(np.int64)
    return replace(part, start=int(clamped_array(start + size if start < 0 else start, 0, size - 1)))


def _lower_strided_slice(site: Site, lowering: Lowering) -> None:
    ranges = strided_ranges(site)
    index: list[Affine] = []
    out_axis = 0
    for part in ranges:
        if part is not None:
            index.append(axis(out_axis, part.step, part.start) if part.kept else fixed(part.start))
        out_axis += part is None or part.kept
    if all(part is None or part.entry is None for part in ranges):
        append_move(site, lowering, tuple(index))
        return
    places = [
        _linear(line) if part.entry is None else _wrapped(site, part.entry, size)
        for line, (part, size) in zip(index, ((part, size) for part, size in _with_sizes(site) if part is not None))
    ]
    _append_lookup(site, lowering, places)


def _linear(index: Affine) -> Expr:
    """An affine index of at most one axis as an expression."""
    total: Expr | None = None
    for number, coefficient in index.terms:
        total = Axis(number) if coefficient == 1 else mul(Axis(number), integer(coefficient))
    if total is None:
        return integer(index.offset)
    return add(total, integer(index.offset)) if index.offset else total


def _wrapped(site: Site, entry: int, size: int) -> Expr:
    """A begin that is computed at run time: negative ones count from the end."""
    begin = element(site.input(1), entry)
    negative = Binary("lt", begin, integer(0, begin.dtype))
    return clamped(Select(negative, add(begin, integer(size, begin.dtype)), begin), 0, size - 1)


def _append_lookup(site: Site, lowering: Lowering, places: list[Expr]) -> None:
    """out[i] = input 0 at these positions, one for each of its axes."""
    value, out = site.input(0), site.output
    index = flat(zip(places, strides(value.shape)))
    lowering.append(Map(out.name, out.shape, Lookup(value.name, index, value.dtype), nodes=(site.node.index,)))


# SLICE


def _slice_ranges(site: Site) -> tuple[tuple[int | None, int], ...]:
    """(start, size) of each axis; a size of -1 is the rest, a start of None is known at run time."""
    checks.require_counts(site, (3,))
    shape, begin = site.input(0).shape, _numbers(site, 1)
    size = constant_integers(site, 2, "size").reshape(-1).tolist()
    if len(begin) != len(shape) or len(size) != len(shape):
        raise site.error(f"begin and size have {len(begin)} and {len(size)} entries for {len(shape)} dimensions")
    return tuple(_slice_range(site, *entry) for entry in zip(begin, size, shape))


def _slice_range(site: Site, begin: int | None, size: int, whole: int) -> tuple[int | None, int]:
    if begin is None and size == -1:
        raise site.error(f"the begin {checks.describe(site.input(1))} must be constant", "a size of -1 depends on it")
    start = begin or 0
    count = whole - start if size == -1 else size
    if start < 0 or count < 0 or start + count > whole:
        raise site.error(f"elements {start} to {start + count} are not in an axis of {whole}")
    return begin, count


def _infer_slice(site: Site) -> tuple[Shape, ...]:
    return (tuple(count for _, count in _slice_ranges(site)),)


def _compute_slice(site: Site, x: np.ndarray, begin: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    starts = _clamped_starts(begin, x.shape, site.output.shape)
    index = tuple(slice(start, start + count) for start, count in zip(starts, site.output.shape))
    return (np.array(x[index], x.dtype, order="C"),)


def _clamped_starts(begin: np.ndarray, whole: Shape, part: Shape) -> list[int]:
    """Where a part starts, moved so that it lies inside."""
    return [int(clamped_array(start, 0, max(size - count, 0))) for start, size, count in zip(begin.reshape(-1), whole, part)]


def _lower_slice(site: Site, lowering: Lowering) -> None:
    ranges, value = _slice_ranges(site), site.input(0)
    if all(start is not None for start, _ in ranges):
        append_move(site, lowering, tuple(axis(number, 1, start or 0) for number, (start, _) in enumerate(ranges)))
        return
    starts = _starts(site, 1, value.shape, site.output.shape)
    _append_lookup(site, lowering, [add(Axis(number), start) for number, start in enumerate(starts)])


def _starts(site: Site, position: int, whole: Shape, part: Shape) -> list[Expr]:
    """`_clamped_starts` of an input, as expressions; 0 for an axis that the part fills."""
    value = site.input(position)
    return [
        integer(0) if size == count else clamped(element(value, number), 0, size - count)
        for number, (size, count) in enumerate(zip(whole, part))
    ]


# DYNAMIC_UPDATE_SLICE


def _infer_update(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (3,))
    shape, part, starts = (site.input(position).shape for position in range(3))
    if len(part) != len(shape) or any(count > size for count, size in zip(part, shape)):
        raise site.error(f"an update of shape {checks.shape_text(part)} does not fit into {checks.shape_text(shape)}")
    if starts != (len(shape),):
        raise site.error(f"start indices of shape {checks.shape_text(starts)} for {len(shape)} dimensions")
    return (shape,)


def _check_update(site: Site) -> None:
    check_movable(site)
    checks.require_same_dtype(site, site.input(1), site.input(0))
    checks.require_dtype(site, site.input(2), *INDICES)


def _compute_update(site: Site, x: np.ndarray, update: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray]:
    out = x.copy()
    places = _clamped_starts(starts, x.shape, update.shape)
    out[tuple(slice(start, start + count) for start, count in zip(places, update.shape))] = update
    return (out,)


def _lower_update(site: Site, lowering: Lowering) -> None:
    """out[i] = update[i - start] where that lies in the update, else the operand's own element."""
    value, update, out = site.input(0), site.input(1), site.output
    if 0 in update.shape or update.shape == value.shape:
        lowering.append(Map(out.name, out.shape, load(value if 0 in update.shape else update), nodes=(site.node.index,)))
        return
    places: list[Expr] = []
    conditions: list[Expr] = []
    for number, start in enumerate(_starts(site, 2, value.shape, update.shape)):
        size, place = update.shape[number], sub(Axis(number), start)
        if size < value.shape[number]:
            conditions.append(both((Binary("ge", place, integer(0)), Binary("lt", place, integer(size)))))
            place = clamp(place, 0, size - 1)
        places.append(place)
    new = Lookup(update.name, flat(zip(places, strides(update.shape))), update.dtype)
    lowering.append(Map(out.name, out.shape, Select(both(conditions), new, load(value)), nodes=(site.node.index,)))


def _no_options(options: Any) -> None:
    return None


OPERATORS = (
    Operator(
        "STRIDED_SLICE",
        "StridedSliceOptions",
        _read_strided_slice,
        _infer_strided_slice,
        check_movable,
        _compute_strided_slice,
        _lower_strided_slice,
    ).supports(
        micro("bool, int8, int16, int32, float32"),
        litert("uint8, uint16, uint32, int64, uint64"),
        notes="A begin computed at run time is taken where an axis is shrunk; it is clamped.",
    ),
    Operator("SLICE", None, _no_options, _infer_slice, check_movable, _compute_slice, _lower_slice).supports(
        micro("bool, int8, int16, int32, float32"),
        litert("uint8, uint16, uint32, int64, uint64"),
        notes="A begin computed at run time is clamped; the size is constant.",
    ),
    Operator("DYNAMIC_UPDATE_SLICE", None, _no_options, _infer_update, _check_update, _compute_update, _lower_update).supports(
        micro("int8, int16, int32, float32"), litert("bool, uint8, uint16, uint32, int64, uint64"), notes="Positions are clamped."
    ),
)
