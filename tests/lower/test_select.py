"""Selection: order of kernels, sentences, and what an implementation may not hide from the planner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.errors import CompileError, InternalError
from aot.fitting import with_less_scratch
from aot.graph.primitive import Contract, Primitive
from aot.lower.implementation import Backend, Cost, Implementation, Kernel
from aot.lower.place import plan
from aot.lower.program import Program
from aot.lower.schedule import schedule
from aot.lower.select import decide, select, survey, without_larger_workspace, without_slower
from aot.lower.tradeoff import Goal
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


def variants(*figures: tuple[int, int, int]) -> Kernel:
    """A kernel with a variant for each (instructions, bytes of code, bytes of scratch)."""

    def claim(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...]:
        made = dummy(program, instruction)
        return tuple(
            replace(made, kernel=f"variant {n}", cost=Cost(instructions, code), scratch_nbytes=scratch)
            for n, (instructions, code, scratch) in enumerate(figures)
        )

    return Kernel("several", claim, kinds=("conv",))


SEVERAL = variants((100, 50, 0), (60, 70, 16), (40, 200, 1000))


@pytest.mark.parametrize(
    ("goal", "wanted"),
    [(Goal("speed"), 2), (Goal("balanced"), 1), (Goal("size"), 0), (Goal("speed", max_flash_nbytes=199), 1)],
)
def test_costs_decide_among_variants(goal: Goal, wanted: int) -> None:
    choice, _ = select(small(), Backend("b", (SEVERAL,)), GENERIC, TARGET, goal)
    assert choice.implementation.kernel == f"variant {wanted}"
    assert [why == "" for _, why in choice.variants] == [number == wanted for number in range(3)]


def test_variants_of_different_kernels_compete() -> None:
    slow = variants((300, 10, 0))
    choice, _ = select(small(), Backend("b", (slow, FAST, SEVERAL)), GENERIC, TARGET, Goal("speed"))
    assert choice.implementation.cost == Cost(40, 200) and len(choice.variants) == 4


def test_without_a_cost_the_first_is_taken() -> None:
    choice, _ = select(small(), Backend("b", (FAST, SEVERAL)), GENERIC, TARGET, Goal("speed"))
    assert choice.implementation.kernel == "fast" and choice.variants == ()


def test_scratch_is_limited_by_what_another_instruction_needs() -> None:
    program = small()
    fields = survey(program, Backend("b", (SEVERAL,)), GENERIC, TARGET)
    kept, _ = without_larger_workspace(program, fields)
    assert [one.kernel for one in kept.candidates] == ["variant 0"]
    assert [why for _, why in kept.excluded] == ["it would need more memory"] * 2


def test_balanced_code_is_not_slower_for_less_code() -> None:
    fields = survey(small(), Backend("b", (variants((60, 70, 0), (100, 50, 0), (40, 200, 0)),)), GENERIC, TARGET)
    kept, _ = without_slower(fields)
    assert [one.kernel for one in kept.candidates] == ["variant 0", "variant 2"]
    assert [(one.kernel, why) for one, why in kept.excluded] == [("variant 1", "slower, for the sake of less code")]


def test_scratch_is_limited_by_max_workspace() -> None:
    program = small()
    fields = survey(program, Backend("b", (SEVERAL,)), GENERIC, TARGET)
    (choices,) = decide([fields], Goal("speed"))
    made = plan(schedule(program, choices), io="caller")
    assert made.workspace_nbytes >= 1000
    narrowed = with_less_scratch(fields, made, 40)
    assert [one.kernel for one in narrowed[0].candidates] == ["variant 0", "variant 1"]
    narrowed = with_less_scratch(narrowed, made, 4)
    assert [one.kernel for one in narrowed[0].candidates] == ["variant 0"]
    assert with_less_scratch(narrowed, made, 4) is narrowed


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
