"""The table of all operators. Each family file ends with its own `OPERATORS` tuple; this file only gathers them."""

from __future__ import annotations

from collections.abc import Mapping

from aot.graph.operator import Operator
from aot.graph.ops import (
    activation,
    binary,
    conv,
    dense,
    joining,
    mean,
    movement,
    pool,
    quantise,
    reduce,
    slicing,
    softmax,
    transpose_conv,
    views,
)

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        *conv.OPERATORS,
        *dense.OPERATORS,
        *transpose_conv.OPERATORS,
        *pool.OPERATORS,
        *mean.OPERATORS,
        *reduce.OPERATORS,
        *softmax.OPERATORS,
        *binary.OPERATORS,
        *activation.OPERATORS,
        *quantise.OPERATORS,
        *movement.OPERATORS,
        *slicing.OPERATORS,
        *joining.OPERATORS,
        *views.OPERATORS,
    )
}
