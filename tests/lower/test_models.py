"""Real models: every stage of lowering gives the golden bytes, and the memory that a layer-wise plan without scratch needs."""

from __future__ import annotations

import json
import os
from functools import cache

import numpy as np
import pytest

from aot.graph import tflite
from aot.graph.ops import OPERATORS
from aot.graph.passes import run_passes
from aot.graph.primitive import Contract, Map, loads_of
from aot.graph.shapes import fix_shapes
from aot.lower.build import build_program
from aot.lower.check import check_plan
from aot.lower.execute import execute_program
from aot.lower.fuse import fuse
from aot.lower.place import plan
from aot.lower.program import Program
from aot.lower.schedule import schedule
from tests.lower.toy import choices, random_inputs
from tests.shared import golden, model

pytestmark = pytest.mark.slow


@cache
def built(name: str) -> Program:
    graph = fix_shapes(tflite.read_file(model(name), OPERATORS).main, {}, OPERATORS)
    return build_program(run_passes(graph, OPERATORS), OPERATORS)


def outputs(program: Program, inputs: list[np.ndarray]) -> list[np.ndarray]:
    arrays = {name: array.reshape(program[name].shape) for name, array in zip(program.inputs, inputs, strict=True)}
    return list(execute_program(program, arrays).values())


def workspace(program: Program, io="workspace", inplace: bool = True) -> int:
    result = plan(schedule(program, choices(program), io, inplace), io, inplace)
    check_plan(result)
    assert result.workspace_nbytes >= result.lower_bound_nbytes
    return result.workspace_nbytes


@pytest.mark.parametrize(
    "name", ["KWS", "AD", "IC", "tflm/micro_speech_quantized", "tflm/hello_world_int8", "tflm_arduino/magic_wand"]
)
@pytest.mark.parametrize("fused", [False, True])
def test_golden_bytes(name: str, fused: bool) -> None:
    program = fuse(built(name)) if fused else built(name)
    with np.load(golden(name)) as file:
        runs = json.loads(str(file["meta"]))
        for run in range(1 if name == "IC" else 2):
            inputs = [file[f"in{number}_{run}"] for number in range(len(program.inputs))]
            for number, array in enumerate(outputs(program, inputs)):
                np.testing.assert_array_equal(
                    array, file[f"out{number}_{run}"].reshape(array.shape), err_msg=str(runs.get("oracle"))
                )


LARGE = ("VWW", "mlek/kws_micronet_m", "tinyengine/vww", "PD", "ml_examples/image_recognition_cifar10")


@pytest.mark.parametrize("name", LARGE if os.environ.get("AOT_SWEEP") else LARGE[:3])
def test_fusion_keeps_the_bytes(name: str) -> None:
    inputs = list(random_inputs(built(name)).values())
    for one, other in zip(outputs(built(name), inputs), outputs(fuse(built(name)), inputs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("KWS", 16000),
        ("IC", 32768),
        ("VWW", 55296),
        ("PD", 55296),
        ("AD", 768),
        ("tinyengine/vww", 96000),
        ("tinyengine/detection", 307200),
    ],
)
def test_memory_of_everything_in_the_workspace(name: str, most: int) -> None:
    """Inputs, outputs and activations; the layer-wise minimum, with in place where the elements allow it."""
    assert workspace(fuse(built(name))) <= most


def test_without_in_place_the_residual_blocks_need_three_buffers() -> None:
    assert workspace(fuse(built("IC")), inplace=False) == 49152


@pytest.mark.parametrize("name", ["KWS", "IC", "VWW", "PD", "AD"])
def test_unfused_programs_are_planned_too(name: str) -> None:
    assert workspace(built(name)) >= workspace(fuse(built(name)))
    assert workspace(built(name), "caller") <= workspace(built(name))


def test_no_addition_and_no_activation_has_a_loop_nest_of_its_own() -> None:
    """IC's residual additions, with their RELU, are epilogues: each is in the instruction of a convolution."""
    program = fuse(built("IC"))
    graph_additions = [node.index for node in tflite.read_file(model("IC"), OPERATORS).main.nodes if node.op == "ADD"]
    assert len(graph_additions) == 3
    for addition in graph_additions:
        (owner,) = (instruction for instruction in program.instructions if addition in instruction.nodes)
        assert isinstance(owner, Contract) and len(owner.nodes) >= 2
        temporaries = [load for load in loads_of(owner) if program[load.buffer].role in ("temporary", "input")]
        assert len(temporaries) == 2, "the convolved tensor, and the other summand"
    softmax = {node.index for node in tflite.read_file(model("IC"), OPERATORS).main.nodes if node.op == "SOFTMAX"}
    for instruction in program.instructions:
        assert not isinstance(instruction, Map) or set(instruction.nodes) <= softmax
