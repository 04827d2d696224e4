"""TFLite_Detection_PostProcess: `compute` against TFLite Micro (float32) and LiteRT (the rest), byte for byte in all slots that they
define; lowering and compiled code against `compute`; refusals. And e^x in float64."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph import double
from aot.graph.evaluate import execute
from aot.graph.expr import Load, axis
from aot.graph.ir import DType
from aot.graph.ops import OPERATORS
from aot.graph.primitive import Map
from aot.lower.build import build_program
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from tests.graph.lowered import Oracle, read, sweep
from tests.graph.running import compiled, computed
from tests.one_operator import T, custom
from tests.oracle import litert_runs, tflm_runs

QUANTISATION = {"uint8": ((0.05, 128), (1 / 256, 0), (0.004, 10)), "int8": ((0.05, 0), (1 / 256, -128), (0.004, -118))}


def options(**changed: object) -> dict[str, object]:
    default = {
        "max_detections": 5,
        "max_classes_per_detection": 1,
        "use_regular_nms": False,
        "nms_score_threshold": 0.3,
        "nms_iou_threshold": 0.5,
        "num_classes": 3,
        "y_scale": 10.0,
        "x_scale": 10.0,
        "h_scale": 5.0,
        "w_scale": 5.0,
    }
    return {name: value for name, value in {**default, **changed}.items() if value is not None}


def anchors(boxes: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype != "float32":
        return rng.integers(60, 256, (boxes, 4)).astype("uint8")
    return np.concatenate([rng.uniform(0.3, 0.7, (boxes, 2)), rng.uniform(0.1, 0.5, (boxes, 2))], 1).astype(np.float32)


def detection(
    boxes: int = 12,
    background: int = 1,
    dtype: str = "float32",
    scores: str | None = None,
    width: int = 4,
    data: np.ndarray | None = None,
    at_run_time: bool = False,
    shapes: Mapping[int, Sequence[int]] | None = None,
    dtypes: Mapping[int, str] | None = None,
    **changed: object,
) -> bytes:
    """A model of one node. shapes, dtypes: of inputs (0 to 2) and outputs (3 to 6) that are to differ."""
    chosen = options(**changed)
    classes = int(chosen["num_classes"]) + background  # type: ignore[call-overload]
    asked = chosen["max_detections"] * chosen["max_classes_per_detection"]  # type: ignore[operator]
    slots = int(asked) if asked >= 1 else 1
    kinds = [dtype, scores or dtype, dtype, *["float32"] * 4]
    form = [(1, boxes, width), (1, boxes, classes), (boxes, 4), (1, slots, 4), (1, slots), (1, slots), (1,)]
    if data is None:
        data = anchors(boxes, dtype)
        data = (data.astype(int) - 128).astype("int8") if dtype == "int8" else data
    tensors = []
    for number, (kind, shape) in enumerate(zip(kinds, form)):
        kind = dtypes[number] if dtypes and number in dtypes else kind
        shape = tuple(shapes[number]) if shapes and number in shapes else shape
        q = QUANTISATION[kind][number] if kind in QUANTISATION and number < 3 else (None, 0)
        constant = None if number != 2 or at_run_time else np.resize(data, shape)
        tensors.append(T(shape, kind, *q, constant))
    return custom("TFLite_Detection_PostProcess", tensors[:3], tensors[3:], chosen)


def given(model: bytes, seed: int = 0, levels: int = 0) -> list[np.ndarray]:
    """Encodings near 0 and scores from 0 to 1 (quantised: anything); with `levels` of so many values only, and equal boxes."""
    rng, found = np.random.default_rng(seed), []
    graph = read(model)
    for number, name in enumerate(graph.inputs):
        value = graph[name]
        if value.dtype is not DType.FLOAT32:
            low, high = value.dtype.limits
            step = 256 // levels if levels else 1
            array = np.clip(rng.integers(low, high + 1, value.shape) // step * step, low, high)
        elif number == 1:
            array = rng.integers(1, levels + 1, value.shape) / levels if levels else rng.uniform(0, 1, value.shape)
        else:
            array = rng.standard_normal(value.shape) if number == 0 else anchors(value.shape[0])
        array = np.asarray(array, value.dtype.np)
        found.append(np.repeat(array[:, ::2], 2, 1)[:, : value.shape[1]] if levels and number == 0 else array)
    return found


def agree(model: bytes, inputs: list[np.ndarray], oracle: Oracle | None = tflm_runs, cpu: str | None = None, step: int = 1) -> int:
    """How many detections, on which all agree byte for byte. `step`: slots of each."""
    found = computed(read(model), [inputs])[0]
    count = int(found[3][0])
    if oracle is not None:
        for ours, theirs in zip(found, oracle(model, [inputs])[0], strict=True):
            defined = (0, slice(count * step)) if ours.ndim > 1 else ...
            np.testing.assert_array_equal(bits(ours[defined]), bits(theirs.reshape(ours.shape)[defined]))
    for array in found[:3]:
        assert not array[0, count * step :].any()
    all_ways_agree(model, inputs, found, cpu)
    return count


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.int32)


def all_ways_agree(model: bytes, inputs: list[np.ndarray], expected: list[np.ndarray], cpu: str | None = None) -> None:
    """Programs before and after fusion, and compiled code, give these outputs; a NaN for a NaN."""
    program = build_program(read(model), OPERATORS)
    results = [compiled(model, [inputs], cpu)[0]]
    for stage in (program, fuse(program)):
        arrays = execute_program(stage, dict(zip(stage.inputs, inputs)), {})
        results.append([arrays[name] for name in stage.outputs])
    for found in results:
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


CASES = [
    *sweep(
        16,
        boxes=[1, 7, 19, 40],
        num_classes=[1, 2, 5],
        background=[0, 1],
        max_detections=[1, 4, 9],
        use_regular_nms=[False, True],
        nms_score_threshold=[0.0, 0.3, 0.9, None],
        nms_iou_threshold=[0.05, 0.3, 0.6, 1.0],
        detections_per_class=[None, 1, 2, 100],
    )
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case):
    model = detection(**case)
    agree(model, given(model, case["boxes"]))


@pytest.mark.parametrize("case", CASES[:6], ids=str)
def test_equal_scores_and_boxes(case):
    model = detection(data=np.repeat(anchors(20), 2, 0)[: case["boxes"]], **case)
    agree(model, given(model, case["boxes"], levels=3))


@pytest.mark.parametrize("case", CASES[10:], ids=str)
@pytest.mark.parametrize("dtype, scores", [("uint8", "uint8"), ("float32", "uint8"), ("uint8", "float32")])
def test_uint8(case, dtype, scores):
    model = detection(dtype=dtype, scores=scores, **case)
    agree(model, given(model, case["boxes"], levels=0 if case["background"] else 6), litert_runs)


@pytest.mark.parametrize("regular", [False, True])
def test_int8_is_uint8_less_128(regular: bool):
    models = [detection(30, dtype=dtype, use_regular_nms=regular) for dtype in ("uint8", "int8")]
    inputs = given(models[0])
    assert agree(models[0], inputs, litert_runs) > 2
    shifted = [(array.astype(int) - 128).astype("int8") for array in inputs]
    assert agree(models[1], shifted, None) > 2
    for a, b in zip(computed(read(models[0]), [inputs])[0], computed(read(models[1]), [shifted])[0]):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("each, classes", [(2, 4), (3, 3), (5, 3), (2, 25)])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_several_classes_for_each_detection(each: int, classes: int, dtype: str):
    model = detection(20, dtype=dtype, max_classes_per_detection=each, num_classes=classes, max_detections=6)
    inputs = given(model, each)
    inputs[1] = np.random.default_rng(each).permuted(
        np.broadcast_to(np.linspace(20, 240, classes + 1).astype(int), inputs[1].shape), axis=-1
    )
    inputs[1] = (inputs[1] + np.arange(20)[:, None] / 100).astype(np.float32) if dtype == "float32" else inputs[1].astype(np.uint8)
    graph = read(model)
    (found,) = computed(graph, [inputs])
    if each <= classes:
        assert agree(model, inputs, litert_runs, step=each) > 2
    for ours, theirs in zip(found, litert_runs(model, [inputs])[0], strict=True):  # where LiteRT defines them
        np.testing.assert_array_equal(ours, np.where(ours == 0, ours, theirs))
    assert (found[2][0].reshape(6, each)[: int(found[3][0]), : min(each, classes)] > 0).all()


def test_equal_scores_of_several_classes_go_by_number():
    model = detection(1, max_classes_per_detection=3, num_classes=4)
    inputs = [np.zeros((1, 1, 4), np.float32), np.array([[[0.9, 0.5, 0.75, 0.5, 0.75]]], np.float32)]
    agree(model, inputs, None, step=3)
    _, classes, scores, count = computed(read(model), [inputs])[0]
    assert classes[0, :3].tolist() == [1, 3, 0] and scores[0, :3].tolist() == [0.75, 0.75, 0.5] and count[0] == 1


def test_one_class_where_more_are_asked_for():
    """TFLite Micro's slots: one after the other."""
    model = detection(20, num_classes=1, max_classes_per_detection=2)
    assert agree(model, given(model)) > 2


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("threshold", [2.0, np.inf, np.nan])
def test_nothing_above_the_threshold(regular: bool, threshold: float):
    model = detection(nms_score_threshold=threshold, use_regular_nms=regular)
    assert agree(model, given(model)) == 0


@pytest.mark.parametrize("regular", [False, True])
def test_special_scores(regular: bool):
    model = detection(12, nms_score_threshold=-np.inf, use_regular_nms=regular, max_detections=12, nms_iou_threshold=0.9)
    inputs = given(model)
    special = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-45, 3e38]
    inputs[1] = np.random.default_rng(3).choice(np.array(special, np.float32), inputs[1].shape)
    assert agree(model, inputs) > 3


def test_special_boxes():
    """No exception and no difference between the ways of computing; what a NaN touches is not suppressed by it."""
    model = detection(12, max_detections=12, nms_score_threshold=0.0)
    inputs = given(model)
    inputs[0][0, :6, 2:] = [[np.nan, 1], [np.inf, 1], [-np.inf, 0], [1e30, 2], [-1e30, 3], [1e-40, 0]]
    inputs[0][0, 6:8, :2] = [[np.nan, np.inf], [3e38, -3e38]]
    found = computed(read(model), [inputs])[0]
    all_ways_agree(model, inputs, found)
    assert found[3][0] >= 6


@pytest.mark.parametrize(
    "case",
    [
        {"y_scale": 3.0, "x_scale": 7.0, "h_scale": 2.0, "w_scale": 0.3},
        {"y_scale": 10, "x_scale": 10, "h_scale": 5, "w_scale": 5},
        {"width": 7},
        {"at_run_time": True},
        {"use_regular_nms": 1, "max_detections": 3.0},
        {"use_regular_nms": True, "max_classes_per_detection": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_options_and_shapes(case, dtype: str):
    model = detection(20, dtype=dtype, **case)
    inputs = given(model)
    if dtype == "uint8" and "at_run_time" in case:
        inputs[2] = anchors(20, dtype)
    assert agree(model, inputs, tflm_runs if dtype == "float32" and "at_run_time" not in case else litert_runs) > 2


def test_outputs_without_a_shape():
    model = detection(shapes=dict.fromkeys(range(3, 7), ()))
    graph = read(model)
    assert [graph[name].shape for name in graph.outputs] == [(1, 5, 4), (1, 5), (1, 5), (1,)]


@pytest.mark.parametrize(
    "cpu, regular, dtype",
    [("cortex-m4", regular, dtype) for regular in (False, True) for dtype in ("float32", "uint8")]
    + [("cortex-m0", True, "float32")],
)
def test_compiled_for_a_microcontroller(cpu: str, regular: bool, dtype: str):
    model = detection(16, dtype=dtype, use_regular_nms=regular, detections_per_class=2, max_detections=4)
    assert agree(model, given(model), tflm_runs if dtype == "float32" else litert_runs, cpu) > 2


def test_exp():
    """Relative error against long double, over the whole range and near 0; beyond it, what its ends give."""
    rng = np.random.default_rng(0)
    far = double.EXP_FARTHEST
    x = np.concatenate([np.linspace(-far, far, 200_001), rng.normal(0, 1, 200_000), rng.normal(0, 1e-6, 1000), [0.0]])
    arrays = {"x": x, "y": np.zeros_like(x), "table": double.exp_table(0.5)}
    execute(Map("y", x.shape, double.exp(Load("x", (axis(0),), DType.FLOAT64), "table")), arrays)
    exact = np.exp(x.astype(np.longdouble)) / 2
    errors = np.abs(arrays["y"] / exact - 1)
    assert errors.max() < double.EXP_RELATIVE and errors[np.abs(x) < 8].max() < double.EXP_RELATIVE / 4
    assert arrays["y"][-1] == 0.5
    wild = {"x": np.array([np.nan, np.inf, -np.inf, 1e300, -1e300]), "y": np.zeros(5), "table": double.exp_table(0.5)}
    execute(Map("y", (5,), double.exp(Load("x", (axis(0),), DType.FLOAT64), "table")), wild)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(wild["y"].astype(np.float32), np.array([np.nan, np.inf, 0, np.inf, 0], np.float32))


REFUSED = {
    "its option max_detections is 0, not a whole number from 1 to 4096": {"max_detections": 0},
    "its option max_detections is 5000, not a whole number from 1 to 4096": {"max_detections": 5000},
    "its option max_detections is 2.5, not a whole number from 1 to 4096": {"max_detections": 2.5},
    "its option max_detections is nan, not a whole number": {"max_detections": float("nan")},
    "its option max_classes_per_detection is 0, not a whole number": {"max_classes_per_detection": 0},
    "its outputs would have 100 x 100 detections, more than 4096": {"max_detections": 100, "max_classes_per_detection": 100},
    "its option detections_per_class is 0, not a whole number": {"use_regular_nms": True, "detections_per_class": 0},
    "its option num_classes is 0, not a whole number from 1 to 4096": {"num_classes": 0},
    "'in1' has 6 classes; its option num_classes is 3, or one less": {"shapes": {1: (1, 12, 6)}},
    "its option nms_iou_threshold is 0, not above 0": {"nms_iou_threshold": None},
    "its option nms_iou_threshold is 1.5, not above 0 and at most 1": {"nms_iou_threshold": 1.5},
    "its option nms_iou_threshold is nan, not above 0": {"nms_iou_threshold": float("nan")},
    "its option y_scale is 0, by which no box can be divided": {"y_scale": None},
    "its option w_scale is inf, by which no box can be divided": {"w_scale": float("inf")},
    "its option h_scale is nan, by which no box can be divided": {"h_scale": float("nan")},
    "'in0' is 2x12x4, not 1 x (1 to 65536 boxes) x (4 or more)": {"shapes": {0: (2, 12, 4)}},
    "'in0' is 1x12x3, not 1 x (1 to 65536 boxes) x (4 or more)": {"shapes": {0: (1, 12, 3)}},
    "'in0' is 1x200000x4, not 1 x (1 to 65536 boxes)": {"shapes": {0: (1, 200000, 4)}},
    "'in0' has 2 dimensions, not 3": {"shapes": {0: (12, 4)}},
    "'in1' has 2 dimensions, not 3": {"shapes": {1: (12, 4)}},
    "'in1' is 1x11x4, but there are 12 boxes": {"shapes": {1: (1, 11, 4)}},
    "'in1' has 24576000 elements, more than 16777216": {
        "boxes": 12000,
        "num_classes": 2047,
        "at_run_time": True,
        "shapes": {1: (1, 12000, 2048)},
    },
    "'in2' is 12x5, not 12x4": {"shapes": {2: (12, 5)}},
    "'in2' is float32 but 'in0' is uint8": {"dtypes": {0: "uint8"}},
    "int16 is not supported for 'in1'": {"dtypes": {1: "int16"}},
    "int32 is not supported for 'out1'": {"dtypes": {4: "int32"}},
    "the file says its output is 1x7x4, its inputs give 1x5x4": {"shapes": {3: (1, 7, 4)}},
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(text: str):
    with pytest.raises(CompileError, match=re.escape(text)):
        read(detection(**REFUSED[text]))


def test_counts_of_inputs_and_outputs():
    outputs = [T((1, 5, 4), "float32"), T((1, 5), "float32"), T((1, 5), "float32"), T((1,), "float32")]
    inputs = [T((1, 12, 4), "float32"), T((1, 12, 4), "float32"), T((12, 4), "float32", data=anchors(12))]
    for reads, writes, text in ((inputs[:2], outputs, "has 2 inputs, not 3"), (inputs, outputs[:3], "has 3 outputs, not 4")):
        with pytest.raises(CompileError, match=text):
            read(custom("TFLite_Detection_PostProcess", reads, writes, options()))
    with pytest.raises(CompileError, match="its option num_classes is 0"):
        read(custom("TFLite_Detection_PostProcess", inputs, outputs, None))
