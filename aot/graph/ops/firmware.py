"""CUSTOM: operators that the firmware provides, each a C function that the object calls (`--custom NAME=function`).

Enters: sites whose attributes are a `FirmwareCall`. Leaves: shapes and dtypes as the file declares them, and a `Call` primitive.
Invariant: what such an operator computes is known to the firmware alone: nothing is folded, merged or interpreted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from aot.errors import CompileError
from aot.graph.ir import DType, Graph, Shape, Site, Value
from aot.graph.operator import FirmwareCall, Lowering, Operator
from aot.graph.primitive import Argument, Arguments, Call
from aot.graph.support import alone
from aot.names import require_function

MAX_TENSORS = 64
"""Tensors of one call: the structs that describe them lie on the stack."""
DTYPES = (
    *(DType.FLOAT16, DType.FLOAT32, DType.FLOAT64, DType.BOOL),
    *(DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64),
)


def require_functions(functions: Mapping[str, str]) -> None:
    """CompileError unless every custom operator is given a function that C can have and that is not the compiler's own."""
    for name, function in functions.items():
        if not name:
            raise CompileError(f"--custom '={function}' names no operator", hint="--custom NAME=c_function")
        require_function(function, f"--custom {name}")


def require_declared_shapes(before: Graph, after: Graph) -> None:
    """CompileError if other input shapes (--shape) reach a firmware function: the file says its output shapes for its own."""
    for node in after.nodes:
        site = after.site(node)
        for number, (old, new) in enumerate(zip(before.site(node).inputs, site.inputs)):
            if isinstance(node.attributes, FirmwareCall) and old and new and old.shape != new.shape:
                what = f"--shape makes its input {number} {_dims(new.shape)} instead of {_dims(old.shape)}"
                raise site.error(what, "only the firmware knows what shape its output would have: change the model")


def _dims(shape: Shape) -> str:
    return "x".join(map(str, shape)) if shape else "a scalar"


def _infer(site: Site) -> tuple[Shape, ...]:
    call = site.node.attributes
    assert isinstance(call, FirmwareCall)
    if not call.function:
        hint = "`aot ops` lists those that are; a function of the firmware computes it with --custom NAME=c_function"
        raise site.error(f"custom operator '{call.name}' is not supported", hint)
    return tuple(value.shape for value in site.outputs)


def _check(site: Site) -> None:
    if not site.outputs:
        raise site.error("has no outputs, so that nothing would call its function")
    if len(site.inputs) + len(site.outputs) > MAX_TENSORS:
        raise site.error(f"has {len(site.inputs) + len(site.outputs)} inputs and outputs, more than {MAX_TENSORS}")
    for role, values in (("input", site.inputs), ("output", site.outputs)):
        for number, value in enumerate(values):
            if value is not None:
                _check_value(site, f"its {role} {number}", value)


def _check_value(site: Site, what: str, value: Value) -> None:
    if value.dtype not in DTYPES:
        raise site.error(f"{what} is {value.dtype}, which a firmware function can't be given")
    if (quantisation := value.quantisation) is None:
        return
    if quantisation.per_axis:
        raise site.error(f"{what} has {len(quantisation.scales)} scales; a firmware function is told one for each tensor")
    if not -(1 << 31) <= quantisation.zero_point < 1 << 31:
        raise site.error(f"{what} has zero point {quantisation.zero_point}, which is no int32")


def _compute(site: Site, *_: np.ndarray) -> NoReturn:
    call = site.node.attributes
    assert isinstance(call, FirmwareCall)
    raise site.error(f"only the firmware can compute it, with its function {call.function}")


def _lower(site: Site, lowering: Lowering) -> None:
    call = site.node.attributes
    assert isinstance(call, FirmwareCall)
    ins = tuple(dict.fromkeys(value.name for value in site.inputs if value is not None))
    inputs = tuple(None if value is None else _argument(value, ins.index(value.name)) for value in site.inputs)
    outputs = tuple(_argument(value, position) for position, value in enumerate(site.outputs))
    outs = tuple(value.name for value in site.outputs)
    lowering.append(Call(call.function, outs, ins, Arguments(call.name, inputs, outputs, call.options)))


def _argument(value: Value, position: int) -> Argument:
    scale, zero_point = (value.quantisation.scale, value.quantisation.zero_point) if value.quantisation else (0.0, 0)
    return Argument(position, value.dtype, value.shape, scale, zero_point)


OPERATORS = (
    Operator("CUSTOM", "CUSTOM_BYTES", lambda call: call, _infer, _check, _compute, _lower, folds=False).supports(
        alone("any"),
        notes="Every other custom operator, with `--custom NAME=c_function`: the firmware computes it (docs/custom.md).",
    ),
)
