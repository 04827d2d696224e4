"""Operators that take everything, for tests of the reader alone."""

from __future__ import annotations

import numpy as np
import tflite

from aot.graph.operator import Operator
from aot.graph.ops import variable
from tests.builder import options_table


def permissive(name: str, read=lambda options: None) -> Operator:
    """An operator without opinions: outputs are as the file declares them, or zeros."""
    return Operator(
        name=name,
        options=options_table(name),
        read=read,
        infer=lambda site: tuple(value.shape for value in site.outputs),
        check=lambda site: None,
        compute=lambda site, *arrays: tuple(np.zeros(value.shape, value.dtype.np) for value in site.outputs),
        lower=lambda site, lowering: None,
    )


ANYTHING = {name: permissive(name) for name in vars(tflite.BuiltinOperator) if name.isupper() and name not in ("CUSTOM", "WHERE")}
ANYTHING |= {operator.name: operator for operator in variable.OPERATORS}
"""All operators but WHERE; those that only name variables are the real ones."""
