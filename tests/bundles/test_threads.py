"""The pools of `bundles/threads` on real threads: the same bytes for every number of parts and of threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import aot
from aot import artefacts
from aot.bundle import Bundle
from aot.graph.ir import DType
from aot.lower import parts
from aot.samples import Sample, golden_samples
from tests.shared import FIVE, FLOAT, ROOT, golden, model

SOURCES = ROOT / "bundles" / "threads"
STRICT = ("-std=c11", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror")
ZIG = (sys.executable, "-m", "ziglang", "cc", "-static", "-target")
MODELS = (*FIVE, *FLOAT[:2]) if os.environ.get("AOT_SWEEP") else ("KWS",)
THREADS = (1, 2, 4)


@cache
def compiled(name: str, threads: int, cpu: str) -> Bundle:
    """The model as `model`, in so many parts."""
    return aot.compile(model(name), options=aot.Options(cpu, name="model", threads=threads, max_stack_nbytes=8192))


def built(bundle: Bundle, folder: Path, command: tuple[str, ...], *sources: Path) -> Path:
    """A program with a bundle linked in."""
    artefacts.write(bundle, folder)
    line = [
        *command,
        *STRICT,
        f"-I{folder}",
        f"-I{SOURCES}",
        *map(str, sources),
        str(folder / "model.o"),
        "-o",
        str(folder / "main"),
    ]
    made = subprocess.run(line, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return folder / "main"


def supports(folder: Path, *flags: str) -> bool:
    """Whether this machine's compiler makes programs with these flags, which run."""
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    line = [needed("gcc"), *flags, str(folder / "empty.c"), "-o", str(folder / "empty")]
    return subprocess.run(line, capture_output=True).returncode == 0 and not subprocess.run([str(folder / "empty")]).returncode


def ran(command: list[str], sample: Sample, bundle: Bundle) -> np.ndarray:
    """The output of a program that runs a bundle."""
    (port,), given = bundle.main.outputs, sample.inputs[0].tobytes()
    found = subprocess.run(command, input=given, capture_output=True, timeout=600)
    assert found.returncode == 0, found.stderr.decode()
    return np.frombuffer(found.stdout, port.dtype.np).reshape(port.shape)


def first_sample(name: str, bundle: Bundle) -> Sample:
    path = golden(name)
    with np.load(path) as file:
        return golden_samples(bundle.main, dict(file), path.name)[1][0]


def needed(program: str) -> str:
    return shutil.which(program) or pytest.skip(f"{program} is not installed")


@pytest.mark.parametrize("cpu", ["cortex-a53", "cortex-a76"])
@pytest.mark.parametrize("name", MODELS)
def test_pool_on_aarch64(name: str, cpu: str, tmp_path: Path) -> None:
    """In 2 and 4 parts on 1, 2 and 4 threads the same bytes; integers those of the golden file."""
    emulator, found = (needed("qemu-aarch64"), "-cpu", cpu), set()
    sample = first_sample(name, compiled(name, 2, cpu))
    for number in (2, 4):
        bundle = compiled(name, number, cpu)
        folder = tmp_path / str(number)
        program = built(bundle, folder, (*ZIG, "aarch64-linux-musl"), SOURCES / "main.c", SOURCES / "pool.c")
        assert any(layer.parts == number for layer in bundle.main.layers) or name == "AD"
        for threads in THREADS:
            result = ran([*emulator, str(program), str(threads), "3"], sample, bundle)
            found.add(result.tobytes())
            if result.dtype != DType.FLOAT32.np:
                np.testing.assert_array_equal(result, sample.outputs[0])
    assert len(found) == 1


@pytest.mark.parametrize(("flags", "sources"), [(("-fopenmp",), ("openmp.c",)), (("-pthread", "-fsanitize=thread"), ("pool.c",))])
def test_on_this_machine(flags: tuple[str, ...], sources: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP; and the pool where a race in it would be reported."""
    if not supports(tmp_path, *flags):
        pytest.skip(f"gcc {' '.join(flags)} makes no program that runs here")
    monkeypatch.setattr(parts, "LEAST_WORK", 1)
    digits = ROOT / "bundles" / "digits"
    bundle = aot.compile(digits / "digits.tflite", options=aot.Options(name="model", threads=4, position_independent=True))
    with np.load(digits / "golden.npz") as file:
        sample = golden_samples(bundle.main, dict(file), "golden.npz")[1][0]
    program = built(bundle, tmp_path, ("gcc", *flags), *(SOURCES / source for source in ("main.c", *sources)))
    for threads in THREADS:
        np.testing.assert_array_equal(ran([str(program), str(threads), "3"], sample, bundle), sample.outputs[0])


CORES = {"cortex-a53": "aarch64", "cortex-a76": "aarch64", "cortex-a510": "aarch64", "cortex-a9": "arm"}


@pytest.mark.parametrize("cpu", CORES)
@pytest.mark.parametrize("name", MODELS)
def test_parts_are_apart(name: str, cpu: str, tmp_path: Path) -> None:
    """The back end's own kernels: no part touches what another writes, its scratch included."""
    emulator, bundle = needed(f"qemu-{CORES[cpu]}"), compiled(name, 3, cpu)
    system = "arm-linux-musleabihf" if CORES[cpu] == "arm" else "aarch64-linux-musl"
    program, sample = built(bundle, tmp_path, (*ZIG, system), Path(__file__).parent / "apart.c"), first_sample(name, bundle)
    result = ran([emulator, "-cpu", str(bundle.target.run["qemu"]["cpu"]), str(program)], sample, bundle)
    if result.dtype != DType.FLOAT32.np:
        np.testing.assert_array_equal(result, sample.outputs[0])
