"""What operators say of their types (`Operator.support`) is what the reader takes: every case, in every type."""

from __future__ import annotations

import os

import pytest
from hypothesis import Phase, given, seed, settings

from aot.errors import CompileError
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests.differential.byhand import BY_HAND
from tests.differential.engines import quiet
from tests.differential.hunt import UNCHECKED
from tests.differential.net import Net
from tests.differential.strategies import single
from tests.differential.table import CASES
from tests.differential.types import retyped, types

SEED = int(os.environ.get("AOT_SEED", "0"))
DRAWN, RETYPED = 20, 1
"""Cases of each operator as they are drawn, and how many of those at least are tried in every type."""


def drawn(op: str) -> list[Net]:
    """Cases of an operator by the seed: those by hand, then drawn ones."""
    nets = list(BY_HAND.get(op, ()))
    if op not in CASES:
        return nets

    @seed(SEED)
    @settings(max_examples=DRAWN, database=None, deadline=None, phases=(Phase.generate,), suppress_health_check=UNCHECKED)
    @given(single(CASES[op]))
    def keep(case) -> None:
        nets.append(case[0])

    keep()
    return nets


def accepted(net: Net) -> bool:
    """Whether the reader takes a net that can be made at all."""
    try:
        model = net.build()
    except (OverflowError, ValueError):  # numbers that the other type does not have
        return False
    try:
        read_model(model, "case.tflite", OPERATORS)
    except CompileError:
        return False
    return True


THE_FIRMWARES = {"CUSTOM"}
"""Operators whose types are not the compiler's business."""


@pytest.mark.parametrize("op", sorted(set(OPERATORS) - THE_FIRMWARES))
def test_the_types_are_those_that_are_taken(op: str) -> None:
    quiet()
    declared = {name for support in OPERATORS[op].support for name in support.types}
    taken: set[str] = set()

    def take(net: Net) -> None:
        if accepted(net):
            assert types(net) <= declared, f"takes {sorted(types(net) - declared)} without saying so: {net!r}"
            taken.update(types(net))

    nets = drawn(op)
    by_hand = len(BY_HAND.get(op, ()))
    for net in nets:
        take(net)
    for number, net in enumerate((*nets[:by_hand], *reversed(nets[by_hand:]))):
        if number >= by_hand + RETYPED and taken == declared:
            break
        for other in retyped(net):
            take(other)
    assert taken == declared, f"says that it takes {sorted(declared - taken)}"


@pytest.mark.parametrize("op", sorted(OPERATORS))
def test_a_declaration_is_whole(op: str) -> None:
    """Every operator says something, no type twice, and ends its sentence."""
    operator = OPERATORS[op]
    names = [name for support in operator.support for name in support.types]
    assert names and len(names) == len(set(names))
    assert operator.notes.endswith(".")
