"""uint8 as int8: what becomes of the Program, and that no output's byte changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.graph.expr import loads
from aot.graph.ir import DType
from aot.graph.ops import OPERATORS
from aot.graph.passes import run_passes
from aot.graph.primitive import Contract, Map, expressions
from aot.lower.build import build_program
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.lower.program import Program
from aot.lower.signed import signed_bytes
from tests.graph.lowered import extremes, read
from tests.lower.unsigned_networks import Network, small_network
from tests.one_operator import conv2d, pool, random_inputs, unary


def built(model: bytes) -> Program:
    return build_program(run_passes(read(model)), OPERATORS)


def agree(before: Program, after: Program, model: bytes) -> None:
    after.verify()
    for inputs in (random_inputs(model), *extremes(model, 1)):
        given = dict(zip(before.inputs, inputs, strict=True))
        one, other = execute_program(before, given), execute_program(after, given)
        for name in before.outputs:
            np.testing.assert_array_equal(one[name], other[name])


def layers(program: Program) -> list[Contract]:
    return [each for each in program.instructions if isinstance(each, Contract)]


@pytest.mark.parametrize("seed", range(12))
def test_no_byte_changes(seed: int) -> None:
    model = small_network(seed)
    before = built(model)
    after = signed_bytes(before)
    agree(before, after, model)
    agree(before, fuse(after), model)


def test_all_between_contractions_is_int8() -> None:
    """One Map for the input; the sum, the pools and the copies between layers hold int8, whatever they compute."""
    program = signed_bytes(built(small_network(0)))
    assert [each.left.dtype for each in layers(program)] == [DType.INT8] * len(layers(program))
    inner = [buffer for buffer in program.buffers if buffer.role == "temporary" and not buffer.name.startswith(program.inputs[0])]
    assert {buffer.dtype for buffer in inner} <= {DType.INT8, DType.UINT8, DType.INT32}
    read = {program.storage(load.buffer) for each in program.instructions for load in loads(*expressions(each))}
    assert not [name for name in read if program[name].dtype is DType.UINT8 and program[name].role == "temporary"]


def test_an_output_is_made_of_a_requantisation_to_int8() -> None:
    model = conv2d((1, 2, 2, 3), 4, (1, 1), dtype="uint8", weight_scale=0.01, input_q=(0.05, 9), output_q=(0.4, 200))
    program = signed_bytes(built(model))
    (copy, layer) = program.instructions
    assert isinstance(copy, Map) and isinstance(layer, Contract)
    assert (layer.left_zero_point, program[copy.out].dtype) == (9 - 128, DType.INT8)
    assert str(program).endswith(
        " -> xor(uint8(int8(min(max(add(requantise(acc, %t3_multiplier[i3], %t3_shift[i3]), 72), -128), 127))), 128:uint8)"
    )


def test_padding_moves_too() -> None:
    model = conv2d((1, 4, 4, 2), 3, dtype="uint8", weight_scale=0.01, input_q=(0.05, 7), output_q=(0.4, 3))
    before = built(model)
    after = signed_bytes(before)
    (layer,) = layers(after)
    assert layer.left.fill is not None and layer.left.fill.value == 7 - 128
    agree(before, after, model)


def test_two_layers_read_one_copy_of_an_input() -> None:
    net = Network(3)
    x = net.activation((1, 4, 4, 3))
    model = net.m.build([x], [net.conv(x, 4), net.conv(x, 5)])
    after = signed_bytes(built(model))
    assert [type(each).__name__ for each in after.instructions] == ["Map", "Contract", "Contract"]
    agree(built(model), after, model)


def test_what_no_contraction_touches_stays() -> None:
    for model in (
        pool("MAX_POOL_2D", dtype="uint8", q=(0.05, 3)),
        unary("LOGISTIC", dtype="uint8", input_q=(0.05, 3), output_q=(1 / 256, 0)),
        conv2d((1, 4, 4, 2), 3),
    ):
        program = built(model)
        assert signed_bytes(program) is program


def test_a_multiplier_of_nearly_one_stays_apart_from_its_zero_point() -> None:
    """2^31 - 1 could carry a sum to the end of int32, where the zero point decides whether it wraps."""
    model = conv2d((1, 1, 1, 1), 1, (1, 1), dtype="uint8", weight_scale=0.5, input_q=(0.5, 9), output_q=(0.25, 200))
    program = built(model)
    largest = np.array([2**31 - 1], np.int32)
    buffers = (replace(each, data=largest) if each.name.endswith("multiplier") else each for each in program.buffers)
    before = replace(program, buffers=tuple(buffers))
    after = signed_bytes(before)
    (layer,) = layers(after)
    assert (layer.left.dtype, layer.result) == (DType.INT8, layers(before)[0].result)
    agree(before, after, model)
