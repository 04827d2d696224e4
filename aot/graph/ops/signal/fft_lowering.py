# pyright: basic
"""FFTs as primitives: `fft.real_fft` and `fft.inverse_real_fft` as Maps, a few for each stage.

Enters: a site, its Lowering, a Plan. Leaves: Maps. Each stage multiplies by twiddles in one Map (not the innermost of an integer
transform, where they are all 1), then adds in one Map for each part of each output of its butterfly; what divides a stage's input
is done where it was made.
Invariant: a product by kissfft's 1.0, which is just below 1, changes no number within half the type's range; divided ones are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from aot.graph.expr import Affine, Binary, Const, Expr, IndexMap, affine, axis, fixed, mul, real
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering
from aot.graph.ops.signal.butterfly import (
    butterfly,
    from_spectrum,
    from_spectrum_ends,
    halved,
    mirrored,
    spectrum_ends,
    to_spectrum,
)
from aot.graph.ops.signal.fft import Plan, Stage
from aot.graph.ops.signal.fixed import Expressions, Pair, divide
from aot.graph.primitive import Map


@dataclass(frozen=True)
class _Rows:
    """Appends Maps over the rows of a signal: `outer` are its other dimensions, the first axes of every Map."""

    site: Site
    lowering: Lowering
    plan: Plan

    @property
    def outer(self) -> Shape:
        return self.site.input(0).shape[:-1]

    @property
    def rank(self) -> int:
        return len(self.outer)

    @property
    def algebra(self) -> Expressions:
        return Expressions(self.plan.dtype)

    def at(self, *index: IndexMap) -> tuple[IndexMap, ...]:
        """An index in this row."""
        return (*(axis(number) for number in range(self.rank)), *index)

    def own(self, coefficients: tuple[int, ...], offset: int = 0) -> Affine:
        """An index that is a sum over the axes after the rows."""
        return affine({self.rank + number: coefficient for number, coefficient in enumerate(coefficients)}, offset)

    def temporary(self, purpose: str, *shape: int) -> str:
        return self.lowering.temporary(purpose, self.plan.dtype, (*self.outer, *shape))

    def append(self, out: str, space: Shape, value: Expr, *store: IndexMap) -> None:
        stored = self.algebra.stored(value)
        self.lowering.append(Map(out, (*self.outer, *space), stored, self.at(*store), nodes=(self.site.node.index,)))

    def pair(self, buffer: str, *index: IndexMap) -> Pair[Expr]:
        """A complex number of a buffer whose last axis is real and imaginary part."""
        return self.algebra.load(buffer, self.at(*index, fixed(0))), self.algebra.load(buffer, self.at(*index, fixed(1)))


def lower_real_fft(site: Site, lowering: Lowering, plan: Plan) -> None:
    rows = _Rows(site, lowering, plan)
    short = site.input(0).shape[-1] < 2 * plan.n

    def source(place: Affine) -> Expr:
        return rows.algebra.load(site.input(0).name, rows.at(place), fill=short)

    spectrum = rows.temporary("transform", plan.n, 2)
    _transform(rows, _gathered(rows, source), spectrum)
    _to_spectrum(rows, spectrum)


def lower_inverse_real_fft(site: Site, lowering: Lowering, plan: Plan) -> None:
    rows = _Rows(site, lowering, plan)
    pairs = _from_spectrum(rows)

    def source(place: Affine) -> Expr:
        return rows.algebra.load(pairs, rows.at(place))

    _transform(rows, _gathered(rows, source), None)


def _gathered(rows: _Rows, source) -> str:
    """The numbers in the order in which the first stage wants them, divided for it. `source`: part c of number k is at 2 * k + c."""
    plan, stages = rows.plan, rows.plan.stages
    out = rows.temporary("gathered", plan.n, 2)
    part = rows.rank + len(stages)
    place = rows.own((*(2 * stage.groups for stage in stages), 1))
    value = divide(rows.algebra, source(place), stages[-1].radix)
    space = (*(stage.radix for stage in stages), 2)
    rows.append(out, space, value, rows.own(tuple(stage.length for stage in stages)), axis(part))
    return out


def _transform(rows: _Rows, current: str, spectrum: str | None) -> None:
    """All stages, from gathered numbers into `spectrum`, or (None) as a signal into the output."""
    stages = tuple(reversed(rows.plan.stages))
    for number, stage in enumerate(stages):
        following = stages[number + 1] if number + 1 < len(stages) else None
        if following is None:
            _stage(rows, stage, current, spectrum, None)
        else:
            target = rows.temporary("stage", rows.plan.n, 2)
            _stage(rows, stage, current, target, following)
            current = target


def _stage(rows: _Rows, stage: Stage, current: str, target: str | None, following: Stage | None) -> None:
    """One stage; `target` None: the output, where numbers stand interleaved."""
    algebra, points = rows.algebra, list(_points(rows, stage, current))
    outs = butterfly(algebra, points, rows.plan.roots(stage.radix), rows.plan.inverse)
    for number, part in product(range(stage.radix), (0, 1)):
        value = outs[number][part]
        coefficients = stage.radix * stage.length, 1
        offset, space = number * stage.length, (stage.groups, stage.length)
        if target is None:
            doubled = rows.own((2 * coefficients[0], 2), 2 * offset + part)
            rows.append(rows.site.output.name, space, _scaled(rows.plan, value), doubled)
        else:
            value = value if following is None else divide(algebra, value, following.radix)
            rows.append(target, space, value, rows.own(coefficients, offset), fixed(part))


def _points(rows: _Rows, stage: Stage, current: str) -> Iterator[Pair[Expr]]:
    """What the butterfly adds, over (groups, length): the first as it stands, the others turned."""
    whole = (stage.radix * stage.length, 1)
    yield rows.pair(current, rows.own(whole))
    if stage.length == 1 and rows.plan.dtype is not DType.FLOAT32:
        for number in range(1, stage.radix):
            yield rows.pair(current, rows.own(whole, number * stage.length))
        return
    buffer = _turned(rows, stage, current)
    for number in range(1, stage.radix):
        yield rows.pair(buffer, axis(rows.rank), fixed(number - 1), axis(rows.rank + 1))


def _turned(rows: _Rows, stage: Stage, current: str) -> str:
    """(groups, radix - 1, length, 2): the numbers that twiddles multiply, multiplied."""
    rank, shape = rows.rank, (stage.groups, stage.radix - 1, stage.length, 2)
    buffer, turns = rows.temporary("turned", *shape), rows.lowering.constant("twiddles", rows.plan.turns(stage))
    place = rows.own((stage.radix * stage.length, stage.length, 1), stage.length)
    matrix = [rows.algebra.load(turns, (axis(rank + 1), axis(rank + 2), axis(rank + 3), fixed(part))) for part in (0, 1)]
    value = rows.algebra.turn(rows.pair(current, place), (matrix[0], matrix[1]))
    rows.append(buffer, shape, value, *(axis(rank + number) for number in range(4)))
    return buffer


def _scaled(plan: Plan, value: Expr) -> Expr:
    """A float signal is divided by its length."""
    length = 2 * plan.n
    if plan.dtype is not DType.FLOAT32:
        return value
    is_power = length & (length - 1) == 0
    return mul(value, real(1 / length)) if is_power else Binary("div", value, real(length))


def _to_spectrum(rows: _Rows, transform: str) -> None:
    """The real signal's spectrum, into the output: bins 0 and n, then k and n - k together."""
    algebra, n, out = rows.algebra, rows.plan.n, rows.site.output.name
    first, last = spectrum_ends(algebra, rows.pair(transform, fixed(0)))
    rows.append(out, (1,), first, fixed(0))
    rows.append(out, (1,), last, fixed(2 * n))
    rows.append(out, (2,), Const(0, rows.plan.dtype), rows.own((2 * n,), 1))

    def number(sign: int, start: int) -> Pair[Expr]:
        return rows.pair(transform, rows.own((sign,), start))

    at_low, at_high = to_spectrum(algebra, *_apart(rows, number(1, 1), number(-1, n - 1)))
    for part in (0, 1):
        if (n - 1) // 2:
            rows.append(out, ((n - 1) // 2,), at_low[part], rows.own((2,), 2 + part))
        rows.append(out, (n // 2,), at_high[part], rows.own((-2,), 2 * n - 2 + part))


def _from_spectrum(rows: _Rows) -> str:
    """(2 * n): the numbers whose complex transform is the signal, interleaved."""
    algebra, n, source = rows.algebra, rows.plan.n, rows.site.input(0).name
    out = rows.temporary("pairs", 2 * n)

    def bin_at(sign: int, start: int) -> Pair[Expr]:
        real_part, imaginary = (algebra.load(source, rows.at(rows.own((2 * sign,), 2 * start + part))) for part in (0, 1))
        return real_part, imaginary

    ends = from_spectrum_ends(algebra, bin_at(0, 0)[0], bin_at(0, n)[0])
    at_low, at_high = from_spectrum(algebra, *_apart(rows, bin_at(1, 1), bin_at(-1, n - 1)))
    for part in (0, 1):
        rows.append(out, (1,), ends[part], fixed(part))
        if (n - 1) // 2:
            rows.append(out, ((n - 1) // 2,), at_low[part], rows.own((2,), 2 + part))
        rows.append(out, (n // 2,), at_high[part], rows.own((-2,), 2 * n - 2 + part))
    return out


def _apart(rows: _Rows, low: Pair[Expr], high: Pair[Expr]) -> list[Pair[Expr]]:
    """Over k - 1 for bins k = 1 to n // 2: halves of number k and of the conjugate of n - k; their difference, turned. In buffers."""
    algebra, count = rows.algebra, rows.plan.n // 2
    near, far, moved = (rows.temporary(purpose, count, 2) for purpose in ("near", "far", "moved"))
    for buffer, pair in ((near, halved(algebra, low)), (far, mirrored(algebra, high))):
        for part in (0, 1):
            rows.append(buffer, (count,), pair[part], axis(rows.rank), fixed(part))
    here, part = axis(rows.rank), axis(rows.rank + 1)
    turns = rows.lowering.constant("real_twiddles", rows.plan.real_turns)
    row = [algebra.load(turns, (here, part, fixed(number))) for number in (0, 1)]
    difference = [algebra.sub(a, b) for a, b in zip(rows.pair(near, here), rows.pair(far, here), strict=True)]
    rows.append(moved, (count, 2), algebra.turn((difference[0], difference[1]), (row[0], row[1])), here, part)
    return [rows.pair(buffer, here) for buffer in (near, far, moved)]
