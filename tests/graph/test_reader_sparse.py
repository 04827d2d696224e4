"""Sparse constants: spread out at reading, compared with numpy and with LiteRT; what a damaged one is refused with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.ops import OPERATORS
from aot.graph.passes import run_passes
from aot.graph.tflite import read_model
from tests.builder import ModelBuilder, Sparsity
from tests.graph.lowered import agree, read
from tests.oracle import litert_runs


def sparse(
    dense: np.ndarray, order: Sequence[int], blocks: Sequence[tuple[int, int]], compressed: Sequence[int], dtype: str = "int32"
) -> tuple[Sparsity, np.ndarray]:
    """The sparse form of an array: `blocks` are (dimension, size), `compressed` the levels without their all-zero children."""
    sizes = dict(blocks)
    split = [(size // sizes.get(dim, 1), sizes.get(dim, 1)) for dim, size in enumerate(dense.shape)]
    tree = dense.reshape([size for pair in split for size in pair])
    axes = [2 * dim for dim in range(dense.ndim)] + [2 * dim + 1 for dim, _ in blocks]
    tree = tree.transpose([axes[number] for number in order] + [number for number in range(tree.ndim) if number not in axes])
    tree = tree.reshape(tree.shape[: len(order)])
    nodes: list[np.ndarray] = [tree]
    dimensions = []
    for level in range(len(order)):
        if level not in compressed:
            dimensions.append(tree.shape[level])
            nodes = [child for node in nodes for child in node]
            continue
        kept = [[number for number, child in enumerate(node) if np.any(child)] for node in nodes]
        dimensions.append((np.cumsum([0, *map(len, kept)]), np.array([number for row in kept for number in row], int)))
        nodes = [node[number] for node, numbers in zip(nodes, kept) for number in numbers]
    return Sparsity(order, [dim for dim, _ in blocks], dimensions, dtype), np.array(nodes)


def pruned(shape: Sequence[int], seed: int = 0, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(-9, 10, shape) * (rng.random(shape) < 0.3)).astype(dtype)


def tensor_of(dense: np.ndarray, sparsity: Sparsity, values: np.ndarray) -> bytes:
    """A model whose one node makes the sparse constant dense."""
    m = ModelBuilder()
    dtype = dense.dtype.name
    x = m.tensor("x", dense.shape, dtype, data=values.astype(dense.dtype), sparsity=sparsity)
    y = m.tensor("y", dense.shape, dtype)
    m.operator("DENSIFY", [x], [y])
    return m.build([], [y])


def constant(model: bytes) -> np.ndarray:
    (value,) = (value for value in read(model).values if value.data is not None)
    assert value.data is not None
    return value.data


@pytest.mark.parametrize("shape", [(6,), (4, 6), (3, 4, 2), (2, 3, 2, 4)])
def test_every_choice_of_compressed_levels(shape: tuple[int, ...]) -> None:
    dense, rank = pruned(shape), len(shape)
    for order in itertools.permutations(range(rank)):
        for bits in range(1 << rank):
            compressed = [level for level in range(rank) if bits >> level & 1]
            assert (constant(tensor_of(dense, *sparse(dense, order, [], compressed))) == dense).all()


@pytest.mark.parametrize("dtype", ["int32", "uint16", "uint8"])
def test_blocks_and_widths_of_indices(dtype: str) -> None:
    dense = pruned((4, 8), 3, "int8")
    for blocks in ([(1, 4)], [(0, 2)], [(0, 2), (1, 4)], [(1, 2), (0, 4)]):
        order = range(2 + len(blocks))
        assert (constant(tensor_of(dense, *sparse(dense, order, blocks, [1], dtype))) == dense).all()


def test_nothing_but_zeros_and_a_tensor_without_zeros() -> None:
    full = np.ones((3, 4), np.float32)
    assert (constant(tensor_of(full, *sparse(full, [0, 1], [], [1]))) == 1).all()
    one = np.zeros((3, 4), np.float32)
    one[2, 3] = 5
    assert (constant(tensor_of(one, *sparse(one, [0, 1], [], [0, 1]))) == one).all()


@pytest.mark.parametrize(
    ("order", "blocks", "compressed"),
    [((0, 1), [], [1]), ((1, 0), [], [1]), ((1, 0), [], [0, 1]), ((0, 1, 2), [(1, 4)], [1]), ((1, 0, 3, 2), [(0, 2), (1, 4)], [1])],
)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_densify_as_litert_does(dtype: str, order, blocks, compressed) -> None:
    dense = pruned((4, 8), 5, dtype)
    agree(tensor_of(dense, *sparse(dense, order, blocks, compressed)), [], oracle=litert_runs, bound=0.0)


@pytest.mark.parametrize(("blocks", "columns"), [([], 7), ([(1, 4)], 8)])
def test_sparse_weights_of_a_dense_layer(blocks, columns: int) -> None:
    dense = pruned((5, columns), 7)
    sparsity, values = sparse(dense, range(2 + len(blocks)), blocks, [1])
    m = ModelBuilder()
    x, w = m.tensor("x", (2, columns), "float32"), m.tensor("w", dense.shape, "float32", data=values, sparsity=sparsity)
    b, y = m.constant(np.arange(5, dtype=np.float32)), m.tensor("y", (2, 5), "float32")
    m.operator("FULLY_CONNECTED", [x, w, b], [y], {})
    agree(m.build([x], [y]), oracle=litert_runs)


def test_sparse_float16_weights() -> None:
    """As converters write them: DENSIFY, then DEQUANTIZE."""
    dense = pruned((5, 8), 9, "float16") / np.float16(3)
    sparsity, values = sparse(dense, range(3), [(1, 4)], [1])
    m = ModelBuilder()
    x, w = m.tensor("x", (2, 8), "float32"), m.tensor("w", dense.shape, "float16", data=values, sparsity=sparsity)
    spread, wide = m.tensor("spread", (5, 8), "float16"), m.tensor("wide", (5, 8), "float32")
    y = m.tensor("y", (2, 5), "float32")
    m.operator("DENSIFY", [w], [spread])
    m.operator("DEQUANTIZE", [spread], [wide])
    m.operator("FULLY_CONNECTED", [x, wide, -1], [y], {})
    # Nothing but the contraction is left, and a constant.
    graph = run_passes(read(m.build([x], [y])), OPERATORS, lambda stage, result: None)
    assert [node.op for node in graph.nodes] == ["FULLY_CONNECTED"]
    assert np.array_equal(graph[str(graph.nodes[0].inputs[1])].data, dense.astype(np.float32))


# What is refused.


def damaged(order=(0, 1), blocks=(), dimensions=(2, ([0, 1, 3], [1, 0, 2])), shape=(2, 3), values=3) -> bytes:
    """A model with a sparse 2x3 tensor of three elements, with parts replaced."""
    return tensor_of(np.zeros(shape, np.float32), Sparsity(order, blocks, dimensions), np.ones(values))


REFUSED = [
    (damaged(order=(0, 0)), "2 levels of 2 dimensions do not make up 2 dimensions and 0 of blocks"),
    (damaged(order=(0, 1, 2)), "3 levels of 2 dimensions"),
    (damaged(dimensions=(2,)), "2 levels of 1 dimensions"),
    (damaged(order=range(40)), "its traversal order has 40 entries"),
    (damaged(blocks=(7,), order=(0, 1, 2), dimensions=(2, 3, 1)), "it blocks the dimensions [7] of 2"),
    (damaged(blocks=(1,), order=(0, 1, 2), dimensions=(2, 3, 2)), "blocks of 2 do not divide dimension 1 of 3"),
    (damaged(blocks=(1,), order=(0, 1, 2), dimensions=(2, 3, 0)), "blocks of 0 do not divide dimension 1 of 3"),
    (damaged(dimensions=(5, 3)), "a dense level of 5 stands for 2 indices"),
    (damaged(dimensions=(2, ([0, 1], [1]))), "2 segments do not divide 1 indices among 2 parents"),
    (damaged(dimensions=(2, ([0, 2, 1], [1]))), "3 segments do not divide 1 indices"),
    (damaged(dimensions=(2, ([0, 1, 9], [1, 0, 2]))), "3 segments do not divide 3 indices"),
    (damaged(dimensions=(2, ([1, 2, 3], [1, 0, 2]))), "3 segments do not divide 3 indices"),
    (damaged(dimensions=(2, ([0, 1, 3], [1, 0, 3]))), "an index is outside its dimension of 3"),
    (damaged(dimensions=(2, ([0, 1, 3], [1, 0, -1]))), "an index is outside its dimension of 3"),
    (damaged(dimensions=(2, ([], []))), "0 segments do not divide 0 indices"),
    (damaged(dimensions=(([0, 4], [0, 0, 1, 1]), 3)), "it has more than 6 elements"),
    (damaged(values=4), "its shape has 3 elements of float32, its buffer 1 has 4"),
    (damaged(values=0), "is sparse without being a constant of numbers (float32)"),
    (damaged(shape=(1 << 14, 1 << 13)), "the sparse tensors of the file have more than 16777216 elements"),
]


@pytest.mark.parametrize(("model", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_model(model, "test.tflite", OPERATORS)
    assert sentence in str(caught.value) and "tensor 0 'x'" in str(caught.value)
