"""CONCATENATION and PACK against TFLite Micro."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import axis, fixed
from aot.graph.passes import run_passes
from aot.graph.passes.ranges import ranges
from aot.graph.primitive import Map
from tests.graph.lowered import agree, primitives, read
from tests.graph.test_ops_movement import OTHERS
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs

DTYPES = ("int8", "int16", "int32", "int64", "float32")


def tensor(shape: Sequence[int], dtype: str = "int8", scale: float = 0.1, zero_point: int = 0, data=None) -> T:
    return T(shape, dtype, scale if dtype in ("int8", "uint8", "int16") else None, zero_point, data)


def concatenation(
    shapes: Sequence[Sequence[int]], number: int, dtype: str = "int8", constants: Sequence[int] = (), **fields
) -> bytes:
    out = list(shapes[0])
    out[number] = sum(shape[number] for shape in shapes)
    rng = np.random.default_rng(1)
    inputs = [
        tensor(shape, dtype, data=rng.integers(-100, 100, shape) if position in constants else None)
        for position, shape in enumerate(shapes)
    ]
    return one_operator("CONCATENATION", inputs, [tensor(out, dtype)], {"axis": number, **fields})


@pytest.mark.parametrize("dtype", DTYPES)
def test_concatenation(dtype: str) -> None:
    for number in (0, 1, 2, 3, -1, -4):
        shapes = [[1, 2, 3, 4] for _ in range(3)]
        shapes[0][number], shapes[1][number], shapes[2][number] = 1, 3, 2
        agree(concatenation(shapes, number, dtype), bound=0.0)
    agree(concatenation([(5,)], 0, dtype), bound=0.0)
    agree(concatenation([(2, 3), (2, 1)], 1, dtype, constants=[1]), bound=0.0)


@pytest.mark.parametrize("dtype", OTHERS)
def test_other_types(dtype: str) -> None:
    join = concatenation([(2, 3), (2, 1)], 1, dtype)
    agree(join, oracle=lambda _, invocations: [[np.concatenate(x, 1)] for x in invocations])
    stack = one_operator("PACK", [tensor((2, 3), dtype)] * 2, [tensor((2, 2, 3), dtype)], {"values_count": 2, "axis": 1})
    agree(stack, oracle=lambda _, invocations: [[np.stack(x, 1)] for x in invocations])


def test_uint8_is_rescaled() -> None:
    """Each input from its own scale and zero point to the output's, over all 256 numbers; one that has them already is copied."""
    every = np.arange(256, dtype=np.uint8)
    for scale, zero_point, out_scale, out_zero_point in itertools.product(
        (0.1, 0.0371, 1.7), (0, 7, 255), (0.1, 0.05, 3.0), (0, 128)
    ):
        inputs = [tensor((256,), "uint8", scale, zero_point), tensor((256,), "uint8", out_scale, out_zero_point)]
        model = one_operator("CONCATENATION", inputs, [tensor((512,), "uint8", out_scale, out_zero_point)], {"axis": 0})
        found = agree(model, [every, every], oracle=litert_runs)[0]
        assert found[256:].tolist() == every.tolist()


def test_a_single_uint8_input_is_rescaled_too() -> None:
    """And no pass takes the node for an identity, or its output's range for the input's."""
    model = one_operator("CONCATENATION", [tensor((4,), "uint8", 0.2, 3)], [tensor((4,), "uint8", 0.1, 0)], {})
    graph = read(model)
    agree(model, [np.array([0, 3, 100, 255], np.uint8)], oracle=litert_runs)
    assert [node.op for node in run_passes(graph).nodes] == ["CONCATENATION"]
    assert ranges(graph)[graph.outputs[0]] == (0, 255)


def test_twelve_inputs() -> None:
    """TFLite Micro takes ten."""
    agree(concatenation([(1, 2)] * 12, 0), oracle=litert_runs)


def test_the_same_value_twice() -> None:
    from tests.builder import ModelBuilder

    m = ModelBuilder()
    x = m.tensor("x", (2, 3), "int8", scale=0.1)
    y = m.tensor("y", (2, 6), "int8", scale=0.1)
    m.operator("CONCATENATION", [x, x], [y], {"axis": 1})
    agree(m.build([x], [y]))


def test_each_input_is_stored_at_its_place() -> None:
    first, second = primitives(concatenation([(2, 3), (2, 4)], 1))
    assert isinstance(first, Map) and isinstance(second, Map)
    assert (first.space, first.store) == ((2, 3), (axis(0), axis(1)))
    assert (second.space, second.store) == ((2, 4), (axis(0), axis(1, 1, 3)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pack(dtype: str) -> None:
    for shape in ((), (3,), (2, 3), (2, 1, 3)):
        for number in range(-len(shape) - 1, len(shape) + 1):
            place = number % (len(shape) + 1)
            out = (*shape[:place], 3, *shape[place:])
            options = {"values_count": 3, "axis": number}
            agree(one_operator("PACK", [tensor(shape, dtype)] * 3, [tensor(out, dtype)], options), bound=0.0)


def test_pack_stores_at_a_fixed_position() -> None:
    model = one_operator("PACK", [tensor((2,))] * 2, [tensor((2, 2))], {"values_count": 2, "axis": 1})
    first, second = primitives(model)
    assert isinstance(first, Map) and isinstance(second, Map)
    assert (first.store, second.store) == ((axis(0), fixed(0)), (axis(0), fixed(1)))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (concatenation([(2, 3), (3, 3)], 1), "inputs of shape 2x3 and 3x3 do not join on axis 1"),
        (
            one_operator("CONCATENATION", [tensor((2,)), tensor((2,), scale=0.2)], [tensor((4,))], {}),
            "'in1' and 'out0' must have the same quantisation",
        ),
        (
            one_operator("CONCATENATION", [tensor((2,)), tensor((2,))], [tensor((4,), zero_point=1)], {}),
            "'in0' and 'out0' must have the same quantisation",
        ),
        (
            one_operator("CONCATENATION", [tensor((2,))] * 2, [tensor((4,))], {"axis": 1}),
            "axis 1 is outside the 1 dimensions of 'in0'",
        ),
        (
            one_operator("CONCATENATION", [tensor((2,), "uint8", 1e38)], [tensor((2,), "uint8", 1e-3)], {}),
            "the scale of 'in0' is too far from the output's",
        ),
        (
            one_operator("CONCATENATION", [tensor((2,), "int16"), tensor((2,), "int16", 0.2)], [tensor((4,), "int16")], {}),
            "'in1' and 'out0' must have the same quantisation",
        ),
        (
            one_operator("PACK", [tensor((2,), "uint8", 0.2)], [tensor((1, 2), "uint8")], {"values_count": 1}),
            "'in0' and 'out0' must have the same quantisation",
        ),
        (concatenation([(2,), (2,)], 0, fused_activation_function="RELU"), "the fused activation relu is not supported"),
        (
            one_operator("CONCATENATION", [tensor((2,)), tensor((2,), "float32")], [tensor((4,))], {}),
            "'in1' is float32 but 'out0' is int8",
        ),
        (one_operator("CONCATENATION", [tensor((2,), "float16")], [tensor((2,), "float16")], {}), "float16 is not supported"),
        (one_operator("CONCATENATION", [], [tensor((2,))], {}), "has no inputs"),
        (one_operator("CONCATENATION", [None], [tensor((2,))], {}), "input 0 is missing"),
        (
            one_operator("PACK", [tensor((2,)), tensor((3,))], [tensor((2, 2))], {"values_count": 2}),
            "inputs of shape 2 and 3 do not stack",
        ),
        (one_operator("PACK", [tensor((2,))] * 2, [tensor((2, 2))], {"values_count": 3}), "packs 3 values but has 2 inputs"),
        (
            one_operator("PACK", [tensor((2,))], [tensor((1, 2))], {"values_count": 1, "axis": 2}),
            "axis 2 is outside the 2 dimensions",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
