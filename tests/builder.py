"""Builds small .tflite files from Python, for tests.

Enters: shapes, quantisation and numpy data. Leaves: the bytes of a model that TFLite Micro and LiteRT load.
Options are written by field name (`{"stride_w": 1, "padding": "SAME"}`) with the generated functions of the `tflite` package.
Nothing is checked: tests also build wrong models with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import flatbuffers
import numpy as np
import tflite

# The operators whose options table does not have their own name.
_OPTIONS = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"), "ReducerOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(("UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"), "SequenceRNNOptions"),
    "L2_NORMALIZATION": "L2NormOptions",
    "READ_VARIABLE": "ReadVariableOptions",
}
_BY_FOLDED_NAME = {
    name[:-7].lower(): name
    for union in (tflite.BuiltinOptions2, tflite.BuiltinOptions)
    for name in vars(union)
    if name.endswith("Options")
}
_ENUMS = (
    tflite.Padding,
    tflite.ActivationFunctionType,
    tflite.TensorType,
    tflite.MirrorPadMode,
    tflite.FullyConnectedOptionsWeightsFormat,
)


def options_table(op: str) -> str | None:
    """Name of an operator's options table, as in "Conv2DOptions"; None if it has none."""
    return _OPTIONS.get(op) or _BY_FOLDED_NAME.get(op.replace("_", "").lower())


@dataclass
class Sparsity:
    """SparsityParameters. A dimension is a number (dense, of that size) or a pair (segments, indices)."""

    order: Sequence[int]
    blocks: Sequence[int]
    dimensions: Sequence[int | tuple[np.ndarray | Sequence[int], np.ndarray | Sequence[int]]]
    dtype: str = "int32"


@dataclass
class _Tensor:
    name: str | bytes | None
    shape: Sequence[int] | None
    dtype: str
    scale: Sequence[float] | None
    zero_point: Sequence[int] | None
    axis: int
    buffer: int
    variable: bool
    shape_signature: Sequence[int] | None
    sparsity: Sparsity | None


@dataclass
class _Operator:
    code: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    table: str | None
    options: Mapping[str, object]
    custom_options: bytes | None
    intermediates: Sequence[int] | None = None


@dataclass
class _Subgraph:
    name: str
    tensors: list[_Tensor] = field(default_factory=list)
    operators: list[_Operator] = field(default_factory=list)
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()


class ModelBuilder:
    """Collects tensors and operators of the current subgraph; `end_subgraph` starts the next, `build` ends the last.

    >>> m = ModelBuilder()
    >>> x = m.tensor("x", (1, 4), "int8", scale=0.5, zero_point=-1)
    >>> y = m.tensor("y", (1, 4), "int8", scale=0.5, zero_point=-1)
    >>> m.operator("RELU", [x], [y])
    >>> data = m.build([x], [y])
    """

    def __init__(self, description: str = "") -> None:
        self.description = description
        self.graphs = [_Subgraph("main")]
        self.buffers: list[bytes | tuple[int, int] | None] = [None]
        self.codes: list[tuple[int, str | None, int]] = []
        self.signatures: list[tuple[str, Mapping[str, int], Mapping[str, int], int]] = []
        self.metadata: list[tuple[str, int]] = []

    def buffer(self, data: bytes | tuple[int, int]) -> int:
        """A buffer that tensors may share (`tensor(..., buffer=index)`). A pair: offset and size of bytes after the flatbuffer."""
        self.buffers.append(data)
        return len(self.buffers) - 1

    def tensor(
        self,
        name: str | bytes | None,
        shape: Sequence[int] | None,
        dtype: str | np.dtype | type = "int8",
        *,
        scale: float | Sequence[float] | None = None,
        zero_point: int | Sequence[int] | None = None,
        axis: int = 0,
        data: np.ndarray | Sequence | float | None = None,
        buffer: int | None = None,
        variable: bool = False,
        shape_signature: Sequence[int] | None = None,
        sparsity: Sparsity | None = None,
    ) -> int:
        """A tensor of the current subgraph; returns its index. `data` is converted to `dtype` (int4: packed)."""
        word = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        if data is not None:
            buffer = self.buffer(_pack(np.asarray(data), word))
        scales = None if scale is None else [float(number) for number in np.atleast_1d(scale)]
        points = None if scales is None else [int(number) for number in np.broadcast_to(zero_point or 0, len(scales))]
        graph = self.graphs[-1]
        graph.tensors.append(_Tensor(name, shape, word, scales, points, axis, buffer or 0, variable, shape_signature, sparsity))
        return len(graph.tensors) - 1

    def constant(self, data: np.ndarray, dtype: str | None = None, name: str = "", **fields) -> int:
        """A constant tensor; `dtype` defaults to the array's."""
        array = np.asarray(data)
        return self.tensor(name, array.shape, dtype or array.dtype.name, data=array, **fields)

    def operator(
        self,
        op: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Mapping[str, object] | None = None,
        *,
        table: str | None = None,
        version: int = 1,
        custom_code: str | None = None,
        custom_options: bytes | None = None,
        intermediates: Sequence[int] | None = None,
    ) -> None:
        """Append a node. `options=None` writes no options table; `table` overrides the operator's own one."""
        code = (getattr(tflite.BuiltinOperator, op), custom_code, version)
        if code not in self.codes:
            self.codes.append(code)
        table = table or (options_table(op) if options is not None else None)
        node = _Operator(self.codes.index(code), inputs, outputs, table, options or {}, custom_options, intermediates)
        self.graphs[-1].operators.append(node)

    def signature(self, key: str, inputs: Mapping[str, int], outputs: Mapping[str, int], subgraph: int = 0) -> None:
        self.signatures.append((key, inputs, outputs, subgraph))

    def add_metadata(self, name: str, data: bytes) -> None:
        self.metadata.append((name, self.buffer(data)))

    def end_subgraph(self, inputs: Sequence[int], outputs: Sequence[int], next_name: str = "") -> None:
        """Finish the current subgraph and start another one (the first is the main one)."""
        self.graphs[-1].inputs, self.graphs[-1].outputs = inputs, outputs
        self.graphs.append(_Subgraph(next_name or f"graph{len(self.graphs)}"))

    def build(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The file's bytes; `inputs` and `outputs` are those of the last subgraph."""
        self.graphs[-1].inputs, self.graphs[-1].outputs = inputs, outputs
        return _Writer(self).finish()


class _Writer:
    """Writes a ModelBuilder's content; flatbuffers are written leaves first."""

    def __init__(self, model: ModelBuilder) -> None:
        self.model = model
        self.fb = flatbuffers.Builder(1024)

    def finish(self) -> bytes:
        model = self.model
        parts = {
            "Version": 3,
            "OperatorCodes": self.offsets([self.code(*code) for code in model.codes]),
            "Subgraphs": self.offsets([self.subgraph(graph) for graph in model.graphs]),
            "Description": self.fb.CreateString(model.description),
            "Buffers": self.offsets([self.buffer(data) for data in model.buffers]),
            "Metadata": self.offsets(
                [self.table("Metadata", Name=self.fb.CreateString(name), Buffer=index) for name, index in model.metadata]
            ),
            "SignatureDefs": self.offsets([self.signature(*signature) for signature in model.signatures]),
        }
        self.fb.Finish(self.table("Model", **parts), file_identifier=b"TFL3")
        return bytes(self.fb.Output())

    def buffer(self, data: bytes | tuple[int, int] | None) -> int:
        if isinstance(data, tuple):
            return self.table("Buffer", Offset=data[0], Size=data[1])
        return self.table("Buffer", Data=None if data is None else self.bytes(data))

    def code(self, builtin: int, custom: str | None, version: int) -> int:
        name = None if custom is None else self.fb.CreateString(custom)
        return self.table(
            "OperatorCode", DeprecatedBuiltinCode=min(builtin, 127), BuiltinCode=builtin, CustomCode=name, Version=version
        )

    def subgraph(self, graph: _Subgraph) -> int:
        return self.table(
            "SubGraph",
            Tensors=self.offsets([self.tensor(tensor) for tensor in graph.tensors]),
            Inputs=self.numbers(graph.inputs),
            Outputs=self.numbers(graph.outputs),
            Operators=self.offsets([self.operator(operator) for operator in graph.operators]),
            Name=self.fb.CreateString(graph.name),
        )

    def tensor(self, tensor: _Tensor) -> int:
        quantisation = None
        if tensor.scale is not None and tensor.zero_point is not None:
            scale, zero_point = self.numbers(tensor.scale, "float32"), self.numbers(tensor.zero_point, "int64")
            quantisation = self.table("QuantizationParameters", Scale=scale, ZeroPoint=zero_point, QuantizedDimension=tensor.axis)
        return self.table(
            "Tensor",
            Shape=self.numbers(tensor.shape),
            Type=getattr(tflite.TensorType, tensor.dtype.upper()),
            Buffer=tensor.buffer,
            Name=None if tensor.name is None else self.fb.CreateString(tensor.name),
            Quantization=quantisation,
            IsVariable=tensor.variable,
            ShapeSignature=self.numbers(tensor.shape_signature),
            Sparsity=None if tensor.sparsity is None else self.sparsity(tensor.sparsity),
        )

    def sparsity(self, of: Sparsity) -> int:
        return self.table(
            "SparsityParameters",
            TraversalOrder=self.numbers(of.order),
            BlockMap=self.numbers(of.blocks),
            DimMetadata=self.offsets([self.dimension(found, of.dtype) for found in of.dimensions]),
        )

    def dimension(self, found: int | tuple, dtype: str) -> int:
        if isinstance(found, int):
            return self.table("DimensionMetadata", Format=0, DenseSize=found)
        kind = {"int32": "Int32Vector", "uint16": "Uint16Vector", "uint8": "Uint8Vector"}[dtype]
        vectors = [self.table(kind, Values=self.numbers(array, dtype)) for array in found]
        code = getattr(tflite.SparseIndexVector, kind)
        return self.table(
            "DimensionMetadata",
            Format=1,
            ArraySegmentsType=code,
            ArraySegments=vectors[0],
            ArrayIndicesType=code,
            ArrayIndices=vectors[1],
        )

    def operator(self, node: _Operator) -> int:
        union, second = (
            getattr(tflite.BuiltinOptions, node.table or "NONE", 0),
            getattr(tflite.BuiltinOptions2, node.table or "NONE", 0),
        )
        options = None if node.table is None else self.options(node.table, node.options)
        fields = (
            {"BuiltinOptions2Type": second, "BuiltinOptions2": options}
            if second
            else {"BuiltinOptionsType": union, "BuiltinOptions": options}
        )
        custom = None if node.custom_options is None else self.bytes(node.custom_options)
        vectors = {"Inputs": node.inputs, "Outputs": node.outputs, "Intermediates": node.intermediates}
        lists = {name: self.numbers(numbers) for name, numbers in vectors.items()}
        return self.table("Operator", OpcodeIndex=node.code, CustomOptions=custom, **lists, **fields)

    def options(self, table: str, options: Mapping[str, object]) -> int:
        camel = {"".join(word[:1].upper() + word[1:] for word in name.split("_")): value for name, value in options.items()}
        return self.table(table, **{name: self.option(table, name, value) for name, value in camel.items()})

    def option(self, table: str, name: str, value: object) -> object:
        if isinstance(value, str):
            found = [getattr(enum, value.upper()) for enum in _ENUMS if hasattr(enum, value.upper())]
            return found[0] if found else self.fb.CreateString(value)
        return self.numbers(value) if hasattr(tflite, f"{table}Start{name}Vector") else value

    def signature(self, key: str, inputs: Mapping[str, int], outputs: Mapping[str, int], subgraph: int) -> int:
        maps = [
            self.offsets(
                [self.table("TensorMap", Name=self.fb.CreateString(name), TensorIndex=index) for name, index in side.items()]
            )
            for side in (inputs, outputs)
        ]
        return self.table(
            "SignatureDef", Inputs=maps[0], Outputs=maps[1], SignatureKey=self.fb.CreateString(key), SubgraphIndex=subgraph
        )

    def table(self, kind: str, **fields: object) -> int:
        """A table of the schema, with the fields that are not None."""
        getattr(tflite, f"{kind}Start")(self.fb)
        for name, value in fields.items():
            if value is not None:
                getattr(tflite, f"{kind}Add{name}")(self.fb, value)
        return getattr(tflite, f"{kind}End")(self.fb)

    def offsets(self, items: list[int]) -> int:
        self.fb.StartVector(4, len(items), 4)
        for item in reversed(items):
            self.fb.PrependUOffsetTRelative(item)
        return self.fb.EndVector()

    def numbers(self, items: object, dtype: str = "int32") -> int | None:
        return None if items is None else self.fb.CreateNumpyVector(np.asarray(items, dtype))

    def bytes(self, data: bytes) -> int:
        """A byte vector, aligned to 16 as the schema demands of constants."""
        self.fb.StartVector(1, len(data), 16)
        self.fb.head = self.fb.head - len(data)
        self.fb.Bytes[self.fb.head : self.fb.head + len(data)] = data
        return self.fb.EndVector()


def _pack(array: np.ndarray, dtype: str) -> bytes:
    if dtype != "int4":
        return np.ascontiguousarray(array, np.dtype(dtype)).tobytes()
    nibbles = np.append(array.astype(np.uint8).reshape(-1) & 15, np.zeros(array.size % 2, np.uint8))
    return (nibbles[0::2] | nibbles[1::2] << 4).tobytes()
