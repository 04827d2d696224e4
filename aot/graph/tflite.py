"""The reader: a TFLite file in, a `Model` out. The file is hostile until proven otherwise.

Enters: bytes. Leaves: a Model whose graphs pass `verify`, whose shapes are settled and whose nodes their operators have checked.
Invariant: whatever the bytes are, the answer is a Model or one CompileError that says where and what; time and memory stay in
proportion to the file's size. Field slots are those of TFLite's schema.fbs, version 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from tflite.BuiltinOperator import BuiltinOperator
from tflite.BuiltinOptions import BuiltinOptions
from tflite.BuiltinOptions2 import BuiltinOptions2

from aot.errors import CompileError
from aot.graph.flatbuffer import Table, enumerators, options_object, root
from aot.graph.flexbuffer import read_map
from aot.graph.ir import DType, Graph, Model, Node, Signature, Value
from aot.graph.operator import FirmwareCall, Operator
from aot.graph.shapes import settle_shapes
from aot.graph.tflite_tensor import Buffers, Tensor, read_tensor
from aot.graph.variables import States, Variables
from aot.names import suggestion

MAX_FILE_NBYTES = 1 << 30
SCHEMA_VERSION = 3
MAX_NESTING, MAX_INLINED_NODES = 8, 4_000
"""How deep subgraphs may run others, and how many nodes that may be, each counted as often as it is run from another place."""
MAX_RUN_NODES = 8_000
"""How many that may be for all entries together."""
CUSTOM, CUSTOM_BYTES = "CUSTOM", "CUSTOM_BYTES"
"""CUSTOM: the builtin operator that stands for one known by its custom code, and what such an operator says its options are, if they
are a map; CUSTOM_BYTES if it wants a `FirmwareCall`: code, function, and the options' bytes as they are."""
NO_FUNCTIONS: Mapping[str, str] = {}
OPERATOR_NAMES = {code: name for name, code in enumerators(BuiltinOperator).items()}
OPTIONS_NAMES = {code: name for name, code in enumerators(BuiltinOptions).items()}
OPTIONS2_NAMES = {code: name for name, code in enumerators(BuiltinOptions2).items()}


def read_file(
    path: str | Path, operators: Mapping[str, Operator], functions: Mapping[str, str] = NO_FUNCTIONS, must_use: bool = True
) -> Model:
    """The model in a file, named after it. CompileError if it can't be read, or as `read_model`."""
    path = Path(path)
    try:
        if not path.is_file():
            raise CompileError("is not a file" if path.exists() else "there is no such file", where=str(path))
        if (nbytes := path.stat().st_size) > MAX_FILE_NBYTES:
            raise CompileError(f"has {nbytes} bytes, more than {MAX_FILE_NBYTES}", where=path.name)
        data = path.read_bytes()
    except OSError as error:
        raise CompileError(f"can't be read: {error.strerror}", where=str(path)) from error
    return read_model(data, path.name, operators, functions, must_use)


def read_model(
    data: bytes,
    name: str,
    operators: Mapping[str, Operator],
    functions: Mapping[str, str] = NO_FUNCTIONS,
    must_use: bool = True,
) -> Model:
    """The model in these bytes; `name` is the file's name, which errors begin with (the Model's name is its stem).

    functions: the firmware's C functions by the custom code that they compute. must_use: the model has to have an operator for each.

    CompileError for whatever is damaged, contradictory or not supported (an operator that is not in `operators`, for one).
    """
    try:
        return _Reader(bytes(data), operators, functions, must_use).model(Path(name).stem)
    except CompileError as error:
        raise error.at(name) from None


class _Reader:
    """One file being read. Every index that the file gives is checked where it is used."""

    def __init__(self, data: bytes, operators: Mapping[str, Operator], functions: Mapping[str, str], must_use: bool) -> None:
        self.data = data
        self.operators, self.functions, self.must_use = operators, functions, must_use
        self.root = root(data, b"TFL3", "")
        self.buffers = Buffers(self.root.tables(4, "buffer"))
        self.used_buffers: set[int] = set()
        self.subgraphs: list[_SubgraphReader] = []
        self.graphs: dict[int, Graph | None] = {}
        self.variables = Variables(operators)
        self.inlined = 0

    def model(self, name: str) -> Model:
        if (version := self.root.number(0, "I")) != SCHEMA_VERSION:
            raise CompileError(f"has schema version {version}, not {SCHEMA_VERSION}")
        tables = self.root.tables(2, "subgraph")
        if not tables:
            raise CompileError("has no subgraph")
        self.subgraphs = [_SubgraphReader(self, table, number, len(tables)) for number, table in enumerate(tables)]
        if self.must_use:
            self._require_used()
        graphs = tuple(self.variables.initialised(self.graph(number)) for number in range(len(self.subgraphs)))
        if not graphs[0].outputs:
            raise CompileError("has no outputs")
        return Model(
            name=name,
            graphs=graphs,
            signatures=tuple(_signature(table, self.subgraphs) for table in self.root.tables(7, "signature")),
            sha256=hashlib.sha256(self.data).hexdigest(),
            description=self.root.text(3, "description"),
            constant_nbytes=sum(self.buffers.extent(number)[1] for number in self.used_buffers),
            metadata=dict(self._metadata(table) for table in self.root.tables(6, "metadata")),
            custom_codes=self.custom_codes,
        )

    def graph(self, number: int, depth: int = 0) -> Graph:
        """A subgraph, read when it is first needed: by the model, or by a node that runs it. CompileError if it runs itself."""
        if number not in self.graphs:
            self.graphs[number] = None
            self.graphs[number] = self.subgraphs[number].graph(depth)
        if (found := self.graphs[number]) is None:
            raise CompileError(f"subgraph {number} runs itself")
        return found

    @cached_property
    def operator_codes(self) -> list[tuple[str, str]]:
        """(builtin name, custom name) by number. Old files have only the deprecated 8-bit code, new ones both."""
        return [_operator_code(table) for table in self.root.tables(1, "operator code")]

    @cached_property
    def custom_codes(self) -> tuple[str, ...]:
        """Of the custom operators that nodes name, in order; known before any node is read."""
        numbers = {node.number(0, "I") for subgraph in self.subgraphs for node in subgraph.nodes}
        codes = (self.operator_codes[number] for number in numbers if number < len(self.operator_codes))
        return tuple(sorted({custom for name, custom in codes if name == CUSTOM}))

    def _require_used(self) -> None:
        """CompileError for a function of the firmware that no operator of the model needs: the name may be mistyped, so before others."""
        for name in self.functions:
            if name not in self.custom_codes:
                found = suggestion(name, self.custom_codes, "its custom operators: ", "`aot inspect`")
                hint = found if self.custom_codes else "it has no custom operators"
                raise CompileError(f"the model has no custom operator '{name}'", hint=hint)

    def _metadata(self, table: Table) -> tuple[str, bytes]:
        buffer = table.number(1, "I")
        if buffer >= len(self.buffers.tables):
            table.fail(f"its buffer {buffer} is not in the file, which has {len(self.buffers.tables)}")
        return table.text(0, "name"), self.buffers.bytes(buffer)


def _operator_code(table: Table) -> tuple[str, str]:
    code = max(table.number(0, "b"), table.number(3, "i"))
    if code not in OPERATOR_NAMES:
        table.fail(f"the builtin operator {code} is unknown")
    return OPERATOR_NAMES[code], table.text(1, "custom code")


class _SubgraphReader:
    """One subgraph being read: tensors only as its nodes need them, values in the order of their first use."""

    def __init__(self, file: _Reader, table: Table, number: int, count: int) -> None:
        self.file, self.depth = file, 0
        self.table = table if count > 1 else replace(table, path="")
        self.name = "main" if number == 0 else f"subgraph{number}"
        self.tensors, self.nodes = self.table.tables(0, "tensor"), self.table.tables(3, "node")
        self.found: dict[int, Tensor] = {}
        self.written: set[str] = set()
        self.states = States(self.file.variables, "" if number == 0 else f"{self.name}_")
        self.initialises = False

    def graph(self, depth: int) -> Graph:
        """The subgraph, `depth` levels below the one that is an entry of the model."""
        self.depth = depth
        inputs = self._inputs()
        read = (self._node(number, table) for number, table in enumerate(self.nodes))
        nodes = tuple(node for node in read if node is not None)
        outputs = tuple(self._output(index) for index in self.arguments(2, "output"))
        values = {tensor.value.name: tensor.value for tensor in self.found.values()} | self.states.values
        updates = self.states.updates
        order = dict.fromkeys(chain(inputs, *((*node.inputs, *node.outputs) for node in nodes), outputs, *updates))
        graph = Graph(self.name, tuple(values[name] for name in order if name), nodes, inputs, outputs, updates)
        dynamic = frozenset(tensor.value.name for tensor in self.found.values() if tensor.dynamic)
        graph.verify()
        try:
            return settle_shapes(graph, self.file.operators, dynamic)
        except CompileError as error:
            raise self._error(error.where, error.what, error.hint) from None

    def arguments(self, slot: int, what: str) -> list[int]:
        """The tensors that are the subgraph's inputs or outputs."""
        return self._indices(self.table, slot, f"{what}s")

    def tensor(self, index: int) -> Tensor:
        """A tensor by its number, read when it is first needed."""
        if index not in self.found:
            tensor = read_tensor(self.tensors[index], f"t{index}", self.file.buffers)
            if tensor.value.is_variable and self.name != "main":
                tensor = replace(tensor, value=replace(tensor.value, name=f"{self.name}_t{index}"))
            if tensor.value.is_constant:
                self.file.used_buffers.add(tensor.buffer)
            self.found[index] = tensor
        return self.found[index]

    def _inputs(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for index in self.arguments(1, "input"):
            value = self.tensor(index).value
            if value.name in names:
                raise self._error("", f"lists the input {_label(value)} twice")
            if value.is_constant:
                raise self._error("", f"its input {_label(value)} is a constant")
            names[value.name] = None
        self.written.update(names)
        return tuple(names)

    def _output(self, index: int) -> str:
        value = self.tensor(index).value
        if not self._is_readable(index):
            raise self._error("", f"its output {_label(value)} is never written")
        if value.name in self.states.handles:
            raise self._error("", f"its output {_label(value)} is a resource, not data")
        return self.states.current(value.name)

    def _node(self, number: int, table: Table) -> Node | None:
        """A node; None for one that only says what a variable holds."""
        code = table.number(0, "I")
        if code >= len(self.file.operator_codes):
            table.fail(f"its operator code {code} is not in the file, which has {len(self.file.operator_codes)}")
        name, custom = self.file.operator_codes[code]
        if name == CUSTOM:
            known = custom in self.file.operators and self.file.operators[custom].options == CUSTOM
            name = custom if known and custom not in self.file.functions else CUSTOM
        outputs = self._indices(table, 2, "outputs")
        label = f" {_label(self.tensor(outputs[0]).value)}" if outputs else ""
        where = f"node {number} {name}{label}"
        if name not in self.file.operators:
            which = f"custom operator '{custom}'" if name == CUSTOM else f"operator {name}"
            raise self._error(where, f"{which} is not supported", "`aot ops` lists those that are")
        operator = self.file.operators[name]
        inputs = self._indices(table, 1, "inputs", optional=True)
        reads = tuple(None if index < 0 else self._read(index, where) for index in inputs)
        writes = tuple(self._write(index, where) for index in outputs)
        if operator.options == CUSTOM_BYTES:
            tensors = [None if index < 0 else self.tensor(index) for index in inputs]
            found: object = self._firmware_call(table, custom, tensors, [self.tensor(index) for index in outputs], where)
        else:
            found = self._options(table, operator, where)
        node = Node(name, reads, writes, operator.read(found), number)
        try:
            return self._resolved(node, operator, [None if index < 0 else self.tensor(index).value for index in inputs])
        except CompileError as error:
            raise error if error.where else self._error(where, error.what, error.hint) from None

    def _resolved(self, node: Node, operator: Operator, inputs: list[Value | None]) -> Node | None:
        """The node without side effects: what it does to variables is data flow. `inputs`: what it reads in the file."""
        graphs = [self._subgraph(index) for index in operator.subgraphs(node.attributes)]
        match node.op, inputs, node.outputs:
            case "VAR_HANDLE", [], (handle,):
                if (value := self._value(handle)).dtype is not DType.RESOURCE:
                    raise CompileError(f"its output {_label(value)} is {value.dtype}, not a resource")
                return self.states.handle(handle, node.attributes)
            case "READ_VARIABLE", [Value(name=handle)], (out,):
                return self.states.read(handle, self._value(out))
            case "ASSIGN_VARIABLE", [Value(name=handle), Value()], ():
                assert node.inputs[1] is not None
                return self.states.assign(handle, self._value(node.inputs[1]))
            case "CALL_ONCE", [], () if graphs:
                self.initialises = True
                return self.states.initialise(graphs[0])
            case (("VAR_HANDLE" | "READ_VARIABLE" | "ASSIGN_VARIABLE" | "CALL_ONCE"), _, _):
                raise CompileError(f"has {len(inputs)} inputs and {len(node.outputs)} outputs")
            case _:
                pass
        if any(value is not None and value.name in self.states.handles for value in inputs):
            raise CompileError("reads a resource as if it were data")
        stateful = self.states.with_state(node, operator, inputs)
        return self.states.with_graphs(stateful, graphs) if graphs else stateful

    def _subgraph(self, index: int) -> Graph:
        if not 0 <= index < len(self.file.subgraphs):
            raise CompileError(f"runs subgraph {index}, but the file has {len(self.file.subgraphs)}")
        if self.depth >= MAX_NESTING:
            raise CompileError(f"its subgraphs are nested deeper than {MAX_NESTING}")
        graph = self.file.graph(index, self.depth + 1)
        if graph.nesting >= MAX_NESTING or graph.weight > MAX_INLINED_NODES:
            raise CompileError(
                f"its subgraphs have {graph.weight} nodes in {graph.nesting} levels, more than {MAX_INLINED_NODES} in {MAX_NESTING}"
            )
        self.file.inlined += 0 if self.depth else graph.weight
        if self.file.inlined > MAX_RUN_NODES:
            raise CompileError(f"the subgraphs that nodes run have more than {MAX_RUN_NODES} nodes together")
        if self.file.subgraphs[index].initialises:
            raise CompileError(f"runs subgraph {index}, which has a CALL_ONCE: only an entry of the model may")
        return graph

    def _value(self, name: str) -> Value:
        """A value by its name, as far as the subgraph has been read."""
        return self.states.values[name] if name in self.states.values else self.tensor(int(name.rpartition("t")[2])).value

    def _read(self, index: int, where: str) -> str:
        value = self.tensor(index).value
        if not self._is_readable(index):
            raise self._error(where, f"reads {_label(value)} before it is written")
        return self.states.current(value.name)

    def _is_readable(self, index: int) -> bool:
        """Whether a tensor has content by now. One of size 0 that nobody writes has all the content it can have."""
        value = self.tensor(index).value
        if value.name in self.written or value.is_constant or value.is_variable:
            return True
        if empty := self.tensor(index).as_empty_constant():
            self.found[index] = empty
        return empty is not None

    def _write(self, index: int, where: str) -> str:
        value = self.tensor(index).value
        if value.is_constant or value.is_variable:
            raise self._error(where, f"writes {_label(value)}, which is a {'constant' if value.is_constant else 'variable'}")
        if value.name in self.written:
            raise self._error(where, f"writes {_label(value)}, which has been written before")
        self.written.add(value.name)
        return value.name

    def _options(self, table: Table, operator: Operator, where: str) -> object:
        """The object of the operator's options table, or the map of a custom one's; None if the file has none or it takes none."""
        if operator.options == CUSTOM:
            return self._custom_options(table, where)
        first, second = table.number(3, "B"), table.number(11, "B")
        found = table.table(12, "options") if second else table.table(4, "options") if first else None
        if operator.options is None or found is None:
            return None
        kind = OPTIONS2_NAMES.get(second, "unknown") if second else OPTIONS_NAMES.get(first, "unknown")
        if kind != operator.options:
            raise self._error(where, f"its options are {kind}, not {operator.options}")
        return options_object(found, kind)

    def _custom_options(self, table: Table, where: str) -> object:
        """The FlexBuffer map that a custom operator's options are."""
        data = self._custom_bytes(table, where)
        try:
            return read_map(data)
        except CompileError as error:
            raise self._error(where, error.what, error.hint) from None

    def _custom_bytes(self, table: Table, where: str) -> bytes:
        if table.number(9, "Q"):
            raise self._error(where, "its custom options lie outside the flatbuffer, which is not supported")
        found = table.numbers(5, "u1", "custom options")
        return b"" if found is None else found.tobytes()

    def _firmware_call(
        self, table: Table, custom: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], where: str
    ) -> FirmwareCall:
        """What a function of the firmware is told; CompileError for tensors that it can't have."""
        function = self.file.functions.get(custom, "")
        if not function:
            return FirmwareCall(custom, function)
        for number, tensor in enumerate(inputs):
            if tensor is not None and tensor.value.is_variable:
                raise self._error(where, f"its input {number} is a variable, which a firmware function can't change")
        for tensor in outputs:
            if tensor.dynamic and (not tensor.dims or min(tensor.dims) < 1):
                what = f"the file leaves the shape of its output {_label(tensor.value)} open"
                raise self._error(where, what, "a firmware function can't say it: convert the model with fixed shapes")
        return FirmwareCall(custom, function, self._custom_bytes(table, where))

    def _indices(self, table: Table, slot: int, what: str, optional: bool = False) -> list[int]:
        """A vector of tensor numbers, each inside the subgraph (-1: absent, where `optional`)."""
        array = table.numbers(slot, "i4", what)
        if array is None:
            return []
        wrong = (array >= len(self.tensors)) | (array < (-1 if optional else 0))
        if wrong.any():
            table.fail(f"its {what} have tensor {array[wrong][0]}, but the subgraph has {len(self.tensors)}")
        return array.tolist()

    def _error(self, where: str, what: str, hint: str = "") -> CompileError:
        """An error at a place in this subgraph, which is named where the file has several."""
        return CompileError(what, where=", ".join(filter(None, (self.table.path, where))), hint=hint)


def _label(value: Value) -> str:
    return f"'{value.title}'"


def _signature(table: Table, subgraphs: Sequence[_SubgraphReader]) -> Signature:
    """A named entry, its argument names in the graph's own order. An argument that it does not name has the tensor's label."""
    number = table.number(4, "I")
    if number >= len(subgraphs):
        table.fail(f"its subgraph {number} is not in the file, which has {len(subgraphs)}")
    inputs, outputs = (_argument_names(table, subgraphs[number], slot, what) for slot, what in ((0, "input"), (1, "output")))
    return Signature(table.text(2, "key"), number, inputs, outputs)


def _argument_names(table: Table, subgraph: _SubgraphReader, slot: int, what: str) -> tuple[str, ...]:
    """`slot`: of the vector, in the signature; that of the subgraph is the next one."""
    tensors, found = subgraph.arguments(slot + 1, what), dict[int, str]()
    for argument in table.tables(slot, what):
        tensor = argument.number(1, "I")
        if tensor not in tensors:
            argument.fail(f"tensor {tensor} is not an {what} of {subgraph.name}")
        found[tensor] = argument.text(0, "name")
    return tuple(found.get(tensor) or subgraph.tensor(tensor).value.label for tensor in tensors)
