"""CONCATENATION and PACK: each input, of any type, is copied to its place in the output, or written there.

Fusion lets an input's producer write to that place. Quantised inputs must share the output's scale and zero point (TFLite Micro
copies int16 without asking; that would change the numbers), but for CONCATENATION of uint8: those are rescaled in float32, each by a
table of 256 answers.
Sources: tflite-micro, tensorflow/lite/micro/kernels/concatenation.cc, pack.cc; uint8: LiteRT, ConcatenationWithScaling in
tensorflow/lite/kernels/internal/reference/concatenation.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.arithmetic import activation_name
from aot.graph.expr import Affine, Expr, Lookup, axis, cast, fixed
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.movement import MOVABLE, axis_of
from aot.graph.primitive import Map
from aot.graph.support import alone, litert, micro

QUANTISED = (DType.INT8, DType.UINT8, DType.INT16)


def _check(site: Site) -> None:
    """One type throughout; quantised values must share the output's scale and zero point, where nothing is rescaled."""
    out = site.output
    checks.require_dtype(site, out, *MOVABLE)
    for value in _inputs(site):
        checks.require_same_dtype(site, value, out)
        quantised = out.dtype in QUANTISED and (value.quantisation is not None or out.quantisation is not None)
        if quantised and is_rescaled(site, value):
            _table(site, value)
        elif quantised:
            checks.require_same_quantisation(site, value, out)


def _inputs(site: Site) -> tuple[Value, ...]:
    if not site.inputs:
        raise site.error("has no inputs")
    checks.require_counts(site, (len(site.inputs),))
    return tuple(site.input(position) for position in range(len(site.inputs)))


# CONCATENATION


@dataclass(frozen=True)
class Concatenation:
    axis: int = 0
    activation: str = "none"


def _read_concatenation(options: Any) -> Concatenation:
    if options is None:
        return Concatenation()
    return Concatenation(options.Axis(), activation_name(options.FusedActivationFunction()))


def _concatenation_axis(site: Site) -> int:
    assert isinstance(site.node.attributes, Concatenation)
    return axis_of(site, site.input(0), site.node.attributes.axis)


def _infer_concatenation(site: Site) -> tuple[Shape, ...]:
    first, *rest = _inputs(site)
    number = _concatenation_axis(site)
    total = first.shape[number]
    for value in rest:
        if len(value.shape) != len(first.shape) or _without(value.shape, number) != _without(first.shape, number):
            shapes = f"{checks.shape_text(first.shape)} and {checks.shape_text(value.shape)}"
            raise site.error(f"inputs of shape {shapes} do not join on axis {number}")
        total += value.shape[number]
    return ((*first.shape[:number], total, *first.shape[number + 1 :]),)


def _without(shape: Shape, number: int) -> Shape:
    return shape[:number] + shape[number + 1 :]


def _check_concatenation(site: Site) -> None:
    assert isinstance(site.node.attributes, Concatenation)
    _check(site)
    if site.node.attributes.activation != "none":
        raise site.error(f"the fused activation {site.node.attributes.activation} is not supported")


def _compute_concatenation(site: Site, *arrays: np.ndarray) -> tuple[np.ndarray]:
    rescaled = (_table(site, value)[x] if is_rescaled(site, value) else x for value, x in zip(_inputs(site), arrays))
    return (np.concatenate(tuple(rescaled), _concatenation_axis(site)),)


def is_rescaled(site: Site, value: Value) -> bool:
    """Whether a value's numbers mean something else in the output, and may be changed."""
    if site.node.op != "CONCATENATION" or site.output.dtype is not DType.UINT8:
        return False
    if value.quantisation is None and site.output.quantisation is None:
        return False
    return checks.per_tensor(site, value) != checks.per_tensor(site, site.output)


def _table(site: Site, value: Value) -> np.ndarray:
    """uint8 for each uint8: rescaled to the output, in float32, half away from zero."""
    (scale, zero_point), (out_scale, out_zero_point) = (checks.per_tensor(site, v) for v in (value, site.output))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        factor = np.float32(scale) * (np.float32(1) / np.float32(out_scale))
        bias = np.float32(-zero_point) * factor
        real = np.arange(256, dtype=np.float32) * factor + bias
    if not np.isfinite(real).all():
        raise site.error(f"the scale of {checks.describe(value)} is too far from the output's")
    rounded = np.trunc(real + np.copysign(np.float32(0.5), real)).astype(np.float64)
    return np.clip(rounded + out_zero_point, 0, 255).astype(np.uint8)


def _lower_concatenation(site: Site, lowering: Lowering) -> None:
    number, start = _concatenation_axis(site), 0
    for value in _inputs(site):
        store = tuple(axis(k, 1, start if k == number else 0) for k in range(len(value.shape)))
        _append_copy(site, lowering, value, store)
        start += value.shape[number]


def _append_copy(site: Site, lowering: Lowering, value: Value, store: tuple[Affine, ...]) -> None:
    copied: Expr = load(value)
    if is_rescaled(site, value):
        copied = Lookup(lowering.constant("rescaled", _table(site, value)), cast(copied, DType.INT32), DType.UINT8)
    lowering.append(Map(site.output.name, value.shape, copied, store, (site.node.index,)))


# PACK


@dataclass(frozen=True)
class Pack:
    """`count`: how many values the file says it packs."""

    count: int = 0
    axis: int = 0


def _read_pack(options: Any) -> Pack:
    return Pack() if options is None else Pack(options.ValuesCount(), options.Axis())


def _pack_axis(site: Site) -> int:
    a, rank = site.node.attributes, len(site.input(0).shape) + 1
    assert isinstance(a, Pack)
    if not -rank <= a.axis < rank:
        raise site.error(f"axis {a.axis} is outside the {rank} dimensions of the output")
    return a.axis % rank


def _infer_pack(site: Site) -> tuple[Shape, ...]:
    values, number = _inputs(site), _pack_axis(site)
    assert isinstance(site.node.attributes, Pack)
    if site.node.attributes.count != len(values):
        raise site.error(f"packs {site.node.attributes.count} values but has {len(values)} inputs")
    shape = values[0].shape
    for value in values[1:]:
        if value.shape != shape:
            raise site.error(f"inputs of shape {checks.shape_text(shape)} and {checks.shape_text(value.shape)} do not stack")
    return ((*shape[:number], len(values), *shape[number:]),)


def _compute_pack(site: Site, *arrays: np.ndarray) -> tuple[np.ndarray]:
    return (np.stack(arrays, _pack_axis(site)),)


def _lower_pack(site: Site, lowering: Lowering) -> None:
    number = _pack_axis(site)
    for position, value in enumerate(_inputs(site)):
        index = [axis(k) for k in range(len(value.shape))]
        _append_copy(site, lowering, value, (*index[:number], fixed(position), *index[number:]))


OPERATORS = (
    Operator(
        "CONCATENATION",
        "ConcatenationOptions",
        _read_concatenation,
        _infer_concatenation,
        _check_concatenation,
        _compute_concatenation,
        _lower_concatenation,
    ).supports(
        micro("bool, int8, int16, int32, int64, float32"),
        litert("uint8, uint32"),
        alone("uint16, uint64"),
        notes="Other scales than the output's are refused, but for uint8, which is rescaled as in LiteRT.",
    ),
    Operator("PACK", "PackOptions", _read_pack, _infer_pack, _check, _compute_pack, _lower_pack).supports(
        micro("int8, int16, int32, int64, float32"),
        litert("uint8, uint32"),
        alone("bool, uint16, uint64"),
        notes="Other scales than the output's are refused.",
    ),
)
