"""The driver's limits: models too large for any microcontroller are refused before they take memory or time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aot
from aot.errors import CompileError
from tests.graph import stateful
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


@pytest.mark.parametrize("cpu", [None, "cortex-m0", "cortex-m4"])
def test_stack(cpu: str | None, tmp_path: Path) -> None:
    """A limit at the bound is kept; below it the sentence says which function takes most, and every entry is looked at."""
    (tmp_path / "small.tflite").write_bytes(unary("SOFTMAX", (1, 10), output_q=(1 / 256, -128), options={"beta": 1.0}))
    bound = aot.compile(tmp_path / "small.tflite", cpu).main.stack_nbytes
    assert 0 < bound <= aot.Options().max_stack_nbytes == 1024
    assert aot.compile(tmp_path / "small.tflite", cpu, options=aot.Options(max_stack_nbytes=bound)).main.stack_nbytes == bound
    text = rf"small_run would take up to {bound} bytes of stack, over --max-stack {bound - 1}; most, [0-9]+, is for small_.* .allow more"
    with pytest.raises(CompileError, match=text):
        aot.compile(tmp_path / "small.tflite", cpu, options=aot.Options(max_stack_nbytes=bound - 1))


def test_stack_of_what_fills_the_state(tmp_path: Path) -> None:
    (tmp_path / "keeper.tflite").write_bytes(stateful.model(stateful.accumulator, stateful.initialiser(1, 2, 3, 4)))
    init = aot.compile(tmp_path / "keeper.tflite", "cortex-m4").init
    assert init is not None
    with pytest.raises(CompileError, match=r"keeper_run would take up to [0-9]+ bytes of stack, over --max-stack 0"):
        aot.compile(tmp_path / "keeper.tflite", "cortex-m4", options=aot.Options(max_stack_nbytes=0))
