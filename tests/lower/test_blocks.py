"""Control flow in Programs: blocks, traces, and passes that go through one block at a time."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import InternalError
from aot.graph.expr import Const, Load
from aot.graph.ir import DType
from aot.graph.ops import OPERATORS
from aot.graph.primitive import Control, Map, Primitive, identity
from aot.graph.tflite import read_model
from aot.lower.blocks import blocks, blockwise, ends, loops, parts, trace
from aot.lower.build import build_program
from aot.lower.program import Buffer, Program
from tests.graph.stateful import Sub, model

STEP = Map("x", (1,), Const(0, DType.INT8))
REPEAT, TWICE, LEAVE, IF, ELSE, END = (
    Control("repeat"), Control("repeat", None, 3), Control("leave", "flag"), Control("if", "flag"), Control("else"), Control("end"),
)  # fmt: skip


@pytest.mark.parametrize(
    "instructions,text",
    [
        ((ELSE,), "an else at 0 without an if"),
        ((REPEAT, ELSE, END), "an else at 1 without an if"),
        ((IF, ELSE, ELSE, END), "an else at 2 without an if"),
        ((IF, REPEAT, ELSE, END, END), "an else at 2 without an if"),
        ((STEP, END), "an end at 1 ends nothing"),
        ((LEAVE,), "a leave at 0 outside every repeat"),
        ((IF, LEAVE, END), "a leave at 1 outside every repeat"),
        ((REPEAT, IF, END), "repeat at 0 has no end"),
    ],
)
def test_what_does_not_nest(instructions: tuple[Primitive, ...], text: str) -> None:
    with pytest.raises(InternalError, match=text):
        ends(instructions)


def test_blocks_and_ends() -> None:
    instructions = (STEP, REPEAT, STEP, LEAVE, IF, STEP, ELSE, END, STEP, END)
    assert [(found.start, found.stop) for found in blocks(instructions)] == [
        (0, 1), (2, 3), (4, 4), (5, 6), (7, 7), (8, 9), (10, 10),
    ]  # fmt: skip
    assert ends(instructions) == {1: (9, 9), 4: (6, 7)}
    assert loops((REPEAT, *instructions[1:], END)) == ((1, 9), (0, 10))


def test_a_trace_has_two_turns_of_each_loop_and_both_branches() -> None:
    instructions = (TWICE, IF, STEP, ELSE, STEP, END, REPEAT, LEAVE, END, END, Control("repeat", None, 1), STEP, END)
    found = list(trace(instructions))
    inner = [(6, (3,)), (7, (3, 0)), (8, (3, 0)), (7, (3, 0)), (8, (3, 0))]
    turn = [*((position, (3,)) for position in range(1, 6)), *inner, (9, (3,))]
    assert found == [(0, ()), *turn, *turn, (10, ()), (11, (1,)), (12, (1,))]


def looping() -> Program:
    def main(s: Sub):
        i, x, j, y = s.value((), "int32"), s.value(), s.value((), "int32"), s.value()
        s.loop([i, x], [j, y], 1, 2)
        return [i, x], [j, s.add(y, s.add(y, y))]

    def condition(s: Sub):
        i, x = s.value((), "int32"), s.value()
        return [i, x], [s.node("LESS", [i, s.constant(4, "int32")], s.value((), "bool"))]

    def body(s: Sub):
        i, x = s.value((), "int32"), s.value()
        return [i, x], [s.add(i, s.constant(1, "int32")), s.add(s.add(x, x), s.constant(1))]

    return build_program(read_model(model(main, condition, body), "x", OPERATORS).main, OPERATORS)


def test_parts_hold_what_they_name_and_pin_what_others_touch() -> None:
    program = looping()
    found = parts(program)
    assert tuple(each for part in found for each in part.instructions) == tuple(
        each for each in program.instructions if not isinstance(each, Control)
    )
    touched: dict[str, set[int]] = {}
    for number, part in enumerate(found):
        for buffer in part.buffers:
            touched.setdefault(program.storage(buffer.name), set()).add(number)
    conditions = {program.storage(each.condition) for each in program.instructions if isinstance(each, Control) and each.condition}
    for part in found:
        for buffer in part.buffers:
            owner = program[buffer.name]
            if owner.base is None and owner.role == "temporary":
                shared = len(touched[buffer.name]) > 1 or buffer.name in conditions
                assert buffer.role == ("state" if shared else "temporary")


def test_a_pass_that_goes_through_blocks_sees_each_once() -> None:
    program, seen = looping(), []

    def run(part: Program) -> Program:
        seen.append(len(part.instructions))
        return part

    again = blockwise(run)(program)
    assert again.instructions == program.instructions and [b.name for b in again.buffers] == [b.name for b in program.buffers]
    assert seen == [len(positions) for positions in blocks(program.instructions)]
    straight = Program("x", program.buffers, (), (), ())
    assert blockwise(lambda part: part)(straight) is straight


def test_a_block_may_have_no_instruction() -> None:
    buffers = (
        Buffer("flag", DType.BOOL, (1,), "input"),
        Buffer("x", DType.INT8, (1,), "output"),
    )
    program = Program("x", buffers, (IF, STEP, ELSE, END), ("flag",), ("x",))
    assert [len(part.instructions) for part in parts(program)] == [0, 1, 0, 0]


def test_many_branches_take_time_in_proportion() -> None:
    """2,000 branches: each part holds its own buffers alone."""
    count = 2000
    buffers = [Buffer("flag", DType.BOOL, (1,), "input"), Buffer("x0", DType.INT8, (1,), "input")]
    instructions: list[Primitive] = []
    for number in range(1, count):
        buffers.append(Buffer(f"x{number}", DType.INT8, (1,), "temporary"))
        move = Map(f"x{number}", (1,), Load(f"x{number - 1}", identity(1), DType.INT8))
        instructions += [IF, move, ELSE, move, END]
    program = Program("x", tuple(buffers), tuple(instructions), ("flag", "x0"), ())
    found = parts(program)
    assert sum(len(part.buffers) for part in found) <= 2 * sum(map(len, blocks(instructions)))
    assert np.all([len(part.buffers) <= 2 for part in found])
