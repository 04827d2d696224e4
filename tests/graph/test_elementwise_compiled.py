"""Compiled code against `compute` for the elementwise operators of several inputs: on this machine, and on cores that lack the
instructions (no divider, no floating point, 32-bit words)."""

from __future__ import annotations

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run
from aot.graph.ir import DType, Model
from aot.run import run_bundle
from tests.builder import ModelBuilder
from tests.graph.lowered import extremes, read
from tests.graph.test_ops_cast import ALL, numbers
from tests.graph.test_ops_comparison import COMPARISONS, compare
from tests.graph.test_ops_select import choice
from tests.graph.test_ops_sums import add_n
from tests.one_operator import T, binary, one_operator, random_inputs

SHAPES = ((2, 3, 1, 5), (3, 4, 1))
UINT8 = {"dtype": "uint8", "left_q": (0.1, 120), "right_q": (0.07, 130), "output_q": (0.2, 128)}
SCALAR = T((), "int32", data=np.array(5))
CASES: dict[str, bytes] = {
    **{f"{op} uint8": binary(op, *SHAPES, **UINT8, activation="RELU6") for op in ("SUB", "MUL", "DIV")},
    **{f"{op} int64": binary(op, *SHAPES, dtype="int64", activation="RELU6") for op in ("ADD", "MUL")},
    "MUL uint32": binary("MUL", *SHAPES, dtype="uint32"),
    **{f"DIV {dtype}": binary("DIV", *SHAPES, dtype=dtype, activation="RELU") for dtype in ("int8", "int32", "float32")},
    **{f"FLOOR_DIV {dtype}": binary("FLOOR_DIV", *SHAPES, dtype=dtype) for dtype in ("int8", "int32", "float32")},
    **{f"FLOOR_MOD {dtype}": binary("FLOOR_MOD", *SHAPES, dtype=dtype) for dtype in ("int16", "int32", "int64", "float32")},
    "EQUAL int8": compare("EQUAL", *SHAPES, dtype="int8"),
    "LESS int8 directly": compare("LESS", *SHAPES, dtype="int8", right_q=(0.05, -3)),
    "GREATER uint8": compare("GREATER", *SHAPES, dtype="uint8", left_q=(0.05, 3), right_q=(0.05, 5)),
    **{f"{op} float32": compare(op, *SHAPES, dtype="float32") for op in COMPARISONS},
    **{f"LESS {dtype}": compare("LESS", *SHAPES, dtype=dtype, right_q=(0.05, 0)) for dtype in ("int16", "int64")},
    **{f"{op} float32": binary(op, *SHAPES, dtype="float32") for op in ("MAXIMUM", "MINIMUM")},
    **{op: binary(op, *SHAPES, dtype="bool") for op in ("LOGICAL_AND", "LOGICAL_OR", "NOT_EQUAL")},
    **{f"SELECT_V2 {dtype}": choice("SELECT_V2", (4, 1), (3,), (1, 3), dtype=dtype) for dtype in ("int8", "bool")},
    "SELECT of rows": choice("SELECT", (4,), (4, 3), (4, 3), out=(4, 3)),
    **{f"ADD_N {dtype}": add_n(3, dtype) for dtype in ("int8", "float32")},
    **{f"SQUARED_DIFFERENCE {dtype}": binary("SQUARED_DIFFERENCE", *SHAPES, dtype=dtype) for dtype in ("int8", "int16")},
    **{f"POW {dtype}": binary("POW", *SHAPES, dtype=dtype) for dtype in ("int32", "float32")},
    "POW of a constant": one_operator("POW", [T((9,), "int32"), SCALAR], [T((9,), "int32")], {}),
    "ATAN2": binary("ATAN2", *SHAPES, dtype="float32"),
}
CORES = ("cortex-m0", "cortex-m4")
ON_CORES = ("DIV int8", "FLOOR_DIV float32", "FLOOR_MOD float32", "FLOOR_MOD int64", "MUL int64", "POW float32", "ATAN2")


def casts(source: str) -> bytes:
    """One value cast to every type."""
    m = ModelBuilder()
    shape = numbers(source).shape
    x = m.tensor("x", shape, source)
    outputs = [m.tensor(target, shape, target) for target in (*ALL, "uint64")]
    for output in outputs:
        m.operator("CAST", [x], [output])
    return m.build([x], outputs)


def compiled(model: bytes, core: str | None, *invocations: list[np.ndarray]) -> None:
    """The code gives what `compute` gives: numbers bit for bit, a NaN for a NaN."""
    options, graph = Options(target=core), read(model)
    target, backend = resolve_target(options)
    bundle = compile_model(Model("model", (graph,)), target, backend, options, lambda stage, result: None)
    for inputs in invocations:
        for found, expected in zip(run_bundle(bundle, inputs).outputs, run(graph, inputs), strict=True):
            assert found.dtype == expected.dtype
            same = (found == expected) if found.dtype.kind != "f" else (found == expected) | (np.isnan(found) & np.isnan(expected))
            assert same.all(), (found[~same][:5], expected[~same][:5])


def invocations_of(model: bytes) -> list[list[np.ndarray]]:
    with_bools = any(value.dtype is DType.BOOL for value in map(read(model).__getitem__, read(model).inputs))
    return [random_inputs(model)] if with_bools else list(extremes(model))


@pytest.mark.parametrize("name", CASES)
def test_on_this_machine(name: str) -> None:
    compiled(CASES[name], None, *invocations_of(CASES[name]))


@pytest.mark.parametrize("source", [*ALL, "uint64"])
def test_casts_on_this_machine(source: str) -> None:
    compiled(casts(source), None, [numbers(source)])


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", ON_CORES)
def test_on_cores(name: str, core: str) -> None:
    compiled(CASES[name], core, *invocations_of(CASES[name]))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("source", ["float32", "int64", "uint64"])
def test_casts_on_cores(source: str, core: str) -> None:
    compiled(casts(source), core, [numbers(source)])
