"""Selection: order of kernels, sentences, and what an implementation may not hide from the planner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.errors import CompileError, InternalError
from aot.graph.primitive import Contract, Primitive
from aot.lower.implementation import Backend, Implementation, Kernel
from aot.lower.program import Program
from aot.lower.select import select
from aot.target import Target
from tests.lower.toy import GraphBuilder, dummy

TARGET = Target("somewhere", "thumbv7em-none-eabi")


def claim_all(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    return dummy(program, instruction)


def claim_contractions(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    if not isinstance(instruction, Contract):
        return "it is not a contraction"
    return replace(dummy(program, instruction), kernel="fast")


GENERIC = Kernel("generic", claim_all)
FAST = Kernel("fast", claim_contractions)
NEVER = Kernel("never", lambda program, instruction, target: f"{target.name} lacks everything")


def small() -> Program:
    builder = GraphBuilder()
    return builder.program(builder.node("UNARY", builder.conv(builder.input(1, 2, 2, 1), 2)))


def test_the_first_kernel_that_claims_wins() -> None:
    choices = select(small(), Backend("b", (NEVER, FAST)), GENERIC, TARGET)
    assert [choice.implementation.kernel for choice in choices] == ["fast", "dummy"]


def test_the_sentences_of_those_before_are_kept() -> None:
    choices = select(small(), Backend("b", (NEVER, FAST)), GENERIC, TARGET)
    never = ("never", "somewhere lacks everything")
    assert [choice.declined for choice in choices] == [(never,), (never, ("fast", "it is not a contraction"))]


def test_the_generic_kernel_is_asked_once_and_last() -> None:
    (choice, _) = select(small(), Backend("b", (GENERIC, FAST)), GENERIC, TARGET)
    assert choice.implementation.kernel == "fast"


def test_if_none_claims_the_user_is_told_why() -> None:
    with pytest.raises(CompileError, match="node 0: no kernel for target somewhere: somewhere lacks everything"):
        select(small(), Backend("b", ()), NEVER, TARGET)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reads": ()}, r"does not name \['t0'\]"),
        ({"reads": ("t0", "t1"), "writes": ()}, "does not name what it writes"),
        ({"overwrites": ("t1",)}, "overwrites what it does not read"),
    ],
)
def test_an_implementation_that_hides_an_access_is_our_error(change: dict, message: str) -> None:
    liar = Kernel("liar", lambda program, instruction, target: replace(dummy(program, instruction), **change))
    with pytest.raises(InternalError, match=message):
        select(small(), Backend("b", (liar,)), GENERIC, TARGET)
