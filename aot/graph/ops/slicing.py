"""STRIDED_SLICE, SLICE, SPLIT, UNPACK: parts of a value, each a `Map` of one load with an affine index.

Sources: tflite-micro, tensorflow/lite/kernels/internal/strided_slice_logic.h and
tensorflow/lite/micro/kernels/strided_slice_common.cc, slice.cc, split.cc, unpack.cc. Masks for new axes and an ellipsis, which
TFLite Micro lacks: LiteRT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.graph.expr import Affine, axis, fixed
from aot.graph.ir import Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.movement import MOVABLE, append_move, check_movable, constant_integers
from aot.graph.primitive import Map

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


def _read_strided_slice(options) -> StridedSlice:
    if options is None:
        return StridedSlice()
    masks = (options.BeginMask(), options.EndMask(), options.EllipsisMask(), options.NewAxisMask(), options.ShrinkAxisMask())
    return StridedSlice(*masks, bool(options.Offset()))


@dataclass(frozen=True)
class Range:
    """`count` positions of one input axis from `start` on, `step` apart; `kept`: the output has this axis."""

    start: int
    step: int
    count: int
    kept: bool = True

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


def _entries(site: Site) -> list[tuple[int, int, int]]:
    """(begin, end, stride) of each entry."""
    checks.require_counts(site, (4,))
    columns = [constant_integers(site, position, what).reshape(-1) for position, what in ((1, "begin"), (2, "end"), (3, "strides"))]
    if len({column.size for column in columns}) != 1:
        raise site.error(f"begin, end and strides have {', '.join(str(column.size) for column in columns)} entries")
    if columns[0].size > MAX_ENTRIES:
        raise site.error(f"begin, end and strides have {columns[0].size} entries, more than {MAX_ENTRIES}")
    return list(zip(*(column.tolist() for column in columns)))


def _range(site: Site, number: int, begin: int, end: int, stride: int, size: int) -> Range:
    """One axis. A shrunk axis takes the element at `begin` alone, whatever end and stride say."""
    a = site.node.attributes
    assert isinstance(a, StridedSlice)
    if stride == 0:
        raise site.error(f"the stride of entry {number} is 0")
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


def _compute_strided_slice(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    index = tuple(np.newaxis if part is None else part.slice for part in strided_ranges(site))
    return (np.array(x[index], x.dtype, order="C"),)


def _lower_strided_slice(site: Site, lowering: Lowering) -> None:
    index: list[Affine] = []
    out_axis = 0
    for part in strided_ranges(site):
        if part is not None:
            index.append(axis(out_axis, part.step, part.start) if part.kept else fixed(part.start))
        out_axis += part is None or part.kept
    append_move(site, lowering, tuple(index))


# SLICE


def _slice_ranges(site: Site) -> tuple[tuple[int, int], ...]:
    """(start, size) of each axis; a size of -1 is the rest."""
    checks.require_counts(site, (3,))
    shape = site.input(0).shape
    begin, size = (constant_integers(site, position, what).reshape(-1) for position, what in ((1, "begin"), (2, "size")))
    if begin.size != len(shape) or size.size != len(shape):
        raise site.error(f"begin and size have {begin.size} and {size.size} entries for {len(shape)} dimensions")
    ranges = tuple((b, whole - b if s == -1 else s) for b, s, whole in zip(begin.tolist(), size.tolist(), shape))
    for (start, count), whole in zip(ranges, shape):
        if start < 0 or count < 0 or start + count > whole:
            raise site.error(f"elements {start} to {start + count} are not in an axis of {whole}")
    return ranges


def _infer_slice(site: Site) -> tuple[Shape, ...]:
    return (tuple(count for _, count in _slice_ranges(site)),)


def _compute_slice(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    return (
        np.ascontiguousarray(x[tuple(slice(start, start + count) for start, count in _slice_ranges(site))]).reshape(
            _infer_slice(site)[0]
        ),
    )


def _lower_slice(site: Site, lowering: Lowering) -> None:
    append_move(site, lowering, tuple(axis(number, 1, start) for number, (start, _) in enumerate(_slice_ranges(site))))


# SPLIT and UNPACK: several outputs


@dataclass(frozen=True)
class Split:
    """`count` equal parts."""

    count: int = 0


@dataclass(frozen=True)
class Unpack:
    count: int = 0
    axis: int = 0


def _read_split(options) -> Split:
    return Split() if options is None else Split(options.NumSplits())


def _read_unpack(options) -> Unpack:
    return Unpack() if options is None else Unpack(options.Num(), options.Axis())


def _axis_of(site: Site, value: Value, number: int) -> int:
    rank = len(value.shape)
    if not -rank <= number < rank:
        raise site.error(f"axis {number} is outside the {rank} dimensions of {checks.describe(value)}")
    return number % rank


def _split_parts(site: Site) -> tuple[Value, int, int]:
    """The value that is split, the axis, and the size of each part."""
    checks.require_counts(site, (2,), len(site.outputs))
    assert isinstance(site.node.attributes, Split)
    position, count = constant_integers(site, 0, "axis"), site.node.attributes.count
    if position.size != 1:
        raise site.error(f"the axis has {position.size} elements, not one")
    value = site.input(1)
    number = _axis_of(site, value, int(position.reshape(-1)[0]))
    if count != len(site.outputs) or count < 1 or value.shape[number] % count:
        raise site.error(f"an axis of {value.shape[number]} does not split into {count} parts for {len(site.outputs)} outputs")
    return value, number, value.shape[number] // count


def _infer_split(site: Site) -> tuple[Shape, ...]:
    value, number, size = _split_parts(site)
    return ((*value.shape[:number], size, *value.shape[number + 1 :]),) * len(site.outputs)


def _compute_split(site: Site, _: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.ascontiguousarray(part) for part in np.split(x, len(site.outputs), _split_parts(site)[1]))


def _lower_split(site: Site, lowering: Lowering) -> None:
    value, number, size = _split_parts(site)
    for position, out in enumerate(site.outputs):
        index = tuple(axis(k, 1, position * size if k == number else 0) for k in range(len(value.shape)))
        lowering.append(Map(out.name, out.shape, load(value, index), nodes=(site.node.index,)))


def _unpack_axis(site: Site) -> int:
    checks.require_counts(site, (1,), len(site.outputs))
    a, value = site.node.attributes, site.input(0)
    assert isinstance(a, Unpack)
    number = _axis_of(site, value, a.axis)
    if not a.count == len(site.outputs) == value.shape[number]:
        raise site.error(f"an axis of {value.shape[number]} does not unpack into {a.count} parts for {len(site.outputs)} outputs")
    return number


def _infer_unpack(site: Site) -> tuple[Shape, ...]:
    number, shape = _unpack_axis(site), site.input(0).shape
    return ((*shape[:number], *shape[number + 1 :]),) * len(site.outputs)


def _compute_unpack(site: Site, x: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.array(part, x.dtype) for part in np.moveaxis(x, _unpack_axis(site), 0))


def _lower_unpack(site: Site, lowering: Lowering) -> None:
    number, value = _unpack_axis(site), site.input(0)
    for position, out in enumerate(site.outputs):
        rest = iter(range(len(out.shape)))
        index = tuple(fixed(position) if k == number else axis(next(rest)) for k in range(len(value.shape)))
        lowering.append(Map(out.name, out.shape, load(value, index), nodes=(site.node.index,)))


def _check_parts(site: Site) -> None:
    value = site.input(1 if site.node.op == "SPLIT" else 0)
    checks.require_dtype(site, value, *MOVABLE)
    for out in site.outputs:
        checks.require_same_dtype(site, out, value)


def _no_options(options) -> None:
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
    ),
    Operator("SLICE", None, _no_options, _infer_slice, check_movable, _compute_slice, _lower_slice),
    Operator("SPLIT", "SplitOptions", _read_split, _infer_split, _check_parts, _compute_split, _lower_split),
    Operator("UNPACK", "UnpackOptions", _read_unpack, _infer_unpack, _check_parts, _compute_unpack, _lower_unpack),
)
