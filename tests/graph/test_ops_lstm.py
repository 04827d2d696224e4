"""UNIDIRECTIONAL_SEQUENCE_LSTM: runs in a row against TFLite Micro, lowered and compiled; states in place; refusals; real models."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from aot.driver import compile
from aot.errors import CompileError
from aot.graph.ops import OPERATORS
from aot.graph.primitive import Control
from aot.lower.build import build_program
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.samples import golden_samples
from aot.verify import verify
from tests.builder import ModelBuilder
from tests.graph.lowered import read, sweep
from tests.graph.running import compiled, computed, random_runs, runs_agree
from tests.oracle import litert_runs
from tests.shared import golden, model

FLOAT_LSTM = 4e-6
"""Relative error of several steps' float32 arithmetic."""


def lstm(
    batch: int = 2,
    time: int = 3,
    depth: int = 4,
    units: int = 5,
    *,
    kind: str = "int8",
    time_major: bool = False,
    clip: float = 0.0,
    zero_points: tuple[int, int] = (-3, 7),
    scales: dict[str, float] | None = None,
    inputs: int = 24,
    activation: str | int = "TANH",
    options: dict[str, object] | None = None,
    intermediates: bool = False,
    seed: int = 0,
    **wrong,
) -> bytes:
    """kind: int8, int16 or float32 data. zero_points: of data and hidden state. scales: data, weights, hidden, cell, out.

    wrong: `shapes`, `types`, `points` by position of the input (24: the output), `absent` and `present` positions, `variable` and
    `computed` (not constant) ones, `outputs`, `same`: one variable as both states.
    """
    rng, m = np.random.default_rng(seed), ModelBuilder()
    scale = {"data": 0.02, "weights": 0.008, "hidden": 1 / 128, "cell": 2.0**-11, **(scales or {})}
    weights_dtype, bias_dtype, cell_dtype = {
        "int8": ("int8", "int32", "int16"),
        "int16": ("int8", "int64", "int16"),
        "float32": ("float32",) * 3,
    }[kind]
    shapes = {
        0: (time, batch, depth) if time_major else (batch, time, depth),
        **dict.fromkeys(range(1, 5), (units, depth)),
        **dict.fromkeys(range(5, 9), (units, units)),
        **dict.fromkeys(range(9, 18), (units,)),
        **dict.fromkeys(range(18, 20), (batch, units)),
        **dict.fromkeys(range(20, 24), (units,)),
        24: (time, batch, units) if time_major else (batch, time, units),
    }
    types = {0: kind, **dict.fromkeys(range(1, 12), weights_dtype), **dict.fromkeys(range(12, 18), bias_dtype)}
    types |= {18: kind, 19: cell_dtype, **dict.fromkeys(range(20, 24), cell_dtype), 24: kind}
    points = {0: zero_points[0], 18: zero_points[1], 24: zero_points[1]} if kind == "int8" else {}
    shapes, types, points = (
        {**own, **wrong.get(name, {})} for own, name in ((shapes, "shapes"), (types, "types"), (points, "points"))
    )
    of = {0: "data", 18: "hidden", 19: "cell", 24: "hidden"}
    variables, computed_ones = wrong.get("variable", (18, 19)), wrong.get("computed", ())

    def tensor(position: int) -> int:
        dtype, shape = types[position], shapes[position]
        factor = rng.uniform(0.5, 2) if position not in of else 1
        quantised = (
            None if dtype == "float32" else wrong.get("scale_of", {}).get(position, scale[of.get(position, "weights")] * factor)
        )
        plain = position in (0, 18, 19, 24) or position in computed_ones
        data = None if plain else _numbers(rng, shape, dtype)
        name = f"t{position}"
        fields = {"scale": quantised, "zero_point": points.get(position, 0)}
        return m.tensor(name, shape, dtype, data=data, variable=position in variables, **fields)

    used = {0, *range(1, 9), *range(12, 16), 18, 19, *wrong.get("present", ())} - set(wrong.get("absent", ()))
    reads = [tensor(position) if position in used else -1 for position in range(24)]
    if wrong.get("same"):
        reads[19] = reads[18]
    out, more = tensor(24), [m.tensor("more", (1,)) for _ in range(wrong.get("outputs", 1) - 1)]
    given = {"fused_activation_function": activation, "cell_clip": clip, "time_major": time_major, **(options or {})}
    between = [m.tensor(f"between{number}", (0,), "int16", scale=0.1) for number in range(5)] if intermediates else None
    m.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", reads[:inputs], [out, *more], given, intermediates=between)
    return m.build([reads[0], *(reads[position] for position in computed_ones)], [out])


def _numbers(rng: np.random.Generator, shape, dtype: str) -> np.ndarray:
    if dtype == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    reach = 127 if dtype == "int8" else 3000
    return rng.integers(-reach, reach + 1, shape)


def runs_of(data: bytes, count: int = 4) -> list[list[np.ndarray]]:
    """Random inputs, one run at their smallest and one at their largest."""
    runs = random_runs(data, count)
    if runs[0][0].dtype.kind == "i":
        limits = np.iinfo(runs[0][0].dtype)
        runs[1][0][:], runs[2][0][:] = limits.min, limits.max
    return runs


INTEGERS = [
    *sweep(
        12,
        batch=[1, 2, 3],
        time=[1, 2, 5],
        depth=[1, 3, 17],
        units=[1, 2, 5, 8],
        time_major=[False, True],
        clip=[0.0, 0.5, 10.0],
        zero_points=[(0, 0), (-128, -1), (-3, 7), (127, -128)],
        scales=[{}, {"cell": 2.0**-15}, {"cell": 2.0**-8, "hidden": 0.004}, {"data": 0.3, "weights": 0.03}],
    )
]


@pytest.mark.parametrize("case", INTEGERS, ids=str)
def test_int8(case):
    data = lstm(**case)
    runs_agree(data, runs_of(data))


@pytest.mark.parametrize("case", INTEGERS[::2], ids=str)
def test_int16(case):
    case = {**case, "scales": {"data": 0.001, "hidden": 1 / 32768, **case["scales"]}}
    data = lstm(kind="int16", **case)
    runs_agree(data, runs_of(data))


@pytest.mark.parametrize("case", INTEGERS[1::2], ids=str)
def test_float32(case):
    data = lstm(kind="float32", **{name: value for name, value in case.items() if name not in ("scales", "zero_points")})
    runs_agree(data, random_runs(data), FLOAT_LSTM)


def test_sums_of_int16_beyond_int32():
    data = lstm(1, 2, 600, 3, kind="int16", scales={"data": 1e-6, "hidden": 1 / 32768})
    runs_agree(data, runs_of(data))


@pytest.mark.parametrize("power", [-20, -16, -13, -12, -9, -4, 0, 2])
def test_scales_of_the_cell_state(power: int):
    data = lstm(scales={"cell": 2.0**power * 1.0001, "weights": 0.03, "data": 0.1})
    runs_agree(data, runs_of(data))


def test_a_cell_scale_that_is_no_power_of_two_counts_as_the_nearest():
    data = lstm(scales={"cell": 3e-4, "weights": 0.03, "data": 0.1})
    runs_agree(data, runs_of(data))


def test_weights_with_zero_points():
    data = lstm(points={1: 3, 2: -128, 7: 127, 8: 5}, seed=2)
    runs_agree(data, runs_of(data))


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("time", [1, 3])
def test_on_a_cortex_m(time: int, time_major: bool):
    """Trap 4: the state is kept between calls, and each batch has its own."""
    data = lstm(2, time, 9, 7, time_major=time_major)
    runs_agree(data, runs_of(data), cpu="cortex-m4")


def test_the_old_form_with_20_inputs():
    data = lstm(kind="float32", inputs=20)
    runs_agree(data, random_runs(data), FLOAT_LSTM, oracle=litert_runs)


def test_intermediates_without_elements_do_not_matter():
    """Trap 45."""
    data = lstm(intermediates=True)
    runs_agree(data, runs_of(data))


def test_float_weights_that_the_model_computes():
    data = lstm(kind="float32", computed=(1, 4, 6, 13))
    runs_agree(data, random_runs(data), FLOAT_LSTM)


@pytest.mark.parametrize(
    "case", [{}, {"time": 1}, {"batch": 1}, {"batch": 1, "time": 1}, {"time_major": True}, {"time_major": True, "time": 1}], ids=str
)
def test_the_states_are_renewed_in_place(case):
    program = fuse(build_program(read(lstm(**case)), OPERATORS))
    owned = [buffer.name for buffer in program.buffers if buffer.role == "temporary" and buffer.base is None]
    assert sorted(name.partition("_")[2] for name in owned) == ["gates", "input_part"]
    loops = sum(isinstance(each, Control) and each.kind == "repeat" for each in program.instructions)
    batch, time = case.get("batch", 2), case.get("time", 3)
    assert loops == (time > 1) + (batch > 1 and not case.get("time_major", False))


def test_in_a_loop():
    """A model's own loop around the LSTM's: its windows move with its own turns. Carried: a count, the data, the output."""
    m, rng, shape = ModelBuilder(), np.random.default_rng(0), (2, 3, 4)

    def carried() -> list[int]:
        return [m.tensor("count", (1,), "int32"), m.tensor("x", shape, "float32"), m.tensor("y", shape, "float32")]

    def number(value: int) -> int:
        return m.constant(np.array([value], np.int32))

    def weights(*dims: int) -> int:
        return m.constant(rng.standard_normal(dims).astype(np.float32))

    outer, results = carried(), carried()
    m.operator("WHILE", outer, results, {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    m.end_subgraph(outer, [results[2]])
    tested, more = carried(), m.tensor("more", (1,), "bool")
    m.operator("LESS", [tested[0], number(3)], [more], {})
    m.end_subgraph(tested, [more])
    inside, after = carried(), carried()
    m.operator("ADD", [inside[0], number(1)], [after[0]], {})
    gates = [*(weights(4, 4) for _ in range(8)), -1, -1, -1, *(weights(4) for _ in range(4)), -1, -1]
    states = [m.tensor(name, (2, 4), "float32", variable=True) for name in ("hidden", "cell")]
    m.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", [inside[1], *gates, *states, *[-1] * 4], [after[2]], {"fused_activation_function": "TANH"}
    )
    data, zeros = m.build(inside, [after[0], inside[1], after[2]]), np.zeros(shape, np.float32)
    runs_agree(data, [[np.zeros(1, np.int32), rng.standard_normal(shape).astype(np.float32), zeros] for _ in range(2)], FLOAT_LSTM)


def test_data_that_is_constant():
    """Windows slide over a copy of it."""
    graph, state = read(lstm()), {}
    (name,) = graph.inputs
    array = np.random.default_rng(0).integers(-128, 128, graph[name].shape).astype(np.int8)
    values = tuple(replace(value, data=array) if value.name == name else value for value in graph.values)
    program = fuse(build_program(replace(graph, values=values, inputs=()), OPERATORS))
    for (expected,) in computed(graph, [[array]] * 3):
        assert (execute_program(program, {}, state)[program.outputs[0]] == expected).all()


def test_the_output_has_the_hidden_states_bytes_whatever_its_quantisation():
    data = lstm(scale_of={24: 0.5}, points={24: 100})
    runs_agree(data, runs_of(data))


REFUSALS = [
    ({"inputs": 19}, "has 19 inputs, not 20 or 24"),
    ({"outputs": 2}, "has 2 outputs, not 1"),
    ({"present": (9,)}, "peephole connections are not supported (TFLite Micro runs the LSTM that Keras has)"),
    ({"present": (16,)}, "a projection of the hidden state is not supported"),
    ({"present": (22,)}, "layer normalisation is not supported"),
    ({"absent": (1, 5, 12)}, "coupled input and forget gates (CIFG) are not supported"),
    ({"absent": (18,)}, "input 18 is missing"),
    ({"absent": (19,)}, "input 19 is missing"),
    ({"absent": (3,)}, "input 3 is missing"),
    ({"absent": (14,)}, "input 14 is missing"),
    ({"same": True, "kind": "float32"}, "changes the variable 't18' twice"),
    ({"shapes": {0: (2, 12)}}, "'t0' has 2 dimensions, not 3"),
    ({"shapes": {18: (10,)}}, "'t18' has 1 dimensions, not 2"),
    ({"shapes": {18: (3, 5)}}, "the state 't18' has 15 elements, not 2 x 5"),
    ({"shapes": {19: (9,)}}, "the state 't19' has 9 elements, not 2 x 5"),
    ({"shapes": {2: (5, 3)}}, "'t2' is 5x3, not 5x4"),
    ({"shapes": {6: (5,)}}, "'t6' is 5, not 5x5"),
    ({"shapes": {13: (4,)}}, "'t13' is 4, not 5"),
    ({"activation": "NONE"}, "the fused activation none is not supported (supported: tanh)"),
    ({"activation": 77}, "the fused activation activation 77 is not supported (supported: tanh)"),
    ({"options": {"diagonal_recurrent_tensors": True}}, "diagonal weights of the hidden state are not supported"),
    ({"types": {0: "uint8"}, "points": {0: 3}}, "uint8 is not supported for 't0' (supported: int8, int16, float32)"),
    ({"types": {2: "int16"}}, "int16 is not supported for 't2' (supported: int8)"),
    ({"kind": "float32", "types": {2: "int8"}}, "int8 is not supported for 't2' (supported: float32)"),
    ({"types": {13: "int64"}}, "int64 is not supported for 't13' (supported: int32)"),
    ({"types": {19: "int8"}}, "int8 is not supported for 't19' (supported: int16)"),
    ({"types": {18: "int16"}, "points": {18: 0}}, "'t18' is int16 but 't0' is int8"),
    ({"types": {24: "int16"}, "points": {24: 0}}, "'t24' is int16 but 't0' is int8"),
    ({"computed": (2,)}, "the weights 't2' must be constant"),
    ({"computed": (13,)}, "the bias 't13' must be constant"),
    ({"scale_of": {2: [0.1] * 5}}, "the weights 't2' have 5 scales, not 1"),
    ({"kind": "int16", "points": {0: 3}}, "'t0' is int16 with a zero point that is not 0"),
    ({"points": {19: 3}}, "the cell state 't19' has a zero point that is not 0"),
    ({"scales": {"cell": 100.0}}, "the cell state's scale 100 is not between 2^-42 and 2^2"),
    ({"scales": {"cell": 1e-20}}, "the cell state's scale 1e-20 is not between 2^-42 and 2^2"),
    ({"scales": {"hidden": 1e-30}}, "its scales would multiply the accumulator by"),
    ({"scales": {"data": 1e30}}, "its scales would multiply the accumulator by"),
    ({"kind": "int16", "scales": {"data": 1e3}}, "more than TFLite's int16 arithmetic can"),
]


@pytest.mark.parametrize("case, text", REFUSALS, ids=[str(case) for case, _ in REFUSALS])
def test_refusals(case, text: str):
    with pytest.raises(CompileError, match=re.escape(text)):
        read(lstm(**case))


@pytest.mark.parametrize("clip", [float("nan"), float("inf"), -1.0, 1e-30])
@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_clips_that_make_no_sense(kind: str, clip: float):
    data = lstm(kind=kind, clip=clip)
    runs_agree(data, random_runs(data), FLOAT_LSTM)


@pytest.mark.parametrize(
    "name",
    [
        "tflm/keyword_scrambled",
        "tflm/keyword_scrambled_8bit",
        "tflm/trained_lstm",
        "tflm/trained_lstm_int8",
        "tflm/dtln_noise_suppression",
        "coral/keras_lstm_mnist_ptq",
        "tflm/micro_speech_lstm",
    ],
)
def test_real_models(name: str):
    """Five runs, each from where the one before stopped."""
    bundle = compile(model(name))
    with np.load(golden(name), allow_pickle=False) as arrays:
        oracle, samples = golden_samples(bundle.main, dict(arrays), name)
    assert verify(bundle, oracle, samples, "auto").passed


@pytest.mark.parametrize("name", ["unidirectional_sequence_lstm_calibrated", "unidirectional_sequence_lstm_quantized"])
def test_real_models_with_projections(name: str):
    with pytest.raises(CompileError, match="a projection of the hidden state is not supported"):
        compile(model(f"unit/litert_test/{name}"))


def test_compiled_code_of_another_unit_count_each_time():
    for units in range(1, 8):
        data = lstm(1, 2, 3, units)
        runs = runs_of(data)
        expected = computed(read(data), runs)
        assert all((a[0] == b[0]).all() for a, b in zip(compiled(data, runs, "cortex-m4"), expected, strict=True))
