"""Models with several signatures: each graph of its own becomes an entry of its own, in one object."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.run import run_bundle
from tests.builder import ModelBuilder


def two_signatures() -> bytes:
    """serve: x + x on int8; `train it!`: relu(x) on float32, another shape."""
    m = ModelBuilder()
    x = m.tensor("x", (1, 8), "int8", scale=0.1, zero_point=3)
    y = m.tensor("y", (1, 8), "int8", scale=0.2, zero_point=3)
    m.operator("ADD", [x, x], [y])
    m.signature("serve", {"x": x}, {"y": y}, 0)
    m.end_subgraph([x], [y], "second")
    a = m.tensor("a", (2, 3), "float32")
    b = m.tensor("b", (2, 3), "float32")
    m.operator("RELU", [a], [b])
    m.signature("train it!", {"a": a}, {"b": b}, 1)
    return m.build([a], [b])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "both.tflite").write_bytes(two_signatures())
    return tmp_path / "both.tflite"


@pytest.mark.parametrize("weights", ["embedded", "separate"])
@pytest.mark.parametrize("cpu", [None, "cortex-m4", "cortex-m0plus"])
def test_both_entries_run(path: Path, cpu: str | None, weights: str) -> None:
    bundle = aot.compile(path, cpu, options=aot.Options(weights=weights))  # type: ignore[arg-type]
    first, second = bundle.entries
    assert (first.symbol, second.symbol) == ("both_run", "both_train_it_run")
    x = np.arange(-4, 4, dtype=np.int8).reshape(1, 8)
    (doubled,) = run_bundle(bundle, [x], entry=first).outputs
    np.testing.assert_array_equal(doubled, x)  # 2 * 0.1 * (x - 3) in steps of 0.2 is x - 3
    a = np.array([[-1, 0, 2], [3, -4, 5]], np.float32)
    (clamped,) = run_bundle(bundle, [a], entry=second).outputs
    np.testing.assert_array_equal(clamped, np.maximum(a, 0))


def test_files_of_both(path: Path, tmp_path: Path) -> None:
    aot.write(aot.compile(path, "cortex-m4"), tmp_path / "out")
    header = (tmp_path / "out" / "both.h").read_text()
    assert "int both_run(const int8_t *x," in header and "int both_train_it_run(const float *a," in header
    assert "BOTH_INPUT_0_SIZE (8u)" in header and "BOTH_TRAIN_IT_INPUT_0_SIZE (24u)" in header
    entries = json.loads((tmp_path / "out" / "both.json").read_text())["entries"]
    assert [entry["symbol"] for entry in entries] == ["both_run", "both_train_it_run"]


def test_shapes_go_to_the_graph_that_has_the_input(path: Path) -> None:
    bundle = aot.compile(path, options=aot.Options(shapes={"a": (4, 5)}))
    assert [entry.inputs[0].shape for entry in bundle.entries] == [(1, 8), (4, 5)]
    with pytest.raises(aot.CompileError, match="nowhere"):
        aot.compile(path, options=aot.Options(shapes={"nowhere": (4, 5)}))


@pytest.mark.parametrize("options", [{"backend": "cmsis"}, {"io": "heap"}, {"weights": "none"}])
def test_options_that_do_not_exist(path: Path, options: dict[str, str]) -> None:
    with pytest.raises(aot.CompileError, match=r"unknown .* .*known: "):
        aot.compile(path, options=aot.Options(**options))  # type: ignore[arg-type]
