"""The whole pipeline on random graphs: whatever the passes do to them, no byte of any result changes."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from aot.graph.ir import Graph
from aot.graph.passes import run_passes
from tests.graph.passing import Net, ops, unchanged

SHAPE = (1, 4, 4, 2)
SEEDS = range(2000 if os.environ.get("AOT_SWEEP") else 60)


class Grower:
    """Grows a graph from its inputs: each step adds what one rule or another might take apart. All values have SHAPE."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.net = Net(self.pick.choice(("int8", "int8", "float32")), zero_point=self.pick.choice((-128, -5, 0)))
        self.values = [self.net.input(SHAPE) for _ in range(self.pick.randint(1, 2))]
        self.steps = (self.relu, self.arithmetic, self.conv, self.pool, self.transposes, self.views, self.parts, self.identity)
        if self.net.dtype == "int8":
            self.steps += (self.requantise, self.table)

    def value(self) -> int:
        """One of the values, rather a late one."""
        return self.values[-1] if self.pick.random() < 0.6 else self.pick.choice(self.values)

    def zero(self) -> int:
        return self.net.zero_point if self.net.dtype == "int8" else 0

    def relu(self) -> int:
        return self.net.op(self.pick.choice(("RELU", "RELU6", "RELU_N1_TO_1")), [self.value()], SHAPE)

    def activation(self) -> str:
        return self.pick.choice(("NONE", "NONE", "RELU", "RELU6"))

    def arithmetic(self) -> int:
        fused = {"fused_activation_function": self.activation()}
        right = self.value()
        if self.pick.random() < 0.4:
            constant = [self.pick.randint(-3, 3) for _ in range(2)]
            right = self.net.constant(constant, self.net.dtype, **({"scale": 0.1} if self.net.dtype == "int8" else {}))
        return self.net.op(self.pick.choice(("ADD", "SUB", "MUL")), [self.value(), right], SHAPE, fused)

    def padded(self, value: float) -> int:
        amounts = self.net.constant([[0, 0], [2, 0], [1, 1], [0, 0]])
        quantised = {"scale": 0.1, "zero_point": self.net.zero_point} if self.net.dtype == "int8" else {}
        filled = [self.net.constant(value, self.net.dtype, **quantised)] if self.pick.random() < 0.5 else []
        return self.net.op("PADV2" if filled else "PAD", [self.value(), amounts, *filled], (1, 6, 6, 2))

    def conv(self) -> int:
        fused = {"fused_activation_function": self.activation()}
        if self.pick.random() < 0.5:
            return self.net.conv(self.value(), SHAPE, SHAPE, padding="SAME", **fused)
        return self.net.conv(self.padded(self.pick.choice((self.zero(), 3))), SHAPE, SHAPE, **fused)

    def pool(self) -> int:
        window = {
            "filter_height": 3,
            "filter_width": 3,
            "stride_h": 1,
            "stride_w": 1,
            "fused_activation_function": self.activation(),
        }
        op = self.pick.choice(("MAX_POOL_2D", "AVERAGE_POOL_2D"))
        if self.pick.random() < 0.5:
            return self.net.op(op, [self.value()], SHAPE, {**window, "padding": "SAME"})
        return self.net.op(op, [self.padded(-128)], SHAPE, {**window, "padding": "VALID"})

    def transposes(self) -> int:
        perm = self.pick.sample(range(4), 4)
        middle = self.net.op("TRANSPOSE", [self.value(), self.net.constant(perm)], [SHAPE[k] for k in perm])
        return self.net.op("TRANSPOSE", [middle, self.net.constant([perm.index(k) for k in range(4)])], SHAPE)

    def views(self) -> int:
        shape = self.pick.choice(((32,), (2, 16), (4, 1, 8), (1, 32)))
        middle = self.net.op("RESHAPE", [self.value(), self.net.constant(list(shape))], shape)
        if self.pick.random() < 0.5:
            middle = self.net.op("RELU", [middle], shape)
        return self.net.op("RESHAPE", [middle], SHAPE, {"new_shape": SHAPE})

    def parts(self) -> int:
        both = self.net.op("CONCATENATION", [self.value(), self.value()], (1, 4, 4, 4), {"axis": 3})
        start = self.pick.choice((0, 1, 2))
        return self.net.op("SLICE", [both, self.net.constant([0, 0, 0, start]), self.net.constant([-1, -1, -1, 2])], SHAPE)

    def identity(self) -> int:
        op, extra = self.pick.choice((("PAD", [[0, 0]] * 4), ("TRANSPOSE", [0, 1, 2, 3]), ("RESHAPE", list(SHAPE))))
        return self.net.op(op, [self.value(), self.net.constant(extra)], SHAPE)

    def requantise(self) -> int:
        between = self.pick.choice(
            (
                {"dtype": "float32"},
                {"scale": 0.05, "zero_point": 3},
                {"scale": 0.1, "zero_point": 7},
                {"dtype": "int16", "zero_point": 0},
            )
        )
        middle = self.net.op("DEQUANTIZE" if between.get("dtype") == "float32" else "QUANTIZE", [self.value()], SHAPE, **between)
        return self.net.op("QUANTIZE", [middle], SHAPE)

    def table(self) -> int:
        middle = self.net.op("LOGISTIC", [self.value()], SHAPE, scale=1 / 256, zero_point=-128)
        middle = self.net.op(self.pick.choice(("RELU", "RELU6")), [middle], SHAPE, scale=1 / 256, zero_point=-128)
        return self.net.op("QUANTIZE", [middle], SHAPE)

    def grown(self) -> Graph:
        for _ in range(self.pick.randint(2, 12)):
            self.values.append(self.pick.choice(self.steps)())
        outputs = {self.values[-1], *self.pick.sample(self.values[len(self.net.inputs) :], self.pick.randint(1, 2))}
        return self.net.graph(*sorted(outputs))


@pytest.mark.parametrize("seed", SEEDS)
def test_results_stay(seed: int) -> None:
    unchanged(Grower(seed).grown(), run_passes)


def test_the_random_graphs_give_the_passes_work() -> None:
    before, after = Counter(), Counter()
    for seed in range(30):
        graph = Grower(seed).grown()
        before.update(ops(graph))
        after.update(ops(run_passes(graph)))
    for op in ("PAD", "PADV2", "TRANSPOSE", "RESHAPE", "RELU", "RELU6", "QUANTIZE", "DEQUANTIZE"):
        assert after[op] < before[op]
