"""Layers whose sums become something else than int8: kernels leave the sums, and a Map goes on; on emulated cores against the
interpreter, with guards around every buffer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.backends.cmsis_nn import BACKEND
from aot.backends.layers.endings import separate_endings
from aot.bundle import Bundle
from aot.driver import Options, compile_model, resolve_target
from aot.graph.expr import Acc
from aot.graph.ir import DType
from aot.graph.ops import OPERATORS
from aot.graph.primitive import Contract, Map
from aot.graph.tflite import read_model
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.lower.program import Program
from aot.target import Target, load_target
from tests.backends.contracts import Case, program_of
from tests.backends.test_dsp_kernels import CHANNELS, KERNELS, NUMBERS, WINDOWS, check, numbers, offers, windowed
from tests.graph.lowered import sweep
from tests.graph.running import runs_agree
from tests.graph.test_ops_hybrid import hybrid_dense
from tests.graph.test_ops_lstm import lstm
from tests.graph.test_ops_lstm import runs_of as lstm_runs
from tests.graph.test_ops_svdf import runs_of as svdf_runs
from tests.graph.test_ops_svdf import svdf
from tests.lower.test_signed import built
from tests.one_operator import conv2d, fully_connected, random_inputs

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

M4 = load_target("cortex-m4")
TARGETS = [M4, load_target("cortex-m0"), load_target("cortex-m3")]
MODELS = {
    "lstm": lstm(2, 3, 9, 7),
    "svdf": svdf(2, 5, 3, 2, 13),
    "hybrid": hybrid_dense(),
    "uint8": fully_connected((2, 33), 5, dtype="uint8", weight_scale=0.01, weight_zero_point=128, input_q=(0.05, 3)),
    "hybrid conv": conv2d((1, 4, 5, 3), 4, dtype="float32", weights_dtype="int8", weight_scale=0.01),
}


def sums_of(case: Case) -> Program:
    """The layer with its sums as the output."""
    program = program_of(case)
    buffers = (replace(each, dtype=DType.INT32) if each.name == "y" else each for each in program.buffers)
    (layer,) = program.instructions
    return replace(program, buffers=tuple(buffers), instructions=(replace(layer, result=Acc(DType.INT32)),))


def check_all(case: Case, target: Target, number: int) -> None:
    """Every variant."""
    program = sums_of(case)
    for implementation in offers(program, target):
        assert implementation.kernel.startswith(("conv", "dense")), implementation.kernel
        check(program, number, target, split=True, implementation=implementation)


@pytest.mark.parametrize("target", TARGETS[:2], ids=lambda target: target.name)
@pytest.mark.parametrize("part", range(2))
def test_convolutions(part: int, target: Target) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": CHANNELS, "channels": CHANNELS}
    for number, choice in enumerate(sweep(12, part, **choices)):
        check_all(windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"])), target, number)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("part", range(2))
def test_dense(part: int, target: Target) -> None:
    choices = {**NUMBERS, "depth": (*CHANNELS, 100, 257, 600), "channels": CHANNELS[1:], "batch": (1, 2, 3, 4, 9)}
    for number, choice in enumerate(sweep(20, 40 + part, **choices)):
        image = (choice["batch"], 1, 1, choice["depth"])
        fields = numbers(choice, choice["channels"])
        check_all(Case("dense", image, choice["channels"], seed=number, **fields), target, number)


@pytest.mark.parametrize("name", MODELS)
def test_no_byte_changes(name: str) -> None:
    """Of the Program; float results too, as the same expression makes them of the same sums."""
    model = MODELS[name]
    before = fuse(built(model), passes=BACKEND.passes[:-1])
    after = separate_endings(before)
    after.verify()
    assert len(after.instructions) > len(before.instructions)
    found = []
    for program in (before, after):
        state: dict[str, np.ndarray] = {}
        for seed in range(3):
            given = dict(zip(program.inputs, random_inputs(model, seed), strict=True))
            results = execute_program(program, given, state)
            found.append([results[each].tobytes() for each in program.outputs])
    assert found[:3] == found[3:]


def test_a_result_is_computed_from_the_sums() -> None:
    program = fuse(built(MODELS["svdf"]), passes=BACKEND.passes)
    layers = [each for each in program.instructions if isinstance(each, Contract) and each.geometry]
    assert [(layer.result, program[layer.out].dtype) for layer in layers] == [(Acc(DType.INT32), DType.INT32)]
    (ending,) = [each for each in program.instructions if isinstance(each, Map) and layers[0].out in str(each)]
    assert program[ending.out].dtype is DType.INT16


@pytest.mark.parametrize("model", [conv2d(), conv2d(dtype="float32"), fully_connected(units=1)])
def test_layers_that_stay_whole(model: bytes) -> None:
    program = fuse(built(model), passes=BACKEND.passes[:-1])
    assert separate_endings(program) is program


def compiled(model: bytes, cpu: str) -> Bundle:
    options = Options(target=cpu)
    read = read_model(model, "test.tflite", OPERATORS)
    return compile_model(read, *resolve_target(options), options, lambda stage, result: None)


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m0plus", "cortex-m3"])
@pytest.mark.parametrize("name", MODELS)
def test_all_layers_have_a_kernel(name: str, cpu: str) -> None:
    if (name, cpu) == ("hybrid conv", "cortex-m3"):
        pytest.skip("the convolutions for Cortex-M3 leave no sums")
    layers = [layer for layer in compiled(MODELS[name], cpu).main.layers if layer.macs]
    generic = [layer.operators for layer in layers if layer.kernel.startswith("generic")]
    assert len(generic) < len(layers) and generic == ([("SVDF",)] if name == "svdf" else [])


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m0plus", "cortex-m3"])
def test_networks_with_a_state(cpu: str) -> None:
    for batch, depth, units in ((1, 4, 5), (2, 17, 8), (3, 13, 1)):
        model = lstm(batch, 3, depth, units, seed=units)
        runs_agree(model, lstm_runs(model), cpu=cpu, oracle=None)
        model = svdf(batch, 5, units, 2, depth)
        runs_agree(model, svdf_runs(model), cpu=cpu, oracle=None)
