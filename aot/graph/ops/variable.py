# pyright: basic
"""VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE: the reader resolves them into data flow (`aot/graph/variables.py`).

Enters: their options. Leaves: attributes alone; no graph holds such a node. Invariant: none of them has a meaning of its own.
Source: TFLite Micro, var_handle.cc, read_variable.cc, assign_variable.cc, call_once.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aot.graph.operator import Operator
from aot.graph.support import ANY
from aot.graph.variables import refuse_resource


@dataclass(frozen=True)
class Handle:
    """Which variable a VAR_HANDLE stands for."""

    container: bytes = b""
    shared_name: bytes = b""


def _read_handle(options: Any) -> Handle:
    return Handle() if options is None else Handle(options.Container() or b"", options.SharedName() or b"")


def _read_once(options: Any) -> int:
    return 0 if options is None else options.InitSubgraphIndex()


def _resource(name: str, options: str | None, read: Any, subgraphs: Any = lambda attributes: ()) -> Operator:
    return Operator(name, options, read, refuse_resource, refuse_resource, refuse_resource, refuse_resource, subgraphs=subgraphs)


OPERATORS = (
    _resource("VAR_HANDLE", "VarHandleOptions", _read_handle).supports(
        *ANY,
        notes="Variables become state between calls.",
    ),
    _resource("READ_VARIABLE", "ReadVariableOptions", lambda options: None).supports(
        *ANY,
        notes="A view of the state.",
    ),
    _resource("ASSIGN_VARIABLE", "AssignVariableOptions", lambda options: None).supports(
        *ANY,
        notes="A new value of the state, of the type and shape of every other one.",
    ),
    _resource("CALL_ONCE", "CallOnceOptions", _read_once, lambda attributes: (attributes,)).supports(
        *ANY,
        notes="Its sub-graph may assign constants only: they become the initial state.",
    ),
)
