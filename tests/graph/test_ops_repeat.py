"""BROADCAST_TO, BROADCAST_ARGS, TILE, FILL, ZEROS_LIKE against TFLite Micro and LiteRT; and shapes that nobody should build."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Load
from aot.graph.ir import Graph
from aot.graph.passes import run_passes
from aot.graph.primitive import Map
from tests.builder import ModelBuilder
from tests.graph.lowered import agree, primitives, read
from tests.graph.test_ops_movement import OTHERS, numbers, same, tensor
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs

DTYPES = ("int8", "float32")


def broadcast_to(shape: Sequence[int], out: Sequence[int], dtype: str = "int8", index: str = "int32", version: int = 1) -> bytes:
    inputs = [tensor(shape, dtype), numbers(*out, dtype=index)]
    return one_operator("BROADCAST_TO", inputs, [tensor(out, dtype)], {}, version=version)


@pytest.mark.parametrize("dtype", ["int8", "float32", "int32", "int64", "bool", "uint8", "int16"])
def test_broadcast_to(dtype: str) -> None:
    shapes = (((1,), (4,)), ((3,), (2, 3)), ((2, 1, 3), (2, 4, 3)), ((1, 1), (2, 3, 2)), ((2, 3), (2, 3)))
    for shape, out in (*shapes, ((1, 2, 1, 2, 1), (3, 2, 2, 2, 2))):
        agree(broadcast_to(shape, out, dtype), bound=0.0)
    agree(broadcast_to((1, 2), (3, 2), dtype, "int64"), bound=0.0)


def test_broadcast_of_a_scalar_and_of_higher_rank() -> None:
    agree(broadcast_to((), (2, 3), version=2), oracle=litert_runs)
    agree(broadcast_to((1, 2, 1, 1, 2, 1), (2, 2, 1, 3, 2, 2), version=2), oracle=litert_runs)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_broadcast_args(dtype: str) -> None:
    for left, right in (([2, 1, 3], [4, 1]), ([1], [5, 2]), ([3], [3]), ([1, 1], [1])):
        out = T((max(len(left), len(right)),), dtype)
        agree(one_operator("BROADCAST_ARGS", [numbers(*left, dtype=dtype), numbers(*right, dtype=dtype)], [out], {}))


def tile(shape: Sequence[int], times: Sequence[int], dtype: str = "int8", index: str = "int32") -> bytes:
    out = [size * count for size, count in zip(shape, times)]
    return one_operator("TILE", [tensor(shape, dtype), numbers(*times, dtype=index)], [tensor(out, dtype)], {})


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8", "int16", "int32", "int64", "bool"])
def test_tile(dtype: str) -> None:
    """TFLite Micro has no TILE."""
    for shape, times in (
        ((3,), (2,)),
        ((1,), (4,)),
        ((2, 3), (2, 1)),
        ((2, 3), (3, 2)),
        ((2, 1, 3, 2), (1, 3, 2, 2)),
        ((2, 2), (1, 1)),
    ):
        agree(tile(shape, times, dtype), bound=0.0, oracle=litert_runs)
    agree(tile((2, 3), (2, 2), dtype, "int64"), bound=0.0, oracle=litert_runs)


@pytest.mark.parametrize("dtype", OTHERS)
def test_other_types(dtype: str) -> None:
    same(tile((2, 3), (2, 2), dtype), lambda x: np.tile(x, (2, 2)))
    same(broadcast_to((2, 1), (2, 3), dtype), lambda x: np.repeat(x, 3, 1))
    same(fill((2, 3), dtype), lambda x: np.full((2, 3), x))
    same(zeros((2, 3), dtype), np.zeros_like)


def test_broadcasts_are_one_load() -> None:
    for model in (broadcast_to((1, 3), (4, 3)), tile((1, 3), (4, 1))):
        (block,) = primitives(model)
        assert isinstance(block, Map) and isinstance(block.value, Load) and block.space == (4, 3) and not block.store


def fill(shape: Sequence[int], dtype: str = "int8", index: str = "int32", data=None) -> bytes:
    return one_operator("FILL", [numbers(*shape, dtype=index), tensor((), dtype, data=data)], [tensor(shape, dtype)], {})


@pytest.mark.parametrize("dtype", ["int8", "float32", "int32"])
def test_fill(dtype: str) -> None:
    for shape, data, index in itertools.product(((3,), (2, 3, 2)), (None, np.array(7)), ("int32", "int64")):
        agree(fill(shape, dtype, index, data), bound=0.0)


def zeros(shape: Sequence[int], dtype: str = "int8", zero_point: int = 0) -> bytes:
    return one_operator("ZEROS_LIKE", [tensor(shape, dtype, zero_point)], [tensor(shape, dtype, zero_point)], {})


@pytest.mark.parametrize("dtype", ["int8", "float32", "int32", "int64"])
def test_zeros_like(dtype: str) -> None:
    """The number 0, whatever the zero point."""
    for shape in ((3,), (2, 3), ()):
        agree(zeros(shape, dtype, 5), bound=0.0)


# Shapes that a model computes


def computed_shape() -> Graph:
    """TILE(x, SHAPE(x)), FILL(SHAPE(x), 3), BROADCAST_TO(x, BROADCAST_ARGS(SHAPE(x), [2, 3]))."""
    m = ModelBuilder()
    x = m.tensor("x", (1, 3), "int32")
    shape, other, args = (m.tensor(name, (2,), "int32") for name in ("shape", "other", "args"))
    outs = [m.tensor(name, size, "int32") for name, size in (("tiled", (1, 9)), ("filled", (1, 3)), ("stretched", (2, 3)))]
    m.operator("SHAPE", [x], [shape], {"out_type": "INT32"})
    m.operator("SHAPE", [x], [other], {"out_type": "INT32"})
    m.operator("BROADCAST_ARGS", [other, m.constant(np.array([2, 3], np.int32))], [args])
    m.operator("TILE", [x, shape], [outs[0]], {})
    m.operator("FILL", [shape, m.constant(np.array(3, np.int32))], [outs[1]], {})
    m.operator("BROADCAST_TO", [x, args], [outs[2]], {})
    return read(m.build([x], outs))


def test_shapes_that_follow_from_shapes() -> None:
    after = run_passes(computed_shape())
    assert {node.op for node in after.nodes} == {"TILE", "BROADCAST_TO"}
    filled = after[after.outputs[1]].data
    assert filled is not None and filled.tolist() == [[3, 3, 3]]


# What is refused

HUGE = 1 << 30


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (one_operator("TILE", [tensor((2,)), T((1,), "int32")], [tensor((4,))], {}), "the multiples 'in1' must be constant"),
        (one_operator("TILE", [tensor((2,)), numbers(2, 2)], [tensor((4,))], {}), "2 multiples for 1 dimensions"),
        (one_operator("TILE", [tensor((2,)), numbers(-1)], [tensor((4,))], {}), "the multiples [-1] must not be negative"),
        (one_operator("TILE", [tensor((2,)), numbers(HUGE)], [tensor((4,))], {}), "its inputs give 2147483648"),
        (one_operator("TILE", [tensor((2,)), numbers(*[2] * 9)], [tensor((4,))], {}), "9 entries of the multiples are more than 8"),
        (
            one_operator("BROADCAST_TO", [tensor((2,)), T((1,), "int32")], [tensor((2,))], {}),
            "the shape 'in1' must be constant",
        ),
        (one_operator("BROADCAST_TO", [tensor((2,)), numbers(3)], [tensor((3,))], {}), "shape 2 does not broadcast to 3"),
        (one_operator("BROADCAST_TO", [tensor((2, 2)), numbers(2)], [tensor((2,))], {}), "shape 2x2 does not broadcast to 2"),
        (one_operator("BROADCAST_TO", [tensor((1,)), numbers(-2)], [tensor((1,))], {}), "the shape [-2] must not be negative"),
        (
            one_operator("BROADCAST_TO", [tensor((1,)), numbers(*[HUGE] * 8)], [tensor((1,))], {}),
            "the file says its output is 1, its inputs give 1073741824x",
        ),
        (
            one_operator("BROADCAST_ARGS", [numbers(2), T((1,), "int32")], [T((1,), "int32")], {}),
            "the shape 'in1' must be constant",
        ),
        (
            one_operator("BROADCAST_ARGS", [numbers(2), numbers(3)], [T((1,), "int32")], {}),
            "the shapes [2] and [3] do not broadcast",
        ),
        (
            one_operator("BROADCAST_ARGS", [numbers(2), numbers(2, dtype="int64")], [T((1,), "int32")], {}),
            "'in1' is int64 but 'out0' is int32",
        ),
        (one_operator("FILL", [T((1,), "int32"), tensor(())], [tensor((2,))], {}), "the shape 'in0' must be constant"),
        (one_operator("FILL", [numbers(2), tensor((2,))], [tensor((2,))], {}), "the value 'in1' has 2 elements, not one"),
        (one_operator("FILL", [numbers(2), tensor(())], [tensor((2,), "int32")], {}), "'out0' is int32 but 'in1' is int8"),
        (one_operator("FILL", [numbers(HUGE, HUGE), tensor(())], [tensor((2,))], {}), "its inputs give 1073741824x1073741824"),
        (
            one_operator("ZEROS_LIKE", [tensor((2,), "float16")], [tensor((2,), "float16")], {}),
            "float16 is not supported for 'in0'",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
