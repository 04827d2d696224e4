"""GATHER, GATHER_ND, EMBEDDING_LOOKUP: constant and run-time indices, batches, against TFLite Micro and LiteRT; what lies outside."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Load, Lookup, Table
from aot.graph.primitive import Map
from tests.graph.lowered import agree, primitives, read
from tests.graph.test_ops_movement import OTHERS, tensor
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs

DTYPES = ("int8", "float32")


def gather(
    shape: Sequence[int],
    indices: Sequence[int],
    number: int = 0,
    shared: int = 0,
    dtype: str = "int8",
    index: str = "int32",
    data=None,
) -> bytes:
    """`indices` is their shape; with `data` they are constant."""
    rank = len(shape)
    place, batches = number % rank, shared + len(indices) if shared < 0 else shared
    out = (*shape[:place], *indices[batches:], *shape[place + 1 :])
    inputs = [tensor(shape, dtype), T(indices, index, data=data)]
    return one_operator("GATHER", inputs, [tensor(out, dtype)], {"axis": number, "batch_dims": shared})


def example(shape: Sequence[int], indices: Sequence[int], size: int, dtype: str = "int8", index: str = "int32") -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    return [x, rng.integers(0, size, indices).astype(index)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_at_run_time(dtype: str) -> None:
    """Any axis, indices of any rank."""
    for shape, indices in itertools.product(((5,), (2, 3), (2, 3, 4, 2)), ((), (1,), (4,), (2, 3))):
        for number in range(-len(shape), len(shape)):
            agree(gather(shape, indices, number, dtype=dtype), example(shape, indices, shape[number], dtype), bound=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_by_constants(dtype: str) -> None:
    for indices, number in itertools.product(((), (1,), (6,), (2, 2)), (0, 1, 2)):
        shape = (3, 2, 4)
        x, positions = example(shape, indices, shape[number], dtype)
        agree(gather(shape, indices, number, dtype=dtype, data=positions), [x], bound=0.0)


def test_gather_with_batches() -> None:
    cases = (
        ((2, 3, 4), (2, 5), 1, 1),
        ((2, 3, 4), (2, 5), 2, 1),
        ((2, 3, 4), (2,), 1, 1),
        ((2, 3, 4, 2), (2, 3, 2), 3, 2),
        ((2, 3, 4, 2), (2, 3, 2), 2, -1),
        ((2, 3, 4, 2), (2, 2, 3), 3, 1),
        ((2, 3), (2, 3), 1, -1),
    )
    for shape, indices, number, shared in cases:
        inputs = example(shape, indices, shape[number])
        agree(gather(shape, indices, number, shared), inputs)
        agree(gather(shape, indices, number, shared, data=inputs[1]), inputs[:1])


@pytest.mark.parametrize("dtype", [*OTHERS, "int8"])
def test_gather_of_other_types(dtype: str) -> None:
    for index in ("int16", "int32", "int64"):
        x, positions = example((4, 3), (5,), 3, dtype, index)
        same_pair(gather((4, 3), (5,), 1, dtype=dtype, index=index), x, positions)
    if dtype in ("int16", "uint8", "int32", "int64", "bool"):
        agree(gather((4, 3), (5,), 1, dtype=dtype, index="int64"), example((4, 3), (5,), 3, dtype, "int64"), oracle=litert_runs)


def same_pair(model: bytes, x: np.ndarray, positions: np.ndarray) -> None:
    agree(model, [x, positions], bound=0.0, oracle=lambda _, invocations: [[np.take(a, b, 1)] for a, b in invocations])


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_positions_outside_are_clamped(index: str) -> None:
    limits = np.iinfo(index)
    positions = np.array([-1, 4, limits.min, limits.max, 1 << 30], index)
    x = np.array([3, 5, 7, 9], np.int8)
    clamped = lambda *_: [[np.array([3, 9, 3, 9, 9], np.int8)]]  # noqa: E731
    agree(gather((4,), (5,), index=index), [x, positions], oracle=clamped)


def test_a_constant_list_moves_by_a_table() -> None:
    (block,) = primitives(gather((3, 4), (2,), 1, data=np.array([3, 1])))
    assert isinstance(block, Map) and isinstance(block.value, Load) and block.value.index[1] == Table(1, (3, 1))
    (block,) = primitives(gather((3, 4), (2,), 1))
    assert isinstance(block, Map) and isinstance(block.value, Lookup)


# GATHER_ND


def gather_nd(shape: Sequence[int], indices: Sequence[int], dtype: str = "int8", index: str = "int32", data=None) -> bytes:
    out = (*indices[:-1], *shape[indices[-1] :])
    return one_operator("GATHER_ND", [tensor(shape, dtype), T(indices, index, data=data)], [tensor(out, dtype)], {})


def coordinates(shape: Sequence[int], indices: Sequence[int], index: str = "int32") -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.stack([rng.integers(0, size, indices[:-1]) for size in shape[: indices[-1]]], -1).astype(index)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_nd(dtype: str) -> None:
    for shape, indices in (
        ((5,), (1,)),
        ((5,), (3, 1)),
        ((2, 3), (4, 2)),
        ((2, 3, 4), (2, 3, 2)),
        ((2, 3, 4), (5, 1)),
        ((2, 3, 2, 2), (3, 4)),
    ):
        positions, (x, _) = coordinates(shape, indices), example(shape, indices, 1, dtype)
        agree(gather_nd(shape, indices, dtype), [x, positions], bound=0.0)
        agree(gather_nd(shape, indices, dtype, data=positions), [x], bound=0.0)


@pytest.mark.parametrize("dtype", OTHERS)
def test_gather_nd_of_other_types(dtype: str) -> None:
    for index in ("int16", "int32", "int64"):
        positions, (x, _) = coordinates((2, 3, 2), (4, 2), index), example((2, 3, 2), (4, 2), 1, dtype)
        expected = x[positions[:, 0], positions[:, 1]]
        agree(gather_nd((2, 3, 2), (4, 2), dtype, index), [x, positions], bound=0.0, oracle=lambda *_, e=expected: [[e]])


def test_a_coordinate_outside_counts_if_the_position_is_inside() -> None:
    """TFLite looks at the sum alone; a sum outside is clamped here."""
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    agree(gather_nd((2, 3), (2, 2)), [x, np.array([[0, 4], [1, -2]], np.int32)])
    outside = np.array([[-1, 0], [2, 0], [(1 << 31) - 1, (1 << 31) - 1]], np.int32)
    wrapped = np.clip(np.array([-3, 6, 3 * ((1 << 31) - 1) + (1 << 31) - 1]).astype(np.int32), 0, 5)
    agree(gather_nd((2, 3), (3, 2)), [x, outside], oracle=lambda *_: [[x.reshape(-1)[wrapped]]])


# EMBEDDING_LOOKUP


def embedding(rows: T, count: int, dtype: str) -> bytes:
    out = tensor((count, *rows.shape[1:]), dtype)
    return one_operator("EMBEDDING_LOOKUP", [T((count,), "int32"), rows], [out], {})


ROWS = np.random.default_rng(5).integers(-128, 128, (6, 3, 2))
AT = np.array([5, 0, 3, 3, 2], np.int32)


@pytest.mark.parametrize(("source", "target"), [("int8", "int8"), ("float32", "float32"), ("int8", "float32")])
def test_embedding(source: str, target: str) -> None:
    rows = T(ROWS.shape, source, 0.037 if source == "int8" else None, data=ROWS)
    agree(embedding(rows, 5, target), [AT], bound=0.0)
    agree(embedding(T((6, 4), source, 0.037 if source == "int8" else None, data=ROWS.reshape(-1)[:24]), 5, target), [AT], bound=0.0)


def test_embedding_with_a_scale_for_each_row() -> None:
    """TFLite Micro takes the first scale for all."""
    rows = T((6, 6), "int8", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], data=ROWS)
    agree(embedding(rows, 5, "float32"), [AT], bound=0.0, oracle=litert_runs)


def test_rows_outside_are_clamped() -> None:
    rows = T((6, 2), "int8", 0.1, data=ROWS.reshape(-1)[:12])
    expected = ROWS.reshape(-1)[:12].reshape(6, 2).astype(np.int8)[[0, 5]]
    agree(embedding(rows, 2, "int8"), [np.array([-9, 6], np.int32)], oracle=lambda *_: [[expected]])


# What is refused


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            one_operator("GATHER", [tensor((2, 3)), T((2,), "int32")], [tensor((2, 3))], {"axis": 2}),
            "axis 2 is outside the 2 dimensions",
        ),
        (
            one_operator("GATHER", [tensor((2, 3)), T((2,), "int32")], [tensor((2, 3))], {"axis": 0, "batch_dims": 1}),
            "1 batch dimensions do not fit axis 0 and indices of 1 dimensions",
        ),
        (
            one_operator("GATHER", [tensor((2, 3)), T((3, 1), "int32")], [tensor((2, 1))], {"axis": 1, "batch_dims": 1}),
            "values and indices of shape 2x3 and 3x1 do not share 1 batch dimensions",
        ),
        (gather((4,), (2,), index="float32"), "float32 is not supported for 'in1'"),
        (gather((4,), (2,), dtype="float16"), "float16 is not supported for 'in0'"),
        (gather((4,), (2,), data=np.array([0, 4])), "index 4 of 'in1' is outside an axis of 4"),
        (gather((4,), (2,), data=np.array([0, -1])), "index -1 of 'in1' is outside an axis of 4"),
        (gather_nd((4,), (2, 2)), "positions of 2 coordinates in 1 dimensions"),
        (one_operator("GATHER_ND", [tensor((4,)), T((), "int32")], [tensor((4,))], {}), "must have a dimension at least"),
        (gather_nd((4, 2), (1, 2), data=np.array([[4, 0]])), "'in1' names positions outside shape 4x2"),
        (
            one_operator("EMBEDDING_LOOKUP", [T((1, 2), "int32"), tensor((4, 2))], [tensor((1, 2))], {}),
            "'in0' has 2 dimensions, not 1",
        ),
        (
            one_operator("EMBEDDING_LOOKUP", [T((1,), "int32"), tensor((4,))], [tensor((1,))], {}),
            "'in1' has 1 dimensions, not 2 or more",
        ),
        (embedding(T((4, 2), "int8", 0.1, 3), 2, "float32"), "'in1' has a zero point that is not 0"),
        (embedding(T((4, 2), "int8", [0.1] * 2, axis=1), 2, "float32"), "'in1' has 2 scales, not one for each of 4 rows"),
        (embedding(T((4, 2), "int8", 0.1), 2, "int16"), "'out0' is int16 but 'in1' is int8"),
        (
            one_operator("EMBEDDING_LOOKUP", [T((1,), "int32", data=np.array([7])), tensor((4, 2))], [tensor((1, 2))], {}),
            "index 7 of 'in0' is outside an axis of 4",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
