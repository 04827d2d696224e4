"""Every expression against its numpy meaning: on this machine, and on Cortex-M0 (all in software) and M4 in Unicorn."""

from __future__ import annotations

import numpy as np
import pytest

from aot.graph.expr import (
    ARITHMETIC,
    COMPARE,
    UNARY,
    Axis,
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Load,
    Lookup,
    Requantise,
    Select,
    Unary,
    axis,
    integer,
    real,
)
from aot.graph.ir import DType
from aot.graph.primitive import Map
from aot.target import Target, host_target, load_target, triple_target
from tests.llvm.compiled import check, program_of

INTEGERS = [DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64]
FLOATS = [DType.FLOAT32, DType.FLOAT64]
COUNT = 300
WHERE = ["host", "cortex-m0", "cortex-m4"]


def target_of(name: str) -> Target:
    if name != "host":
        pytest.importorskip("unicorn")
    if name.startswith("thumb"):
        return triple_target(name)
    return host_target() if name == "host" else load_target(name)


def samples(dtype: DType, seed: int) -> np.ndarray:
    """Edge cases and random values of a dtype, COUNT of them."""
    random = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return random.integers(0, 2, COUNT).astype(bool)
    if dtype.is_integer:
        low, high = dtype.limits
        edges = [value for value in (low, low + 1, -2, -1, 0, 1, 2, 3, 100, high - 1, high) if low <= value <= high]
        values = [int(v) % (high - low + 1) + low for v in random.integers(0, 1 << 63, COUNT - len(edges))]
        return random.permutation(np.array(edges + values, dtype.np))
    edges = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, np.finfo(dtype.np).max, np.finfo(dtype.np).tiny / 4]
    values = random.standard_normal(COUNT - len(edges)) * np.exp2(random.integers(-20, 20, COUNT - len(edges)))
    return random.permutation(np.array(edges + list(values)).astype(dtype.np))


def load(name: str, dtype: DType) -> Load:
    return Load(name, (axis(0),), dtype)


def run(expressions: list[Expr], arrays: dict[str, np.ndarray], where: str, constants=()) -> None:
    """One Map for each expression over COUNT positions, all in one program."""
    names = [f"out{position}" for position in range(len(expressions))]
    maps = [Map(name, (COUNT,), expr) for name, expr in zip(names, expressions)]
    outputs = {name: (expr.dtype, (COUNT,)) for name, expr in zip(names, expressions)}
    check(program_of(maps, arrays, outputs, constants), arrays, target_of(where))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype: DType, where: str) -> None:
    a, b, count = load("a", dtype), load("b", dtype), load("count", dtype)
    arrays = {"a": samples(dtype, 1), "b": samples(dtype, 2)}
    arrays["b"][::7] = arrays["a"][::7]
    arrays["count"] = (np.arange(COUNT) % dtype.bits).astype(dtype.np)
    shifts = ("shl", "shr", "ushr")
    expressions: list[Expr] = [Binary(op, a, count if op in shifts else b) for op in (*ARITHMETIC, *COMPARE)]
    expressions += [Unary(op, a) for op in ("neg", "abs", "not")]
    expressions += [Binary("div", a, Const(divisor, dtype)) for divisor in (1, 3, 7, 100)]
    expressions += [Binary("rem", a, Const(10, dtype)), Select(Binary("lt", a, b), b, a)]
    if dtype.is_signed:
        expressions.append(Binary("div", a, Const(-1, dtype)))
    run(expressions, arrays, where)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats(dtype: DType, where: str) -> None:
    a, b = load("a", dtype), load("b", dtype)
    arrays = {"a": samples(dtype, 1), "b": samples(dtype, 2)}
    arrays["b"][::7] = arrays["a"][::7]
    expressions: list[Expr] = [Binary(op, a, b) for op in ("add", "sub", "mul", "div", "rem", "min", "max", *COMPARE)]
    expressions += [Unary(op, a) for op in UNARY if op not in ("not", "clz")]
    expressions.append(Binary("add", Binary("mul", a, b), a))  # two roundings, never a fused one
    run(expressions, arrays, where)


@pytest.mark.parametrize("where", ["thumbv6m-none-unknown-eabi", "thumbv7em-none-unknown-eabihf"])
def test_arm_run_time_abi(where: str) -> None:
    """Triples for which LLVM asks for the __aeabi_ routines: pairs of quotient and remainder, floats in integer registers."""
    for dtype in (DType.INT32, DType.INT64, DType.UINT64):
        test_integers(dtype, where)
    for dtype in FLOATS:
        test_floats(dtype, where)
        test_casts(dtype, where)


@pytest.mark.parametrize("where", WHERE)
def test_bool(where: str) -> None:
    a, b = load("a", DType.BOOL), load("b", DType.BOOL)
    expressions: list[Expr] = [Binary(op, a, b) for op in ("and", "or", "xor", "eq", "ne")]
    expressions += [
        Unary("not", a),
        Select(a, Unary("not", b), b),
        Cast(a, DType.INT8),
        Cast(a, DType.FLOAT32),
        Const(True, DType.BOOL),
    ]
    run(expressions, {"a": samples(DType.BOOL, 1), "b": samples(DType.BOOL, 2)}, where)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("source", [DType.BOOL, *INTEGERS, *FLOATS], ids=str)
def test_casts(source: DType, where: str) -> None:
    values = samples(source, 1)
    if source.is_float:
        values = np.where(np.isfinite(values), np.clip(values, 0, 127), 0).astype(source.np)
    targets = [DType.BOOL, *INTEGERS, *FLOATS] + ([DType.FLOAT16] if source is DType.FLOAT32 else [])
    run([Cast(load("a", source), target) for target in targets if target is not source], {"a": values}, where)


@pytest.mark.parametrize("where", WHERE)
def test_half_floats_and_bits(where: str) -> None:
    half = np.arange(0, 1 << 16, (1 << 16) // COUNT, dtype=np.uint16)[:COUNT].view(np.float16)
    arrays = {"half": half, "single": samples(DType.FLOAT32, 3), "bits": samples(DType.INT32, 4)}
    single, bits = load("single", DType.FLOAT32), load("bits", DType.INT32)
    expressions = [Cast(load("half", DType.FLOAT16), DType.FLOAT32), Bitcast(single, DType.INT32), Bitcast(bits, DType.FLOAT32)]
    run([*expressions, Unary("clz", bits), Axis(0), real(0.1), integer(-5, DType.INT8)], arrays, where)


@pytest.mark.parametrize("where", WHERE)
def test_lookup(where: str) -> None:
    arrays = {"a": samples(DType.INT8, 1), "table": np.arange(256, dtype=np.int16)[::-1] * 100, "same": np.full(256, 7, np.int8)}
    index = Binary("add", Cast(load("a", DType.INT8), DType.INT32), integer(128))
    expressions: list[Expr] = [Lookup("table", index, DType.INT16), Lookup("same", index, DType.INT8)]
    run(expressions, arrays, where, constants=("table", "same"))


ACCUMULATORS = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    127,
    -128,
    1 << 15,
    -(1 << 15),
    (1 << 30) - 1,
    1 << 30,
    -(1 << 30),
    (1 << 31) - 1,
    -(1 << 31),
    1 - (1 << 31),
]
MULTIPLIERS = [0, 1, 1 << 30, (1 << 30) + 1, (1 << 31) - 1, 1518500250, 0x40000001]


def requantise_arrays(low: int, high: int) -> dict[str, np.ndarray]:
    """Every edge accumulator x multiplier x shift in [low, high], and random ones, ties among them."""
    random = np.random.default_rng(5)
    cases = [(x, m, s) for x in ACCUMULATORS for m in MULTIPLIERS for s in range(low, high + 1)]
    for _ in range(3000):
        bits = int(random.integers(1, 32))
        x = int(random.integers(-(1 << (bits - 1)), 1 << (bits - 1)))
        cases.append((x, int(random.integers(1 << 30, 1 << 31)), int(random.integers(low, high + 1))))
        cases.append((x, 1 << 30, int(random.integers(low, high + 1))))
    columns = np.array(cases, np.int64).astype(np.int32).T
    return dict(zip(("x", "m", "s"), (np.ascontiguousarray(column) for column in columns)))


@pytest.mark.parametrize("where", [*WHERE, "cortex-m3", "cortex-m7"])
@pytest.mark.parametrize(("low", "high"), [(-31, 30), (-31, -1), (0, 30), (-31, 0), (0, 0), (-1, 1)])
@pytest.mark.parametrize("known", [False, True], ids=["variable", "constant"])
def test_requantise(low: int, high: int, known: bool, where: str) -> None:
    arrays = requantise_arrays(low, high)
    count = arrays["x"].size
    expr = Requantise(*(load(name, DType.INT32) for name in ("x", "m", "s")))
    program = program_of([Map("out", (count,), expr)], arrays, {"out": (DType.INT32, (count,))}, ("m", "s") if known else ())
    check(program, arrays, target_of(where))
