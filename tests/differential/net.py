"""A differential case as data: `Net` describes a model and its inputs, and prints as the Python text that makes it again.

Enters: tensors, nodes, options; constants and inputs are numbers or a `Fill` (a rule with a seed). Leaves: .tflite bytes, input arrays.
Invariant: `eval(repr(net))` equals `net`; the same net always gives the same bytes and the same inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields

import numpy as np
from flatbuffers import flexbuffers
from tflite import BuiltinOperator

from tests.builder import ModelBuilder


class _Text:
    """Prints a dataclass by the fields that are not at their default; those that have none by position."""

    def __repr__(self) -> str:
        parts = []
        for spec in fields(self):  # type: ignore[arg-type]
            value = getattr(self, spec.name)
            default = spec.default_factory() if spec.default_factory is not MISSING else spec.default
            if default is MISSING:
                parts.append(repr(value))
            elif value != default:
                parts.append(f"{spec.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Fill(_Text):
    """Numbers by a seed, from `low` to `high` (None: the dtype's limits; for floats the normal distribution). `ends`: only those two."""

    seed: int = 0
    low: float | None = None
    high: float | None = None
    ends: bool = False

    def array(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        rng, kind = np.random.default_rng(self.seed), np.dtype({"int4": "int8"}.get(dtype, dtype))
        low, high = self.limits(dtype)
        if self.ends:
            return np.array([low, high], kind)[rng.integers(0, 2, shape)].reshape(shape)
        if kind.kind == "f":
            drawn = rng.standard_normal(shape) if self.low is None else rng.uniform(low, high, shape)
            return np.asarray(drawn, kind).reshape(shape)
        if kind.kind == "b":
            return rng.integers(int(low), int(high) + 1, shape).astype(bool)
        return np.asarray(rng.integers(int(low), int(high), shape, dtype=kind, endpoint=True), kind).reshape(shape)

    def limits(self, dtype: str) -> tuple[float, float]:
        low, high = _LIMITS[dtype] if dtype in _LIMITS else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return low if self.low is None else self.low, high if self.high is None else self.high


_LIMITS: Mapping[str, tuple[float, float]] = {
    "float16": (-1e4, 1e4),
    "float32": (-1e6, 1e6),
    "float64": (-1e6, 1e6),
    "bool": (0, 1),
    "int4": (-8, 7),
}


@dataclass(frozen=True, repr=False)
class Tensor(_Text):
    """A tensor. With `data` (nested numbers, or a Fill) it is a constant; `fill` makes it where it is a model input."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    scale: float | tuple[float, ...] | None = None
    zero_point: int = 0
    axis: int = 0
    data: object = None
    fill: Fill = Fill()
    variable: bool = False

    def array(self) -> np.ndarray:
        """The constant's numbers."""
        if isinstance(self.data, Fill):
            return self.data.array(self.shape, self.dtype)
        return np.asarray(self.data, np.dtype({"int4": "int8"}.get(self.dtype, self.dtype))).reshape(self.shape)


@dataclass(frozen=True, repr=False)
class Node(_Text):
    """An operator on tensors by their number (-1: absent). `options` None: no options table."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, object] | None = None

    def append(self, m: ModelBuilder) -> None:
        """The operator in a model; one that TFLite has no number for is a custom operator."""
        if hasattr(BuiltinOperator, self.op):
            m.operator(self.op, self.inputs, self.outputs, self.options)
            return
        options = bytes(flexbuffers.Dumps(dict(self.options or {})))
        m.operator("CUSTOM", self.inputs, self.outputs, custom_code=self.op, custom_options=options)


@dataclass(frozen=True, repr=False)
class Net(_Text):
    """A model. `others`: its further subgraphs (1, 2, ...)."""

    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    others: tuple[Net, ...] = field(default=())

    def build(self) -> bytes:
        """The model's bytes."""
        m = ModelBuilder()
        for number, net in enumerate((self, *self.others)):
            if number:
                before = (self, *self.others)[number - 1]
                m.end_subgraph(before.inputs, before.outputs)
            net._append(m)
        last = (self, *self.others)[-1]
        return m.build(last.inputs, last.outputs)

    def _append(self, m: ModelBuilder) -> None:
        for number, tensor in enumerate(self.tensors):
            data = None if tensor.data is None else tensor.array()
            quantised = {"scale": tensor.scale, "zero_point": tensor.zero_point, "axis": tensor.axis}
            m.tensor(f"t{number}", tensor.shape, tensor.dtype, **quantised, data=data, variable=tensor.variable)
        for node in self.nodes:
            node.append(m)

    def arrays(self) -> list[np.ndarray]:
        """One array for each input; two inputs with the same rule still differ."""
        return [
            Fill(tensor.fill.seed + 1000 * position, tensor.fill.low, tensor.fill.high, tensor.fill.ends).array(
                tensor.shape, tensor.dtype
            )
            for position, tensor in enumerate(self.tensors[number] for number in self.inputs)
        ]

    def ops(self) -> Iterator[str]:
        """The operators' names, in order, those of further subgraphs behind."""
        for net in (self, *self.others):
            yield from (node.op for node in net.nodes)


def parse(text: str) -> Net:
    """The net that a text describes (written by a person or by `repr`): it is executed as Python."""
    return eval(text, {"Net": Net, "Node": Node, "Tensor": Tensor, "Fill": Fill, "inf": float("inf"), "nan": float("nan")})
