"""Cases of operators on single elements of one operand: activations, functions, casts, quantisation."""

from __future__ import annotations

from dataclasses import replace

from tests.differential.case import EXACT, SUM, ULPS, cases
from tests.differential.grower import Grower
from tests.differential.net import Fill, Tensor

UNIT = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0), "float32": (None, 0)}
SIGNED_UNIT = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0), "float32": (None, 0)}


def clamp(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "int16", "uint8"))
    made = g.like(x) if g.coin() else g.output(g[x].shape, g[x].dtype)
    g.node(op, [x], made)


def bounded(g: Grower, op: str) -> None:
    """LOGISTIC and TANH: the output's quantisation is fixed."""
    x = g.value(("int8", "float32", "int16", "uint8"))
    scale, zero_point = (UNIT if op == "LOGISTIC" else SIGNED_UNIT)[g[x].dtype]
    g.node(op, [x], Tensor(g[x].shape, g[x].dtype, scale, zero_point))


def leaky(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "int16", "uint8"))
    g.node(op, [x], g.output(g[x].shape, g[x].dtype), {"alpha": g.pick(0.1, 0.5, 0.0, 1.0, -0.3, 2.5)})


def prelu(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "uint8"))
    shape = g[x].shape
    slopes = g.pick(shape[-1:], shape[1:] or shape, (1,) * (len(shape) - 1) + shape[-1:])
    dtype = g[x].dtype
    alpha = g.add(Tensor(slopes, dtype, *g.quantisation(dtype), data=Fill(g.whole(0, 99))))
    g.node(op, [x, alpha], g.output(shape, dtype))


def quantised_function(g: Grower, op: str) -> None:
    """Functions of quantised and float elements with a free output quantisation: ELU, HARD_SWISH, EXP."""
    x = g.value(("int8", "float32", "int16", "uint8"))
    g.node(op, [x], g.output(g[x].shape, g[x].dtype), None if op != "EXP" else {})


def float_function(g: Grower, op: str) -> None:
    positive = op in ("SQRT", "RSQRT", "LOG")
    fill = Fill(g.whole(0, 99), 0.01, g.pick(4.0, 1000.0)) if positive and not g.seldom() else None
    x = g.value("float32", fill=fill)
    g.node(op, [x], g.like(x))


def gelu(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "uint8"))
    g.node(op, [x], g.output(g[x].shape, g[x].dtype), {"approximate": g.coin()})


def rsqrt(g: Grower, op: str) -> None:
    """RSQRT: quantised values must not be negative."""
    if g.coin():
        float_function(g, op)
        return
    dtype = g.pick("int8", "int16")
    zero_point = -128 if dtype == "int8" else 0
    shape, rule = g.shape(), Fill(g.whole(0, 99), zero_point)
    x = g.add(Tensor(shape, dtype, g.quantisation(dtype)[0], zero_point, fill=rule), True)
    g.node(op, [x], g.output(shape, dtype))


def absolute(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "int16", "int32", "int64"))
    made = g.like(x) if g.coin() else g.output(g[x].shape, g[x].dtype)
    g.node(op, [x], made, {})


def signed(g: Grower, op: str) -> None:
    """NEG, SQUARE and ZEROS_LIKE."""
    x = g.value(("float32", "int8", "int32", "int64", "int16"))
    g.node(op, [x], g.like(x), {})


def logical_not(g: Grower, op: str) -> None:
    x = g.value("bool")
    g.node(op, [x], g.like(x), {})


NUMBERS = ("int8", "float32", "int32", "int16", "uint8", "bool", "int64")


def cast(g: Grower, op: str) -> None:
    """Numbers stay where both types have them: a float outside an integer's range is not defined."""
    source, target = g.pick(*NUMBERS), g.pick(*NUMBERS)
    fill = Fill(g.whole(0, 99), 0 if target.startswith("u") else -100, 100) if source == "float32" else None
    x = g.value(source, fill=fill)
    made = Tensor(g[x].shape, target)
    g.node(op, [x], made, {"in_data_type": g[x].dtype.upper(), "out_data_type": target.upper()})


def quantise(g: Grower, op: str) -> None:
    x = g.value(("float32", "int8", "int16", "uint8", "int32"))
    if g[x].dtype == "int32" and g[x].scale is None:
        g.tensors[x] = replace(g[x], scale=0.01)
    g.node(op, [x], g.output(g[x].shape, g.pick("int8", "int16", "uint8", "int32")) if not g.seldom() else _wide(g, x), {})


def _wide(g: Grower, x: int) -> Tensor:
    return Tensor(g[x].shape, "int32", 1e-3, 0)


def dequantise(g: Grower, op: str) -> None:
    x = g.value(("int8", "int16", "uint8", "int32"))
    if g[x].scale is None:
        g.tensors[x] = replace(g[x], scale=0.01)
    g.node(op, [x], Tensor(g[x].shape, "float32"), {})


CASES = (
    *cases(clamp, "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"),
    *cases(bounded, "LOGISTIC", "TANH", bound=ULPS),
    *cases(leaky, "LEAKY_RELU"),
    *cases(prelu, "PRELU"),
    *cases(quantised_function, "ELU", "EXP", "HARD_SWISH", bound=ULPS),
    *cases(float_function, "SIN", "COS", bound=ULPS, jumps=True),  # of large numbers
    *cases(float_function, "LOG", "SQRT", bound=ULPS),
    *cases(float_function, "CEIL", "FLOOR", "ROUND", jumps=True),
    *cases(float_function, "SIGN", jumps=True),
    *cases(gelu, "GELU", bound=SUM),
    *cases(rsqrt, "RSQRT", bound=ULPS),
    *cases(absolute, "ABS"),
    *cases(signed, "NEG", "SQUARE", "ZEROS_LIKE"),
    *cases(logical_not, "LOGICAL_NOT"),
    *cases(cast, "CAST", jumps=True),
    *cases(quantise, "QUANTIZE", jumps=True),
    *cases(dequantise, "DEQUANTIZE", bound=EXACT),
)
