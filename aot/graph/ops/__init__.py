"""The table of all operators. Each family file ends with its own `OPERATORS` tuple; this file only gathers them."""

from __future__ import annotations

from collections.abc import Mapping

from aot.graph.operator import Operator
from aot.graph.ops import (
    activation,
    batch_matmul,
    binary,
    blocks,
    cast,
    comparison,
    control,
    conv,
    dense,
    division,
    gather,
    joining,
    logical,
    mean,
    movement,
    parts,
    pool,
    power,
    quantise,
    reduce,
    repeat,
    resize,
    select,
    signal,
    slicing,
    softmax,
    sums,
    transpose_conv,
    variable,
    views,
)

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        *conv.OPERATORS,
        *dense.OPERATORS,
        *batch_matmul.OPERATORS,
        *transpose_conv.OPERATORS,
        *pool.OPERATORS,
        *mean.OPERATORS,
        *reduce.OPERATORS,
        *softmax.OPERATORS,
        *binary.OPERATORS,
        *cast.OPERATORS,
        *comparison.OPERATORS,
        *division.OPERATORS,
        *logical.OPERATORS,
        *power.OPERATORS,
        *select.OPERATORS,
        *sums.OPERATORS,
        *activation.OPERATORS,
        *quantise.OPERATORS,
        *movement.OPERATORS,
        *resize.OPERATORS,
        *blocks.OPERATORS,
        *repeat.OPERATORS,
        *gather.OPERATORS,
        *slicing.OPERATORS,
        *parts.OPERATORS,
        *joining.OPERATORS,
        *views.OPERATORS,
        *control.OPERATORS,
        *variable.OPERATORS,
        *signal.OPERATORS,
    )
}
