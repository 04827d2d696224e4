"""Looking at models that can't be compiled."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.ir import DType, Value
from aot.graph.lenient import Lenient, refusals
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests.builder import ModelBuilder


def two_unsupported() -> bytes:
    """WHERE, RELU of float16, RELU of float32."""
    m = ModelBuilder()
    x, y, z, out = (
        m.tensor(name, (1, 4), dtype) for name, dtype in zip("xyzo", ("float32", "float32", "float16", "float32"), strict=True)
    )
    half = m.tensor("h", (1, 4), "float16")
    m.operator("WHERE", [x], [y])
    m.operator("RELU", [half], [z])
    m.operator("RELU", [y], [out])
    return m.build([x, half], [z, out])


def test_every_unsupported_node_is_named() -> None:
    model = read_model(two_unsupported(), "m", Lenient(OPERATORS))
    found = refusals(model, OPERATORS)
    assert [(node.index, node.op) for node, _ in found] == [(0, "WHERE"), (1, "RELU")]
    assert found[0][1] == "the operator is not supported" and "float16" in found[1][1]


def test_compiling_still_refuses() -> None:
    with pytest.raises(CompileError, match="WHERE is not supported"):
        read_model(two_unsupported(), "m", OPERATORS)


def test_titles_are_short() -> None:
    def title(label: str) -> str:
        return Value("t3", DType.INT8, (1,), data=np.zeros(1, np.int8), label=label).title

    assert title("a/b;c/Relu") == "c/Relu" and title("") == "t3" and title("x;") == "x;"
    assert title("k" * 80) == "..." + "k" * 60
