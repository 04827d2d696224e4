"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED in types other than int8 and float32: against TFLite Micro, or LiteRT where it lacks them.

`agree` compares compute, lowering and the oracle; the last test compares compiled code.
"""

from __future__ import annotations

import numpy as np
import pytest

from aot.graph.expr import Acc, Const, Load, walk
from aot.graph.ir import DType
from aot.graph.primitive import Contract
from tests.graph.lowered import Oracle, agree, extremes, lower, primitives, read, sweep
from tests.graph.test_ops_conv import CONVOLUTIONS, DEPTHWISE, WINDOWS, fits, window_of
from tests.one_operator import T, conv2d, depthwise, fully_connected, one_operator, random_inputs
from tests.oracle import litert_runs, tflm_runs

FLOAT_BOUND = 1e-6
UINT8 = {"dtype": "uint8", "input_zero_point": (0, 1, 128, 255), "output_zero_point": (0, 120, 255)}
DENSE = {
    "input_shape": ((1, 1), (1, 3), (1, 16), (2, 7), (3, 5), (1, 1, 1, 8), (1, 2, 3, 4), (2, 1, 5), (1, 600)),
    "units": (1, 2, 3, 5, 8, 17),
    "activation": ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"),
    "bias": (True, False),
    "keep_num_dims": (False, True),
}
OUTPUT_SCALES = (0.4, 0.01, 0.0005, 0.00002, 3e4)
OUTPUT_SCALES_16 = (0.01, 0.0005, 0.00002, 0.000005, 0.4)
"""With int16 inputs at 0.001 and weights around 0.01: multipliers from 2 to 2.5e-5."""


def conv_of(case: dict, seed: int, **fields) -> bytes:
    shape = (case["batch"], case["height"], case["width"], case["channels"] * case["groups"])
    return conv2d(shape, case["filters"] * case["groups"], groups=case["groups"], seed=seed, **window_of(case), **fields)


def depthwise_of(case: dict, seed: int, **fields) -> bytes:
    shape = (case["batch"], case["height"], case["width"], case["channels"])
    return depthwise(shape, case["multiplier"], seed=seed, **window_of(case), **fields)


def dense_of(case: dict, seed: int, **fields) -> bytes:
    fields |= {name: case[name] for name in ("activation", "bias", "keep_num_dims")}
    return fully_connected(case["input_shape"], case["units"], seed=seed, **fields)


FAMILIES = {
    "conv": ({**WINDOWS, **CONVOLUTIONS}, conv_of),
    "depthwise": ({**WINDOWS, **DEPTHWISE}, depthwise_of),
    "dense": (DENSE, dense_of),
}


def compare(family: str, count: int, oracle: Oracle, choices: dict, model_of, bound: float = 0.0, seed: int = 0) -> None:
    """A sweep over a family's shapes; `model_of(case, number)` gives further fields of the model. LiteRT's CONV_2D wants a bias."""
    shapes, build = FAMILIES[family]
    for number, case in enumerate(sweep(count, seed, **shapes, **choices)):
        if family != "dense" and not fits(case):
            continue
        if oracle is litert_runs and family == "conv":
            case["bias"] = True
        model = build(case, number, **model_of(case, number))
        agree(model, *extremes(model, number), bound=bound, oracle=oracle)


@pytest.mark.parametrize("family", FAMILIES)
def test_uint8(family: str) -> None:
    choices = {
        "in_zero": (0, 1, 128, 255),
        "out_zero": (0, 120, 255),
        "weight_zero": (0, 7, 128, 255),
        "output_scale": OUTPUT_SCALES,
    }

    def fields(case: dict, number: int) -> dict:
        return {
            "dtype": "uint8",
            "input_q": (0.05, case["in_zero"]),
            "output_q": (case["output_scale"], case["out_zero"]),
            "weight_scale": float(np.random.default_rng(number).uniform(0.002, 0.02)),
            "weight_zero_point": case["weight_zero"],
        }

    compare(family, 60, litert_runs, choices, fields)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("bias_dtype", ["int64", "int32"])
def test_int16(family: str, bias_dtype: str) -> None:
    if (family, bias_dtype) == ("depthwise", "int32"):
        pytest.skip("refused")
    choices = {"output_scale": OUTPUT_SCALES_16, "per_channel": (True, False)}

    def fields(case: dict, number: int) -> dict:
        scale = np.random.default_rng(number).uniform(0.002, 0.02, case["units"]).tolist() if family == "dense" else None
        return {
            "dtype": "int16",
            "weights_dtype": "int8",
            "bias_dtype": bias_dtype,
            "input_q": (0.001, 0),
            "output_q": (case["output_scale"], 0),
            "weight_scale": scale if case["per_channel"] else 0.01,
        }

    compare(family, 60, tflm_runs, choices, fields)


@pytest.mark.parametrize("family", FAMILIES)
def test_int4_weights(family: str) -> None:
    """FULLY_CONNECTED with a scale for each channel is LiteRT's alone, which rounds once."""
    choices = {"in_zero": (-128, -1, 0, 127), "out_zero": (-128, 3, 127), "output_scale": OUTPUT_SCALES}

    def fields(case: dict, number: int) -> dict:
        scale = 0.01 if family == "dense" else (None, 0.01)[number % 2]
        zeros = {"input_q": (0.05, case["in_zero"]), "output_q": (case["output_scale"], case["out_zero"])}
        return {"weights_dtype": "int4", "weight_scale": scale, **zeros}

    compare(family, 40, tflm_runs, choices, fields)


def test_int4_weights_of_a_dense_layer_per_channel() -> None:
    choices = {"in_zero": (-128, -1, 0, 127), "out_zero": (-128, 3, 127), "output_scale": OUTPUT_SCALES}

    def fields(case: dict, number: int) -> dict:
        zeros = {"input_q": (0.05, case["in_zero"]), "output_q": (case["output_scale"], case["out_zero"])}
        return {"weights_dtype": "int4", "weight_scale": None, **zeros}

    compare("dense", 40, litert_runs, choices, fields)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights_dtype", ["int8", "int4"])
def test_hybrid(family: str, weights_dtype: str) -> None:
    if (family, weights_dtype) == ("depthwise", "int4"):
        pytest.skip("LiteRT has none")
    choices = {"per_channel": (True, False) if family != "depthwise" else (True,), "asymmetric": (True, False)}

    def fields(case: dict, number: int) -> dict:
        grouped = case.get("groups", 1) > 1  # LiteRT reads a scale for each channel
        scale = None if case["per_channel"] or grouped else 0.01
        options = {"options": {"asymmetric_quantize_inputs": case["asymmetric"]}} if family == "dense" else {}
        return {"dtype": "float32", "weights_dtype": weights_dtype, "weight_scale": scale, **options}

    compare(family, 40, litert_runs, choices, fields, bound=FLOAT_BOUND)
