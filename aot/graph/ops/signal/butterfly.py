"""Butterflies of the mixed-radix FFT and the steps between a real signal's spectrum and a complex transform of half its length.

Enters: complex numbers of an `Algebra`. Leaves: complex numbers. Invariant: each float operation and each rounding stands in the order in
which kissfft does it; sums are wrapped only where a later step depends on it.
Source: kissfft v130, kiss_fft.c and tools/kiss_fftr.c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aot.graph.ops.signal.fixed import Algebra, Number, Pair, divide

RADICES = (2, 3, 4, 5)


def butterfly(
    algebra: Algebra[Number], points: Sequence[Pair[Number]], roots: Sequence[tuple[float, float]], inverse: bool
) -> list[Pair[Number]]:
    """The small transform of `points`, which have been divided by their count and turned already.

    `roots`: the first and second root of unity of this radix, conjugate for the inverse (needed by radix 3 and 5).
    """
    match len(points):
        case 2:
            return [_each(algebra.add, *points), _each(algebra.sub, *points)]
        case 3:
            return _three(algebra, points, roots)
        case 4:
            return _four(algebra, points, inverse)
        case _:
            return _five(algebra, points, roots)


def _each(operation: Callable[[Number, Number], Number], a: Pair[Number], b: Pair[Number]) -> Pair[Number]:
    return operation(a[0], b[0]), operation(a[1], b[1])


def _three(algebra: Algebra[Number], points: Sequence[Pair[Number]], roots: Sequence[tuple[float, float]]) -> list[Pair[Number]]:
    total, difference = _each(algebra.add, *points[1:]), _each(algebra.sub, *points[1:])
    base = [algebra.sub(part, algebra.half(algebra.wrap(both))) for part, both in zip(points[0], total, strict=True)]
    height = roots[0][1]
    across = [algebra.scale(part, height) for part in difference]
    return [
        _each(algebra.add, points[0], total),
        (algebra.sub(base[0], across[1]), algebra.add(base[1], across[0])),
        (algebra.add(base[0], across[1]), algebra.sub(base[1], across[0])),
    ]


def _four(algebra: Algebra[Number], points: Sequence[Pair[Number]], inverse: bool) -> list[Pair[Number]]:
    even, odd = _each(algebra.add, points[0], points[2]), _each(algebra.sub, points[0], points[2])
    total, difference = _each(algebra.add, points[1], points[3]), _each(algebra.sub, points[1], points[3])
    below = (algebra.add(odd[0], difference[1]), algebra.sub(odd[1], difference[0]))
    above = (algebra.sub(odd[0], difference[1]), algebra.add(odd[1], difference[0]))
    first, third = (above, below) if inverse else (below, above)
    return [_each(algebra.add, even, total), first, _each(algebra.sub, even, total), third]


def _five(algebra: Algebra[Number], points: Sequence[Pair[Number]], roots: Sequence[tuple[float, float]]) -> list[Pair[Number]]:
    outer, inner = _each(algebra.add, points[1], points[4]), _each(algebra.add, points[2], points[3])
    outer_gap, inner_gap = _each(algebra.sub, points[1], points[4]), _each(algebra.sub, points[2], points[3])

    def base(a: float, b: float) -> Pair[Number]:
        parts = [
            algebra.add(algebra.add(start, algebra.scale(x, a)), algebra.scale(y, b))
            for start, x, y in zip(points[0], outer, inner, strict=True)
        ]
        return parts[0], parts[1]

    (a_real, a_imaginary), (b_real, b_imaginary) = roots
    near, far = base(a_real, b_real), base(b_real, a_real)
    near_gap = (
        algebra.add(algebra.scale(outer_gap[1], a_imaginary), algebra.scale(inner_gap[1], b_imaginary)),
        algebra.sub(algebra.negative(algebra.scale(outer_gap[0], a_imaginary)), algebra.scale(inner_gap[0], b_imaginary)),
    )
    far_gap = (
        algebra.add(algebra.negative(algebra.scale(outer_gap[1], b_imaginary)), algebra.scale(inner_gap[1], a_imaginary)),
        algebra.sub(algebra.scale(outer_gap[0], b_imaginary), algebra.scale(inner_gap[0], a_imaginary)),
    )
    return [
        _each(algebra.add, points[0], _each(algebra.add, outer, inner)),
        _each(algebra.sub, near, near_gap),
        _each(algebra.add, far, far_gap),
        _each(algebra.sub, far, far_gap),
        _each(algebra.add, near, near_gap),
    ]


Turn = tuple[Pair[Number], Pair[Number]]
"""What a complex number is multiplied by, as the two rows of a matrix: (real, -imaginary), (imaginary, real)."""


def turned(algebra: Algebra[Number], x: Pair[Number], turn: Turn[Number]) -> Pair[Number]:
    return algebra.turn(x, turn[0]), algebra.turn(x, turn[1])


def halved(algebra: Algebra[Number], x: Pair[Number]) -> Pair[Number]:
    """x / 2, as far as the type needs it."""
    return divide(algebra, x[0], 2), divide(algebra, x[1], 2)


def mirrored(algebra: Algebra[Number], x: Pair[Number]) -> Pair[Number]:
    """conjugate(x) / 2, as far as the type needs it."""
    return divide(algebra, x[0], 2), divide(algebra, algebra.negative(x[1]), 2)


def moved_apart(algebra: Algebra[Number], low: Pair[Number], high: Pair[Number], turn: Turn[Number]) -> Pair[Number]:
    """(low - high) * turn, wrapped."""
    real, imaginary = turned(algebra, _each(algebra.sub, low, high), turn)
    return algebra.wrap(real), algebra.wrap(imaginary)


def to_spectrum(
    algebra: Algebra[Number], low: Pair[Number], high: Pair[Number], moved: Pair[Number]
) -> tuple[Pair[Number], Pair[Number]]:
    """Bins k and n - k of a real signal's spectrum, from the complex transform of its n pairs.

    low, high, moved: what `halved`, `mirrored` and `moved_apart` make of its numbers k and n - k.
    """
    total = (algebra.wrap(algebra.add(low[0], high[0])), algebra.wrap(algebra.add(low[1], high[1])))
    at_low = (algebra.half(algebra.add(total[0], moved[0])), algebra.half(algebra.add(total[1], moved[1])))
    return at_low, (algebra.half(algebra.sub(total[0], moved[0])), algebra.half(algebra.sub(moved[1], total[1])))


def from_spectrum(
    algebra: Algebra[Number], low: Pair[Number], high: Pair[Number], moved: Pair[Number]
) -> tuple[Pair[Number], Pair[Number]]:
    """The inverse step: elements k and n - k of what the complex transform makes a signal's n pairs from."""
    total = _each(algebra.add, low, high)
    return _each(algebra.add, total, moved), (algebra.sub(total[0], moved[0]), algebra.negative(algebra.sub(total[1], moved[1])))


def spectrum_ends(algebra: Algebra[Number], first: Pair[Number]) -> tuple[Number, Number]:
    """The real bins 0 and n of a spectrum."""
    a, b = divide(algebra, first[0], 2), divide(algebra, first[1], 2)
    return algebra.add(a, b), algebra.sub(a, b)


def from_spectrum_ends(algebra: Algebra[Number], first: Number, last: Number) -> Pair[Number]:
    """The inverse step."""
    return divide(algebra, algebra.add(first, last), 2), divide(algebra, algebra.sub(first, last), 2)
