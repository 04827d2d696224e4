"""What an entry of the table of operators is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.grower import Grower

EXACT, SUM = 0.0, -1.0
"""Bounds of float results: equal; within 2e-6 of the output's largest magnitude, where the order of additions is free."""
ULPS = 8.0
"""For functions: ours within 4 ulp, and the oracle's libm not exact either."""


@dataclass(frozen=True)
class Case:
    """An operator: `grow(grower, op)` appends one node of it (and what it needs).

    bound: of float results: EXACT, SUM, or units in the last place. jumps: a small change of a float input may change the output
    by much (comparisons, rounding), so that it must not stand behind operators with an inexact result.
    """

    op: str
    grow: Callable[[Grower, str], None]
    bound: float = EXACT
    jumps: bool = False


def cases(grow: Callable[[Grower, str], None], *ops: str, bound: float = EXACT, jumps: bool = False) -> tuple[Case, ...]:
    """Several operators that are drawn in the same way."""
    return tuple(Case(op, grow, bound, jumps) for op in ops)
