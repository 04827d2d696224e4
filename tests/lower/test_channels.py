"""Layers in parts of their output's channels: the same bytes, and constants that are no larger than the parts."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from aot.graph.expr import Load, walk
from aot.graph.primitive import Contract, expressions
from aot.lower.channels import channel_axis, split_channels
from aot.lower.fuse import fuse
from aot.lower.program import Program
from tests.graph.lowered import sweep
from tests.lower.test_signed import agree, built, layers
from tests.lower.unsigned_networks import small_network
from tests.one_operator import conv2d, depthwise, fully_connected


def parted(model: bytes, most: int) -> tuple[Program, Program]:
    """The Program of a model, and with each contraction in parts of at most so many channels."""
    before = fuse(built(model))
    after = before
    for layer in layers(before):
        axis = channel_axis(layer)
        if axis is None or layer.space[axis] == 1:
            continue
        channels = layer.space[axis]
        parts = split_channels(after, layer, [*range(most, channels, most), channels])
        assert parts is not None
        at = after.instructions.index(layer)
        instructions = (*after.instructions[:at], *parts[1], *after.instructions[at + 1 :])
        after = replace(after, buffers=(*after.buffers, *parts[0]), instructions=instructions)
    agree(before, after, model)
    return before, after


def test_no_byte_changes() -> None:
    choices = {
        "kernel": ((1, 1), (3, 3), (2, 4)),
        "stride": ((1, 1), (2, 1)),
        "padding": ("SAME", "VALID"),
        "activation": ("NONE", "RELU6"),
        "dtype": ("int8", "int8", "int16"),
        "bias": (True, False),
    }
    for number, case in enumerate(sweep(20, 0, **choices)):
        before, after = parted(conv2d((1, 5, 6, 3), 7, seed=number, **case), 1 + number % 4)
        assert len(layers(after)) == -(-7 // (1 + number % 4)) and len(layers(before)) == 1


@pytest.mark.parametrize("most", [1, 3])
def test_other_layers(most: int) -> None:
    for model in (
        fully_connected((3, 16), 8),
        depthwise((1, 6, 6, 4), 2),
        conv2d((1, 4, 4, 6), 8, groups=2),
        small_network(3),
        small_network(4),
    ):
        parted(model, most)


def test_the_constants_of_a_part_are_its_own() -> None:
    before, after = parted(conv2d((1, 5, 6, 3), 8, (3, 3), weight_scale=[0.01 * (k + 1) for k in range(8)]), 3)

    def weights(program: Program) -> list[int]:
        return [prod(program[layer.right.buffer].shape) for layer in layers(program)]

    assert weights(before) == [8 * 27] and weights(after) == [3 * 27, 3 * 27, 2 * 27]
    for layer, channels in zip(layers(after), (3, 3, 2), strict=True):
        loads = [node for root in expressions(layer) for node in walk(root) if isinstance(node, Load)]
        own = {after[load.buffer].size for load in loads if load.buffer != layer.left.buffer and load.buffer != layer.right.buffer}
        assert own == {channels}
        assert isinstance(layer, Contract) and layer.geometry is not None and layer.geometry.output[3] == channels
    np.testing.assert_array_equal(
        np.concatenate([after[layer.right.buffer].data for layer in layers(after)]), before[layers(before)[0].right.buffer].data
    )
