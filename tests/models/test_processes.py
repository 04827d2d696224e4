"""Models on cores whose code runs in a Linux process under QEMU: networks of MLPerf Tiny, a sample of the others, every way to be called.
All real models with AOT_SWEEP=1.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.driver import read_main_graph
from aot.graph.interpreter import run as interpret
from aot.run import run_bundle
from aot.samples import golden_samples, random_inputs
from aot.target import load_target
from aot.verify import verify
from tests.builder import ModelBuilder
from tests.models.test_golden_models import LARGE, NETWORKS, REFUSED, SLOW, UNITS, model_of, name_of
from tests.models.test_state import check_instances, everything
from tests.models.test_stream_input import network, same
from tests.shared import FIVE, golden, model

LONG = "aieq_test__sdpa_composite"
"""A unit that takes half a minute on a Hexagon."""
SWEEP = bool(os.environ.get("AOT_SWEEP"))
DEFAULT = aot.Options()
CPUS = ("cortex-a9", "cortex-a53", "hexagonv68", "rv32imac", "rv64gc")
OTHERS = (
    "cortex-a7",
    "cortex-a8",
    "cortex-a15",
    "cortex-a72",
    "cortex-a55",
    "cortex-a76",
    "neoverse-n1",
    "cortex-a510",
    "cortex-a710",
)
FURTHER = ("rv32imc", "rv64gcv")


def sample(cpu: str) -> list[Path]:
    """Golden files for a CPU: a few units, another few for each CPU, and one network with floats; all with AOT_SWEEP=1."""
    number = CPUS.index(cpu)
    if SWEEP:
        return [path for path in (*NETWORKS, *UNITS) if path.stem not in (*LARGE, *SLOW)]
    networks = [path for path in NETWORKS if path.stem in ("tflm__sine_float", "tflm__trained_lstm_int8", "esphome_mww__vad")]
    return [*networks[number % 3 :][:1], *(path for path in UNITS[number * 5 :: 60] if path.stem != LONG)]


def check(path: Path, bundle: aot.Bundle, runs: int = 1) -> None:
    with np.load(path) as archive:
        oracle, samples = golden_samples(bundle.main, {name: archive[name] for name in archive.files}, path.name)
    assert samples
    report = verify(bundle, oracle, samples if bundle.state_nbytes else samples[:runs], "auto")
    assert report.mismatches == ()


def compiled(path: Path, cpu: str, backend: str | None = None, options: aot.Options = DEFAULT) -> aot.Bundle:
    """Skips where the emulator is missing."""
    program = str(load_target(cpu).run["qemu"]["program"])
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    pytest.importorskip("ziglang", reason="ziglang, which links the process, is not installed")
    return aot.compile(path, cpu, options=replace(options, backend=backend or options.backend))


def taken(cpu: str, name: str) -> bool:
    """KWS and AD on every core, each of the slower networks on one."""
    slow = [each for each in FIVE if each not in ("KWS", "AD")]
    return SWEEP or name not in slow or CPUS.index(cpu) == slow.index(name)


@pytest.mark.parametrize("cpu,name", [(cpu, name) for cpu in CPUS for name in FIVE if taken(cpu, name)])
def test_networks_of_mlperf_tiny(cpu: str, name: str) -> None:
    check(golden(name), compiled(model(name), cpu, "generic"))


@pytest.mark.parametrize(
    "cpu,path", [(cpu, path) for cpu in CPUS for path in sample(cpu)], ids=lambda one: getattr(one, "stem", one)
)
def test_samples_of_the_others(cpu: str, path: Path) -> None:
    if name_of(path) in REFUSED:
        pytest.skip(f"docs/operators.md says that it can't be compiled: {REFUSED[name_of(path)]}")
    check(path, compiled(model_of(path), cpu, "generic"), runs=2)


WAYS = {
    "weights by themselves, inputs in the workspace": {"weights": "separate", "io": "workspace"},
    "code that runs anywhere": {"position_independent": True},
    "pages": {"page_weights_nbytes": 4096},
    "rows": {"stream_input": True},
    "pages and rows": {"page_weights_nbytes": 4096, "stream_input": True, "io": "workspace"},
    "parts": {"threads": 3},
    "a region": {"regions": {"tcm": 1024, "ram": 1 << 20}, "weights_in": "tcm"},
}


@pytest.mark.parametrize(
    ("cpu", "way"),
    [(cpu, way) for i, cpu in enumerate(CPUS) for j, way in enumerate(WAYS) if SWEEP or cpu == "cortex-a9" or (i + j) % 4 == 0],
)
def test_every_way_to_be_called(cpu: str, way: str, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(network(1))
    options = aot.Options(backend="generic", name="net", **WAYS[way])  # type: ignore[arg-type]
    bundle = compiled(path, cpu, options=options)
    inputs = random_inputs(bundle.main, 5)
    for push_rows in (1, 3) if options.stream_input else (1,):
        result = run_bundle(bundle, inputs, push_rows=push_rows)
        same(result.outputs, interpret(read_main_graph(path, options), inputs))
        assert result.instructions is not None and result.instructions > 1000
        assert result.read_nbytes == (bundle.main.paging.read_nbytes if bundle.main.paging else None)


@pytest.mark.parametrize("cpu", CPUS)
def test_state(cpu: str, tmp_path: Path) -> None:
    path = tmp_path / "keeper.tflite"
    path.write_bytes(everything())
    bundle = compiled(path, cpu, "generic")
    check_instances(bundle, path)


@pytest.mark.parametrize("cpu", FURTHER)
def test_a_network_on_other_cores(cpu: str) -> None:
    check(golden("KWS"), compiled(model("KWS"), cpu, "generic"))


@pytest.mark.parametrize("cpu", OTHERS)
@pytest.mark.parametrize("name", ["KWS", *(name for name in FIVE if name != "KWS" and SWEEP)])
def test_the_default_back_end(cpu: str, name: str) -> None:
    check(golden(name), compiled(model(name), cpu))


def test_a_cortex_a_has_plenty_of_stack(tmp_path: Path) -> None:
    """By default nothing is asked of its code; what is asked for is checked."""
    path = tmp_path / "net.tflite"
    path.write_bytes(network(1))
    assert aot.compile(path, "cortex-a53", options=aot.Options(name="net")).main.stack_nbytes > 64
    with pytest.raises(aot.CompileError, match=r"net_run would take up to [0-9]+ bytes of stack, over --max-stack 64"):
        aot.compile(path, "cortex-a53", options=aot.Options(name="net", max_stack_nbytes=64))


@pytest.mark.parametrize("cpu", CPUS)
def test_what_a_core_lacks(cpu: str, tmp_path: Path) -> None:
    """Divisions, remainders, roots and roundings: by instructions or by the object's own routines."""
    m, inputs, outputs = ModelBuilder(), [], []
    for op, dtype in (
        ("DIV", "int32"),
        ("FLOOR_MOD", "int32"),
        ("FLOOR_MOD", "int64"),
        ("DIV", "float32"),
        ("FLOOR_MOD", "float32"),
    ):
        inputs += [m.tensor(f"{op}{dtype}{side}", (37,), dtype) for side in "ab"]
        outputs.append(m.tensor(f"{op}{dtype}", (37,), dtype))
        m.operator(op, inputs[-2:], outputs[-1:], {"fused_activation_function": "NONE"} if op == "DIV" else None)
    for op in ("SQRT", "FLOOR", "CEIL", "ROUND"):
        inputs.append(m.tensor(f"{op}a", (37,), "float32"))
        outputs.append(m.tensor(op, (37,), "float32"))
        m.operator(op, inputs[-1:], outputs[-1:])
    path = tmp_path / "lacks.tflite"
    path.write_bytes(m.build(inputs, outputs))
    bundle, rng = compiled(path, cpu, "generic"), np.random.default_rng(2)
    given = []
    for number, port in enumerate(bundle.main.inputs):
        bits = 8 * port.dtype.np.itemsize - 1
        whole = rng.integers(-(1 << bits), 1 << bits, 37) >> (bits // 2 * (number % 2))
        real = np.abs(rng.standard_normal(37) * 2.0 ** rng.integers(-2, 9, 37))
        given.append(
            np.where(whole == 0, 1, whole).astype(port.dtype.np) if port.dtype.np != np.float32 else real.astype(np.float32)
        )
    same(run_bundle(bundle, given).outputs, interpret(read_main_graph(path, DEFAULT), given))
