"""Weights beyond int8: input channels that come twice, depthwise channels that are computed again; sums stay the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aot.backends.cmsis_nn import BACKEND
from aot.graph.ir import DType
from aot.graph.primitive import Contract, Map, Primitive
from aot.lower.fuse import fuse
from aot.lower.narrow import fits, narrow_weights, split
from aot.lower.program import Program
from aot.lower.signed import signed_bytes
from tests.lower.test_signed import agree, built
from tests.lower.unsigned_networks import Network, small_network
from tests.one_operator import conv2d


def narrowed(model: bytes) -> Program:
    """The Program as kernels see it, after checking that it computes what was built."""
    before = built(model)
    after = fuse(before, passes=BACKEND.passes)
    agree(before, after, model)
    return after


def network(beyond: int, add: Callable[[Network, int], int], shape=(1, 6, 6, 8), seed: int = 5) -> bytes:
    """A layer behind one whose weights are int8."""
    net = Network(seed, 0)
    x = net.activation(shape)
    y = net.conv(x, shape[3])
    net.beyond = beyond
    return net.m.build([x], [add(net, y)])


def described(instructions: tuple[Primitive, ...]) -> list[str]:
    return [each.geometry.kind if isinstance(each, Contract) and each.geometry else type(each).__name__ for each in instructions]


@pytest.mark.parametrize("shape", [(5, 8), (4, 3, 3, 3), (7, 1, 1, 128), (1, 9), (3, 6)])
@pytest.mark.parametrize("limits", [(-255, 0), (0, 255), (-128, 127), (-140, 115), (-255, 255)])
def test_split_weights_sum_up_to_what_they_were(shape: tuple[int, ...], limits: tuple[int, int]) -> None:
    rng = np.random.default_rng(len(shape))
    weights, x = rng.integers(limits[0], limits[1] + 1, shape), rng.integers(-255, 256, shape[-1])
    again, shared = split(weights)
    assert fits(shared) and shared.shape == (*shape[:-1], shape[-1] + len(again))
    np.testing.assert_array_equal(shared @ np.concatenate([x, x[list(again)]]), weights @ x)


@pytest.mark.parametrize("beyond", [0, 1, 3, 10])
@pytest.mark.parametrize("seed", range(6))
def test_no_byte_changes(seed: int, beyond: int) -> None:
    program = narrowed(small_network(seed, beyond))
    if beyond <= 3:
        kinds = {
            (each.right.dtype, each.right_zero_point)
            for each in program.instructions
            if isinstance(each, Contract) and each.geometry
        }
        assert kinds == {(DType.INT8, 0)}


def test_weights_that_fit_are_all_that_changes() -> None:
    program = narrowed(network(0, lambda net, x: net.conv(x, 4)))
    assert described(program.instructions) == ["Map", "conv", "conv"]


def test_a_producer_stores_among_more_channels() -> None:
    """Nothing but the channel that comes again is copied."""
    program = narrowed(network(1, lambda net, x: net.conv(x, 4, (3, 3))))
    assert described(program.instructions) == ["Map", "conv", "Map", "conv"]
    _, producer, again, layer = program.instructions
    assert isinstance(again, Map) and isinstance(producer, Contract) and isinstance(layer, Contract)
    assert again.space == (1, 6, 6, 1) and producer.out == again.out == layer.left.buffer
    assert program[again.out].shape == (1, 6, 6, 9) and layer.geometry and layer.geometry.input == (1, 6, 6, 9)


def test_an_input_that_others_read_is_copied() -> None:
    def branches(net: Network, x: int) -> int:
        return net.add(net.conv(x, 8), x)

    program = narrowed(network(1, branches))
    copies = [each for each in program.instructions if isinstance(each, Map) and each.space == (1, 6, 6, 9)]
    assert len(copies) == 1 and len(program.instructions) == 4


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("beyond", [1, 5])
def test_depthwise_channels_are_computed_again(multiplier: int, beyond: int) -> None:
    program = narrowed(network(beyond, lambda net, x: net.depthwise(x, multiplier)))
    _, _, layer, *repairs = program.instructions
    assert described(program.instructions)[:3] == ["Map", "conv", "depthwise"] and isinstance(layer, Contract)
    assert described(tuple(repairs)) == ["Map", "conv"] * (len(repairs) // 2) and 1 <= len(repairs) // 2 <= beyond
    for copy, repair in zip(repairs[::2], repairs[1::2], strict=True):
        assert isinstance(copy, Map) and isinstance(repair, Contract) and repair.geometry
        assert (repair.out, repair.left.buffer) == (layer.out, copy.out)
        assert (repair.geometry.input, repair.geometry.output) == ((1, 6, 6, 2), (1, 6, 6, 1))


def test_a_dense_layer_reads_a_copy_behind_a_reshape() -> None:
    net = Network(8, 0)
    x = net.activation((1, 2, 2, 3))
    y = net.reshape(net.conv(x, 3), (1, 12))
    net.beyond = 1
    program = narrowed(net.m.build([x], [net.dense(y, 4)]))
    assert described(program.instructions)[:4] == ["Map", "conv", "Map", "dense"]


def test_many_weights_beyond_int8_stay() -> None:
    model = conv2d((1, 4, 4, 24), 16, (1, 1), dtype="uint8", weight_scale=0.01, weight_zero_point=40, input_q=(0.05, 9))
    before = fuse(signed_bytes(built(model)))
    assert narrow_weights(before) is before


def test_int8_models_are_left_alone() -> None:
    program = fuse(built(conv2d()))
    assert narrow_weights(program) is program
