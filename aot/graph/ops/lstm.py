"""UNIDIRECTIONAL_SEQUENCE_LSTM, as Keras has it: int8 or int16 activations with int8 weights and an int16 cell state, and float32.

Inputs: data (batch, time, I) or (time, batch, I), four matrices of weights each for the data (S, I) and the hidden state (S, S), four
biases (S), the hidden state (batch, S) and the cell state. Outputs: the hidden states of all times, and the new states.

Invariant: batches do not touch each other, so that their order does not matter; `lower` runs them as they lie in memory. The output has
the hidden state's bytes, whatever the file says about its quantisation. float32: within 8 ulp in each step of one.
Source: tflite-micro, tensorflow/lite/micro/kernels/unidirectional_sequence_lstm.cc, lstm_eval.h, lstm_eval.cc, lstm_eval_common.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph import arithmetic
from aot.graph.evaluate import execute
from aot.graph.expr import Acc, Expr, Load, add, axis, fixed, integer, real
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks, sigmoid16
from aot.graph.ops.contraction import Quantised, Quantised16, Real, aligned
from aot.graph.ops.lstm_cell import GATE_SCALE, INT16, Cell, cell_maps, cell_of
from aot.graph.ops.wide import fits_int32, wide
from aot.graph.primitive import Contract, Control, Geometry, Map
from aot.graph.support import micro

DATA, HIDDEN, CELL = 0, 18, 19
WEIGHTS = {DATA: (2, 1, 4, 3), HIDDEN: (6, 5, 8, 7)}
BIASES = (13, 12, 15, 14)
"""Positions of inputs, by the gates of `lstm_cell.py`."""
_VARIANTS = (
    ((9, 10, 11), "peephole connections are not supported"),
    ((16, 17), "a projection of the hidden state is not supported"),
    ((20, 21, 22, 23), "layer normalisation is not supported"),
)
_TYPES = {
    DType.INT8: (DType.INT8, DType.INT32, INT16),
    DType.INT16: (DType.INT8, DType.INT64, INT16),
    DType.FLOAT32: (DType.FLOAT32, DType.FLOAT32, DType.FLOAT32),
}
"""For each type of data: those of weights, biases and cell state."""


@dataclass(frozen=True)
class Lstm:
    function: str = "none"
    """Of the candidate gate. (Passes take what is named `activation` for a clamp of every output.)"""
    cell_clip: float = 0.0
    time_major: bool = False
    diagonal: bool = False
    """Whether the weights of the hidden state are diagonals: not supported."""


def _read(options: Any) -> Lstm:
    if options is None:
        return Lstm()
    activation = arithmetic.activation_name(options.FusedActivationFunction())
    return Lstm(activation, float(options.CellClip()), bool(options.TimeMajor()), bool(options.DiagonalRecurrentTensors()))


def _attributes(site: Site) -> Lstm:
    assert isinstance(site.node.attributes, Lstm)
    return site.node.attributes


@dataclass(frozen=True)
class _Sizes:
    batch: int
    time: int
    depth: int
    units: int


def _sizes(site: Site) -> _Sizes:
    """From the shapes, once they fit together."""
    _require_plain(site)
    data, hidden = site.input(DATA), site.input(HIDDEN)
    checks.require_rank(site, data, 3)
    checks.require_rank(site, hidden, 2)
    checks.require_elements(site, data, hidden)
    first, second, depth = data.shape
    batch, time = (second, first) if _attributes(site).time_major else (first, second)
    sizes = _Sizes(batch, time, depth, hidden.shape[1])
    for positions, shape in ((WEIGHTS[DATA], (sizes.units, depth)), (WEIGHTS[HIDDEN], (sizes.units, sizes.units))):
        for position in positions:
            _require_shape(site, site.input(position), shape)
    for position in BIASES:
        _require_shape(site, site.input(position), (sizes.units,))
    for state in (hidden, site.input(CELL)):
        if state.size != batch * sizes.units:
            raise site.error(f"the state {checks.describe(state)} has {state.size} elements, not {batch} x {sizes.units}")
    return sizes


def _require_plain(site: Site) -> None:
    """The inputs of the LSTM that TFLite Micro has, and no others."""
    if len(site.inputs) not in (20, 24):
        raise site.error(f"has {len(site.inputs)} inputs, not 20 or 24")
    for positions, sentence in _VARIANTS:
        if any(site.optional(position) is not None for position in positions):
            raise site.error(sentence, "TFLite Micro runs the LSTM that Keras has")
    if any(site.optional(position) is None for position in (1, 5, 12)):
        raise site.error("coupled input and forget gates (CIFG) are not supported", "TFLite Micro runs the LSTM that Keras has")
    for position in (HIDDEN, CELL):
        site.input(position)
    if len(site.outputs) != 3:  # two of them are the new states
        raise site.error(f"has {len(site.outputs) - 2} outputs, not 1")


def _require_shape(site: Site, value: Value, shape: Shape) -> None:
    if value.shape != shape:
        raise site.error(f"{checks.describe(value)} is {checks.shape_text(value.shape)}, not {checks.shape_text(shape)}")


def _infer(site: Site) -> tuple[Shape, ...]:
    sizes, data = _sizes(site), site.input(DATA)
    return (*data.shape[:2], sizes.units), site.input(HIDDEN).shape, site.input(CELL).shape


def _check(site: Site) -> None:
    attributes, data = _attributes(site), site.input(DATA)
    if attributes.function != "tanh":
        raise site.error(f"the fused activation {attributes.function} is not supported", "supported: tanh")
    if attributes.diagonal:
        raise site.error("diagonal weights of the hidden state are not supported")
    checks.require_dtype(site, data, *_TYPES)
    weights, bias, cell = _TYPES[data.dtype]
    for position in (*WEIGHTS[DATA], *WEIGHTS[HIDDEN]):
        checks.require_dtype(site, site.input(position), weights)
    for position in BIASES:
        checks.require_dtype(site, site.input(position), bias)
    checks.require_dtype(site, site.input(CELL), cell)
    checks.require_same_dtype(site, site.input(HIDDEN), data)
    checks.require_same_dtype(site, site.output, data)
    _cell(site)
    for side in (DATA, HIDDEN):
        _side(site, side)


def _cell(site: Site, table: str = "") -> Cell:
    return cell_of(site, HIDDEN, CELL, _attributes(site).cell_clip, table)


# The two products of a gate.


@dataclass(frozen=True)
class _Side:
    """The product with the data, or with the hidden state. matrix: (4, S, K) without zero points. bias: (4, S), which has taken the
    activations' zero point in. Both None for float32, whose weights may be computed by the model."""

    ending: Quantised | Quantised16 | Real
    matrix: np.ndarray | None = None
    bias: np.ndarray | None = None


def _side(site: Site, side: int) -> _Side:
    """CompileError for weights or scales that TFLite Micro's arithmetic can't do."""
    value = site.input(side)
    if value.dtype is DType.FLOAT32:
        return _Side(Real("none"))
    scale, zero_point = checks.per_tensor(site, value)
    if value.dtype is INT16 and zero_point:
        raise site.error(f"{checks.describe(value)} is int16 with a zero point that is not 0")
    scales, matrices = zip(*(_weights(site, site.input(position)) for position in WEIGHTS[side]))
    matrix = np.stack(matrices)
    bias = -zero_point * matrix.sum(2)
    if side == DATA:
        bias = bias + np.stack([_bias(site, site.input(position)) for position in BIASES])
    reals = arithmetic.convolution_scales(scale, scales, GATE_SCALE)
    if value.dtype is INT16:
        return _Side(_wide_ending(site, reals, matrix, bias), matrix, bias)
    return _Side(Quantised(*checks.multipliers(site, reals, 4), 0, 0, 0, *INT16.limits, INT16), matrix, bias.astype(np.int32))


def _wide_ending(site: Site, reals: list[float], matrix: np.ndarray, bias: np.ndarray) -> Quantised16:
    """Sums in int64, or in int32 where none can leave it."""
    rescaling, reach = wide(site, reals, *INT16.limits), (np.abs(matrix).sum(2) << 15).astype(np.float64)
    if fits_int32(bias - reach, bias + reach):
        return Quantised16(aligned(rescaling), DType.INT32)
    return Quantised16(rescaling, DType.INT64)


def _weights(site: Site, weights: Value) -> tuple[float, np.ndarray]:
    """Their scale, and the numbers without the zero point."""
    data = checks.require_constant(site, weights, "weights")
    found = checks.quantisation(site, weights)
    if found.per_axis:
        raise site.error(f"the weights {checks.describe(weights)} have {len(found.scales)} scales, not 1")
    scale, zero_point = checks.per_tensor(site, weights)
    return scale, data.astype(np.int64) - zero_point


def _bias(site: Site, bias: Value) -> np.ndarray:
    return checks.require_constant(site, bias, "bias").astype(np.int64)


# In numpy.


def _compute(site: Site, *inputs: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """All batches at once, time by time."""
    sizes, time_major, cell = _sizes(site), _attributes(site).time_major, _cell(site, "table")
    space = (sizes.batch, sizes.units)
    data, hidden, state = (np.array(inputs[position]) for position in (DATA, HIDDEN, CELL))
    steps = data if time_major else data.swapaxes(0, 1)
    arrays = {"table": sigmoid16.table(), "cell": state.reshape(space), "hidden": hidden.reshape(space)}
    maps = cell_maps(cell, space, "gates", "cell", "cell", "hidden")
    out: list[np.ndarray] = []
    products = {side: _product(site, side, inputs) for side in (DATA, HIDDEN)}
    for step in steps:
        arrays["gates"] = _total(products[DATA](step), products[HIDDEN](arrays["hidden"]))
        for instruction in maps:
            execute(instruction, arrays)
        out.append(arrays["hidden"].copy())
    results = np.stack(out, 0 if time_major else 1)
    return results, arrays["hidden"].reshape(hidden.shape), arrays["cell"].reshape(state.shape)


def _product(site: Site, side: int, inputs: tuple[np.ndarray | None, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """The function from activations (batch, K) to a side's part of the gates (batch, 4, S)."""
    of = _side(site, side)
    if of.matrix is not None and of.bias is not None:
        matrix, bias = of.matrix, of.bias
    else:
        matrix = np.stack([np.asarray(inputs[position]) for position in WEIGHTS[side]])
        bias = np.stack([np.asarray(inputs[position]) for position in BIASES]) if side == DATA else np.zeros((1, 1), np.float32)
    right = matrix.astype(np.float64)

    def product(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            total = np.einsum("bk,gsk->bsg", x.astype(np.float64), right)
            if isinstance(of.ending, Real):
                return (total.astype(np.float32) + bias.T).swapaxes(1, 2)
            return of.ending.finish(total.astype(np.int64) + bias.T, None).swapaxes(1, 2)

    return product


def _total(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The gates, from their two parts."""
    if a.dtype == np.float32:
        with np.errstate(all="ignore"):
            return a + b
    return np.clip(a.astype(np.int32) + b, *INT16.limits).astype(np.int16)


# As primitives.


def _lower(site: Site, lowering: Lowering) -> None:
    """A loop over time (in one over batches where those lie one behind the other), around the products and Maps of a step.

    The new states are their own memory from turn to turn; without a loop the step reads the old ones.
    """
    step = _Step.of(site, lowering)
    if step.counts:
        for position, number in ((HIDDEN, 1), (CELL, 2)):
            lowering.copy(site.outputs[number], site.input(position).name)
    for count in step.counts:
        lowering.append(Control("repeat", count=count, nodes=step.nodes))
    step.append()
    for _ in step.counts:
        lowering.append(Control("end", nodes=step.nodes))


@dataclass(frozen=True)
class _Step:
    """One step of `rows` batches. counts: of the loops around it, the outermost first: over batches, over time; those of one turn left
    out. x, out, hidden, cell: the parts of data, output and states that the step reads and writes; old_...: where the states come
    from."""

    site: Site
    lowering: Lowering
    rows: int
    counts: tuple[int, ...]
    x: Value
    out: Value
    hidden: Value
    cell: Value
    old_hidden: Value
    old_cell: Value

    @classmethod
    def of(cls, site: Site, lowering: Lowering) -> _Step:
        sizes, apart = _sizes(site), not _attributes(site).time_major
        rows, loops = (1, (sizes.batch, sizes.time)) if apart else (sizes.batch, (1, sizes.time))

        def part(purpose: str, value: Value, width: int, steps: int) -> Value:
            """Of (batch or time, time or batch, width), or with one step of (batch, width)."""
            here = rows * width * value.dtype.nbytes
            slide = (here * steps, here if steps > 1 else 0)
            moved = tuple(distance for distance, count in zip(slide, loops) if count > 1)
            return lowering.window(purpose, value, (rows, width), 0, moved if any(moved) else ())

        hidden, cell = (part("state", site.outputs[number], sizes.units, 1) for number in (1, 2))
        counts = tuple(count for count in loops if count > 1)
        old = (hidden, cell) if counts else tuple(part("state", site.input(number), sizes.units, 1) for number in (HIDDEN, CELL))
        x, out = part("data", site.input(DATA), sizes.depth, sizes.time), part("out", site.output, sizes.units, sizes.time)
        return cls(site, lowering, rows, counts, x, out, hidden, cell, *old)

    @property
    def nodes(self) -> tuple[int, ...]:
        return (self.site.node.index,)

    def append(self) -> None:
        units = self.hidden.shape[1]
        table = self.lowering.constant("logistic", sigmoid16.table()) if self.x.dtype is not DType.FLOAT32 else ""
        cell = _cell(self.site, table)
        shape = (self.rows, 4, units)
        first, gates = (self.lowering.temporary(name, cell.dtype, shape) for name in ("input_part", "gates"))
        self.product(DATA, self.x, first, None, cell)
        self.product(HIDDEN, self.old_hidden, gates, load(Value(first, cell.dtype, shape)), cell)
        space = (self.rows, units)
        for instruction in cell_maps(cell, space, gates, self.old_cell.name, self.cell.name, self.out.name, self.nodes):
            self.lowering.append(instruction)
        self.lowering.copy(self.hidden, self.out.name)

    def product(self, side: int, left: Value, out: str, other: Expr | None, cell: Cell) -> None:
        """A side's part of the gates, plus the `other` one."""
        of, depth, units = _side(self.site, side), left.shape[1], self.hidden.shape[1]
        weights, bias = self.constants(side, of)
        initial: Expr = real(0.0)
        if isinstance(of.ending, Real):
            result: Expr = Acc(DType.FLOAT32) if bias is None else add(Acc(DType.FLOAT32), bias)
        else:
            initial = integer(0, of.ending.sums) if bias is None else bias
            result = of.ending.result(self.lowering, axis(1))
        self.lowering.append(
            Contract(
                out,
                (self.rows, 4, units),
                (depth,),
                load(left, (axis(0), axis(3))),
                load(weights, (axis(1), axis(2), axis(3))),
                0,
                0,
                initial,
                result if other is None else cell.total(other, result),
                geometry=Geometry("dense", (self.rows, 1, 1, depth), (self.rows, 1, 1, 4 * units)),
                nodes=self.nodes,
            )
        )

    def constants(self, side: int, of: _Side) -> tuple[Value, Expr | None]:
        """The matrix, and the element of the bias."""
        here = (axis(1), axis(2))
        if of.matrix is None or of.bias is None or isinstance(of.ending, Real):
            bias = self.stacked("bias", BIASES) if side == DATA else None
            return self.stacked("weights", WEIGHTS[side]), None if bias is None else load(bias, here)
        small = of.matrix.min() >= -128 and of.matrix.max() <= 127
        matrix = of.matrix.astype(np.int8 if small else np.int16)
        bias = self.lowering.constant("bias", of.bias.astype(of.ending.sums.np))
        name = self.lowering.constant("weights", matrix)
        return Value(name, DType(matrix.dtype.name), matrix.shape), Load(bias, here, of.ending.sums) if of.bias.any() else None

    def stacked(self, purpose: str, positions: tuple[int, ...]) -> Value:
        """Four values as one: a constant, or a temporary made from what the model computes."""
        values = [self.site.input(position) for position in positions]
        shape, dtype = (4, *values[0].shape), values[0].dtype
        arrays = [value.data for value in values if value.data is not None]
        if len(arrays) == 4:
            return Value(self.lowering.constant(purpose, np.stack(arrays)), dtype, shape)
        name = self.lowering.temporary(purpose, dtype, shape)
        for number, value in enumerate(values):
            place = (fixed(number), *(axis(k) for k in range(len(value.shape))))
            self.lowering.append(Map(name, value.shape, load(value), place, self.nodes))
        return Value(name, dtype, shape)


OPERATORS = (
    Operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "UnidirectionalSequenceLSTMOptions",
        _read,
        _infer,
        _check,
        _compute,
        _lower,
        variables=(HIDDEN, CELL),
    ).supports(
        micro("int8, int16x8, float32"),
        notes="float32 within 8 ulp in each step; peepholes, projection, layer normalisation and coupled gates are refused.",
    ),
)
