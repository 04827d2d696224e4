"""Every sentence with which the reader refuses a file, and the smallest file that earns it."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable

import flatbuffers
import numpy as np
import pytest
import tflite

from aot.errors import CompileError
from aot.graph.flatbuffer import Table, root
from aot.graph.shapes import MAX_TENSOR_NBYTES
from aot.graph.tflite import MAX_FILE_NBYTES, read_file, read_model
from tests import one_operator as one
from tests.builder import ModelBuilder
from tests.graph.permissive import ANYTHING
from tests.one_operator import T, one_operator


def simple(x: dict | None = None, y: dict | None = None, *, op: str = "RELU", inputs=(0,), outputs=(1,), **fields) -> bytes:
    """x -> op -> y, with these fields of the tensors and the node."""
    m = ModelBuilder()
    for name, given in (("x", x or {}), ("y", y or {})):
        m.tensor(**{"name": name, "shape": (2, 3), "dtype": "int8", **given})
    m.operator(op, inputs, outputs, **fields)
    return m.build([0], [1])


def weights(**fields) -> bytes:
    """A model whose second input is a constant with these fields."""
    given = {"shape": (2, 3), "dtype": "int8", "data": np.zeros((2, 3)), **fields}
    return one_operator("FULLY_CONNECTED", [T((1, 3)), T(**given)], [T((1, 2))])


def tensor_table(data: bytes, number: int = 0) -> Table:
    return root(data, b"TFL3", "").tables(2, "subgraph")[0].tables(0, "tensor")[number]


def patch(data: bytes, position: int, code: str, value: int) -> bytes:
    return data[:position] + struct.pack("<" + code, value) + data[position + struct.calcsize("<" + code) :]


def with_field(data: bytes, find: Callable[[bytes], Table], slot: int, like: int) -> bytes:
    """The file with a table's field `slot` at the place of its field `like` (its vtable must be long enough for both)."""
    table = find(data)
    like_offset = struct.unpack_from("<H", data, table.vtable + 4 + 2 * like)[0]
    assert like_offset and 4 + 2 * slot < table.vtable_nbytes
    return patch(data, table.vtable + 4 + 2 * slot, "H", like_offset)


def with_slot_offset(slot: int, offset: int) -> bytes:
    """A file whose first tensor has this offset for a field."""
    data = simple()
    return patch(data, tensor_table(data).vtable + 4 + 2 * slot, "H", offset)


def sparse() -> bytes:
    return with_field(simple({"shape_signature": (2, 3)}), tensor_table, 6, 3)


def blockwise() -> bytes:
    data = simple({"scale": 0.5, "zero_point": 1, "axis": 1})
    return with_field(data, lambda data: _found(tensor_table(data).table(4, "quantisation")), 4, 6)


def _found(table: Table | None) -> Table:
    assert table is not None
    return table


def repeated_tables(tensors: int, graphs: int, padding: int = 0) -> bytes:
    """A subgraph that lists one and the same tensor over and over, 4 bytes each, listed over and over itself."""
    fb = flatbuffers.Builder()
    fb.CreateByteVector(bytes(padding))
    tflite.TensorStart(fb)
    many = _repeated(fb, tflite.SubGraphStartTensorsVector, tflite.TensorEnd(fb), tensors)
    tflite.SubGraphStart(fb)
    tflite.SubGraphAddTensors(fb, many)
    tflite.SubGraphAddOutputs(fb, many)
    many = _repeated(fb, tflite.ModelStartSubgraphsVector, tflite.SubGraphEnd(fb), graphs)
    tflite.ModelStart(fb)
    tflite.ModelAddVersion(fb, 3)
    tflite.ModelAddSubgraphs(fb, many)
    fb.Finish(tflite.ModelEnd(fb), b"TFL3")
    return bytes(fb.Output())


def _repeated(fb: flatbuffers.Builder, start: Callable, table: int, count: int) -> int:
    start(fb, count)
    for _ in range(count):
        fb.PrependUOffsetTRelative(table)
    return fb.EndVector()


def root_moved(offset: int) -> bytes:
    return patch(simple(), 0, "I", offset)


def root_field_table(code: str, value: int, at: int) -> bytes:
    """A file whose root has another vtable offset (`at` None) or another number in its vtable."""
    data = simple()
    table = root(data, b"TFL3", "")
    return patch(data, table.vtable + at if at >= 0 else table.position, code, value)


def shape_vector(code: str, value: int, at: int) -> bytes:
    data = simple()
    position = tensor_table(data).offset(0, 4)
    assert position is not None
    length = position + struct.unpack_from("<I", data, position)[0]
    return patch(data, position if at < 0 else length, code, value)


def two_graphs(second: Callable[[ModelBuilder], None]) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("RELU", [x], [y])
    m.end_subgraph([x], [y])
    second(m)
    return m.build([], [])


def signature(**fields) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("RELU", [x], [y])
    m.signature(**{"key": "serve", "inputs": {"in": x}, "outputs": {"out": y}, **fields})
    return m.build([x], [y])


def metadata(buffer: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("RELU", [x], [y])
    m.metadata.append(("notes", buffer))
    return m.build([x], [y])


def external(offset: int, size: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (2,), buffer=m.buffer((offset, size))), m.tensor("y", (2,))
    m.operator("ADD", [x], [y])
    return m.build([], [y])


def version(number: int) -> bytes:
    data = simple()
    position = root(data, b"TFL3", "").offset(0, 4)
    assert position is not None
    return patch(data, position, "I", number)


def opcode(number: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("RELU", [x], [y])
    m.graphs[0].operators[0].code = number
    return m.build([x], [y])


def builtin(number: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("RELU", [x], [y])
    m.codes[0] = (number, None, 1)
    return m.build([x], [y])


def order() -> bytes:
    m = ModelBuilder()
    x, middle, y = (m.tensor(name, (2,)) for name in ("x", "middle", "y"))
    m.operator("RELU", [middle], [y])
    m.operator("RELU", [x], [middle])
    return m.build([x], [y])


def twice() -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (2,)), m.tensor("y", (2,))
    m.operator("RELU", [x], [y])
    m.operator("TANH", [x], [y])
    return m.build([x], [y])


def inputs(tensors: list[int], outputs: list[int] | None = None, **x) -> bytes:
    m = ModelBuilder()
    m.tensor(**{"name": "x", "shape": (2,), **x})
    y = m.tensor("y", (2,))
    m.operator("RELU", [0], [y])
    return m.build(tensors, [y] if outputs is None else outputs)


def empty_model() -> bytes:
    m = ModelBuilder()
    m.graphs.clear()
    m.graphs.append(ModelBuilder().graphs[0])
    data = m.build([], [])
    position = root(data, b"TFL3", "").offset(2, 4)
    assert position is not None
    return patch(data, position + struct.unpack_from("<I", data, position)[0], "I", 0)


def idle() -> bytes:
    m = ModelBuilder()
    return m.build([m.tensor("x", (2,))], [m.tensor("y", (2,))])


def offset_of(table: Table, slot: int) -> int:
    position = table.offset(slot, 1)
    assert position is not None
    return position


def raw(dtype: str, shape: tuple[int, ...], content: bytes, **fields) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", shape, dtype, buffer=m.buffer(content), **fields), m.tensor("y", shape, dtype)
    m.operator("RELU", [x], [y])
    return m.build([], [y])


def zero_points() -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (2,), "int8", scale=[0.5, 0.25]), m.tensor("y", (2,))
    m.graphs[0].tensors[x].zero_point = [1]
    m.operator("RELU", [x], [y])
    return m.build([x], [y])


STRINGS = struct.pack("<iiii", 2, 16, 18, 99) + b"abcde"

CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    # The file and its tables.
    "empty file": (lambda: b"", "m.tflite: not a TFLite model: it is empty (expected a .tflite file)"),
    "short file": (lambda: b"TFL3", "not a TFLite model: bytes 4 to 7 are not 'TFL3' (expected"),
    "no identifier": (lambda: b"\0" * 64, "not a TFLite model: bytes 4 to 7 are not 'TFL3'"),
    "root outside": (lambda: root_moved(1 << 31), "m.tflite: main table: lies outside the file"),
    "root at the start": (lambda: root_moved(0), "main table: lies outside the file"),
    "vtable outside": (lambda: root_field_table("i", 1 << 30, -1), "main table: its field table lies outside the file"),
    "vtable behind": (lambda: root_field_table("i", -(1 << 30), -1), "main table: its field table lies outside the file"),
    "vtable too long": (lambda: root_field_table("H", 0xFFFE, 0), "main table: its field table is damaged"),
    "vtable odd": (lambda: root_field_table("H", 5, 0), "main table: its field table is damaged"),
    "vtable too short": (lambda: root_field_table("H", 2, 0), "main table: its field table is damaged"),
    "table too long": (lambda: root_field_table("H", 0xFFFF, 2), "main table: runs past the end of the file"),
    "field outside": (lambda: with_slot_offset(1, 0xFFFF), "tensor 0 'x': field 1 lies outside its table"),
    "field in the vtable offset": (lambda: with_slot_offset(2, 2), "tensor 0 'x': field 2 lies outside its table"),
    "vector outside": (lambda: shape_vector("I", 1 << 31, -1), "tensor 0 'x': its shape can't be read: outside the file"),
    "vector too long": (lambda: shape_vector("I", 1 << 30, 0), "tensor 0 'x': its shape can't be read: past the end of the file"),
    "tables over and over": (
        lambda: repeated_tables(20_000, 50),
        "more content than the file has bytes: its",
    ),
    "many tables": (
        lambda: repeated_tables(20_000, 50, 4 << 20),
        "the file has more than 100000 tables",
    ),
    "schema version": (lambda: version(2), "m.tflite: has schema version 2, not 3"),
    "no subgraph": (empty_model, "m.tflite: has no subgraph"),
    "no outputs": (lambda: inputs([0], []), "m.tflite: has no outputs"),
    # Indices.
    "tensor in inputs": (lambda: inputs([5]), "main table: its inputs have tensor 5, but the subgraph has 2"),
    "absent input": (lambda: inputs([-1]), "main table: its inputs have tensor -1, but the subgraph has 2"),
    "tensor in outputs": (lambda: inputs([0], [2]), "main table: its outputs have tensor 2, but the subgraph has 2"),
    "tensor read": (lambda: simple(inputs=[7]), "node 0: its inputs have tensor 7, but the subgraph has 2"),
    "tensor -2 read": (lambda: simple(inputs=[-2]), "node 0: its inputs have tensor -2, but the subgraph has 2"),
    "absent tensor written": (lambda: simple(outputs=[-1]), "node 0: its outputs have tensor -1, but the subgraph has 2"),
    "buffer": (lambda: simple({"buffer": 9}), "tensor 0 'x': its buffer 9 is not in the file, which has 1"),
    "operator code": (lambda: opcode(3), "node 0: its operator code 3 is not in the file, which has 1"),
    "builtin operator": (lambda: builtin(9999), "operator code 0: the builtin operator 9999 is unknown"),
    "signature's subgraph": (lambda: signature(subgraph=4), "signature 0: its subgraph 4 is not in the file, which has 1"),
    "signature's input": (lambda: signature(inputs={"in": 1}), "signature 0, input 0: tensor 1 is not an input of main"),
    "signature's output": (lambda: signature(outputs={"out": 77}), "signature 0, output 0: tensor 77 is not an output of main"),
    "metadata's buffer": (lambda: metadata(6), "metadata 0: its buffer 6 is not in the file, which has 1"),
    "external buffer": (lambda: external(40, 1 << 62), "buffer 1: its 4611686018427387904 bytes at 40 lie outside the file"),
    # Order.
    "order": (order, "m.tflite: node 0 RELU 'y': reads 'middle' before it is written"),
    "own output": (lambda: simple(inputs=[1]), "node 0 RELU 'y': reads 'y' before it is written"),
    "written twice": (twice, "node 1 TANH 'y': writes 'y', which has been written before"),
    "input written": (lambda: simple(outputs=[0]), "node 0 RELU 'x': writes 'x', which has been written before"),
    "constant written": (lambda: simple(y={"data": np.zeros((2, 3))}), "node 0 RELU 'y': writes 'y', which is a constant"),
    "variable written": (lambda: simple(y={"variable": True}), "node 0 RELU 'y': writes 'y', which is a variable"),
    "output without a node": (idle, "m.tflite: its output 'y' is never written"),
    "input twice": (lambda: inputs([0, 0]), "m.tflite: lists the input 'x' twice"),
    "constant input": (lambda: inputs([0], data=[1, 2]), "m.tflite: its input 'x' is a constant"),
    "in another subgraph": (
        lambda: two_graphs(lambda m: m.operator("NEG", [m.tensor("a", (2,))], [m.tensor("b", (2,))])),
        "m.tflite: subgraph 1, node 0 NEG 'b': reads 'a' before it is written",
    ),
    # Operators.
    "unsupported": (
        lambda: one.unary("WHERE"),
        "node 0 WHERE 'out0': operator WHERE is not supported (`aot ops` lists those that are)",
    ),
    "custom": (
        lambda: one_operator("CUSTOM", [T((1,))], [T((1,))], custom_code="My\nOp", custom_options=b"1"),
        "node 0 CUSTOM 'out0': custom operator 'My?Op' is not supported",
    ),
    "other options": (
        lambda: simple(op="CONV_2D", table="Pool2DOptions"),
        "node 0 CONV_2D 'y': its options are Pool2DOptions, not Conv2DOptions",
    ),
    "other options 2": (lambda: simple(op="CONV_2D", table="DilateOptions"), "its options are DilateOptions, not Conv2DOptions"),
    "long options": (
        lambda: simple(op="RESHAPE", options={"new_shape": [1] * 5000}),
        "node 0, options: its NewShape has 5000 items, more than 4096",
    ),
    # Tensors.
    "type": (
        lambda: patch(data := simple({"dtype": "int16"}), offset_of(tensor_table(data), 1), "b", 99),
        "tensor 0 'x': its type has the unknown code 99",
    ),
    "sparse": (sparse, "tensor 0, sparsity: its field table is damaged"),
    "rank": (lambda: simple({"shape": (1,) * 9}), "tensor 0 'x': its shape has 9 dimensions, more than 8"),
    "negative": (lambda: simple({"shape": (2, -3)}), "tensor 0 'x': its shape has a negative dimension: [2, -3]"),
    "negative signature": (lambda: simple({"shape_signature": (2, -7)}), "its shape signature has a negative dimension: [2, -7]"),
    "open constant": (lambda: weights(shape=(-1, 3)), "tensor 1 'in1': is constant but its shape is [-1, 3]"),
    "too large": (
        lambda: simple({"shape": (1 << 20, 1025)}),
        f"tensor 0 'x': would have more than {MAX_TENSOR_NBYTES} bytes: 1048576x1025 of int8",
    ),
    "overflow": (lambda: simple({"shape": ((1 << 31) - 1,) * 8}), "would have more than 1073741824 bytes: 2147483647x2147483647x"),
    "hidden by a zero": (
        lambda: simple({"shape": (0, 1 << 30, 1 << 30)}),
        "would have more than 1073741824 bytes: 1x1073741824x1073741824 of int8",
    ),
    "constant's size": (lambda: weights(shape=(2, 4)), "tensor 1 'in1': its shape has 8 elements of int8, its buffer 1 has 6"),
    "constant's bytes": (
        lambda: raw("int32", (1,), b"123456"),
        "its buffer 1 has 6 bytes, not a multiple of 4",
    ),
    "int4 size": (lambda: weights(dtype="int4", data=np.zeros((3, 3))), "its shape has 6 elements of int4, its buffer 1 has 10"),
    "bfloat16": (lambda: raw("bfloat16", (3,), b"123456"), "tensor 0 'x': constants of type bfloat16 are not supported"),
    "strings": (lambda: raw("string", (2,), STRINGS), "tensor 0 'x': its strings are damaged"),
    "strings cut": (
        lambda: raw("string", (2,), b"\xff\xff\xff"),
        "tensor 0 'x': its strings are damaged",
    ),
    "strings without end": (lambda: raw("string", (2,), b"\xff\xff\xff\x7f"), "tensor 0 'x': its strings are damaged"),
    "negative strings": (lambda: raw("string", (2,), b"\xff" * 12), "tensor 0 'x': its strings are damaged"),
    "constant variable": (lambda: raw("int8", (2,), b"12", variable=True), "tensor 0 'x': is a variable but has constant data"),
    # Quantisation.
    "blockwise": (
        blockwise,
        "tensor 0 'x': has custom or blockwise quantisation, which is not supported (quantise per tensor or per channel)",
    ),
    "NaN": (lambda: simple({"scale": float("nan")}), "tensor 0 'x': has a scale that is not a finite number: nan"),
    "infinite": (lambda: weights(scale=[1.0, float("inf")]), "tensor 1 'in1': has a scale that is not a finite number: inf"),
    "negative scale": (lambda: weights(scale=-0.5), "tensor 1 'in1': has a negative scale: -0.5"),
    "scale 0": (lambda: simple({"scale": 0.0}), "tensor 0 'x': has scale 0, which no int8 activation can have"),
    "zero point": (
        lambda: simple({"scale": 1.0, "zero_point": 128}),
        "tensor 0 'x': has zero point 128, outside int8's -128 to 127",
    ),
    "uint8 zero point": (
        lambda: simple({"dtype": "uint8", "scale": 1.0, "zero_point": -1}),
        "has zero point -1, outside uint8's 0 to 255",
    ),
    "zero points": (zero_points, "tensor 0 'x': has 2 scales but 1 zero points"),
    "axis": (lambda: weights(scale=[1.0, 2.0], axis=4), "tensor 1 'in1': has scales along dimension 4, but 2 dimensions"),
    "negative axis": (
        lambda: weights(scale=[1.0, 2.0], axis=-1),
        "tensor 1 'in1': has scales along dimension -1, but 2 dimensions",
    ),
    "channels": (lambda: weights(scale=[1.0, 2.0], axis=1), "tensor 1 'in1': has 2 scales for the 3 indices of dimension 1"),
}


@pytest.mark.parametrize("name", CASES)
def test_refusals(name):
    build, text = CASES[name]
    with pytest.raises(CompileError, match=re.escape(text)) as caught:
        read_model(build(), "m.tflite", ANYTHING)
    message = str(caught.value)
    assert message.startswith("m.tflite: ") and message.isprintable()
    assert caught.value.at("m.tflite") is caught.value


def test_hostile_labels_stay_on_one_line():
    data = simple({"name": 'x";\nsystem("rm");//\x1b[2J', "scale": -1.0})
    with pytest.raises(CompileError) as caught:
        read_model(data, "m.tflite", ANYTHING)
    assert str(caught.value).isprintable() and 'x";?system' in str(caught.value)


def test_files_that_cant_be_read(tmp_path):
    for path, text in (
        (tmp_path, "is not a file"),
        (tmp_path / "none.tflite", "there is no such file"),
        ("/dev/zero", "is not a file"),
    ):
        with pytest.raises(CompileError, match=text):
            read_file(path, ANYTHING)
    large = tmp_path / "large.tflite"
    with large.open("wb") as file:
        os.truncate(file.fileno(), MAX_FILE_NBYTES + 1)
    with pytest.raises(CompileError, match=r"large.tflite: has 1073741825 bytes, more than 1073741824"):
        read_file(large, ANYTHING)


def test_a_file_without_permission(tmp_path, monkeypatch):
    path = tmp_path / "secret.tflite"
    path.write_bytes(b"")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(CompileError, match=r"secret.tflite: can't be read: Permission denied"):
        read_file(path, ANYTHING)
