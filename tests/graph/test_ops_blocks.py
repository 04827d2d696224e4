"""SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND, SPACE_TO_DEPTH, DEPTH_TO_SPACE against TFLite Micro and LiteRT."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.ops.blocks import Piece, pieces
from tests.graph.lowered import agree, primitives, read, sweep
from tests.graph.test_ops_movement import OTHERS, numbers, same, tensor
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

DTYPES = ("int8", "float32")


def space_to_batch(
    shape: Sequence[int], block: Sequence[int], paddings: Sequence[tuple[int, int]], dtype: str = "int8", zero_point: int = 0
) -> bytes:
    sizes = [(size + sum(pad)) // step for size, pad, step in zip(shape[1:-1], paddings, block)]
    out = (shape[0] * int(np.prod(block)), *sizes, shape[-1])
    inputs = [tensor(shape, dtype, zero_point), numbers(*block), numbers(*paddings)]
    return one_operator("SPACE_TO_BATCH_ND", inputs, [tensor(out, dtype, zero_point)], {})


def batch_to_space(shape: Sequence[int], block: Sequence[int], crops: Sequence[tuple[int, int]], dtype: str = "int8") -> bytes:
    sizes = [size * step - sum(crop) for size, crop, step in zip(shape[1:-1], crops, block)]
    out = (shape[0] // int(np.prod(block)), *sizes, shape[-1])
    return one_operator("BATCH_TO_SPACE_ND", [tensor(shape, dtype), numbers(*block), numbers(*crops)], [tensor(out, dtype)], {})


@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", -7), ("float32", 0)])
def test_space_to_batch(dtype: str, zero_point: int) -> None:
    """LiteRT, and TFLite Micro where nothing is padded: it never sets the number that it fills with."""
    for case in sweep(
        30, batches=(1, 2), rows=(1, 2, 3), columns=(1, 2), high=(1, 2, 3), wide=(1, 2, 4), top=(0, 1, 2), left=(0, 1, 3)
    ):
        block = (case["high"], case["wide"])
        shape = (case["batches"], case["rows"] * block[0], case["columns"] * block[1], 2)
        paddings = [(before, -before % step) for before, step in zip((case["top"], case["left"]), block)]
        agree(space_to_batch(shape, block, paddings, dtype, zero_point), bound=0.0, oracle=litert_runs)
        agree(space_to_batch(shape, block, ((0, 0), (0, 0)), dtype, zero_point), bound=0.0)


@pytest.mark.parametrize(
    ("dtype", "zero_point"), [("int8", -7), ("int8", 127), ("uint8", 9), ("int16", 0), ("int32", 0), ("int64", 0)]
)
def test_space_to_batch_fills_with_the_zero_point(dtype: str, zero_point: int) -> None:
    agree(space_to_batch((2, 3, 2, 2), (2, 3), ((1, 0), (0, 1)), dtype, zero_point), bound=0.0, oracle=litert_runs)


def test_space_to_batch_of_three_dimensions() -> None:
    for oracle in (tflm_runs, litert_runs):
        agree(space_to_batch((2, 6, 3), (3,), ((0, 0),)), oracle=oracle)
        agree(batch_to_space((6, 2, 3), (3,), ((1, 2),)), oracle=oracle)
    agree(space_to_batch((2, 5, 3), (3,), ((1, 0),)), oracle=litert_runs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_to_space(dtype: str) -> None:
    choices = {"batches": (1, 2), "rows": (1, 2, 3), "columns": (1, 4), "high": (1, 2, 3), "wide": (1, 2, 4)}
    for case in sweep(50, **choices, top=(0, 0, 1, 2), bottom=(0, 0, 1, 2), left=(0, 0, 1, 3), right=(0, 0, 1, 3)):
        high, wide = case["high"], case["wide"]
        height, width = high * case["rows"], wide * case["columns"]
        crops = [(case["top"], case["bottom"]), (case["left"], case["right"])]
        if sum(crops[0]) < height and sum(crops[1]) < width:
            shape = (case["batches"] * high * wide, case["rows"], case["columns"], 2)
            agree(batch_to_space(shape, (high, wide), crops, dtype), bound=0.0)


def test_crops_that_leave_nothing() -> None:
    agree(batch_to_space((4, 1, 1, 1), (2, 2), ((1, 1), (0, 0))), oracle=litert_runs)


@pytest.mark.parametrize("dtype", OTHERS)
def test_blocks_of_other_types(dtype: str) -> None:
    same(space_to_batch((1, 4, 2, 1), (2, 1), ((0, 0), (0, 0)), dtype), lambda x: np.concatenate((x[:, ::2], x[:, 1::2])))
    same(
        batch_to_space((2, 1, 3, 1), (1, 2), ((0, 0), (1, 0)), dtype),
        lambda x: x.transpose(1, 2, 0, 3).reshape(1, 1, 6, 1)[:, :, 1:],
    )
    same(depth((1, 1, 1, 4), 2, "DEPTH_TO_SPACE", dtype), lambda x: x.reshape(1, 2, 2, 1))
    same(depth((1, 2, 2, 1), 2, "SPACE_TO_DEPTH", dtype), lambda x: x.reshape(1, 1, 1, 4))


def test_pieces_cover_a_range_once() -> None:
    assert pieces(3, 0, 9) == (Piece(0, 3, 0, 3),)
    assert pieces(3, 1, 2) == (Piece(0, 1, 1, 1),)
    for step, start, stop in itertools.product((1, 2, 3, 5), range(12), range(12)):
        found = [
            (piece.block + block) * step + piece.position + position
            for piece in pieces(step, start, stop)
            for block in range(piece.blocks)
            for position in range(piece.count)
        ]
        assert sorted(found) == list(range(start, stop)) and len(pieces(step, start, stop)) <= 3


def test_without_crops_it_is_one_loop() -> None:
    assert len(primitives(batch_to_space((4, 2, 2, 3), (2, 2), ((0, 0), (0, 0))))) == 1


# SPACE_TO_DEPTH, DEPTH_TO_SPACE


def depth(shape: Sequence[int], side: int, op: str, dtype: str = "int8") -> bytes:
    batches, height, width, channels = shape
    if op == "SPACE_TO_DEPTH":
        out = (batches, height // side, width // side, channels * side * side)
    else:
        out = (batches, height * side, width * side, channels // side**2)
    return one_operator(op, [tensor(shape, dtype)], [tensor(out, dtype)], {"block_size": side})


@pytest.mark.parametrize("dtype", DTYPES)
def test_depth(dtype: str) -> None:
    for side, batches, rows, columns, channels in itertools.product((1, 2, 3), (1, 2), (1, 2), (1, 3), (1, 3)):
        agree(depth((batches, rows * side, columns * side, channels), side, "SPACE_TO_DEPTH", dtype), bound=0.0)
        agree(depth((batches, rows, columns, channels * side * side), side, "DEPTH_TO_SPACE", dtype), bound=0.0)


# What is refused

SHAPE, BLOCK, NONE = (1, 4, 4, 1), numbers(2, 2), numbers((0, 0), (0, 0))


def refused(op: str, *inputs: T, shape: Sequence[int] = SHAPE, options: dict | None = None) -> bytes:
    return one_operator(op, [tensor(shape), *inputs], [tensor((4, 2, 2, 1))], options or {})


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (refused("SPACE_TO_BATCH_ND", BLOCK, NONE, shape=(2, 2)), "'in0' has 2 dimensions, not 3 or 4"),
        (refused("SPACE_TO_BATCH_ND", T((2,), "int32"), NONE), "the block shape 'in1' must be constant"),
        (refused("SPACE_TO_BATCH_ND", numbers(2, 0), NONE), "the block shape [2, 0] is not 2 sizes of at least 1"),
        (refused("SPACE_TO_BATCH_ND", numbers(2), NONE), "the block shape [2] is not 2 sizes of at least 1"),
        (refused("SPACE_TO_BATCH_ND", BLOCK, numbers((0, -2), (0, 0))), "the borders [0, -2, 0, 0] are not 4 sizes of at least 0"),
        (refused("SPACE_TO_BATCH_ND", BLOCK, numbers((0, 1), (0, 0))), "a padded axis of 5 does not divide into blocks of 2"),
        (
            refused("SPACE_TO_BATCH_ND", numbers(1 << 30, 1 << 30), NONE),
            "a padded axis of 4 does not divide into blocks of 1073741824",
        ),
        (refused("BATCH_TO_SPACE_ND", BLOCK, NONE), "1 batches do not divide into blocks of 2x2"),
        (refused("BATCH_TO_SPACE_ND", numbers(1, 1), numbers((3, 2), (0, 0))), "the borders crop more than the 4x4 elements"),
        (refused("BATCH_TO_SPACE_ND", numbers(1, 1)), "has 2 inputs, not 3"),
        (refused("SPACE_TO_DEPTH", options={"block_size": 0}), "the block size is 0, not at least 1"),
        (refused("SPACE_TO_DEPTH", options={"block_size": 3}), "4x4 pixels do not divide into blocks of 3x3"),
        (refused("DEPTH_TO_SPACE", options={"block_size": 2}), "1 channels do not divide into blocks of 2x2"),
        (refused("DEPTH_TO_SPACE", options={"block_size": -1}), "the block size is -1, not at least 1"),
        (refused("SPACE_TO_DEPTH", shape=(4, 4), options={"block_size": 2}), "'in0' has 2 dimensions, not 4"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
