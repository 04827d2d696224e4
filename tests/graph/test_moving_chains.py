"""Random chains of moving operators with arithmetic in between, through every pass and compiled: fusion must not move anything wrongly."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from aot.graph.ir import Graph
from tests.graph.passing import Net, example
from tests.graph.test_ops_compiled import compiled

CHAINS = 300 if os.environ.get("AOT_SWEEP") else 20
Shape = tuple[int, int, int, int]


class Chain:
    """A graph that grows at its end, by NHWC operators; `shape` is the last value's."""

    def __init__(self, seed: int) -> None:
        self.net, self.picker = Net("int8" if seed % 2 else "float32"), random.Random(seed)
        pick = self.picker.choice
        self.shape: Shape = (pick((1, 2)), pick((2, 4, 6)), pick((2, 4, 6)), pick((1, 4)))
        self.value = self.net.input(self.shape)

    def add(self, op: str, inputs: list[int], shape: Shape, options: dict | None = None) -> None:
        self.value, self.shape = self.net.op(op, [self.value, *inputs], shape, options), shape

    def grown(self, steps: int) -> Graph:
        ends = []
        for _ in range(steps):
            step = self.picker.choice(STEPS)
            if step is not widen or np.prod(self.shape) < 2000:
                step(self)
            if self.picker.random() < 0.15:
                ends.append(self.value)
        return self.net.graph(*dict.fromkeys([*ends, self.value]))


def relu(chain: Chain) -> None:
    chain.add("RELU6", [], chain.shape)


def double(chain: Chain) -> None:
    chain.add("ADD", [chain.value], chain.shape, {"fused_activation_function": "NONE"})


def to_batch(chain: Chain) -> None:
    n, h, w, c = chain.shape
    high, wide, top = 1 + (h % 2 == 0), 1 + (w % 2 == 0), chain.picker.choice((0, 2))
    inputs = [chain.net.constant([high, wide]), chain.net.constant([[top, 0], [0, 0]])]
    chain.add("SPACE_TO_BATCH_ND", inputs, (n * high * wide, (h + top) // high, w // wide, c))


def to_space(chain: Chain) -> None:
    n, h, w, c = chain.shape
    if n % 2 == 0:
        crop = chain.picker.choice((0, 1)) if w > 1 else 0
        inputs = [chain.net.constant([1, 2]), chain.net.constant([[0, 0], [crop, crop]])]
        chain.add("BATCH_TO_SPACE_ND", inputs, (n // 2, h, 2 * w - 2 * crop, c))


def to_depth(chain: Chain) -> None:
    n, h, w, c = chain.shape
    if h % 2 == 0 and w % 2 == 0:
        chain.add("SPACE_TO_DEPTH", [], (n, h // 2, w // 2, 4 * c), {"block_size": 2})
    elif c % 4 == 0:
        chain.add("DEPTH_TO_SPACE", [], (n, 2 * h, 2 * w, c // 4), {"block_size": 2})


def widen(chain: Chain) -> None:
    n, h, w, c = chain.shape
    if chain.picker.random() < 0.5:
        chain.add("TILE", [chain.net.constant([1, 2, 1, 2])], (n, 2 * h, w, 2 * c), {})
    else:
        size = (chain.picker.randint(1, 7), chain.picker.randint(1, 7))
        options = {"align_corners": False, "half_pixel_centers": True}
        op = chain.picker.choice(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"))
        chain.add(op, [chain.net.constant(size)], (n, *size, c), options)


def mirror(chain: Chain) -> None:
    n, h, w, c = chain.shape
    chain.add("MIRROR_PAD", [chain.net.constant([[0, 0], [1, 0], [0, 1], [0, 0]])], (n, h + 1, w + 1, c), {"mode": "SYMMETRIC"})


def reverse(chain: Chain) -> None:
    chain.add("REVERSE_V2", [chain.net.constant(chain.picker.sample(range(4), 2))], chain.shape)


def pick(chain: Chain) -> None:
    """GATHER by constants or by indices that are an input."""
    number, count = chain.picker.randrange(4), chain.picker.randint(1, 4)
    shape = list(chain.shape)
    positions = [chain.picker.randrange(shape[number]) for _ in range(count)]
    shape[number] = count
    indices = chain.net.constant(positions) if chain.picker.random() < 0.5 else chain.net.input((count,), dtype="int32")
    chain.add("GATHER", [indices], (shape[0], shape[1], shape[2], shape[3]), {"axis": number, "batch_dims": 0})


def replace(chain: Chain) -> None:
    n, h, w, c = chain.shape
    if h > 1:
        part = chain.net.op("SLICE", [chain.value, *map(chain.net.constant, ([0] * 4, (n, h - 1, w, c)))], (n, h - 1, w, c))
        chain.add("DYNAMIC_UPDATE_SLICE", [part, chain.net.input((4,), dtype="int32")], chain.shape)


def transpose(chain: Chain) -> None:
    perm = chain.picker.sample(range(4), 4)
    a, b, c, d = (chain.shape[number] for number in perm)
    chain.add("TRANSPOSE", [chain.net.constant(perm)], (a, b, c, d))


STEPS = (relu, double, to_batch, to_space, to_depth, widen, widen, mirror, reverse, pick, replace, transpose)


@pytest.mark.parametrize("seed", range(CHAINS))
def test_chain(seed: int) -> None:
    graph = Chain(seed).grown(7)
    compiled(graph, *([example(graph, name, kind) for name in graph.inputs] for kind in ("random", "low", "high")), bound=1e-6)
