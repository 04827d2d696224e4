"""ADD_N and SQUARED_DIFFERENCE: compute, lowering and the oracle agree; what is refused says why."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from tests.graph.lowered import agree, extremes, read, sweep
from tests.graph.test_ops_binary import BROADCASTS
from tests.one_operator import T, binary, one_operator
from tests.oracle import litert_runs


def add_n(count: int, dtype: str = "int8", q: tuple[float, int] = (0.05, 3), out: tuple[float, int] = (0.15, -4)) -> bytes:
    quantised = dtype == "int8"
    inputs = [T((2, 30), dtype, q[0] if quantised else None, q[1])] * count
    return one_operator("ADD_N", inputs, [T((2, 30), dtype, out[0] if quantised else None, out[1])], {})


@pytest.mark.parametrize("count", [2, 3, 7])
def test_add_n(count: int) -> None:
    for dtype in ("int8", "float32"):
        model = add_n(count, dtype)
        agree(model, *extremes(model))
    agree(add_n(count, "int32"), oracle=litert_runs)


def test_add_n_of_int8() -> None:
    """The sum starts at the real value of the byte 0: of a zero point that is not 0 there is one term more."""
    for case in sweep(16, zero=(-128, -1, 0, 127), out_zero=(-128, 0, 5, 127), gain=(0.3, 1.0, 4.0), terms=(2, 3, 5)):
        model = add_n(case["terms"], "int8", (0.05, case["zero"]), (0.05 * case["gain"], case["out_zero"]))
        agree(model, *extremes(model))


def test_add_n_with_constants_and_shared_operands() -> None:
    x, constant = T((2, 3), "float32"), T((2, 3), "float32", data=np.arange(6).reshape(2, 3) / 7)
    agree(one_operator("ADD_N", [x, constant, x], [x], {}))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_squared_difference(dtype: str) -> None:
    for shapes in BROADCASTS:
        agree(binary("SQUARED_DIFFERENCE", *shapes, dtype=dtype))


def test_squared_difference_of_int32_wraps() -> None:
    values = np.array([-(1 << 31), -50000, 0, 3, 70000, (1 << 31) - 1], np.int32)
    agree(binary("SQUARED_DIFFERENCE", (6, 1), (6,), dtype="int32"), [values.reshape(6, 1), values])


def test_squared_difference_of_int8() -> None:
    for case in sweep(
        24,
        shapes=BROADCASTS,
        scales=((0.1, 0.1), (0.1, 0.01), (0.001, 0.2), (0.037, 0.051)),
        gain=(0.05, 1.0, 20.0),
        left=(-128, -1, 0, 127),
        right=(-128, 0, 127),
        out=(-128, 0, 127),
    ):
        a, b = case["scales"]
        quantisations = {
            "left_q": (a, case["left"]),
            "right_q": (b, case["right"]),
            "output_q": (a * b / case["gain"], case["out"]),
        }
        model = binary("SQUARED_DIFFERENCE", *case["shapes"], **quantisations)
        agree(model, *extremes(model))


def test_squared_difference_of_all_pairs() -> None:
    values = np.arange(-128, 128, dtype=np.int8)
    model = binary("SQUARED_DIFFERENCE", (256, 1), (1, 256), left_q=(0.05, -3), right_q=(0.07, 4), output_q=(0.7, -128))
    agree(model, [values.reshape(256, 1), values.reshape(1, 256)])


def test_squared_difference_of_int16() -> None:
    for left, right, out in ((0.001, 0.001, 0.03), (0.001, 0.0003, 0.02), (1e-4, 3e-3, 5.0), (0.01, 0.01, 1e-4)):
        inputs = [T((300,), "int16", left), T((300,), "int16", right)]
        model = one_operator("SQUARED_DIFFERENCE", inputs, [T((300,), "int16", out)], {})
        agree(model, *extremes(model))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (add_n(1), "has 1 inputs, not 2 to 64"),
        (add_n(65), "has 65 inputs, not 2 to 64"),
        (add_n(2, "int16"), "int16 is not supported for 'in0'"),
        (add_n(2, out=(1e-9, 0)), "the output's scale 1e-09 is too small for inputs of scale 0.05"),
        (
            one_operator("ADD_N", [T((2,), "int8", 0.1), T((2,), "int8", 0.2)], [T((2,), "int8", 0.1)], {}),
            "'in1' and 'in0' must have the same quantisation",
        ),
        (
            one_operator("ADD_N", [T((2,), "int32"), T((2,), "float32")], [T((2,), "int32")], {}),
            "'in1' is float32 but 'in0' is int32",
        ),
        (
            one_operator("ADD_N", [T((2, 3), "int32"), T((3,), "int32")], [T((2, 3), "int32")], {}),
            "'in0' of shape 2x3 and 'in1' of shape 3 must have the same shape",
        ),
        (binary("SQUARED_DIFFERENCE", dtype="uint8", left_q=(0.1, 3), output_q=(0.1, 3)), "uint8 is not supported for 'in0'"),
        (binary("SQUARED_DIFFERENCE", output_q=(1e-15, 0)), "more than int32 arithmetic can"),
        (
            one_operator("SQUARED_DIFFERENCE", [T((2,), "int16", 1.0, 3), T((2,), "int16", 1.0)], [T((2,), "int16", 1.0)], {}),
            "int16 with a zero point that is not 0 is not supported",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value)
