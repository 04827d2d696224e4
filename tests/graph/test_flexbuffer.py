"""The FlexBuffer reader: what the writer wrote, and whatever bytes hold instead."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Mapping

import pytest
from flatbuffers import flexbuffers

from aot.errors import CompileError
from aot.graph.flexbuffer import MAX_VALUES, read_map
from aot.graph.operator import Operator
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests.builder import ModelBuilder
from tests.graph.permissive import permissive
from tests.one_operator import T, custom, one_operator

RICH = {
    "none": None,
    "int": -5,
    "wide": 1 << 40,
    "small": -(1 << 62),
    "float": 0.1,
    "bool": True,
    "text": "Grüße",
    "ints": [1, 2, -300],
    "floats": [1.5, -2.25],
    "mixed": [1, "two", 3.5, [4, [5]], {"six": 7}],
    "empty": [],
    "map": {"a": {"b": {"c": 1}}},
    "bytes": b"\0\1\2",
}


def thawed(value: object) -> object:
    """As the writer's own reader gives it: lists and dicts."""
    if isinstance(value, Mapping):
        return {name: thawed(item) for name, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, tuple) else value


def test_all_kinds_of_values():
    data = bytes(flexbuffers.Dumps(RICH))
    assert thawed(read_map(data)) == flexbuffers.Loads(data) == RICH


def test_typed_indirect_and_fixed_values():
    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Key("a")
        builder.IndirectInt(-7)
        builder.Key("b")
        builder.IndirectUInt(9)
        builder.Key("c")
        builder.IndirectFloat(2.5)
        builder.Key("d")
        builder.TypedVectorFromElements([1, 2, 3, 4, 5])
        builder.Key("e")
        builder.FixedTypedVectorFromElements([1.5, 2.5, 3.5])
        builder.Key("f")
        builder.TypedVectorFromElements([True, False])
        builder.Key("g")
        builder.FixedTypedVectorFromElements([7, 8])
        builder.Key("h")
        builder.UInt(200, 8)
    data = bytes(builder.Finish())
    found = read_map(data)
    assert dict(found) == {
        "a": -7, "b": 9, "c": 2.5, "d": (1, 2, 3, 4, 5), "e": (1.5, 2.5, 3.5), "f": (True, False), "g": (7, 8), "h": 200
    }  # fmt: skip


def test_no_bytes_are_an_empty_map_and_maps_are_read_only():
    assert read_map(b"") == {}
    with pytest.raises(TypeError):
        read_map(bytes(flexbuffers.Dumps({"a": 1})))["a"] = 2  # type: ignore[index]


REFUSED = {
    "not a map": (bytes(flexbuffers.Dumps([1])), "its custom options are not a FlexBuffer map"),
    "short": (b"\1", "its custom options are damaged at their end"),
    "width": (b"\0\4\3", "its custom options are damaged at their end"),
    "type": (b"\0\0" + bytes([40 << 2]) + b"\1", "its custom options have a value of unknown type 40"),
    "outside": (b"\x09" + bytes([9 << 2]) + b"\1", "its custom options refer to bytes outside themselves"),
    "float": (b"\0" + bytes([3 << 2]) + b"\1", "its custom options have a float of one byte"),
    "deep": (bytes(flexbuffers.Dumps({"a": [[[[[[[[[1]]]]]]]]]})), "its custom options have more than 4096 values or 8 levels"),
    "many": (bytes(flexbuffers.Dumps({"a": [0] * (MAX_VALUES + 1)})), "its custom options have more than 4096 values or 8 levels"),
    "long": (bytes(flexbuffers.Dumps({"a": "x" * 5000})), "its custom options have a text of 5000 bytes, more than 4096"),
    "name": (bytes(flexbuffers.Dumps({"a" * 5000: 1})), "its custom options have a name without an end"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    data, text = REFUSED[name]
    with pytest.raises(CompileError, match=f"^{re.escape(text)}"):
        read_map(data)


def test_a_map_with_too_few_keys():
    data = bytearray(flexbuffers.Dumps({"a": 1, "b": 2}))
    places = [place for place in range(len(data)) if changes_into(data, place, "with other than one key for each value")]
    assert places


def changes_into(data: bytearray, place: int, text: str) -> bool:
    changed = bytearray(data)
    changed[place] = (changed[place] + 1) % 256
    try:
        read_map(bytes(changed))
    except CompileError as error:
        return text in error.what
    return False


def test_vectors_that_share_bytes_end():
    """A vector whose items are all the vector itself."""
    data = bytearray([200, *(number for number in range(200)), *[10 << 2] * 200])
    data += struct.pack("<BBB", len(data) - 1, 10 << 2, 1) if len(data) < 256 else struct.pack("<HBB", len(data) - 1, 10 << 2, 2)
    with pytest.raises(CompileError, match="more than 4096 values or 8 levels"):
        read_map(bytes(data))


def test_any_bytes_end_in_a_map_or_a_sentence():
    picker, whole = random.Random(1), bytes(flexbuffers.Dumps(RICH))
    for _ in range(4000):
        data = bytearray(whole)
        for _ in range(picker.randint(1, 6)):
            data[picker.randrange(len(data))] = picker.choice((0, 1, 2, 4, 8, 127, 128, 255, picker.randrange(256)))
        try:
            assert isinstance(read_map(bytes(data)), Mapping)
        except CompileError as error:
            assert "\n" not in str(error)


# Through the model reader.


def taking(code: str) -> tuple[dict[str, Operator], list[object]]:
    """A table with a custom operator that notes its options."""
    seen: list[object] = []
    operator = permissive("RELU", read=lambda options: seen.append(options))
    return {
        **OPERATORS,
        code: Operator(code, "CUSTOM", *(getattr(operator, name) for name in ("read", "infer", "check", "compute", "lower"))),
    }, seen


def test_the_reader_gives_a_custom_operator_its_map():
    operators, seen = taking("Mine")
    graph = read_model(custom("Mine", [T((2,))], [T((2,))], {"a": 1}), "m.tflite", operators).main
    assert graph.nodes[0].op == "Mine" and dict(seen[0]) == {"a": 1}  # type: ignore[call-overload]
    read_model(custom("Mine", [T((2,))], [T((2,))]), "m.tflite", operators)
    assert seen[1] == {}


def test_a_custom_code_is_no_builtin_operator():
    with pytest.raises(CompileError, match="node 0 CUSTOM 'out0': custom operator 'RELU' is not supported"):
        read_model(custom("RELU", [T((2,))], [T((2,))], {}), "m.tflite", OPERATORS)


def test_damaged_options_name_their_node():
    data = one_operator("CUSTOM", [T((2,))], [T((2,))], custom_code="SignalDelay", custom_options=b"\0\0\3")
    with pytest.raises(CompileError, match=r"m.tflite: node 0 SignalDelay 'out0': its custom options are damaged at their end"):
        read_model(data, "m.tflite", OPERATORS)


def test_builders_write_what_is_read():
    m = ModelBuilder()
    x, y = m.tensor("x", (4,), "int16"), m.tensor("y", (4,), "int16")
    m.operator("CUSTOM", [x], [y], custom_code="SignalDelay", custom_options=bytes(flexbuffers.Dumps({"delay_length": 0})))
    assert str(read_model(m.build([x], [y]), "m.tflite", OPERATORS).main.nodes[0].attributes) == "delay_length=0"
