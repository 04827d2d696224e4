"""Tables for what depends on one 8-bit number: where they appear, where they must not, and that nothing changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.graph.expr import Binary, Const, Expr, Load, Lookup, Requantise, add, axis, cast, clamp, integer, sub, walk
from aot.graph.ir import DType
from aot.graph.primitive import Map
from aot.lower.execute import execute_program
from aot.lower.program import Buffer, Program
from aot.lower.tabulate import tabulate

INT8, INT32 = DType.INT8, DType.INT32
OFTEN = 64


def program(value: Expr, edge: int = OFTEN) -> Program:
    """One Map of `value` over edge x edge, whose loads are of int8 inputs a and b."""
    shape = (edge, edge)
    buffers = (*(Buffer(name, INT8, shape, "input") for name in "ab"), Buffer("y", value.dtype, shape, "output"))
    made = Program("p", buffers, (Map("y", shape, value),), ("a", "b"), ("y",))
    made.verify()
    return made


def element(name: str) -> Expr:
    return Load(name, (axis(0), axis(1)), INT8)


def rescaled(x: Expr, multiplier: int = 1_518_500_250, shift: int = -3) -> Expr:
    wide = Binary("shl", sub(cast(x, INT32), integer(7)), integer(20))
    return Requantise(wide, integer(multiplier), integer(shift))


def total(a: Expr, b: Expr) -> Expr:
    return cast(clamp(add(Requantise(add(a, b), integer(1_200_000_000), integer(-18)), integer(-5)), -128, 127), INT8)


def lookups(made: Program) -> list[Lookup]:
    return [each for each in walk(made.instructions[0].value) if isinstance(each, Lookup)]  # type: ignore[union-attr]


def results(made: Program) -> np.ndarray:
    shape = made["a"].shape
    values = np.arange(np.prod(shape)).reshape(shape)
    inputs = {"a": values.astype(np.int8), "b": (values * 37 // 5).astype(np.int8)}
    return execute_program(made, inputs)["y"]


def test_each_operand_of_an_add_becomes_a_lookup() -> None:
    before = program(total(rescaled(element("a")), rescaled(element("b"), 1_100_000_000)))
    after = tabulate(before)
    after.verify()
    assert len(lookups(after)) == 2 and {after[each.buffer].shape for each in lookups(after)} == {(256,)}
    np.testing.assert_array_equal(results(before), results(after))


def test_equal_tables_are_stored_once() -> None:
    after = tabulate(program(total(rescaled(element("a")), rescaled(element("b")))))
    assert len({each.buffer for each in lookups(after)}) == 1 < len(lookups(after))


def test_the_outermost_expression_is_taken() -> None:
    """x + x rescaled and summed depends on x alone: one table of int8."""
    after = tabulate(program(total(rescaled(element("a")), rescaled(element("a"), 1_100_000_000))))
    (lookup,) = lookups(after)
    assert after.instructions[0].value is lookup and after[lookup.buffer].dtype is INT8  # type: ignore[union-attr]


def test_tables_follow_each_other() -> None:
    """A table's argument may hold a table of its own."""
    inner = total(rescaled(element("a")), rescaled(element("b")))
    before = program(cast(clamp(rescaled(inner, shift=-19), -128, 127), INT8))
    after = tabulate(before)
    assert len(lookups(after)) == 3
    np.testing.assert_array_equal(results(before), results(after))


@pytest.mark.parametrize(
    "value,edge",
    [
        (total(rescaled(element("a")), rescaled(element("b"))), 8),  # too seldom for 1 KiB
        (cast(clamp(cast(element("a"), INT32), 0, 6), INT8), OFTEN),  # cheaper than a load
        (
            Requantise(sub(cast(element("a"), INT32), cast(element("b"), INT32)), integer(1 << 30), integer(-1)),
            OFTEN,
        ),  # two numbers
        (Const(3, INT8), OFTEN),
    ],
    ids=["seldom", "cheap", "two", "constant"],
)
def test_where_no_table_is_made(value: Expr, edge: int) -> None:
    before = program(value, edge)
    assert tabulate(before) is before


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1 << 30, (1 << 31) - 1), st.integers(-8, 0), st.booleans())
def test_no_byte_changes(multiplier: int, shift: int, same: bool) -> None:
    before = program(total(rescaled(element("a"), multiplier, shift), rescaled(element("a" if same else "b"))))
    np.testing.assert_array_equal(results(before), results(tabulate(before)))
