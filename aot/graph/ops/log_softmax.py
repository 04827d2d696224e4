"""LOG_SOFTMAX over the last dimension: float32, and int8 and uint8 in fixed point.

float32: x - max - log(sum), with the sum in order and log and exp correctly rounded, which is TFLite Micro's result within 1 ulp of its
larger part. Compiled code: within 4 ulp of that, or 2^-22 where the sum is near 1 (an ulp of the sum is 2^-23 there).
Source: tflite-micro, tensorflow/lite/micro/kernels/log_softmax.cc, tensorflow/lite/kernels/internal/reference/log_softmax.h;
uint8: LiteRT, tflite/kernels/activations.cc.
"""

from __future__ import annotations

import numpy as np

from aot.graph import arithmetic, fixedmath, floatmath
from aot.graph.arithmetic import FLOAT32_LOWEST
from aot.graph.expr import Acc, add, cast, clamp, integer, real, sub
from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks
from aot.graph.ops.rows import Rows, require_rows
from aot.graph.ops.softmax import append_sum, exponentials, looked_up, scaled_differences, sums
from aot.graph.support import litert, micro

BETA = 1.0
BYTES = (DType.INT8, DType.UINT8)
OUTPUT_SCALE = 16 / 256
RESULT_SHIFT = 31 - 5 - 4
"""Q5.26 to units of 1/16."""
LOWEST_DIFFERENCE = -20 << 26
"""-20 in Q5.26. From -16 on every result is the type's smallest number, and with this bound no subtraction overflows."""


def _infer(site: Site) -> tuple[Shape, ...]:
    return (require_rows(site),)


def _check(site: Site) -> None:
    require_rows(site)
    data, out = site.input(0), site.output
    checks.require_dtype(site, data, DType.FLOAT32, *BYTES)
    checks.require_same_dtype(site, out, data)
    if data.dtype in BYTES:
        if checks.per_tensor(site, out) != (OUTPUT_SCALE, data.dtype.limits[1]):
            raise site.error(f"{data.dtype} LOG_SOFTMAX needs an output with scale 1/16 and zero point {data.dtype.limits[1]}")
        exponentials(site, BETA)


def _differences(site: Site) -> np.ndarray:
    """-d * scale in Q5.26 for differences d = 0..255 to the row's largest input; int32."""
    scaled, radius = scaled_differences(site, BETA)
    return np.where(np.arange(256) <= radius, np.maximum(scaled, LOWEST_DIFFERENCE), LOWEST_DIFFERENCE).astype(np.int32)


def _compute(site: Site, data: np.ndarray) -> tuple[np.ndarray]:
    dtype = site.output.dtype
    if dtype is DType.FLOAT32:
        return (_real_compute(data),)
    wide = data.astype(np.int64)
    difference = wide.max(axis=-1, keepdims=True) - wide
    log = fixedmath.evaluated(fixedmath.log, sums(exponentials(site, BETA)[difference]))
    scaled = arithmetic.rounding_shift_right(_differences(site)[difference] - log, RESULT_SHIFT) + dtype.limits[1]
    return (np.clip(scaled, *dtype.limits).astype(dtype.np),)


def _real_compute(data: np.ndarray) -> np.ndarray:
    """Exponentials and the logarithm correctly rounded, the sum in order, all in float32."""
    with np.errstate(all="ignore"):
        difference = data - np.fmax.reduce(data, axis=-1, keepdims=True, initial=np.float32(FLOAT32_LOWEST))
        exponential = np.exp(difference.astype(np.float64)).astype(np.float32)
        total = np.add.accumulate(exponential, axis=-1, dtype=np.float32)[..., -1:]
        return difference - np.log(total.astype(np.float64)).astype(np.float32)


def _lower(site: Site, lowering: Lowering) -> None:
    """Largest input; the logarithm of the sum of exponentials; differences."""
    rows, dtype = Rows(site, lowering), site.output.dtype
    largest = rows.largest()
    if dtype is DType.FLOAT32:
        term = floatmath.exp(sub(rows.swept_element, largest))
        log = rows.reduce("log", "add", real(0.0), term, floatmath.log(Acc(DType.FLOAT32)))
        rows.finish(sub(sub(rows.element, largest), log))
        return
    total = append_sum(rows, largest, lowering.constant("exponentials", exponentials(site, BETA)))
    log = rows.map("log", fixedmath.log(total))
    difference = looked_up(lowering.constant("differences", _differences(site)), largest, rows.element)
    scaled = fixedmath.rounding_shift_right(sub(difference, log), RESULT_SHIFT)
    rows.finish(cast(clamp(add(scaled, integer(dtype.limits[1])), *dtype.limits), dtype))


OPERATORS = (
    Operator("LOG_SOFTMAX", "LogSoftmaxOptions", lambda options: None, _infer, _check, _compute, _lower).supports(
        micro("int8, float32"),
        litert("uint8"),
        notes="Over the last dimension; float32 within 4 ulp of TFLite Micro, or 2^-22 where the sum is near 1.",
    ),
)
