"""What types a case has, in the words of `Operator.support`, and the same case in other types.

Enters: a net of one operator. Leaves: the type names of its last node; nets. Invariant: the names follow from the tensors alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.differential.grower import QUANTISED
from tests.differential.net import Fill, Net, Node, Tensor

DATA = {
    **dict.fromkeys(("SPLIT", "SELECT", "SELECT_V2", "FILL", "EMBEDDING_LOOKUP", "IF"), 1),
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

CONVERTING = ("CAST", "QUANTIZE", "SOFTMAX", "EMBEDDING_LOOKUP")
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
    data = _data(net, node).dtype
    made = net.tensors[node.outputs[0]].dtype
    if node.op in CONVERTING and made != data:
        return f"{data} to {made}"
    other = net.tensors[node.inputs[WEIGHTED[node.op]]].dtype if node.op in WEIGHTED else data
    if (data, other) == ("int16", "int8"):
        return "int16x8"
    return data if other == data else f"{data} x {other}{' (hybrid)' if data == 'float32' else ''}"


def retyped(net: Net) -> Iterator[Net]:
    """The net with its data's type exchanged for every other one wherever it stands; and that of weights or output for any of EVERY."""
    node = net.nodes[-1]
    data = _data(net, node).dtype
    second = (*node.inputs[WEIGHTED[node.op] :][:1],) if node.op in WEIGHTED else node.outputs if node.op in CONVERTING else ()
    for new in EVERY:
        other = _everywhere(net, data, new)
        yield other
        # The second operand's type, or the output's.
        for kind in EVERY if second else ():
            yield replace(other, tensors=tuple(_as(t, kind) if n in second else t for n, t in enumerate(other.tensors)))


def _data(net: Net, node: Node) -> Tensor:
    if node.op == "READ_VARIABLE":
        return net.tensors[node.outputs[0]]
    return net.tensors[node.inputs[DATA.get(node.op, 0)]]


def _everywhere(net: Net, old: str, new: str) -> Net:
    """With every tensor of a type in another, but for listed integers, which are positions."""
    kept = old in ("int32", "int64")
    tensors = tuple(t if t.dtype != old or (kept and _listed(t)) else _as(t, new) for t in net.tensors)
    return replace(net, tensors=tensors, others=tuple(_everywhere(other, old, new) for other in net.others))


def _listed(tensor: Tensor) -> bool:
    return tensor.data is not None and not isinstance(tensor.data, Fill)


def _as(tensor: Tensor, dtype: str) -> Tensor:
    """A tensor in another type, with a scale where that one has them, and small numbers."""
    scale = (tensor.scale or 0.05) if dtype in (*QUANTISED, "int4") else None
    zero_point = min(max(tensor.zero_point, 0 if dtype == "uint8" else -128), 127) if dtype in ("int8", "uint8") else 0
    zero_point = tensor.zero_point if dtype == tensor.dtype else zero_point
    data = Fill(0, 0, 1) if isinstance(tensor.data, Fill) else tensor.data
    return replace(tensor, dtype=dtype, scale=scale, zero_point=zero_point, data=data, fill=Fill(0, 0, 1))
