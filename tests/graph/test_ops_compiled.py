"""Compiled code against `compute`, on this machine: each moving and elementwise operator alone, then random graphs of them."""

from __future__ import annotations

import os

import numpy as np
import pytest

from aot.driver import Options, compile_model, resolve_target
from aot.graph.interpreter import run
from aot.graph.ir import Graph, Model
from aot.run import run_bundle
from tests.graph.lowered import FLOAT_BOUND, assert_near, extremes, read
from tests.graph.passing import example
from tests.graph.test_ops_blocks import batch_to_space, depth, space_to_batch
from tests.graph.test_ops_gather import ROWS, embedding, gather, gather_nd
from tests.graph.test_ops_joining import concatenation
from tests.graph.test_ops_movement import PADDINGS, mirror_pad, pad, reverse, transpose
from tests.graph.test_ops_parts import split_v
from tests.graph.test_ops_quantise import PAIRS
from tests.graph.test_ops_repeat import broadcast_to, fill, tile, zeros
from tests.graph.test_ops_resize import FLAGS, bilinear, resize
from tests.graph.test_ops_slicing import at_run_time, numbers, strided_slice, tensor, update
from tests.graph.test_ops_views import reshape
from tests.graph.test_passes_random import Grower
from tests.one_operator import T, binary, one_operator, unary

RANDOM = 400 if os.environ.get("AOT_SWEEP") else 12


def conversion(op: str, source: str, target: str) -> bytes:
    scale = {"int8": 0.1, "uint8": 0.1, "int16": 0.01, "int32": 1e-5}
    return one_operator(op, [T((1, 40), source, scale.get(source))], [T((1, 40), target, scale.get(target))])


CASES: dict[str, bytes] = {
    **{
        f"{op} {dtype}": binary(op, (2, 3, 1, 5), (3, 4, 1), dtype=dtype)
        for op in ("ADD", "SUB", "MUL")
        for dtype in ("int8", "float32")
    },
    **{f"{op} {dtype}": binary(op, (3, 5), dtype=dtype) for op in ("ADD", "SUB", "MUL") for dtype in ("int16", "int32")},
    "ADD rank 5": binary("ADD", (1, 2, 3, 4, 5), (2, 1, 1, 4, 1), activation="RELU6"),
    "MUL by a scalar": binary("MUL", (), (3, 2)),
    **{op: unary(op) for op in ("RELU", "RELU6", "RELU_N1_TO_1")},
    **{f"{op} rescaling": unary(op, output_q=(0.02, 7)) for op in ("RELU", "RELU_N1_TO_1")},
    **{f"{op} float32": unary(op, (2, 50), dtype="float32") for op in ("RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH")},
    "LOGISTIC": unary("LOGISTIC", output_q=(1 / 256, -128)),
    "TANH": unary("TANH", output_q=(1 / 128, 0)),
    **{f"QUANTIZE {source} {target}": conversion("QUANTIZE", source, target) for source, target in PAIRS},
    **{f"QUANTIZE float32 {target}": conversion("QUANTIZE", "float32", target) for target in ("int8", "uint8", "int16")},
    **{f"DEQUANTIZE {source}": conversion("DEQUANTIZE", source, "float32") for source in ("int8", "uint8", "int16")},
    "PAD": pad(*PADDINGS[0]),
    "PADV2 float32": pad(*PADDINGS[1], "float32", 0, 3.5),
    "TRANSPOSE": transpose((2, 3, 4, 5), (3, 1, 0, 2)),
    "TRANSPOSE rank 6": transpose((2, 3, 1, 4, 2, 3), (5, 3, 1, 0, 2, 4), "float32"),
    **{f"RESIZE {a}{h}": resize((5, 7), (8, 3), bool(a), bool(h)) for a in (0, 1) for h in (0, 1)},
    **{
        f"RESIZE_BILINEAR {dtype} {number}": bilinear((5, 7), (8, 3), flags, dtype)
        for dtype in ("int8", "uint8", "int16", "float32")
        for number, flags in enumerate(FLAGS)
    },
    "RESIZE_BILINEAR of one pixel": bilinear((1, 1), (3, 2), FLAGS[2]),
    "MIRROR_PAD REFLECT": mirror_pad((3, 4), ((1, 2), (3, 0)), "REFLECT"),
    "MIRROR_PAD SYMMETRIC": mirror_pad((3, 4), ((1, 2), (4, 0)), "SYMMETRIC", "uint16"),
    "REVERSE_V2": reverse((2, 3, 4), (0, 2), "int64"),
    "SPACE_TO_BATCH_ND": space_to_batch((2, 3, 4, 2), (2, 3), ((0, 1), (2, 0)), "int8", -9),
    "SPACE_TO_BATCH_ND of three dimensions": space_to_batch((2, 6, 2), (3,), ((0, 0),), "float32"),
    "BATCH_TO_SPACE_ND": batch_to_space((6, 2, 3, 2), (2, 3), ((0, 0), (0, 0))),
    "BATCH_TO_SPACE_ND cropped": batch_to_space((6, 2, 3, 2), (2, 3), ((1, 1), (2, 2)), "bool"),
    "SPACE_TO_DEPTH": depth((2, 4, 6, 3), 2, "SPACE_TO_DEPTH"),
    "DEPTH_TO_SPACE": depth((2, 2, 3, 12), 2, "DEPTH_TO_SPACE", "uint32"),
    "BROADCAST_TO": broadcast_to((2, 1, 3), (4, 2, 5, 3)),
    "BROADCAST_TO of a scalar": broadcast_to((), (3, 2), "uint64"),
    "TILE": tile((2, 3, 1), (2, 3, 4), "bool"),
    "FILL": fill((3, 2), "uint16"),
    "ZEROS_LIKE": zeros((3, 2), "int8", 5),
    "GATHER": gather((3, 4, 2), (2, 3), 1),
    "GATHER int64": gather((3, 4, 2), (5,), 0, dtype="uint8", index="int64"),
    "GATHER int16": gather((3, 4), (5,), 1, dtype="bool", index="int16"),
    "GATHER by a list": gather((3, 4, 2), (3,), 1, data=np.array([3, 0, 2])),
    "GATHER by constants": gather((3, 4, 2), (2, 2), 2, data=np.array([[1, 0], [0, 0]])),
    "GATHER with batches": gather((2, 3, 4), (2, 5), 2, 1, "float32"),
    "GATHER_ND": gather_nd((2, 3, 4), (3, 2)),
    "GATHER_ND int64": gather_nd((2, 3, 4), (3, 3), "int32", "int64"),
    "EMBEDDING_LOOKUP": embedding(T(ROWS.shape, "int8", 0.1, data=ROWS), 5, "int8"),
    "EMBEDDING_LOOKUP float32": embedding(T((6, 6), "int8", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], data=ROWS), 5, "float32"),
    **{f"DYNAMIC_UPDATE_SLICE {index}": update((3, 4), (2, 2), "int16", index) for index in ("int32", "int64")},
    "STRIDED_SLICE at run time": at_run_time([0, 0], (5,), shrink_axis_mask=1, begin_mask=2, end_mask=2),
    "SLICE at run time": one_operator("SLICE", [tensor((4, 5)), T((2,), "int64"), numbers([2, 5])], [tensor((2, 5))], {}),
    "SPLIT_V": split_v((2, 6), (1, 3, 2), 1),
    "CONCATENATION rescaled": one_operator(
        "CONCATENATION", [T((40,), "uint8", 0.2, 3), T((2,), "uint8", 0.1)], [T((42,), "uint8", 0.1)], {}
    ),
    "STRIDED_SLICE backwards": strided_slice((5, 4), [4, 0], [-6, 4], [-2, 3]),
    "STRIDED_SLICE to a scalar": strided_slice((4,), [2], [0], [1], (), shrink_axis_mask=1),
    "SLICE": one_operator("SLICE", [tensor((3, 4)), numbers([1, 0]), numbers([2, -1])], [tensor((2, 4))], {}),
    "SPLIT": one_operator("SPLIT", [numbers(1), tensor((2, 3, 4))], [tensor((2, 1, 4))] * 3, {"num_splits": 3}),
    "UNPACK": one_operator("UNPACK", [tensor((2, 3))], [tensor((2,))] * 3, {"axis": 1, "num": 3}),
    **{
        f"CONCATENATION {dtype}": concatenation([(1, 2, 3), (1, 2, 1)], 2, dtype, constants=[1])
        for dtype in ("int8", "int64", "float32")
    },
    "PACK": one_operator("PACK", [tensor((2, 3), "float32")] * 3, [tensor((2, 3, 3), "float32")], {"values_count": 3, "axis": 1}),
    "PACK of scalars": one_operator("PACK", [tensor((), "int32")] * 3, [tensor((3,), "int32")], {"values_count": 3}),
    "RESHAPE": reshape((2, 3, 4), (6, 4), (6, 4)),
    "SQUEEZE to a scalar": one_operator("SQUEEZE", [tensor((1, 1))], [tensor(())], {}),
    "SHAPE": one_operator("SHAPE", [tensor((2, 3))], [T((2,), "int32")], {"out_type": 2}),
    "DEQUANTIZE float16": one_operator("DEQUANTIZE", [T((3,), "float16", data=np.arange(3) / 3)], [T((3,), "float32")]),
}


def compiled(graph: Graph, *invocations: list[np.ndarray], bound: float = 0.0) -> None:
    """The code for this machine gives what `compute` gives."""
    target, backend = resolve_target(Options())
    bundle = compile_model(Model("model", (graph,)), target, backend, Options(), lambda stage, result: None)
    for inputs in invocations:
        for found, expected in zip(run_bundle(bundle, inputs).outputs, run(graph, inputs), strict=True):
            assert_near(found, expected, "compiled and computed", bound)


@pytest.mark.parametrize("name", CASES)
def test_one_operator(name: str) -> None:
    compiled(read(CASES[name]), *extremes(CASES[name]))


@pytest.mark.parametrize("seed", range(RANDOM))
def test_random_graphs(seed: int) -> None:
    graph = Grower(1000 + seed).grown()
    invocations = ([example(graph, name, kind) for name in graph.inputs] for kind in ("random", "low", "high"))
    compiled(graph, *invocations, bound=10 * FLOAT_BOUND)
