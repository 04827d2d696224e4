"""BATCH_MATMUL: numpy meaning and lowering against TFLite Micro and LiteRT, compiled code, what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.errors import CompileError
from aot.graph.interpreter import run
from aot.graph.ir import Model
from aot.graph.primitive import Contract, Geometry
from aot.run import run_bundle
from tests.graph.lowered import agree, assert_near, extremes, primitives, read, sweep
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

FLOAT_BOUND = 1e-5
BATCHES = (
    ((), ()),
    ((1,), (1,)),
    ((2,), (2,)),
    ((1,), (2,)),
    ((2,), (1,)),
    ((3,), ()),
    ((), (2,)),
    ((2, 3), (2, 3)),
    ((1, 3), (2, 1)),
    ((2, 1), (1, 2)),
    ((2, 2), (2,)),
    ((2, 1, 2), (1, 3, 1)),
    ((2, 1, 1), (2,)),
    ((1, 2, 2), (2, 2, 2)),
)
CASES = {
    "batches": BATCHES,
    "adj_x": (False, True),
    "adj_y": (False, True, True, False),
    "rows": (1, 2, 3, 5),
    "columns": (1, 2, 4, 7),
    "depth": (1, 2, 3, 8, 17),
    "constant": (None, None, "right", "left"),
}
ZERO_POINTS = (-128, -1, 0, 1, 127)


def batch_matmul(
    batches=((), ()),
    adj_x=False,
    adj_y=False,
    rows=3,
    columns=4,
    depth=8,
    constant=None,
    *,
    types=("float32", "float32", "float32"),
    scales: tuple = (0.05, 0.02, 0.1),
    zero_points=(0, 0, 0),
    seed=0,
) -> bytes:
    """`constant`: the operand that is one; `scales` and `zero_points`: of left, right and output."""
    left = (*batches[0], *((depth, rows) if adj_x else (rows, depth)))
    right = (*batches[1], *((columns, depth) if adj_y else (depth, columns)))
    out = (*np.broadcast_shapes(*batches), rows, columns)
    rng = np.random.default_rng(seed)
    specs = []
    for shape, dtype, scale, zero_point, name in zip((left, right, out), types, scales, zero_points, ("left", "right", "output")):
        data = None
        if name == constant:
            numbers = np.iinfo(dtype) if dtype != "float32" else None
            data = rng.standard_normal(shape) if numbers is None else rng.integers(numbers.min, numbers.max + 1, shape)
        specs.append(T(shape, dtype, None if dtype == "float32" else scale, zero_point, data))
    return one_operator("BATCH_MATMUL", specs[:2], specs[2:], {"adj_x": adj_x, "adj_y": adj_y})


@pytest.mark.parametrize("part", range(3))
def test_int8_equals_tflite_micro(part):
    choices = {"left_zero": ZERO_POINTS, "right_zero": ZERO_POINTS, "zero": ZERO_POINTS, "scale": (0.1, 0.5, 0.01, 1e-4, 1e4)}
    for number, case in enumerate(sweep(56, part, **CASES, **choices)):
        scales = (0.05, 0.02, case.pop("scale"))
        zero_points = case.pop("left_zero"), case.pop("right_zero"), case.pop("zero")
        model = batch_matmul(**case, types=("int8",) * 3, scales=scales, zero_points=zero_points, seed=number)
        agree(model, *extremes(model, number))


@pytest.mark.parametrize("part", range(2))
def test_int16_equals_tflite_micro(part):
    for number, case in enumerate(sweep(56, part, **CASES, scale=(0.1, 3.0, 1e-3, 0.5, 1e4))):
        scales = (0.01, 0.02, case.pop("scale"))
        model = batch_matmul(**case, types=("int16",) * 3, scales=scales, seed=number)
        agree(model, *extremes(model, number))


@pytest.mark.parametrize("part", range(2))
def test_int16_with_int8_equals_litert(part):
    for number, case in enumerate(sweep(42, part, **CASES, scale=(0.1, 3.0, 1e-3, 0.5))):
        scales = (0.01, 0.02, case.pop("scale"))
        model = batch_matmul(**case, types=("int16", "int8", "int16"), scales=scales, seed=number)
        agree(model, *extremes(model, number), oracle=litert_runs)


@pytest.mark.parametrize("part", range(2))
def test_float_is_near_tflite_micro(part):
    for number, case in enumerate(sweep(56, part, **CASES)):
        model = batch_matmul(**case, seed=number)
        agree(model, *extremes(model, number), bound=FLOAT_BOUND)


@pytest.mark.parametrize(("types", "oracle"), [(("int8",) * 3, tflm_runs), (("int16", "int8", "int16"), litert_runs)])
def test_of_several_scales_the_kernels_use_one(types, oracle):
    """TFLite Micro the first, LiteRT 0: a model with scales per column is wrong there, and the same here."""
    right = T((8, 2), "int8", (0.02, 0.04), 0, np.arange(16).reshape(8, 2), 1)
    model = one_operator("BATCH_MATMUL", [T((3, 8), types[0], 0.05), right], [T((3, 2), types[2], 0.1)], {})
    (out,) = agree(model, oracle=oracle)
    assert out.any() == (types[0] == "int8")


@pytest.mark.parametrize("depth", [511, 512, 513, 1024])
@pytest.mark.parametrize("right", ["int8", "int16"])
def test_int16_sums_leave_int32(depth, right):
    types = ("int16", right, "int16")
    model = batch_matmul(depth=depth, types=types, scales=(0.01, 0.02, 100.0))
    low, high = (np.iinfo(name).min for name in types[:2]), (np.iinfo(name).max for name in types[:2])
    shapes = (3, depth), (depth, 4)
    ends = [[np.full(shape, end, name) for shape, end, name in zip(shapes, side, types)] for side in (low, high)]
    agree(model, *ends, oracle=tflm_runs if right == "int16" else litert_runs)
    assert str(contract_of(model).initial.dtype) == ("int32" if right == "int8" and depth < 512 else "int64")


def test_int8_sums_wrap_at_int32():
    """As in C: 255 * 255 * 40000 is more than int32 holds."""
    model = batch_matmul(rows=1, columns=1, depth=40000, types=("int8",) * 3, zero_points=(-128, -128, 0), scales=(0.05, 0.02, 2e5))
    agree(model, *extremes(model))


# The primitive's form.


def contract_of(model: bytes) -> Contract:
    (contract,) = primitives(model)
    assert isinstance(contract, Contract)
    return contract


def geometry_of(**case) -> Geometry | None:
    return contract_of(batch_matmul(**case)).geometry


def test_one_right_matrix_is_a_dense_layer():
    dense = Geometry("dense", (6, 1, 1, 8), (6, 1, 1, 4))
    assert geometry_of(batches=((2,), ()), constant="right") == dense
    assert geometry_of(batches=((1, 2), (1, 1)), adj_y=True) == dense
    assert geometry_of(batches=((2,), (2,))) is None
    assert geometry_of(adj_x=True) is None


def compiled(model: bytes, cpu: str | None) -> str:
    """Compiled code gives what `compute` gives; the name of the kernel."""
    graph, options = read(model), Options(target=cpu)
    bundle = compile_model(Model("model", (graph,)), *resolve_target(options), options, lambda stage, result: None)
    for inputs in extremes(model):
        for found, expected in zip(run_bundle(bundle, inputs).outputs, run(graph, inputs), strict=True):
            assert_near(found, expected, f"compiled for {cpu} and computed", FLOAT_BOUND)
    return bundle.main.layers[0].kernel


INT8 = {"types": ("int8",) * 3, "zero_points": (3, -7, 11)}
COMPILED = {
    "float32": batch_matmul(((2, 1), (1, 3)), True, True),
    "int8": batch_matmul(((2,), (2,)), **INT8),
    "int8 transposed": batch_matmul(((2,), (1,)), True, True, **INT8),
    "int8 constant": batch_matmul(((2,), ()), constant="right", **INT8),
    "int8 constant left": batch_matmul(((2,), (2,)), constant="left", **INT8),
    "int16": batch_matmul(((2,), (2,)), types=("int16",) * 3),
    "int16 with int8": batch_matmul(constant="right", types=("int16", "int8", "int16")),
}


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("cpu", [None, "cortex-m4", "cortex-m0plus"])
def test_compiled(name, cpu):
    compiled(COMPILED[name], cpu)


@pytest.mark.parametrize("adj_y", [False, True])
def test_the_dense_kernel_claims_a_constant_right_matrix(adj_y):
    model = batch_matmul(((2,), (1,)), adj_y=adj_y, columns=6, constant="right", types=("int8",) * 3, zero_points=(3, 0, 11))
    assert compiled(model, "cortex-m4") == "dense"


# What is refused.


def with_(left=((2, 3), "int8", 0.1, 0), right=((3, 4), "int8", 0.1, 0), out=((2, 4), "int8", 0.1, 0), count=2) -> bytes:
    return one_operator("BATCH_MATMUL", [T(*left), T(*right)][:count], [T(*out)], {})


REFUSED = [
    (with_(count=1), "has 1 inputs, not 2"),
    (with_(right=((4, 4), "int8", 0.1)), "rows of 3 elements in 'in0', columns of 4 in 'in1'"),
    (with_(left=((3,), "int8", 0.1)), "'in0' has 1 dimensions, not 2 to 5"),
    (with_(right=((1, 1, 1, 1, 3, 4), "int8", 0.1)), "'in1' has 6 dimensions, not 2 to 5"),
    (with_(right=((3, 0), "int8", 0.1, 0, np.zeros((3, 0)))), "'in1' is empty"),
    (with_((((2, 2, 3)), "int8", 0.1), ((3, 3, 4), "int8", 0.1)), "'in0', 2x2x3, and 'in1', 3x3x4, do not broadcast"),
    (with_(left=((2, 3), "int32")), "int32 is not supported for 'in0' (supported: float32, int8, int16)"),
    (with_(right=((3, 4), "int16", 0.1)), "int16 is not supported for 'in1' (supported: int8)"),
    (with_(left=((2, 3), "float32")), "int8 is not supported for 'in1' (supported: float32)"),
    (with_(out=((2, 4), "int32", 0.1)), "'out0' is int32 but 'in0' is int8"),
    (with_(out=((2, 4), "int8")), "'out0' is int8 without a scale and zero point"),
    (with_(out=((2, 4), "int8", 1e-30)), "more than int32 arithmetic can"),
    (with_(((2, 3), "int16", 0.1, 1), out=((2, 4), "int16", 0.1)), "'in0' is int16 with a zero point that is not 0"),
    (with_(((2, 3), "int16", 0.1), ((3, 4), "int8", 0.1, 1), ((2, 4), "int16", 0.1)), "'in1' has a zero point that is not 0"),
    (with_(((2, 3), "int16", 0.1), out=((2, 4), "int16", 1e-6)), "more than TFLite's int16 arithmetic can"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(model, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        read(model)
