"""LOGICAL_AND and LOGICAL_OR of bool. Broadcasting.

Source: tflite-micro, tensorflow/lite/micro/kernels/logical_common.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from aot.graph.expr import Binary, Expr
from aot.graph.ir import DType, Site
from aot.graph.operator import Operator
from aot.graph.ops.binary import require_dtypes
from aot.graph.ops.elementwise import Form, elementwise
from aot.graph.support import micro


@dataclass(frozen=True)
class _Logical:
    op: Literal["and", "or"]

    def array(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left & right if self.op == "and" else left | right

    def expression(self, left: Expr, right: Expr) -> Expr:
        return Binary(self.op, left, right)


def _logical(name: str, op: Literal["and", "or"]) -> Operator:
    def form(site: Site) -> Form:
        require_dtypes(site, DType.BOOL)
        return _Logical(op)

    return elementwise(name, form)


OPERATORS = (
    _logical("LOGICAL_AND", "and").supports(micro("bool"), notes="Exact."),
    _logical("LOGICAL_OR", "or").supports(micro("bool"), notes="Exact."),
)
