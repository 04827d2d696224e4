"""What types a case has, in the words of `Operator.support`, and the same case in other types.

Enters: a net of one operator. Leaves: the type names of its last node; nets. Invariant: the names follow from the tensors alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.differential.grower import QUANTISED
from tests.differential.net import Fill, Net, Node, Tensor

DATA = {
    **dict.fromkeys(("SPLIT", "SELECT", "SELECT_V2", "FILL", "EMBEDDING_LOOKUP"), 1),
    "TRANSPOSE_CONV": 2,
}
"""Where the value stands that an operator is about; mostly first."""

WEIGHTED = dict.fromkeys(
    (
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
        "TRANSPOSE_CONV",
        "BATCH_MATMUL",
        "PRELU",
        "SVDF",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
    ),
    1,
)
"""Operators whose second operand may have another type, and where it stands."""

CONVERTING = ("QUANTIZE", "SOFTMAX", "EMBEDDING_LOOKUP")
"""Operators whose output may have another type."""

EVERY = ("float32", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool", "float16", "float64", "int4")
"""Types that cases are tried in."""


def types(net: Net) -> frozenset[str]:
    """The names of the last node's types."""
    node = net.nodes[-1]
    if node.op == "CAST":
        return frozenset(net.tensors[n].dtype for n in (*node.inputs, *node.outputs))
    if node.op in ("IF", "WHILE", "STABLEHLO_COMPOSITE"):
        return frozenset(net.tensors[n].dtype for n in node.inputs[node.op == "IF" :])
    return frozenset((_name(net, node),))


def _name(net: Net, node: Node) -> str:
    data = net.tensors[node.inputs[DATA.get(node.op, 0)]].dtype
    made = net.tensors[node.outputs[0]].dtype
    if node.op in CONVERTING and made != data:
        return f"{data} to {made}"
    other = net.tensors[node.inputs[WEIGHTED[node.op]]].dtype if node.op in WEIGHTED else data
    if (data, other) == ("int16", "int8"):
        return "int16x8"
    return data if other == data else f"{data} x {other}{' (hybrid)' if data == 'float32' else ''}"


def retyped(net: Net) -> Iterator[Net]:
    """The net with its data operand's type exchanged for every other one, wherever it stands; and its weights' alone."""
    node = net.nodes[-1]
    old = net.tensors[node.inputs[DATA.get(node.op, 0)]].dtype
    for new in EVERY:
        positions = old in ("int32", "int64")
        yield _with(net, [n for n, t in enumerate(net.tensors) if t.dtype == old and not (positions and _listed(t))], new)
        if node.op in WEIGHTED:
            yield _with(net, [node.inputs[WEIGHTED[node.op]]], new)
        if node.op in (*CONVERTING, "CAST"):
            yield _with(net, [node.outputs[0]], new)


def _listed(tensor: Tensor) -> bool:
    return tensor.data is not None and not isinstance(tensor.data, Fill)


def _with(net: Net, numbers: list[int], dtype: str) -> Net:
    tensors = list(net.tensors)
    for n in numbers:
        tensors[n] = _as(tensors[n], dtype)
    others = tuple(
        replace(other, tensors=tuple(tensors[n] if False else t for n, t in enumerate(other.tensors))) for other in net.others
    )
    return replace(net, tensors=tuple(tensors), others=others)


def _as(tensor: Tensor, dtype: str) -> Tensor:
    """A tensor in another type, with a scale where that one has them, and small numbers."""
    scale = (tensor.scale or 0.05) if dtype in (*QUANTISED, "int4") else None
    low = {"int8": -128, "uint8": 0, "int16": 0}.get(dtype, 0)
    zero_point = min(max(tensor.zero_point, low), 127) if scale and dtype in ("int8", "uint8") else 0
    data = Fill(0, 0, 1) if isinstance(tensor.data, Fill) else tensor.data
    return replace(tensor, dtype=dtype, scale=scale, zero_point=zero_point, data=data, fill=Fill(0, 0, 1))
