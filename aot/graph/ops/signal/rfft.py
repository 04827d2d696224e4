"""SignalRfft and SignalIrfft: int16, int32 and float32, along the last dimension.

A real signal, filled up with zeros to `fft_length`, to fft_length / 2 + 1 complex numbers, interleaved; and back. The integer
transforms divide by fft_length on the way there, the float one on the way back.
Source: tflite-micro, signal/micro/kernels/rfft.cc and irfft.cc, signal/src/rfft_*.cc and irfft_*.cc, over kissfft v130. Float results
are TFLite Micro's wherever neither contracts a multiplication and an addition.
"""

from __future__ import annotations

import numpy as np

from aot.graph.ir import DType, Shape, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.ops import checks
from aot.graph.ops.signal import fft
from aot.graph.ops.signal.fft_lowering import lower_inverse_real_fft, lower_real_fft
from aot.graph.ops.signal.options import option, options_of, read_options
from aot.graph.support import micro

MAX_LENGTH = 1 << 16
DTYPES = {0: DType.FLOAT32, 2: DType.INT32, 7: DType.INT16}
"""By TFLite's number, which the option T holds."""


def _length(site: Site) -> int:
    """The signal's length: even, and its half made of 2, 3 and 5 (kissfft's other butterflies need memory that TFLite Micro lacks)."""
    length = option(site, "fft_length", 2, MAX_LENGTH)
    if length % 2 or not fft.is_supported(length // 2):
        raise site.error(f"its fft_length {length} is not supported", "it must be at least 4, and its half a product of 2, 3 and 5")
    return length


def _plan(site: Site, inverse: bool) -> fft.Plan:
    return fft.plan(_length(site) // 2, site.input(0).dtype, inverse)


def _infer_forward(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    shape, length = _row(site), _length(site)
    if shape[-1] > length:
        raise site.error(f"its rows have {shape[-1]} elements, more than its fft_length {length}")
    return ((*shape[:-1], length + 2),)


def _infer_inverse(site: Site) -> tuple[Shape, ...]:
    checks.require_counts(site, (1,))
    shape, length = _row(site), _length(site)
    if shape[-1] != length + 2:
        raise site.error(f"its rows have {shape[-1]} elements, but its fft_length {length} wants {length + 2}")
    return ((*shape[:-1], length),)


def _row(site: Site) -> Shape:
    shape = site.input(0).shape
    if not shape:
        raise site.error("its input is a scalar")
    return shape


def _check(site: Site) -> None:
    checks.require_dtype(site, site.input(0), *DTYPES.values())
    checks.require_same_dtype(site, site.output, site.input(0))
    checks.require_elements(site, site.input(0))
    number = options_of(site).get("T")
    if DTYPES.get(number) is not site.input(0).dtype:
        raise site.error(f"its option T is {number}, which does not say {site.input(0).dtype}")


def _compute_forward(site: Site, signal: np.ndarray) -> tuple[np.ndarray]:
    missing = _length(site) - signal.shape[-1]
    filled = np.concatenate([signal, np.zeros((*signal.shape[:-1], missing), signal.dtype)], -1)
    with np.errstate(all="ignore"):
        return (fft.real_fft(_plan(site, False), filled),)


def _compute_inverse(site: Site, spectrum: np.ndarray) -> tuple[np.ndarray]:
    with np.errstate(all="ignore"):
        return (fft.inverse_real_fft(_plan(site, True), spectrum),)


def _lower_forward(site: Site, lowering: Lowering) -> None:
    lower_real_fft(site, lowering, _plan(site, False))


def _lower_inverse(site: Site, lowering: Lowering) -> None:
    lower_inverse_real_fft(site, lowering, _plan(site, True))


_read = read_options("T", "fft_length")
OPERATORS = (
    Operator("SignalRfft", "CUSTOM", _read, _infer_forward, _check, _compute_forward, _lower_forward).supports(
        micro("int16, int32, float32"),
        notes="float32 is TFLite Micro's wherever neither contracts a multiplication and an addition.",
    ),
    Operator("SignalIrfft", "CUSTOM", _read, _infer_inverse, _check, _compute_inverse, _lower_inverse).supports(
        micro("int16, int32, float32"),
        notes="float32 is TFLite Micro's wherever neither contracts a multiplication and an addition.",
    ),
)
