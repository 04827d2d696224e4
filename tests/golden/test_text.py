"""The text of small graphs at every stage, as golden files: a reviewer sees what a change does to the compiler's output.

`make golden` rewrites the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests.builder import ModelBuilder
from tests.graph.stateful import Sub, model

FOLDER = Path(__file__).parent
STAGES = ("read", "remove_dead_nodes", "build_program", "tabulate", "schedule", "plan")


def residual() -> bytes:
    """relu(conv(x) + x): one loop nest in the end."""
    m = ModelBuilder()
    x = m.tensor("x", (1, 4, 4, 2), "int8", scale=0.1, zero_point=-3)
    weights = m.constant(
        np.arange(-18, 18, dtype=np.int8).reshape(2, 3, 3, 2), name="weights", scale=[0.01, 0.02], zero_point=[0, 0]
    )
    bias = m.constant(np.array([40, -7], np.int32), name="bias", scale=[0.001, 0.002], zero_point=[0, 0])
    y = m.tensor("y", (1, 4, 4, 2), "int8", scale=0.2, zero_point=5)
    out = m.tensor("out", (1, 4, 4, 2), "int8", scale=0.15, zero_point=-128)
    m.operator("CONV_2D", [x, weights, bias], [y], {"stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1})
    m.operator("ADD", [y, x], [out], {"fused_activation_function": "RELU"})
    return m.build([x], [out])


def padded_pool() -> bytes:
    """PAD, MAX_POOL_2D, RESHAPE of a float image, and an activation of its own."""
    m = ModelBuilder()
    x = m.tensor("x", (1, 3, 3, 1), "float32")
    wide = m.tensor("wide", (1, 5, 5, 1), "float32")
    pooled = m.tensor("pooled", (1, 2, 2, 1), "float32")
    clamped = m.tensor("clamped", (1, 2, 2, 1), "float32")
    flat = m.tensor("flat", (1, 4), "float32")
    m.operator("PAD", [x, m.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))], [wide])
    pool = {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2, "padding": "VALID"}
    m.operator("MAX_POOL_2D", [wide], [pooled], pool)
    m.operator("RELU6", [pooled], [clamped])
    m.operator("RESHAPE", [clamped, m.constant(np.array([1, 4], np.int32))], [flat])
    return m.build([x], [flat])


def joined() -> bytes:
    """A concatenation that costs nothing: both producers store to their place in it."""
    m = ModelBuilder()
    a, b = (m.tensor(name, (1, 2, 2, 3), "float32") for name in "ab")
    left, right = (m.tensor(name, (1, 2, 2, 3), "float32") for name in ("left", "right"))
    both = m.tensor("both", (1, 2, 2, 6), "float32")
    m.operator("ADD", [a, b], [left])
    m.operator("MUL", [a, b], [right])
    m.operator("CONCATENATION", [left, right], [both], {"axis": 3})
    return m.build([a, b], [both])


def sliding() -> bytes:
    """A window of the last three inputs, which lives in the state: its largest element."""

    def main(s: Sub):
        x, window = s.value((1, 1, 2)), s.read(s.value((1, 2, 2)))
        three = s.node("CONCATENATION", [window, x], s.value((1, 3, 2)), {"axis": 1})
        begin, size = s.constant([0, 1, 0], "int32"), s.constant([1, 2, 2], "int32")
        s.assign(s.node("SLICE", [three, begin, size], s.value((1, 2, 2))))
        return [x], [s.node("REDUCE_MAX", [three, s.constant([1], "int32")], s.value((1, 2)))]

    return model(main)


def looped() -> bytes:
    """x is doubled until i is 3: a condition, and a body whose results are held until all of them are there."""

    def main(s: Sub):
        i, x, j, y = s.value((), "int32"), s.value((1, 2)), s.value((), "int32"), s.value((1, 2))
        s.loop([i, x], [j, y], 1, 2)
        return [i, x], [y]

    def condition(s: Sub):
        i, x = s.value((), "int32"), s.value((1, 2))
        return [i, x], [s.node("LESS", [i, s.constant(3, "int32")], s.value((), "bool"))]

    def body(s: Sub):
        i, x = s.value((), "int32"), s.value((1, 2))
        return [i, x], [s.add(i, s.constant(1, "int32")), s.add(x, x)]

    return model(main, condition, body)


MODELS = {"residual": residual, "sliding": sliding, "looped": looped, "padded_pool": padded_pool, "joined": joined}


@pytest.mark.golden
@pytest.mark.parametrize("name", MODELS)
def test_text_of_every_stage(name: str) -> None:
    found: dict[str, str] = {}
    options = Options(target="cortex-m4", io="workspace")
    read = read_model(MODELS[name](), name, OPERATORS)
    found["read"] = str(read.main)
    compile_model(read, *resolve_target(options), options, lambda stage, result: found.update({stage: str(result)}))
    text = "\n\n".join(f"# after {stage}\n{found[stage]}" for stage in STAGES) + "\n"
    path = FOLDER / f"{name}.txt"
    if os.environ.get("AOT_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text, "the compiler's output changed: run `make golden` and read the difference"
