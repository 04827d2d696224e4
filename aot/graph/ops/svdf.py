"""SVDF: a dense layer of `filters` features at each run, then for each filter a weighted sum over its last `memory` features.

int8 with a state of int16 or int8, float32, and float32 with int8 weights (hybrid). Inputs: data (B, I), weights of features (F, I), weights
of time (F, M), bias (U) or none, state (B, F * M), oldest feature of each filter first; F = U * rank. Outputs: (B, U), and the new state.

Invariant: an int8 output is clamped to int8 only: TFLite Micro does not look at the fused activation there, and nor does this file.
Source: tflite-micro, tensorflow/lite/micro/kernels/svdf_common.cc; hybrid, which TFLite Micro lacks: LiteRT, tflite/kernels/svdf.cc and
tflite/kernels/internal/reference/svdf.h. float32: within 4 ulp of the largest term of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph import arithmetic, floatmath
from aot.graph.evaluate import execute
from aot.graph.expr import (
    Acc,
    Affine,
    Binary,
    Bitcast,
    Expr,
    Load,
    Requantise,
    Select,
    add,
    affine,
    axis,
    cast,
    clamp,
    integer,
    real,
)
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, constant_element, load
from aot.graph.ops import checks
from aot.graph.ops.contraction import Quantised, Real
from aot.graph.ops.hybrid import Hybrid, Rows
from aot.graph.primitive import Contract, Geometry, Map, Reduce, identity
from aot.graph.support import litert, micro

DATA, FEATURE, TIME, BIAS, STATE = range(5)
INT8, INT16, INT32, FLOAT32 = DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32


@dataclass(frozen=True)
class Svdf:
    rank: int = 0
    function: str = "none"
    """The fused activation. (Passes take what is named `activation` for a clamp of every output, and move others to it.)"""
    asymmetric: bool = False
    """Hybrid: whether the input is quantised around a zero point."""


def _read(options: Any) -> Svdf:
    if options is None:
        return Svdf()
    activation = arithmetic.activation_name(options.FusedActivationFunction())
    return Svdf(options.Rank(), activation, bool(options.AsymmetricQuantizeInputs()))


def _attributes(site: Site) -> Svdf:
    assert isinstance(site.node.attributes, Svdf)
    return site.node.attributes


@dataclass(frozen=True)
class _Sizes:
    batch: int
    depth: int
    units: int
    rank: int
    memory: int

    @property
    def filters(self) -> int:
        return self.units * self.rank


def sizes_of(site: Site) -> _Sizes:
    """From the shapes, once they fit together."""
    if len(site.inputs) != 5:
        raise site.error(f"has {len(site.inputs)} inputs, not 5")
    needed = [site.input(position) for position in (DATA, FEATURE, TIME, STATE)]
    if len(site.outputs) != 2:  # one of them is the new state
        raise site.error(f"has {len(site.outputs) - 1} outputs, not 1")
    for value in needed:
        checks.require_rank(site, value, 2)
        checks.require_elements(site, value)
    data, feature, time, _ = (value.shape for value in needed)
    rank = _attributes(site).rank
    if rank < 1 or feature[0] % rank:
        raise site.error(f"{feature[0]} filters do not divide into units of rank {rank}")
    sizes = _Sizes(data[0], data[1], feature[0] // rank, rank, time[1])
    for value, shape in zip(needed[1:], _shapes(sizes), strict=True):
        if value.shape != shape:
            have, want = checks.shape_text(value.shape), checks.shape_text(shape)
            raise site.error(f"{checks.describe(value)} is {have}, but the other inputs want {want}")
    bias = site.optional(BIAS)
    if bias is not None and bias.shape != (sizes.units,):
        raise site.error(f"the bias {checks.describe(bias)} is {checks.shape_text(bias.shape)} for {sizes.units} units")
    return sizes


def _shapes(sizes: _Sizes) -> tuple[Shape, Shape, Shape]:
    """Of both weights and the state."""
    return (sizes.filters, sizes.depth), (sizes.filters, sizes.memory), (sizes.batch, sizes.filters * sizes.memory)


def _infer(site: Site) -> tuple[Shape, ...]:
    sizes = sizes_of(site)
    return (sizes.batch, sizes.units), (sizes.batch, sizes.filters * sizes.memory)


def _is_hybrid(site: Site) -> bool:
    return site.input(DATA).dtype is FLOAT32 and site.input(FEATURE).dtype is INT8


def _check(site: Site) -> None:
    data, feature, time, state = (site.input(position) for position in (DATA, FEATURE, TIME, STATE))
    checks.require_dtype(site, data, INT8, FLOAT32)
    checks.require_dtype(site, feature, *((INT8,) if data.dtype is INT8 else (FLOAT32, INT8)))
    checks.require_dtype(site, time, *((INT16, INT8) if data.dtype is INT8 else (feature.dtype,)))
    checks.require_dtype(site, state, time.dtype if data.dtype is INT8 else FLOAT32)
    bias = site.optional(BIAS)
    if bias is not None:
        checks.require_dtype(site, bias, INT32 if data.dtype is INT8 else FLOAT32)
    checks.require_same_dtype(site, site.output, data)
    if data.dtype is INT8:
        integers_of(site)
    elif _attributes(site).function not in _ACTIVATIONS:
        raise site.error(
            f"the fused activation {_attributes(site).function} is not supported", f"supported: {', '.join(_ACTIVATIONS)}"
        )
    if _is_hybrid(site):
        for weights in (feature, time):
            checks.require_constant(site, weights, "weights")
        _hybrid(site)


# Integers.


@dataclass(frozen=True)
class _Integers:
    """feature: sums over the input to the state's integers, before its zero point is added (which wraps). out: sums over time to the
    output's."""

    feature: Quantised
    out: Quantised
    state_zero_point: int


def integers_of(site: Site) -> _Integers:
    """CompileError for scales that TFLite's arithmetic can't do. (Until September 2026 TFLite Micro multiplied scales in float32.)"""
    (data, data_zero_point), (state, state_zero_point) = (checks.per_tensor(site, site.input(number)) for number in (DATA, STATE))
    (feature, _), (time, _) = (checks.per_tensor(site, site.input(number)) for number in (FEATURE, TIME))
    out, out_zero_point = checks.per_tensor(site, site.output)
    state_dtype = site.input(STATE).dtype
    if state_dtype is INT16 and state_zero_point:
        raise site.error(f"the state {checks.describe(site.input(STATE))} is int16 with a zero point that is not 0")
    first = checks.multipliers(site, (arithmetic.product_scale(data, feature, state),), 1)
    second = checks.multipliers(site, (arithmetic.product_scale(state, time, out),), 1)
    return _Integers(
        Quantised(*first, data_zero_point, 0, 0, *state_dtype.limits, state_dtype),
        Quantised(*second, state_zero_point, 0, out_zero_point, *INT8.limits, INT8),
        state_zero_point,
    )


# Floats.

_ACTIVATIONS = ("none", "relu", "relu_n1_to_1", "relu6", "tanh", "sign_bit")


def _activated(x: Expr, activation: str) -> Expr:
    """A float32 through a fused activation. A NaN becomes a clamp's upper bound, or the lower one alone, as C's `fmin`, `fmax` have it."""
    match activation:
        case "none":
            return x
        case "tanh":
            return floatmath.tanh(x)
        case "sign_bit":
            return Select(Binary("lt", Bitcast(x, INT32), integer(0)), real(1.0), real(0.0))
        case _:
            pass
    low, high = arithmetic.float_range(activation) or (0.0, 0.0)
    below = x if high == arithmetic.FLOAT32_MAX else Select(Binary("lt", x, real(high)), x, real(high))
    return Binary("max", real(low), below)


def _activated_array(x: np.ndarray, activation: str) -> np.ndarray:
    """The same of an array."""
    out = np.empty(x.shape, np.float32)
    execute(Map("out", x.shape, _activated(Load("x", identity(x.ndim), FLOAT32), activation)), {"x": x, "out": out})
    return out


def _hybrid(site: Site) -> Hybrid:
    scale, _ = checks.per_tensor(site, site.input(FEATURE))
    checks.per_tensor(site, site.input(TIME))
    return Hybrid("none", (scale,), _attributes(site).asymmetric)


def _float_weights(site: Site) -> np.ndarray:
    """Hybrid: the weights of time as float32."""
    weights = checks.require_constant(site, site.input(TIME), "weights")
    return weights.astype(np.float32) * np.float32(checks.per_tensor(site, site.input(TIME))[0])


# In numpy.


def _compute(site: Site, *inputs: np.ndarray | None) -> tuple[np.ndarray, ...]:
    sizes = sizes_of(site)
    data, feature, time, bias, old = inputs
    assert data is not None and feature is not None and time is not None and old is not None
    state = np.empty((sizes.batch, sizes.filters, sizes.memory), old.dtype)
    state.reshape(-1)[:-1] = old.reshape(-1)[1:]
    state[:, :, -1] = _features(site, data, feature)
    left = state.astype(np.float64)
    if data.dtype == np.int8:
        numbers = integers_of(site)
        total = np.einsum("bfm,fm->bf", left - numbers.state_zero_point, time.astype(np.float64))
        out = numbers.out.finish(total.reshape(sizes.batch, sizes.units, sizes.rank).sum(2), bias)
    else:
        weights = (_float_weights(site) if _is_hybrid(site) else time).astype(np.float64)
        with np.errstate(all="ignore"):
            total = np.einsum("bfm,fm->bf", left, weights).reshape(sizes.batch, sizes.units, sizes.rank).sum(2)
            out = _activated_array((total if bias is None else total + bias).astype(np.float32), _attributes(site).function)
    return out, state.reshape(old.shape)


def _features(site: Site, data: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """This run's features (B, F), as the state holds them."""
    right = weights.astype(np.float64).T
    if data.dtype == np.int8:
        numbers = integers_of(site)
        values = numbers.feature.finish((data.astype(np.float64) - numbers.feature.input_zero_point) @ right, None)
        return (values.astype(np.int32) + numbers.state_zero_point).astype(values.dtype)
    with np.errstate(all="ignore"):
        if not _is_hybrid(site):
            return (data.astype(np.float64) @ right).astype(np.float32)
        ending = _hybrid(site)
        values, scale = ending.read(data)
        return ending.finish(values.astype(np.float64) @ right, None, scale)


# As primitives.


def _lower(site: Site, lowering: Lowering) -> None:
    """The old features move one place to the front (a Map that only looks ahead), then the new ones are written behind them."""
    sizes, old, new = sizes_of(site), site.input(STATE), site.outputs[1]
    if sizes.memory > 1:
        place = affine({1: sizes.memory, 2: 1})
        later = affine({1: sizes.memory, 2: 1}, 1)
        space = (sizes.batch, sizes.filters, sizes.memory - 1)
        lowering.append(Map(new.name, space, load(old, (axis(0), later)), (axis(0), place), (site.node.index,)))
    _lower_features(site, lowering, sizes)
    (_lower_integer_time if site.input(DATA).dtype is INT8 else _lower_float_time)(site, lowering, sizes)


def _lower_features(site: Site, lowering: Lowering, sizes: _Sizes) -> None:
    data, weights = site.input(DATA), site.input(FEATURE)
    zero_point, initial = 0, real(0.0)
    if data.dtype is INT8:
        numbers = integers_of(site)
        zero_point, initial = _folded(lowering, numbers.feature.input_zero_point, weights, None, (sizes.filters, sizes.depth))
        result = _requantised(numbers.feature, numbers.state_zero_point)
    elif _is_hybrid(site):
        ending = _hybrid(site)
        data, scale = Rows(data, (sizes.batch,), (sizes.depth,), identity(2)).quantise(site, lowering, ending)
        initial, result = integer(0), ending.result(lowering, axis(1), Load(scale, (axis(0),), FLOAT32), real(0.0))
    else:
        result = Real("none").result(lowering, axis(1))
    lowering.append(
        Contract(
            site.outputs[1].name,
            (sizes.batch, sizes.filters),
            (sizes.depth,),
            load(data, (axis(0), axis(2))),
            load(weights, (axis(1), axis(2))),
            zero_point,
            0,
            initial,
            result,
            (axis(0), axis(1, sizes.memory, sizes.memory - 1)),
            Geometry("dense", (sizes.batch, 1, 1, sizes.depth), (sizes.batch, 1, 1, sizes.filters)),
            (site.node.index,),
        )
    )


def _requantised(ending: Quantised, zero_point: int = 0) -> Expr:
    """The sum as the ending's type; `zero_point` is added after the clamp, and wraps."""
    multiplier, shift = integer(int(ending.multiplier[0])), integer(int(ending.shift[0]))
    scaled = add(Requantise(Acc(INT32), multiplier, shift), integer(ending.zero_point))
    clamped = clamp(scaled, ending.low, ending.high)
    return cast(add(clamped, integer(zero_point)) if zero_point else clamped, ending.dtype)


def _folded(lowering: Lowering, zero_point: int, weights: Value, bias: Value | None, rows: Shape) -> tuple[int, Expr]:
    """The zero point that is left for a contraction of rows of the weights, and its initial value for the row axis 1: with constants
    the bias has taken the zero point in (sums wrap, so that this is exact)."""
    if zero_point == 0 or weights.data is None or (bias is not None and bias.data is None):
        return zero_point, integer(0) if bias is None else load(bias, (axis(1),))
    sums = weights.data.astype(np.int64).reshape(rows).sum(1) * -zero_point
    total = sums if bias is None or bias.data is None else sums + bias.data
    return 0, constant_element(lowering.constant("bias", total.astype(np.int32)), INT32, (axis(1),))


def _lower_integer_time(site: Site, lowering: Lowering, sizes: _Sizes) -> None:
    """Integer sums may be added up in any order: those of a unit's filters are one."""
    numbers, time = integers_of(site), site.input(TIME)
    rows = (sizes.units, sizes.rank * sizes.memory)
    zero_point, initial = _folded(lowering, numbers.state_zero_point, time, site.optional(BIAS), rows)
    lowering.append(
        Contract(
            site.output.name,
            (sizes.batch, sizes.units),
            (sizes.rank, sizes.memory),
            load(site.outputs[1], (axis(0), affine({1: rows[1], 2: sizes.memory, 3: 1}))),
            load(time, (affine({1: sizes.rank, 2: 1}), axis(3))),
            zero_point,
            0,
            initial,
            _requantised(numbers.out),
            nodes=(site.node.index,),
        )
    )


def _lower_float_time(site: Site, lowering: Lowering, sizes: _Sizes) -> None:
    """The sum of each filter by itself, then those of a unit onto its bias: as TFLite adds them up."""
    bias, activation = site.optional(BIAS), _attributes(site).function
    start: Expr = real(0.0) if bias is None else load(bias, (axis(1),))
    if sizes.rank == 1:
        _append_filters(site, lowering, sizes, site.output.name, _activated(add(start, Acc(FLOAT32)), activation))
        return
    sums = lowering.temporary("sums", FLOAT32, (sizes.batch, sizes.filters))
    _append_filters(site, lowering, sizes, sums, Acc(FLOAT32))
    term = Load(sums, (axis(0), affine({1: sizes.rank, 2: 1})), FLOAT32)
    space, result = (sizes.batch, sizes.units), _activated(Acc(FLOAT32), activation)
    lowering.append(Reduce(site.output.name, space, (sizes.rank,), "add", start, term, result, nodes=(site.node.index,)))


def _append_filters(site: Site, lowering: Lowering, sizes: _Sizes, out: str, result: Expr) -> None:
    """The contraction of each filter's features with its weights."""
    time = site.input(TIME).name
    if _is_hybrid(site):
        time = lowering.constant("time", _float_weights(site))
    place: Affine = affine({1: sizes.memory, 2: 1})
    lowering.append(
        Contract(
            out,
            (sizes.batch, sizes.filters),
            (sizes.memory,),
            load(site.outputs[1], (axis(0), place)),
            Load(time, (axis(1), axis(2)), FLOAT32),
            0,
            0,
            real(0.0),
            result,
            nodes=(site.node.index,),
        )
    )


OPERATORS = (
    Operator("SVDF", "SVDFOptions", _read, _infer, _check, _compute, _lower, variables=(STATE,)).supports(
        micro("int8, float32"),
        litert("float32 x int8 (hybrid)"),
        notes="The state of int8 is int16 or int8; int8 ignores the fused activation, as in TFLite Micro; float32 within 4 ulp of the largest term.",
    ),
)
