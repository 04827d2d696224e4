"""Hostile model files, aimed at the reader: cases by number, always the same bytes for the same number.

    python -m tests.graph.hostile [CASES] [FIRST]

reads that many of them in 1.5 GiB of address space and prints what came of it; exit code 1 if a case raised anything but a
CompileError of one line or took over 10 seconds.
"""

from __future__ import annotations

import collections
import functools
import random
import struct
import sys
import time
import warnings

import numpy as np

from aot.errors import CompileError
from aot.graph.flatbuffer import Table, root
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from tests import one_operator as one
from tests.builder import ModelBuilder, Sparsity
from tests.graph.permissive import ANYTHING
from tests.one_operator import T, one_operator
from tests.shared import MODELS

SECONDS = 10
SMALL_REAL = (
    "tflm/hello_world_int8",
    "tflm/micro_speech_quantized",
    "unit/litert_test/multi_subgraphs_while",
    "esphome_mww/vad",
    "mlperf_tiny/kws_ref_model",
)
EXTREMES = (0, 1, 2, 3, 4, 5, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)


def everything() -> bytes:
    """A small model with subgraphs, signatures, metadata, variables, shape arithmetic, every kind of constant."""
    m = ModelBuilder("hostile")
    x = m.tensor("x", (1, 2, 3), "float32", shape_signature=(-1, 2, 3))
    shape, batch, target = m.tensor("shape", (3,), "int32"), m.tensor("batch", (), "int32"), m.tensor("target", (2,), "int32")
    m.operator("SHAPE", [x], [shape], {"out_type": "INT32"})
    m.operator(
        "STRIDED_SLICE", [shape, *(m.constant(np.array([v], np.int32)) for v in (0, 1, 1))], [batch], {"shrink_axis_mask": 1}
    )
    m.operator("PACK", [batch, m.constant(np.array(6, np.int32))], [target], {"values_count": 2, "axis": 0})
    flat, y = (
        m.tensor("flat", (1, 6), "float32", shape_signature=(-1, 6)),
        m.tensor("y", (1, 6), "float32", shape_signature=(-1, 6)),
    )
    m.operator("RESHAPE", [x, target], [flat], {"new_shape": [-1, 6]})
    m.operator("SOFTMAX", [flat], [y], {"beta": 1.0})
    m.signature("first", {"x": x}, {"y": y}, 0)
    m.add_metadata("notes", b"text")
    m.end_subgraph([x], [y])
    q, p = (
        m.tensor("q", (1, 4, 4, 2), "int8", scale=0.5, zero_point=3),
        m.tensor("p", (1, 2, 2, 2), "int8", scale=0.5, zero_point=3),
    )
    m.operator("MAX_POOL_2D", [q], [p], {"stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2, "padding": "VALID"})
    w = m.tensor("w", (3, 8), "int8", scale=[0.1, 0.2, 0.3], zero_point=0, data=np.arange(24))
    out = m.tensor("out", (1, 3), "int8", scale=0.7, zero_point=-5)
    m.operator("FULLY_CONNECTED", [p, w, -1], [out], {"keep_num_dims": False})
    m.signature("second", {"q": q}, {"out": out}, 1)
    return m.build([q], [out])


def _integers(*values: int) -> T:
    return T((len(values),), "int32", data=np.array(values))


def _int8(*shape: int, scale: float = 0.1, zero_point: int = 3) -> T:
    return T(shape, "int8", scale, zero_point)


def single_operators() -> tuple[bytes, ...]:
    """Operators with options and constants that decide what is read and written."""
    axis, pads = T((), "int32", data=np.array(-1)), T((3, 2), "int32", data=np.array([[0, 0], [1, 2], [0, 1]]))
    slice_ = (_integers(0, 1, 0), _integers(2, 4, -1), _integers(1, 2, 1))
    resize = {"align_corners": False, "half_pixel_centers": True}
    return (
        one.conv2d(),
        one.depthwise(),
        one.fully_connected(),
        one.pool(padding="SAME"),
        one.binary("ADD", (2, 3), (3,)),
        one.binary("MUL", dtype="float32"),
        one.unary("SOFTMAX", (2, 10), output_q=(1 / 256, -128), options={"beta": 1.0}),
        one.unary("LOGISTIC", output_q=(1 / 256, -128)),
        one_operator("PAD", [_int8(2, 3, 4), pads], [_int8(2, 6, 5)], {}),
        one_operator("TRANSPOSE", [_int8(2, 3, 4), _integers(2, 0, 1)], [_int8(4, 2, 3)], {}),
        one_operator("STRIDED_SLICE", [_int8(2, 3, 4), *slice_], [_int8(2, 1, 3)], {"begin_mask": 1, "end_mask": 2}),
        one_operator("SLICE", [_int8(2, 3, 4), _integers(0, 1, 1), _integers(-1, 2, 3)], [_int8(2, 2, 3)], {}),
        one_operator("MEAN", [_int8(1, 4, 4, 3), _integers(1, 2)], [_int8(1, 3)], {"keep_dims": False}),
        one_operator("CONCATENATION", [_int8(2, 3), _int8(2, 4)], [_int8(2, 7)], {"axis": -1}),
        one_operator("PACK", [_int8(2, 3), _int8(2, 3)], [_int8(2, 2, 3)], {"values_count": 2, "axis": 1}),
        one_operator("UNPACK", [_int8(2, 3)], [_int8(3), _int8(3)], {"num": 2, "axis": 0}),
        one_operator("SPLIT", [axis, _int8(2, 6)], [_int8(2, 3), _int8(2, 3)], {"num_splits": 2}),
        one_operator("SQUEEZE", [_int8(1, 2, 1)], [_int8(2)], {"squeeze_dims": [0, -1]}),
        one_operator("EXPAND_DIMS", [_int8(2, 3), axis], [_int8(2, 3, 1)], {}),
        one_operator("RESIZE_NEAREST_NEIGHBOR", [_int8(1, 2, 3, 1), _integers(5, 4)], [_int8(1, 5, 4, 1)], resize),
        *moving_operators(),
        *contractions(),
        one_operator("QUANTIZE", [_int8(2, 3)], [_int8(2, 3, scale=0.3)], {}),
        one_operator("DEQUANTIZE", [_int8(2, 3)], [T((2, 3), "float32")], {}),
    )


def moving_operators() -> tuple[bytes, ...]:
    """Operators whose constants say where elements go."""
    borders, blocks = T((2, 2), "int32", data=np.array([[0, 1], [2, 1]])), _integers(2, 2)
    return (
        one_operator("MIRROR_PAD", [_int8(2, 3), borders], [_int8(3, 6)], {"mode": "SYMMETRIC"}),
        one_operator("REVERSE_V2", [_int8(2, 3), _integers(1)], [_int8(2, 3)], {}),
        one_operator("SPACE_TO_BATCH_ND", [_int8(1, 3, 5, 1), blocks, borders], [_int8(4, 2, 4, 1)], {}),
        one_operator("BATCH_TO_SPACE_ND", [_int8(4, 2, 3, 1), blocks, borders], [_int8(1, 3, 3, 1)], {}),
        one_operator("DEPTH_TO_SPACE", [_int8(1, 2, 2, 4)], [_int8(1, 4, 4, 1)], {"block_size": 2}),
        one_operator("TILE", [_int8(2, 3), _integers(2, 2)], [_int8(4, 6)], {}),
        one_operator("BROADCAST_TO", [_int8(1, 3), _integers(2, 3)], [_int8(2, 3)], {}),
        one_operator("FILL", [_integers(2, 3), _int8()], [_int8(2, 3)], {}),
        one_operator("GATHER", [_int8(2, 3), _integers(2, 0, 1)], [_int8(2, 3)], {"axis": 1, "batch_dims": 0}),
        one_operator("GATHER_ND", [_int8(2, 3), T((2, 2), "int32", data=np.array([[1, 2], [0, 0]]))], [_int8(2)], {}),
        one_operator("SPLIT_V", [_int8(2, 5), _integers(2, -1), _integers(1)], [_int8(2, 2), _int8(2, 3)], {"num_splits": 2}),
        one_operator("DYNAMIC_UPDATE_SLICE", [_int8(3, 4), _int8(2, 2), _integers(1, 1)], [_int8(3, 4)], {}),
    )


def contractions() -> tuple[bytes, ...]:
    """Contractions in types other than int8, and with sparse weights."""
    dense = np.eye(4, 8, dtype=np.float32)
    rows = Sparsity((0, 1, 2), (1,), (4, ([0, 1, 2, 3, 4], [0, 0, 0, 0]), 4))
    m = ModelBuilder()
    x, w = m.tensor("x", (2, 8), "float32"), m.tensor("w", (4, 8), "float32", data=dense[:, :4], sparsity=rows)
    y = m.tensor("y", (2, 4), "float32")
    m.operator("FULLY_CONNECTED", [x, w, -1], [y], {})
    hybrid = {"dtype": "float32", "weights_dtype": "int8"}
    return (
        one.conv2d(dtype="uint8", input_q=(0.05, 3), weight_scale=0.01, weight_zero_point=9),
        one.depthwise(dtype="int16", weights_dtype="int8"),
        one.fully_connected(dtype="int16", weights_dtype="int8", bias_dtype="int32"),
        one.fully_connected(weights_dtype="int4"),
        one.conv2d(**hybrid),
        one.fully_connected((2, 3), options={"asymmetric_quantize_inputs": True}, **hybrid),
        m.build([x], [y]),
    )


@functools.cache
def bases() -> tuple[bytes, ...]:
    """Models to mutate: ours, and a few real ones where they are at hand."""
    made = (everything(), *single_operators())
    return (*made, *(path.read_bytes() for name in SMALL_REAL if (path := MODELS / f"{name}.tflite").is_file()))


@functools.cache
def tables(data: bytes) -> tuple[Table, ...]:
    """The tables of a good model, the nested ones too: where a mutation hurts."""
    model = root(data, b"TFL3", "")
    found = [model]
    for slot in (1, 2, 4, 6, 7):
        found += model.tables(slot, "part")
    for graph in model.tables(2, "part"):
        tensors, nodes = graph.tables(0, "tensor"), graph.tables(3, "node")
        nested = [tensor.table(4, "quantisation") for tensor in tensors] + [node.table(4, "options") for node in nodes]
        found += [*tensors, *nodes, *(table for table in nested if table)]
    return tuple(found)


def mutation(case: int) -> bytes:
    """Hostile file number `case`."""
    rng = random.Random(case)
    data = bases()[case % len(bases())]
    kind = rng.randrange(14)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        return data[:8] + rng.randbytes(rng.randrange(2000))
    if kind == 2:
        return _splice(data, rng)
    mutable = bytearray(data)
    edit = _EDITS.get(kind, _change_number)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        edit(mutable, rng.choice(tables(data)), rng)
    return bytes(mutable)


def aimed(data: bytes, rng: random.Random) -> bytes:
    """Any file, changed at one of its tables, or at any byte if they can't be found."""
    mutable = bytearray(data) or bytearray(8)
    try:
        edit, table = rng.choice((*_EDITS.values(), _change_number)), rng.choice(tables.__wrapped__(data))
    except CompileError:
        mutable[rng.randrange(len(mutable))] ^= 1 << rng.randrange(8)
    else:
        edit(mutable, table, rng)
    return bytes(mutable)


def _splice(data: bytes, rng: random.Random) -> bytes:
    other = rng.choice(bases())
    at, start, count = rng.randrange(len(data)), rng.randrange(len(other)), rng.randrange(1, 400)
    return data[:at] + other[start : start + count] + data[at + rng.choice((0, count)) :]


def _flip(data: bytearray, table: Table, rng: random.Random) -> None:
    """A bit near a table, or anywhere."""
    at = min(table.position + rng.randrange(64), len(data) - 1) if rng.random() < 0.7 else rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)


def _move_field(data: bytearray, table: Table, rng: random.Random) -> None:
    """An entry of the vtable: the field is then absent, elsewhere in the table, or outside of it."""
    at = table.vtable + 2 * rng.randrange(table.vtable_nbytes // 2)
    struct.pack_into("<H", data, at, rng.choice((0, rng.randrange(64), rng.choice(EXTREMES) & 0xFFFF)))


def _move_vtable(data: bytearray, table: Table, rng: random.Random) -> None:
    """The table's vtable, to another table's or anywhere."""
    struct.pack_into("<I", data, table.position, rng.choice((rng.randrange(1 << 32), rng.randrange(256), rng.choice(EXTREMES))))


def _change_field(data: bytearray, table: Table, rng: random.Random) -> None:
    """A field's content: a number, or where a vector, string or table is, or how long it is."""
    slots = [
        slot for slot in range((table.vtable_nbytes - 4) // 2) if struct.unpack_from("<H", data, table.vtable + 4 + 2 * slot)[0]
    ]
    if not slots:
        return
    at = table.position + struct.unpack_from("<H", data, table.vtable + 4 + 2 * rng.choice(slots))[0]
    if rng.random() < 0.5 and at + 4 <= len(data):
        at += struct.unpack_from("<I", data, at)[0]
        at += 4 * rng.randrange(8)
    if at + 4 <= len(data):
        struct.pack_into("<I", data, at, rng.choice((*EXTREMES, rng.randrange(1 << 32), rng.randrange(len(data)))))


def _change_number(data: bytearray, table: Table, rng: random.Random) -> None:
    """An element of a vector (a dimension, an index, a scale, a constant) or an option, to something that could be meant."""
    fields = [
        slot for slot in range((table.vtable_nbytes - 4) // 2) if struct.unpack_from("<H", data, table.vtable + 4 + 2 * slot)[0]
    ]
    if not fields:
        return
    at = table.position + struct.unpack_from("<H", data, table.vtable + 4 + 2 * rng.choice(fields))[0]
    start = at + struct.unpack_from("<I", data, at)[0] if at + 4 <= len(data) else len(data)
    count = struct.unpack_from("<I", data, start)[0] if start + 4 <= len(data) else 0
    if 0 < count <= 64 and start + 4 + 4 * count <= len(data):
        at = start + 4 + 4 * rng.randrange(count)
    number = rng.choice((rng.randrange(-3, 9), rng.randrange(-3, 9), rng.randrange(300), 1 << 30, -(1 << 31)))
    if at + 4 <= len(data):
        struct.pack_into("<i", data, at, number)
    if rng.random() < 0.1 and at + 4 <= len(data):
        struct.pack_into("<f", data, at, rng.choice((0.0, -1.0, 1e-38, 1e38, float("nan"), float("inf"))))


_EDITS = {3: _flip, 4: _move_field, 5: _move_vtable, 6: _change_field}


def outcome(data: bytes) -> str:
    """ "read" or "refused". Raises what is neither: any other exception or warning, a message of several lines, a slow case."""
    begin = time.monotonic()
    found = "read"
    for operators in (ANYTHING, OPERATORS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model = read_model(data, "m.tflite", operators)
            for graph in model.graphs:
                graph.verify()
        except CompileError as error:
            found = "refused"
            if not str(error).isprintable() or not str(error).startswith("m.tflite: "):
                raise AssertionError(f"not one line that names the file: {error!r}") from error
    if (seconds := time.monotonic() - begin) > SECONDS:
        raise AssertionError(f"took {seconds:.1f} s")
    return found


def main() -> int:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
    numbers = [int(text) for text in sys.argv[1:3]]
    cases, first = [*numbers, *(2000, 0)[len(numbers) :]]
    counts: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    for case in range(first, first + cases):
        try:
            counts[outcome(mutation(case))] += 1
        except BaseException as error:  # the very thing this script looks for
            if isinstance(error, KeyboardInterrupt):
                raise
            counts["broken"] += 1
            print(f"case {case}: {type(error).__name__}: {error}"[:300], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{cases} cases from {len(bases())} models: {dict(sorted(counts.items()))}, {time.monotonic() - begin:.1f} s, {peak} MiB")
    return 1 if counts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
