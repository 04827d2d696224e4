"""Real models, compiled and executed on every target: outputs, memory, instructions, size. Skips where the models are absent.

Slow networks run on a sample of the targets, on all of them with AOT_SWEEP=1.
"""

from __future__ import annotations

import os
import shutil
from functools import cache

import numpy as np
import pytest

import aot
from aot.bundle import Bundle
from aot.run import RunResult, run_bundle
from aot.samples import differences, golden_samples
from tests.shared import FIVE, FLOAT, INT8, golden, model

UNICORN = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33")
OTHERS = tuple(cpu for cpu in UNICORN if cpu != "cortex-m4")
SLOW = ("tinyengine/detection", "mlek/kws_micronet_m", "ml_examples/image_recognition_cifar10", "PD", "VWW", "IC")
"""Networks that an emulator takes seconds for."""
ONCE = {"tinyengine/detection": "cortex-m0plus", "ml_examples/image_recognition_cifar10": "cortex-m3"}
"""The slowest to compile, and the CPU that runs them by default."""
SWEEP = bool(os.environ.get("AOT_SWEEP"))

WORKSPACE_LIMIT = {"KWS": 16_600, "IC": 52_500, "VWW": 55_500, "PD": 55_500, "AD": 2_100}
FLASH_LIMIT = {"KWS": 46_000, "IC": 104_000, "VWW": 275_000, "PD": 275_000, "AD": 282_000}  # code, weights and tables
SMALLEST = {"KWS": 38_000, "IC": 96_000, "VWW": 92_000, "PD": 235_000, "AD": 278_000}  # code, weights and tables
INSTRUCTION_LIMIT = {"KWS": 7_700_000, "IC": 29_900_000, "VWW": 24_100_000, "AD": 580_000, "PD": 22_900_000}


@cache
def compiled(name: str, cpu: str | None, **options: object) -> Bundle:
    return aot.compile(model(name), cpu, options=aot.Options(**options))  # type: ignore[arg-type]


def check(name: str, bundle: Bundle, where: str = "auto", runs: int | None = None) -> RunResult:
    """Run the golden samples and compare; returns the last run's figures."""
    with np.load(golden(name)) as archive:
        arrays = {key: archive[key] for key in archive.files}
    _, samples = golden_samples(bundle.main, arrays, name)
    assert samples
    for sample in samples[:runs]:
        result = run_bundle(bundle, sample.inputs, where)
        assert differences(sample.outputs, result.outputs) == []
    return result


@pytest.mark.parametrize("name", [name for name in INT8 + FLOAT if SWEEP or name not in ONCE])
def test_host(name: str) -> None:
    check(name, compiled(name, None))


def taken(cpu: str, name: str) -> bool:
    """All on the M4; on each other CPU the fast networks and a third of the slow ones, each slow one on one of them at least."""
    if name in ONCE and not SWEEP:
        return cpu == ONCE[name]
    return SWEEP or cpu == "cortex-m4" or name not in SLOW or (SLOW.index(name) + OTHERS.index(cpu)) % 3 == 0


@pytest.mark.parametrize("cpu,name", [(cpu, name) for cpu in UNICORN for name in INT8 if taken(cpu, name)])
def test_unicorn(name: str, cpu: str) -> None:
    check(name, compiled(name, cpu), runs=None if SWEEP or name not in SLOW else 1)


@pytest.mark.parametrize("name", [name for name in INT8 if SWEEP or name not in SLOW[::2]])
def test_m55_on_qemu(name: str) -> None:
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    check(name, compiled(name, "cortex-m55"), "qemu", runs=1)


@pytest.mark.parametrize("name", FIVE)
def test_memory_instructions_and_size(name: str) -> None:
    bundle = compiled(name, "cortex-m4", io="workspace")
    result = check(name, bundle, runs=1)
    assert bundle.workspace_nbytes <= WORKSPACE_LIMIT[name]
    assert result.instructions is not None and result.instructions <= INSTRUCTION_LIMIT[name]
    assert bundle.code_nbytes + bundle.weights_nbytes <= FLASH_LIMIT[name]
    assert bundle.code_nbytes <= 48 * 1024
    assert result.stack_nbytes is not None and result.stack_nbytes <= bundle.main.stack_nbytes


@pytest.mark.parametrize("name", FIVE)
def test_the_least_flash(name: str) -> None:
    bundle = compiled(name, "cortex-m4", optimize="size")
    check(name, bundle, runs=1)
    assert bundle.code_nbytes + bundle.weights_nbytes <= SMALLEST[name]


@pytest.mark.parametrize("name", FIVE if SWEEP else ("KWS", "AD"))
def test_same_bytes_without_fusion_and_without_inplace(name: str) -> None:
    fused = check(name, compiled(name, "cortex-m4", io="workspace"), runs=1)
    plain = check(name, compiled(name, "cortex-m4", fuse=False), runs=1)
    check(name, compiled(name, "cortex-m4", inplace=False), runs=1)
    assert fused.instructions and plain.instructions
    assert fused.instructions <= plain.instructions
    if name == "IC":
        assert fused.instructions < plain.instructions


def test_no_loop_nest_for_add_or_activation_in_ic() -> None:
    """After fusion every ADD shares a loop nest with a convolution."""
    bundle = compiled("IC", "cortex-m4")
    adds = [node.index for node in bundle.main.nodes if node.op == "ADD"]
    assert adds
    for index in adds:
        layers = [layer for layer in bundle.main.layers if index in layer.nodes]
        assert len(layers) == 1 and "CONV_2D" in layers[0].operators


@pytest.mark.parametrize("name", FIVE)
def test_every_node_is_explained(name: str) -> None:
    from aot.commands.tables import explain

    entry = compiled(name, "cortex-m4").main
    for node in entry.nodes:
        _, operator, kernel, why = explain(node, entry)
        assert operator == node.op and kernel and (kernel != "generic" or why) and (kernel != "-" or why)


@pytest.mark.parametrize("name", ("KWS", "VWW") if SWEEP else ("KWS",))
def test_deterministic(name: str) -> None:
    one, two = (aot.compile(model(name), "cortex-m4") for _ in range(2))
    assert one.object == two.object
