"""What an LSTM does with the sums of its gates: sigmoid and tanh of them, the next cell state, the next hidden state.

Enters: a site of UNIDIRECTIONAL_SEQUENCE_LSTM. Leaves: a `Cell`: expressions of one element, and the two Maps that they make.
Invariant: the Maps read a unit's old cell state before they write its new one; nothing else reads it.

Integers: gates are int16 of scale 2^-12, sigmoid and tanh int16 of scale 2^-15 (`sigmoid16.py`), the cell state int16 of a scale that
counts as a power of two for its tanh. Source: tflite-micro, tensorflow/lite/micro/kernels/lstm_eval.h, lstm_eval.cc,
lstm_eval_common.cc, and tensorflow/lite/kernels/internal/reference/integer_ops/mul.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.graph import arithmetic, floatmath
from aot.graph.expr import Expr, Load, add, axis, cast, clamp, fixed, integer, mul
from aot.graph.ir import DType, Shape, Site
from aot.graph.ops import checks, sigmoid16
from aot.graph.ops.rescale import Rescale, rescale
from aot.graph.primitive import Map

INT16, INT32 = DType.INT16, DType.INT32
FORGET, INPUT, OUTPUT, CANDIDATE = range(4)
"""The gates, in their order in our buffers."""
GATE_SCALE, FUNCTION_SCALE = 2.0**-12, 2.0**-15
GATE_MULTIPLIER = 3
"""From gates to the units of `sigmoid16.py`, 1 / 12288."""
LEAST_POWER, MOST_POWER = -42, 2
"""Powers of two of the cell state's scale for which no step of its tanh leaves int32."""


@dataclass(frozen=True)
class IntegerCell:
    """power: of the cell state's scale. product: input gate times candidate to the cell state. clip: bound of the cell state, or None.

    out: output gate times tanh to the hidden state, then `zero_point`, then the clamp to `hidden`.
    """

    power: int
    product: Rescale
    out: Rescale
    zero_point: int
    hidden: DType
    clip: int | None
    table: str = ""
    dtype: DType = INT16

    def total(self, a: Expr, b: Expr) -> Expr:
        """The gate of the input's and the hidden state's part."""
        return _saturated(add(cast(a, INT32), cast(b, INT32)))

    def sigmoid(self, x: Expr) -> Expr:
        return cast(sigmoid16.interpolated("LOGISTIC", x, self.table, GATE_MULTIPLIER), INT32)

    def tanh(self, x: Expr, power: int = -12) -> Expr:
        """The tanh of an int16 of scale 2^power."""
        left = power + 12
        multiplier, right = (GATE_MULTIPLIER << left, 0) if left >= 0 else (GATE_MULTIPLIER, -left)
        return cast(sigmoid16.interpolated("TANH", x, self.table, multiplier, right), INT32)

    def next_cell(self, gates: Sequence[Expr], cell: Expr) -> Expr:
        kept = _FORGET.expression(mul(self.sigmoid(gates[FORGET]), cast(cell, INT32)))  # never beyond the old state
        product = mul(self.sigmoid(gates[INPUT]), self.tanh(gates[CANDIDATE]))
        new = _saturated(add(kept, clamp(self.product.expression(product), *INT16.limits)))
        return new if self.clip is None else clamp(new, -self.clip, self.clip)

    def next_hidden(self, gate: Expr, cell: Expr) -> Expr:
        """From the output gate and the new cell state."""
        scaled = self.out.expression(mul(self.tanh(cell, self.power), self.sigmoid(gate)))
        return cast(clamp(add(scaled, integer(self.zero_point)), *self.hidden.limits), self.hidden)


_FORGET = Rescale(*arithmetic.quantise_multiplier(FUNCTION_SCALE))
"""Of the forget gate times the cell state: their product's scale against the cell state's, whatever that is."""


def _saturated(x: Expr) -> Expr:
    return cast(clamp(x, *INT16.limits), INT16)


@dataclass(frozen=True)
class FloatCell:
    clip: float | None
    hidden: DType = DType.FLOAT32
    dtype: DType = DType.FLOAT32

    def total(self, a: Expr, b: Expr) -> Expr:
        return add(a, b)

    def next_cell(self, gates: Sequence[Expr], cell: Expr) -> Expr:
        kept = mul(floatmath.logistic(gates[FORGET]), cell)
        new = add(kept, mul(floatmath.logistic(gates[INPUT]), floatmath.tanh(gates[CANDIDATE])))
        return new if self.clip is None else clamp(new, -self.clip, self.clip)

    def next_hidden(self, gate: Expr, cell: Expr) -> Expr:
        return mul(floatmath.tanh(cell), floatmath.logistic(gate))


Cell = IntegerCell | FloatCell


def cell_of(site: Site, hidden: int, cell: int, clip: float, table: str = "") -> Cell:
    """`hidden`, `cell`: the positions of the states. `table`: the name of the buffer that holds `sigmoid16.table()`."""
    state, hidden_state = site.input(cell), site.input(hidden)
    if state.dtype is DType.FLOAT32:
        return FloatCell(clip if clip > 0 else None)
    scale, zero_point = checks.per_tensor(site, state)
    hidden_scale, hidden_zero_point = checks.per_tensor(site, hidden_state)
    if zero_point:
        raise site.error(f"the cell state {checks.describe(state)} has a zero point that is not 0")
    power, _ = sigmoid16.nearest_power(scale)
    if not LEAST_POWER <= power <= MOST_POWER:
        raise site.error(f"the cell state's scale {scale:.3g} is not between 2^{LEAST_POWER} and 2^{MOST_POWER}")
    bound = int(min(float(np.float32(clip)) / float(np.float32(scale)), 32767.0)) if clip > 0 else None
    return IntegerCell(
        power,
        rescale(site, arithmetic.product_scale(FUNCTION_SCALE, FUNCTION_SCALE, scale)),
        rescale(site, arithmetic.product_scale(FUNCTION_SCALE, FUNCTION_SCALE, hidden_scale)),
        hidden_zero_point,
        hidden_state.dtype,
        bound,
        table,
    )


def cell_maps(
    cell: Cell, space: Shape, gates: str, old: str, new: str, hidden: str, nodes: tuple[int, ...] = ()
) -> tuple[Map, Map]:
    """The Maps that write the cell state `new` from `old` (which may be the same buffer) and the hidden state, over (batch, units);
    `gates` is (batch, 4, units)."""
    here = (axis(0), axis(1))
    gate = [Load(gates, (axis(0), fixed(number), axis(1)), cell.dtype) for number in range(4)]
    next_cell = cell.next_cell(gate, Load(old, here, cell.dtype))
    next_hidden = cell.next_hidden(gate[OUTPUT], Load(new, here, cell.dtype))
    return Map(new, space, next_cell, nodes=nodes), Map(hidden, space, next_hidden, nodes=nodes)
