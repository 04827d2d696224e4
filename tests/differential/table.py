"""The table of operators that are compared: one `Case` each. The family files end with their own tuples; this file gathers them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.differential import contractions, control, elementwise, movement, pairs, reductions, shapes
from tests.differential.case import EXACT, SUM, Case

__all__ = ["CASES", "EXACT", "SUM", "bound_of"]

CASES: Mapping[str, Case] = {
    case.op: case
    for case in (
        *contractions.CASES,
        *reductions.CASES,
        *elementwise.CASES,
        *pairs.CASES,
        *movement.CASES,
        *shapes.CASES,
        *control.CASES,
    )
}


def bound_of(op: str) -> float:
    """The bound of an operator's float results."""
    return CASES[op].bound if op in CASES else SUM
