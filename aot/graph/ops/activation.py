"""RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1: int8, int16, uint8 and float32.

Sources: tflite-micro, tensorflow/lite/micro/kernels/activations_common.cc. What TFLite Micro lacks (RELU_N1_TO_1, RELU_0_TO_1, uint8):
LiteRT, tflite/kernels/activations.cc, QuantizedReluX.
"""

from __future__ import annotations

import numpy as np

from aot.graph.arithmetic import FLOAT32_MAX, float_range
from aot.graph.expr import Binary, Expr, cast, clamp, real
from aot.graph.ir import DType, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.rescale import Rescale, finish, finish_array, offset, rescale
from aot.graph.ops.single import infer, quantisations, ratio, require_no_zero_points, require_types
from aot.graph.primitive import Map
from aot.graph.support import litert, micro

_TYPES = {
    "RELU": (DType.INT8, DType.INT16, DType.UINT8, DType.FLOAT32),
    "RELU6": (DType.INT8, DType.INT16, DType.UINT8, DType.FLOAT32),
    "RELU_N1_TO_1": (DType.INT8, DType.UINT8, DType.FLOAT32),
    "RELU_0_TO_1": (DType.INT8, DType.UINT8, DType.FLOAT32),
}


def clamps_input(site: Site) -> bool:
    """Whether it is TFLite Micro's RELU6, which clamps in the input's quantisation and ignores the output's. uint8 is LiteRT's."""
    return site.node.op == "RELU6" and _is_micro(site)


def _is_micro(site: Site) -> bool:
    """Whether TFLite Micro has the form; LiteRT has the others."""
    return site.node.op in ("RELU", "RELU6") and site.input(0).dtype is not DType.UINT8


def _numbers(site: Site, activation: str) -> tuple[Rescale, int, int, int, int]:
    """Rescaling, input and output zero point, bounds."""
    _, zero_point, _, out_zero_point = quantisations(site)
    if clamps_input(site):
        low, high = checks.output_range(site, activation, site.input(0))
        return Rescale(1 << 30, 1), zero_point, zero_point, low, high
    low, high = checks.output_range(site, activation, site.output)
    return rescale(site, ratio(site, in_double=_is_micro(site))), zero_point, out_zero_point, low, high


def _clamped(x: Expr, activation: str) -> Expr:
    """A float32 within the activation's range; a NaN and -0 stay: `min` and `max` answer with the other operand only where it is beyond."""
    low, high = float_range(activation) or (0.0, 0.0)
    above = Binary("max", x, real(low))
    return above if high == FLOAT32_MAX else Binary("min", real(high), above)


def _clamped_array(x: np.ndarray, activation: str) -> np.ndarray:
    """The meaning of `_clamped`."""
    low, high = float_range(activation) or (0.0, 0.0)
    above = np.where(x < low, np.float32(low), x)
    return above if high == FLOAT32_MAX else np.where(high < above, np.float32(high), above)


def _relu(name: str) -> Operator:
    activation = name.lower()

    def check(site: Site) -> None:
        require_types(site, *_TYPES[name])
        if site.input(0).dtype is DType.INT16 and not clamps_input(site):
            require_no_zero_points(site)
        if site.input(0).dtype.is_integer:
            _numbers(site, activation)

    def compute(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
        dtype = site.output.dtype
        if dtype.is_float:
            return (_clamped_array(x, activation),)
        scale, zero_point, out_zero_point, low, high = _numbers(site, activation)
        return (finish_array(scale.array(x.astype(np.int32) - np.int32(zero_point)), out_zero_point, low, high, dtype),)

    def expression(site: Site) -> Expr:
        x, dtype = load(site.input(0)), site.output.dtype
        if dtype.is_float:
            return _clamped(x, activation)
        scale, zero_point, out_zero_point, low, high = _numbers(site, activation)
        if scale.is_one and zero_point == out_zero_point:
            return cast(clamp(cast(x, DType.INT32), low, high), dtype)
        return finish(scale.expression(offset(x, zero_point)), out_zero_point, low, high, dtype)

    def lower(site: Site, lowering: Lowering) -> None:
        lowering.append(Map(site.output.name, site.output.shape, expression(site), nodes=(site.node.index,)))

    return Operator(name, None, lambda options: None, infer, check, compute, lower)


_CLAMPS = "Exact; int8 and int16 are clamped in the input's quantisation, as TFLite Micro does; uint8 as LiteRT does."
OPERATORS = (
    _relu("RELU").supports(micro("int8, int16, float32"), litert("uint8"), notes="Exact."),
    _relu("RELU6").supports(micro("int8, int16, float32"), litert("uint8"), notes=_CLAMPS),
    _relu("RELU_N1_TO_1").supports(litert("int8, uint8, float32"), notes="Exact."),
    _relu("RELU_0_TO_1").supports(litert("int8, uint8, float32"), notes="Exact."),
)
