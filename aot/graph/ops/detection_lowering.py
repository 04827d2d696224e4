"""TFLite_Detection_PostProcess as primitives: decode the boxes above the threshold, then take the best one left, turn by turn.

Enters: a site whose operator has checked it. Leaves: Maps, Reduces and Controls. Invariant: the same float operations, in the same
order, as `compute`; only e^x is not the library's (aot/graph/double.py), or comes from a table where boxes are of 8 bits.

State of the loop: `keys` (rows, boxes), an int32 in the order of the scores, NEVER for what is taken, suppressed or below the
threshold; and of each row the largest key and its box. A row is a class (regular), or there is one, of each box's best class (fast).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from aot.graph.double import double, exp, exp_table
from aot.graph.expr import (
    Acc,
    Affine,
    Axis,
    Binary,
    Bitcast,
    Cast,
    Expr,
    Load,
    Lookup,
    Select,
    add,
    axis,
    cast,
    fixed,
    integer,
    mul,
    real,
    sub,
)
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering
from aot.graph.ops.detection_head import BYTES, Head, dequantised, head
from aot.graph.primitive import Control, Map, Reduce

INT32, FLOAT32, FLOAT64 = DType.INT32, DType.FLOAT32, DType.FLOAT64
NEVER = INT32.limits[0]


def lower_detection(site: Site, lowering: Lowering) -> None:
    """Outputs of zeros; then until no box is left: take the best, write its slot, suppress what it overlaps."""
    writer = _Writer(site, lowering, head(site))
    state = _start(writer)
    corners = _decode(writer, state)
    for out in site.outputs:
        writer.map(out, real(0.0))
    writer.control("repeat", count=writer.what.limit)
    taken = _take(writer, state, corners)
    _write(writer, taken)
    _suppress(writer, state, taken, corners)
    writer.control("end")


@dataclass
class _Writer:
    """Appends primitives of one node."""

    site: Site
    lowering: Lowering
    what: Head

    def buffer(self, purpose: str, dtype: DType, shape: Shape) -> Value:
        return Value(self.lowering.temporary(purpose, dtype, shape), dtype, shape)

    def map(self, out: Value, value: Expr, space: Shape | None = None, store: tuple[Affine, ...] = ()) -> Value:
        self.lowering.append(Map(out.name, out.shape if space is None else space, value, store, nodes=(self.site.node.index,)))
        return out

    def reduce(self, out: Value, length: int, combine: str, initial: Expr, term: Expr, result: Expr | None = None) -> Value:
        found = Acc(term.dtype) if result is None else result
        nodes = (self.site.node.index,)
        self.lowering.append(Reduce(out.name, out.shape, (length,), combine, initial, term, found, nodes=nodes))
        return out

    def first(self, out: Value, length: int, condition: Expr) -> Value:
        """The smallest position of the window where `condition` holds; the last one if nowhere."""
        position = Axis(len(out.shape))
        term = Select(condition, position, integer(length - 1))
        return self.reduce(out, length, "min", integer(length - 1), term)

    def control(self, kind: Literal["repeat", "leave", "if", "end"], condition: Value | None = None, count: int = 0) -> None:
        name = None if condition is None else condition.name
        self.lowering.append(Control(kind, name, count, nodes=(self.site.node.index,)))


def _at(value: Value, *index: Affine) -> Load:
    return Load(value.name, index, value.dtype)


def _only(value: Value) -> Load:
    """The element of a buffer of one."""
    return _at(value, *(fixed(0) for _ in value.shape))


def _real(x: Expr, value: Value) -> Expr:
    """The number that an element stands for; see `dequantised`."""
    if value.dtype not in BYTES or value.quantisation is None:
        return x
    return mul(sub(Cast(x, FLOAT32), real(value.quantisation.zero_point)), real(value.quantisation.scale))


# What is left.


@dataclass(frozen=True)
class _State:
    """keys: (rows, boxes). best, box: (rows,), the largest key and the first box that has it. counts: (rows,), what each has given."""

    keys: Value
    best: Value
    box: Value
    counts: Value | None


def _start(writer: _Writer) -> _State:
    what = writer.what
    keys = writer.map(writer.buffer("keys", INT32, (what.rows, what.boxes)), _key(what, _row_score(writer)))
    best, box = (writer.buffer(purpose, INT32, (what.rows,)) for purpose in ("best", "box"))
    writer.reduce(best, what.boxes, "max", integer(NEVER), _at(keys, axis(0), axis(1)))
    writer.first(box, what.boxes, Binary("eq", _at(keys, axis(0), axis(1)), _at(best, axis(0))))
    if what.per_row == what.limit:
        return _State(keys, best, box, None)
    return _State(keys, best, box, writer.map(writer.buffer("counts", INT32, (what.rows,)), integer(0)))


def _row_score(writer: _Writer) -> Expr:
    """The score at axes (row, box)."""
    what, scores = writer.what, writer.site.input(1)
    if what.is_regular:
        return _real(_at(scores, fixed(0), axis(1), axis(0, 1, what.background)), scores)
    most = writer.buffer("most", FLOAT32, (what.boxes,))
    first = _at(scores, fixed(0), axis(0), fixed(what.background))
    each = _at(scores, fixed(0), axis(0), axis(1, 1, what.background))
    writer.reduce(most, what.classes, "max", first, each, _real(Acc(scores.dtype), scores))
    return _at(most, axis(1))


def _key(what: Head, score: Expr) -> Expr:
    return Select(Binary("ge", score, real(what.score_threshold)), _ordered(score), integer(NEVER))


def _ordered(score: Expr) -> Expr:
    """An int32 in the order of scores that are no NaN."""
    bits = Bitcast(add(score, real(0.0)), INT32)  # -0 becomes 0
    return Select(Binary("lt", bits, integer(0)), Binary("xor", bits, integer(INT32.limits[1])), bits)


# Boxes.


def _decode(writer: _Writer, state: _State) -> Value:
    """(boxes, 4): ymin, xmin, ymax, xmax of the boxes that have a score above the threshold. Axis 0 of the Maps: y and x."""
    what = writer.what
    corners = writer.buffer("corners", FLOAT32, (what.boxes, 4))
    turn, used = writer.buffer("box_turn", INT32, (1,)), writer.buffer("used", DType.BOOL, (1,))
    writer.map(turn, integer(0))
    writer.control("repeat", count=what.boxes)
    key = Lookup(state.keys.name, add(mul(Axis(1), integer(what.boxes)), _only(turn)), INT32)
    writer.reduce(used, what.rows, "max", integer(NEVER), key, Binary("ne", Acc(INT32), integer(NEVER)))
    writer.control("if", used)
    _decode_box(writer, turn, writer.lowering.window("corners_of", corners, (4,), 0, (4 * FLOAT32.nbytes,)))
    writer.control("end")
    writer.map(turn, add(_only(turn), integer(1)))
    writer.control("end")
    return corners


def _decode_box(writer: _Writer, turn: Value, corners: Value) -> None:
    anchors = writer.site.input(2)
    place, size = (Cast(_real(_of_box(anchors, turn, first), anchors), FLOAT64) for first in (0, 2))
    centre, half = (writer.buffer(purpose, FLOAT32, (2,)) for purpose in ("centre", "half"))
    writer.map(centre, Cast(add(mul(_quotient(writer, turn), size), place), FLOAT32))
    writer.map(half, Cast(mul(_half_exponential(writer, turn), size), FLOAT32))
    middle, away = (_at(value, axis(0)) for value in (centre, half))
    writer.map(corners, sub(middle, away), (2,), (axis(0),))
    writer.map(corners, add(middle, away), (2,), (axis(0, 1, 2),))


def _of_box(value: Value, turn: Value, first: int) -> Lookup:
    """Element `first` + axis 0 of what a value holds for the turn's box."""
    return Lookup(value.name, add(mul(_only(turn), integer(value.shape[-1])), add(Axis(0), integer(first))), value.dtype)


def _quotient(writer: _Writer, turn: Value) -> Expr:
    """Encoded y and x, divided by their scales."""
    encodings, scales = writer.site.input(0), np.array(writer.what.scales[:2])
    element = _of_box(encodings, turn, 0)
    if encodings.dtype in BYTES:
        return _tabulated(writer, "centre_table", element, _every_byte(encodings) / scales[:, None])
    return Binary("div", Cast(element, FLOAT64), _by_axis(writer, "centre_scale", scales))


def _half_exponential(writer: _Writer, turn: Value) -> Expr:
    """Half of e to the encoded h and w, divided by their scales."""
    encodings, scales = writer.site.input(0), np.array(writer.what.scales[2:])
    element = _of_box(encodings, turn, 2)
    if encodings.dtype in BYTES:
        with np.errstate(over="ignore"):
            return _tabulated(writer, "size_table", element, 0.5 * np.exp(_every_byte(encodings) / scales[:, None]))
    exponent = mul(Cast(element, FLOAT64), _by_axis(writer, "size_scale", 1 / scales))
    return exp(exponent, writer.lowering.constant("powers", exp_table(0.5)))


def _every_byte(value: Value) -> np.ndarray:
    """The numbers that the 256 elements stand for, as float64."""
    low, high = value.dtype.limits
    return dequantised(value, np.arange(low, high + 1)).astype(np.float64)


def _by_axis(writer: _Writer, purpose: str, pair: np.ndarray) -> Expr:
    """A number for y, and one for x."""
    if pair[0] == pair[1]:
        return double(pair[0])
    return Load(writer.lowering.constant(purpose, pair), (axis(0),), FLOAT64)


def _tabulated(writer: _Writer, purpose: str, byte: Expr, answers: np.ndarray) -> Expr:
    """What a table (2, 256) for y and x (axis 0) says for a byte."""
    index = sub(cast(byte, INT32), integer(byte.dtype.limits[0]))
    if (answers[0] == answers[1]).all():
        return Lookup(writer.lowering.constant(purpose, answers[0]), index, FLOAT64)
    return Lookup(writer.lowering.constant(purpose, answers), add(mul(Axis(0), integer(256)), index), FLOAT64)


# A turn of the loop.


@dataclass(frozen=True)
class _Taken:
    """The detection of a turn: buffers of one element, and the box's corners (4,)."""

    row: Value
    box: Value
    corners: Value


def _take(writer: _Writer, state: _State, corners: Value) -> _Taken:
    """The best box that is left; leaves the loop if there is none."""
    rows = writer.what.rows
    top, row, box = (writer.buffer(purpose, INT32, (1,)) for purpose in ("top", "row", "taken"))
    writer.reduce(top, rows, "max", integer(NEVER), _at(state.best, axis(1)))
    _leave_unless(writer, Binary("ne", _only(top), integer(NEVER)))
    writer.first(row, rows, Binary("eq", _at(state.best, axis(1)), _only(top)))
    writer.map(box, Lookup(state.box.name, _only(row), INT32))
    taken = writer.buffer("corner", FLOAT32, (4,))
    writer.map(taken, Lookup(corners.name, add(mul(_only(box), integer(4)), Axis(0)), FLOAT32))
    return _Taken(row, box, taken)


def _leave_unless(writer: _Writer, condition: Expr) -> None:
    writer.control("leave", writer.map(writer.buffer("goes_on", DType.BOOL, (1,)), condition))


def _write(writer: _Writer, taken: _Taken) -> None:
    """The turn's slots of the outputs, and the count; leaves the loop if that was the last one."""
    what, (boxes, classes, scores, number) = writer.what, writer.site.outputs
    size = what.stride * FLOAT32.nbytes
    window = writer.lowering.window
    writer.map(window("boxes_slot", boxes, (what.shown, 4), 0, (4 * size,)), _at(taken.corners, axis(1)))
    shown = taken.row if what.is_regular else _shown(writer, taken)
    which = _at(shown, axis(0))
    writer.map(window("classes_slot", classes, (what.shown,), 0, (size,)), cast(which, FLOAT32))
    writer.map(window("scores_slot", scores, (what.shown,), 0, (size,)), _score(writer, taken, which))
    writer.map(number, add(_only(number), real(1.0)))
    _leave_unless(writer, Binary("lt", _only(number), real(what.limit)))


def _score(writer: _Writer, taken: _Taken, which: Expr) -> Expr:
    """The taken box's score for a class."""
    what, scores = writer.what, writer.site.input(1)
    place = add(mul(_only(taken.box), integer(what.predictions)), add(which, integer(what.background)))
    return _real(Lookup(scores.name, place, scores.dtype), scores)


def _shown(writer: _Writer, taken: _Taken) -> Value:
    """(shown,): the taken box's best classes, by their rank: how many come before."""
    what, length = writer.what, writer.what.classes
    score = _score(writer, taken, Axis(0))
    number = Select(Binary("eq", score, score), _ordered(score), integer(NEVER))
    keys = writer.map(writer.buffer("class_keys", INT32, (length,)), number)
    shown = writer.buffer("shown", INT32, (what.shown,))
    ours, theirs = _at(keys, axis(0)), _at(keys, axis(1))
    if what.shown == 1:
        most = writer.reduce(writer.buffer("most_key", INT32, (1,)), length, "max", integer(NEVER), theirs)
        return writer.first(shown, length, Binary("eq", theirs, _only(most)))
    before = Select(Binary("lt", Axis(1), Axis(0)), Binary("ge", theirs, ours), Binary("gt", theirs, ours))
    ranks = writer.reduce(writer.buffer("ranks", INT32, (length,)), length, "add", integer(0), cast(before, INT32))
    return writer.first(shown, length, Binary("eq", _at(ranks, axis(1)), Axis(0)))


def _suppress(writer: _Writer, state: _State, taken: _Taken, corners: Value) -> None:
    """What the taken box overlaps goes from its row. Only a loop over the rows can write into a row that is known at run time."""
    if writer.what.rows == 1:
        _suppress_row(writer, state, taken, corners)
        return
    turn, here = writer.buffer("turn", INT32, (1,)), writer.buffer("here", DType.BOOL, (1,))
    writer.map(turn, integer(0))
    writer.control("repeat", count=writer.what.rows)
    writer.map(here, Binary("eq", _only(turn), _only(taken.row)))
    writer.map(turn, add(_only(turn), integer(1)))
    writer.control("if", here)
    _suppress_row(writer, state, taken, corners)
    writer.control("end")
    writer.control("end")


def _suppress_row(writer: _Writer, state: _State, taken: _Taken, corners: Value) -> None:
    what, window = writer.what, writer.lowering.window

    def part(purpose: str, base: Value, length: int) -> Value:
        return window(purpose, base, (length,), 0, (0, length * INT32.nbytes) if what.rows > 1 else ())

    keys, best, box = part("row_keys", state.keys, what.boxes), part("row_best", state.best, 1), part("row_box", state.box, 1)
    gone = Binary("eq", Axis(0), _only(taken.box))
    gone = Binary("or", gone, Binary("gt", _overlap(taken.corners, corners), real(what.overlap_threshold)))
    if state.counts is not None:
        count = part("row_count", state.counts, 1)
        writer.map(count, add(_only(count), integer(1)))
        gone = Binary("or", gone, Binary("ge", _only(count), integer(what.per_row)))
    writer.map(keys, Select(gone, integer(NEVER), _at(keys, axis(0))))
    writer.reduce(best, what.boxes, "max", integer(NEVER), _at(keys, axis(1)))
    writer.first(box, what.boxes, Binary("eq", _at(keys, axis(1)), _only(best)))


def _overlap(taken: Value, corners: Value) -> Expr:
    """Intersection over union of the taken box with that of axis 0. `min` and `max` take sides as the reference's with a NaN."""
    ours = [_at(taken, fixed(side)) for side in range(4)]
    theirs = [_at(corners, axis(0), fixed(side)) for side in range(4)]
    area, areas = (mul(sub(c[2], c[0]), sub(c[3], c[1])) for c in (ours, theirs))
    low = [Binary("max", ours[side], theirs[side]) for side in (0, 1)]
    high = [Binary("min", theirs[side], ours[side]) for side in (2, 3)]
    height, width = (Binary("max", sub(b, a), real(0.0)) for a, b in zip(low, high))
    common = mul(height, width)
    none = Binary("or", Binary("le", area, real(0.0)), Binary("le", areas, real(0.0)))
    return Select(none, real(0.0), Binary("div", common, sub(add(area, areas), common)))
