"""Objects for cores that run Linux: nothing undefined, nothing writable; with --pic they link into a shared library as they are; and
constants of 100 MB are reached (with AOT_SWEEP=1: it takes minutes)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.driver import read_main_graph
from aot.graph.interpreter import run as interpret
from aot.llvm import elf
from aot.run import run_bundle
from aot.samples import random_inputs
from tests.models.test_processes import compiled
from tests.models.test_stream_input import network, same
from tests.one_operator import fully_connected

CPUS = ("cortex-a9", "cortex-a53", "cortex-a76", "cortex-a710", "rv32imac", "rv64gc", "rv64gcv", "hexagonv68")
CASES = [*((cpu, "generic") for cpu in CPUS), *((cpu, "neon") for cpu in CPUS if not cpu.startswith(("rv", "hexagon")))]


@pytest.mark.parametrize(("cpu", "backend"), CASES)
def test_a_shared_library(cpu: str, backend: str, tmp_path: Path) -> None:
    """No text relocation, no global offset table: nothing is written when it is loaded."""
    pytest.importorskip("ziglang", reason="ziglang, whose lld links, is not installed")
    path = tmp_path / "net.tflite"
    path.write_bytes(network(1))
    made = aot.compile(path, cpu, options=aot.Options(name="net", backend=backend, position_independent=True))
    assert elf.undefined(made.object) == () and elf.sizes(made.object)[0] > 0
    (tmp_path / "net.o").write_bytes(made.object)
    command = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-z", "text", "net.o", "-o", "net.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    opened = elf.opened((tmp_path / "net.so").read_bytes())
    names = {section.name for section in opened.iter_sections() if section["sh_size"]}
    assert names.isdisjoint({".rela.dyn", ".rel.dyn", ".got", ".got.plt"})


@pytest.mark.skipif(not os.environ.get("AOT_SWEEP"), reason="takes minutes: with AOT_SWEEP=1")
@pytest.mark.parametrize("position_independent", [False, True])
@pytest.mark.parametrize("cpu", ["cortex-a9", "cortex-a53", "rv64gc", "hexagonv68"])
def test_weights_of_100_megabytes(cpu: str, position_independent: bool, tmp_path: Path) -> None:
    path = tmp_path / "big.tflite"
    path.write_bytes(fully_connected((1, 10_000), 10_000))
    options = aot.Options(name="net", position_independent=position_independent)
    bundle = compiled(path, cpu, "generic", options)
    assert bundle.weights_nbytes > 100_000_000
    inputs = random_inputs(bundle.main, 5)
    outputs = run_bundle(bundle, inputs).outputs
    same(outputs, interpret(read_main_graph(path, options), inputs))
    assert len(np.unique(outputs[0])) > 100
