"""POW and ATAN2: the float functions' bounds and special operands; compute, lowering and LiteRT agree; what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.expr import Const, Unary, walk
from aot.graph.floatangle import ANGLE_ULP, angle
from aot.graph.floatpower import POWER_ULP, power
from aot.graph.interpreter import run
from aot.graph.ir import DType
from aot.graph.ops.elementwise import Expressed
from tests.graph.lowered import agree, primitives, read, run_lowered
from tests.graph.test_floatmath import ulp_errors
from tests.graph.test_ops_binary import BROADCASTS
from tests.one_operator import T, binary, one_operator
from tests.oracle import litert_runs

COUNT = 200_000
INFINITY, NAN = np.inf, np.nan
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-45, -1e-45, 3e38, 2, 3, -2, -3, 0.5, -0.5, 1.5, 2.0**24, 2.0**24 - 1, -1e30],
    np.float32,
)
RNG = np.random.default_rng(4)


def normal(scale: float) -> np.ndarray:
    return (RNG.standard_normal(COUNT) * scale).astype(np.float32)


def bits() -> np.ndarray:
    found = RNG.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(found), found, np.float32(1))


def same(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Equal to one unit of the last place or so, with the same sign, also of zeros; or both NaN."""
    near = np.isclose(found, expected, rtol=2e-7, atol=0) & (np.signbit(found) == np.signbit(expected))
    return near | (np.isnan(found) & np.isnan(expected))


ANGLES = {
    "normal": (normal(1), normal(1)),
    "any bits": (bits(), bits()),
    "around 1": (RNG.uniform(0.3, 1.1, COUNT).astype(np.float32), np.ones(COUNT, np.float32)),
    "large": (normal(1.0) * np.float32(6e37), normal(1.0) * np.float32(6e37)),
    "denormal": (normal(1e-43), normal(1e-43)),
}
POWERS = {
    "normal": (np.exp(normal(3)), normal(5)),
    "any bits": (np.abs(bits()), bits()),
    "next to 1": (1 + normal(1e-4), normal(3e5)),
    "negative": (-np.exp(normal(3)), RNG.integers(-30, 31, COUNT).astype(np.float32)),
    "denormal": (np.exp2(RNG.uniform(-149, -120, COUNT)).astype(np.float32), RNG.uniform(0.5, 1.2, COUNT).astype(np.float32)),
    "of 2": (np.full(COUNT, 2, np.float32), RNG.uniform(-150, 128, COUNT).astype(np.float32)),
}


@pytest.mark.parametrize("name", ANGLES)
def test_angles(name: str) -> None:
    y, x = ANGLES[name]
    exact = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    assert ulp_errors(Expressed(angle).array(y, x), exact).max() <= ANGLE_ULP


def test_special_angles() -> None:
    y, x = (np.ascontiguousarray(grid) for grid in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        assert same(Expressed(angle).array(y, x), np.arctan2(y.astype(np.float64), x).astype(np.float32)).all()


@pytest.mark.parametrize("name", POWERS)
def test_powers(name: str) -> None:
    x, y = POWERS[name]
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    found = Expressed(power).array(x, y)
    finite = np.abs(exact) < np.finfo(np.float32).max
    assert finite.mean() > 0.5
    assert ulp_errors(found[finite], exact[finite]).max() <= POWER_ULP
    assert np.array_equal(found[~finite], np.copysign(np.float32(INFINITY), exact[~finite]).astype(np.float32))


def test_special_powers() -> None:
    x, y = (np.ascontiguousarray(grid) for grid in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        assert same(Expressed(power).array(x, y), np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)).all()


@pytest.mark.parametrize("exponent", [0.5, -1.0, 1.0, 2.0, 0.0, 3.0, -0.5])
def test_constant_exponents(exponent: float) -> None:
    constant = Const(exponent, DType.FLOAT32)
    found = Expressed(lambda x: power(x, constant)).array(SPECIAL)
    general = Expressed(power).array(SPECIAL, np.full_like(SPECIAL, exponent))
    assert same(found, general).all()


def test_small_constant_exponents_are_cheap() -> None:
    for exponent, most in ((2.0, 3), (0.5, 12)):
        constant = T((), "float32", data=np.array(exponent))
        (lowered,) = primitives(one_operator("POW", [T((4,), "float32"), constant], [T((4,), "float32")], {}))
        assert len(list(walk(lowered.value))) <= most  # type: ignore[union-attr]
        assert not any(isinstance(part, Unary) and part.op == "trunc" for part in walk(lowered.value))  # type: ignore[union-attr]


def test_pow_and_litert() -> None:
    for left, right in BROADCASTS:
        pair = [np.abs(RNG.standard_normal(left)).astype(np.float32), RNG.standard_normal(right).astype(np.float32)]
        agree(binary("POW", left, right, dtype="float32"), pair, oracle=litert_runs)


def test_atan2_and_litert() -> None:
    """LiteRT wants equal shapes; ours broadcasts."""
    for left, right in BROADCASTS:
        agree(binary("ATAN2", left, left, dtype="float32"), oracle=litert_runs)
        graph = read(binary("ATAN2", left, right, dtype="float32"))
        pair = [RNG.standard_normal(shape).astype(np.float32) for shape in (left, right)]
        found = run_lowered(graph, dict(zip(graph.inputs, pair)))[graph.outputs[0]]
        assert np.array_equal(found, run(graph, pair)[0])
        assert np.allclose(found, np.arctan2(*pair), rtol=1e-6)


def test_pow_of_int32() -> None:
    rng = np.random.default_rng(1)
    for left, right in BROADCASTS:
        pair = [rng.integers(-8, 9, left).astype(np.int32), rng.integers(0, 11, right).astype(np.int32)]
        agree(binary("POW", left, right, dtype="int32"), pair, oracle=litert_runs)


def test_constant_exponents_of_int32() -> None:
    for exponent in (0, 1, 2, 3, 5, 8):
        inputs = [T((9,), "int32"), T((), "int32", data=np.array(exponent))]
        model = one_operator("POW", inputs, [T((9,), "int32")], {})
        agree(model, [np.arange(-4, 5, dtype=np.int32)], oracle=litert_runs)


def test_int32_overflow_wraps_and_negative_exponents_give_0() -> None:
    graph = read(binary("POW", (4,), dtype="int32"))
    inputs = [np.array([3, -7, 2, 5], np.int32), np.array([21, 12, 31, -1], np.int32)]
    expected = [3**21 - (2 << 32), (7**12 + (1 << 31)) % (1 << 32) - (1 << 31), -(1 << 31), 0]
    assert run(graph, inputs)[0].tolist() == expected
    assert run_lowered(graph, dict(zip(graph.inputs, inputs)))[graph.outputs[0]].tolist() == expected


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (binary("POW", dtype="int8"), "int8 is not supported for 'in0'"),
        (binary("ATAN2", dtype="float64"), "float64 is not supported for 'in0'"),
        (
            one_operator("POW", [T((2,), "int32"), T((2,), "int32", data=np.array([1, -1]))], [T((2,), "int32")], {}),
            "the int32 exponent 'in1' is negative",
        ),
        (
            one_operator("POW", [T((2,), "float32"), T((2,), "int32")], [T((2,), "float32")], {}),
            "'in1' is int32 but 'in0' is float32",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value)
