"""The driver's limits: models too large for any microcontroller are refused before they take memory or time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aot
from aot.errors import CompileError
from tests.one_operator import T, binary, one_operator, unary


@pytest.mark.parametrize(
    "model",
    [
        unary("RELU", (1_000_000_000,)),
        unary("SOFTMAX", (1, 1 << 29), output_q=(1 / 256, -128), options={"beta": 1.0}),
        binary("ADD", (1, 30_000), (30_000, 1)),
        one_operator(
            "SPLIT",
            [T((), "int32", data=np.array(0)), T((1 << 27,), "int8", 0.1)],
            [T((1 << 26,), "int8", 0.1)] * 2,
            {"num_splits": 2},
        ),
    ],
    ids=["one value", "softmax", "broadcast", "parts"],
)
def test_large_values(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "large.tflite").write_bytes(model)
    with pytest.raises(CompileError, match=r"would take [0-9]+ bytes together, more than 134217728 .the largest is '"):
        aot.compile(tmp_path / "large.tflite", "cortex-m4")
