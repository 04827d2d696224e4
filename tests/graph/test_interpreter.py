"""The interpreter: inputs that don't fit are refused, variables start at real 0, every value can be had."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError, InternalError
from aot.graph.interpreter import run, run_all
from aot.graph.ir import DType, Graph, Node, Quantisation, Value
from aot.graph.ops import OPERATORS
from tests.graph.lowered import read
from tests.one_operator import conv2d, fully_connected


def test_run_gives_outputs_in_order_and_run_all_every_value():
    graph = read(fully_connected((2, 16), 8))
    x = np.ones((2, 16), np.int8)
    (out,) = run(graph, [x])
    arrays = run_all(graph, [x])
    assert set(arrays) == {value.name for value in graph.values}
    assert (arrays[graph.outputs[0]] == out).all()
    assert out.shape == (2, 8)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "the model has 1 inputs but 0 arrays were given"),
        ([np.zeros((1, 6, 6, 3), np.int8)], "input 0: is int8[1x6x6x4] but the array given is int8[1x6x6x3]"),
        ([np.zeros((1, 6, 6, 4), np.uint8)], "input 0: is int8[1x6x6x4] but the array given is uint8[1x6x6x4]"),
        ([np.zeros((), np.float32)], "the array given is float32[]"),
    ],
)
def test_inputs_that_do_not_fit(inputs, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        run(read(conv2d()), inputs)


def test_an_unknown_operator_is_named():
    values = (Value("x", DType.INT8, (1,)), Value("y", DType.INT8, (1,), label="out"))
    graph = Graph("g", values, (Node("NO_SUCH", ("x",), ("y",), index=4),), ("x",), ("y",))
    with pytest.raises(CompileError, match=re.escape("node 4 NO_SUCH 'out': this operator is not supported")):
        run(graph, [np.zeros(1, np.int8)])


def test_variables_start_at_their_zero_point():
    state = Value("state", DType.INT8, (2,), Quantisation((0.1,), (-5,)), is_variable=True)
    graph = Graph("g", (state,), (), (), ("state",))
    assert run(graph, [])[0].tolist() == [-5, -5]


def test_a_wrong_shape_from_an_operator_is_our_fault():
    values = (Value("x", DType.FLOAT32, (1, 3)), Value("y", DType.FLOAT32, (1, 4)))
    softmax = Node("SOFTMAX", ("x",), ("y",), OPERATORS["SOFTMAX"].read(None))
    with pytest.raises(InternalError, match="computed float32"):
        run(Graph("g", values, (softmax,), ("x",), ("y",)), [np.zeros((1, 3), np.float32)])
