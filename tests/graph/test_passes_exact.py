"""mean_to_pool and merge_requantisations: they fire exactly where every possible operand agrees."""

from __future__ import annotations

import numpy as np
import pytest

from aot.graph.interpreter import run
from aot.graph.ir import Graph
from aot.graph.passes.exact import mean_to_pool, merge_requantisations
from aot.graph.passes.movement import eliminate_identities
from tests.graph.passing import Net, ops, stays, unchanged

# mean_to_pool


def mean(shape, axes=(1, 2), keep_dims: bool = False, dtype: str = "int8", zero_point: int = -5, **fields) -> Graph:
    net = Net(dtype, zero_point=zero_point)
    reduced = {axis % len(shape) for axis in axes}
    out = [1 if k in reduced else size for k, size in enumerate(shape) if keep_dims or k not in reduced]
    return net.graph(net.op("MEAN", [net.input(shape), net.constant(list(axes))], out, {"keep_dims": keep_dims}, **fields))


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (-3, -2)])
def test_float_means_always_become_pools(keep_dims: bool, axes: tuple[int, ...]) -> None:
    after = unchanged(mean((2, 4, 6, 3), axes, keep_dims, "float32"), mean_to_pool)
    assert ops(after) == ["AVERAGE_POOL_2D", "RESHAPE"]


@pytest.mark.parametrize("zero_point", [-128, -5, 0, 127])
@pytest.mark.parametrize("size", [(1, 3), (5, 5), (7, 7), (3, 5), (2, 2), (4, 4), (8, 8), (1, 1), (6, 1)])
def test_int8_means_become_pools_where_all_sums_agree(size: tuple[int, int], zero_point: int) -> None:
    """The rule against an independent trial of every sum, with rows in another order."""
    count = size[0] * size[1]
    graph = mean((255 * count + 1, *size, 1), zero_point=zero_point)
    sums = np.arange(-128 * count, 127 * count + 1)
    rows = np.full((len(sums), count), -128, np.int64)
    for position in range(count):
        rows[:, position] += np.clip(sums + 128 * count - 255 * position, 0, 255)
    data = rows.astype(np.int8).reshape(len(sums), *size, 1)
    means = run(graph, [data])[0].reshape(-1)
    pooled = (np.sign(sums) * ((np.abs(sums) + count // 2) // count)).astype(np.int8)
    small = mean((2, *size, 3), zero_point=zero_point)
    after = unchanged(small, mean_to_pool)
    assert ops(after) == (["AVERAGE_POOL_2D", "RESHAPE"] if np.array_equal(means, pooled) else ["MEAN"])


def test_both_outcomes_occur() -> None:
    assert ops(mean_to_pool(mean((1, 1, 3, 2)))) == ["AVERAGE_POOL_2D", "RESHAPE"]
    assert ops(mean_to_pool(mean((1, 5, 5, 2)))) == ["MEAN"]


@pytest.mark.parametrize(
    "graph",
    [
        mean((2, 3, 5, 2), (1,)),
        mean((2, 3, 5, 2), (2, 3)),
        mean((2, 3, 5, 2), (1, 2, 3)),
        mean((2, 3, 5), (1, 2)),
        mean((2, 3, 5, 2), scale=0.2),
        mean((1, 13, 5, 1), zero_point=0),
    ],
)
def test_other_means_stay(graph: Graph) -> None:
    stays(graph, mean_to_pool)


# merge_requantisations


def chain(*steps: tuple[str, str, float, int], source: tuple[str, float, int] = ("int8", 0.1, -5)) -> Graph:
    """Operators in a row: (operator, dtype, scale, zero point)."""
    net = Net()
    x = net.input((1, 256), dtype=source[0], scale=source[1], zero_point=source[2])
    for op, dtype, scale, zero_point in steps:
        x = net.op(op, [x], (1, 256), dtype=dtype, scale=scale, zero_point=zero_point)
    return net.graph(x)


@pytest.mark.parametrize(
    "graph",
    [
        chain(("QUANTIZE", "uint8", 0.1, 123), ("QUANTIZE", "int8", 0.2, 3)),
        chain(("QUANTIZE", "int16", 0.001, 0), ("QUANTIZE", "int8", 0.1, -5)),
        chain(("DEQUANTIZE", "float32", 1, 0), ("QUANTIZE", "int8", 0.1, -5)),
        chain(("DEQUANTIZE", "float32", 1, 0), ("QUANTIZE", "uint8", 0.1, 123)),
        chain(("DEQUANTIZE", "float32", 1, 0), ("QUANTIZE", "int8", 0.1, -5), source=("uint8", 0.1, 123)),
    ],
)
def test_two_changes_become_one(graph: Graph) -> None:
    after = unchanged(graph, merge_requantisations)
    assert ops(after) == ["QUANTIZE"] and after.nodes[0].inputs == after.inputs


def test_there_and_back_goes_altogether() -> None:
    net = Net()
    x = net.op("RELU", [net.input((1, 256))], (1, 256))
    real = net.op("DEQUANTIZE", [x], (1, 256), dtype="float32")
    graph = net.graph(net.op("QUANTIZE", [real], (1, 256)))
    assert ops(unchanged(graph, lambda graph: eliminate_identities(merge_requantisations(graph)))) == ["RELU"]


@pytest.mark.parametrize(
    "graph",
    [
        chain(("QUANTIZE", "int8", 1.7, -5), ("QUANTIZE", "int8", 0.1, -5)),
        chain(("QUANTIZE", "int8", 0.01, -5), ("QUANTIZE", "int8", 0.1, -5)),
        chain(("QUANTIZE", "int8", 0.13, 2), ("QUANTIZE", "int8", 0.31, -5)),
        chain(("QUANTIZE", "int8", 0.1, 0), ("QUANTIZE", "int8", 0.1, 0), source=("int16", 0.1, 0)),
    ],
)
def test_what_would_round_or_saturate_differently_stays(graph: Graph) -> None:
    stays(graph, merge_requantisations)


def test_uint8_goes_to_int16_at_once_where_every_number_agrees() -> None:
    graph = chain(("DEQUANTIZE", "float32", 1, 0), ("QUANTIZE", "int16", 0.1, 0), source=("uint8", 0.1, 3))
    assert ops(unchanged(graph, merge_requantisations)) == ["QUANTIZE"]


def test_merging_is_exact_on_random_scales() -> None:
    """Whatever the rule decides, every 8-bit number comes out the same."""
    rng = np.random.default_rng(11)
    merged = 0
    for _ in range(60):
        first, second = (float(np.exp(rng.uniform(-3, 1))) for _ in range(2))
        dtype = str(rng.choice(["int8", "uint8", "int16"]))
        zero = 0 if dtype == "int16" else 10
        graph = chain(
            ("QUANTIZE", dtype, first / (256 if dtype == "int16" else 1), zero),
            ("QUANTIZE", "int8", second, int(rng.integers(-128, 128))),
        )
        after = merge_requantisations(graph)
        merged += len(after.nodes) == 1
        x = np.arange(-128, 128, dtype=np.int8).reshape(1, 256)
        assert run(after, [x])[0].tobytes() == run(graph, [x])[0].tobytes()
    assert 0 < merged < 60
