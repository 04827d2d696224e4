"""C for Tensilica HiFi DSPs: no warnings and silent sanitizers on this machine, the interpreter's bytes there and on a real Xtensa."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.artefacts import files
from aot.bundle import Bundle
from aot.driver import Options, read_main_graph
from aot.errors import CompileError
from aot.graph.interpreter import run
from aot.run import run_bundle, xtensa
from aot.samples import differences, golden_samples
from aot.target import load_target
from aot.verify import verify
from tests.backends.library_layers import Layer, random_layer, side_by_side
from tests.backends.test_hifi import CASES, CLAMPED
from tests.c.program import SANITIZERS, Program, compilers
from tests.models.test_golden_models import NETWORKS, REFUSED, UNITS, model_of, name_of
from tests.one_operator import random_inputs
from tests.shared import INT8, golden, model

SWEEP = bool(os.environ.get("AOT_SWEEP"))
HIFI4 = Options(target="hifi4", name="net")
COMPILERS = compilers()
EVERY = (*(layer for layers in CASES.values() for layer in layers), *CLAMPED)
FEW = (*(layers[0] for layers in CASES.values()), *CLAMPED[:1])
PARTS = (FEW, *(EVERY[start : start + 20] for start in range(0, len(EVERY), 20))) if SWEEP else (FEW,)
"""As many layers as a program has regions for."""
GOLDEN = [path for path in (*NETWORKS, *UNITS) if name_of(path) not in REFUSED]
SAMPLE = ("tflm__hello_world_int8", "aieq_test__conv_fc_mnist_srq_a8w8")
needs_xtensa = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in (xtensa.COMPILER, xtensa.EMULATOR)),
    reason=f"{xtensa.COMPILER} or {xtensa.EMULATOR} is not installed (Debian: gcc-xtensa-lx106, qemu-user)",
)


def compiled(layers: Sequence[Layer], folder: Path, options: Options = HIFI4, seed: int = 0) -> Bundle:
    (folder / "model.tflite").write_bytes(side_by_side(layers, seed))
    return aot.compile(folder / "model.tflite", options=options)


def expected(folder: Path, inputs: Sequence[np.ndarray]) -> list[bytes]:
    return [each.tobytes() for each in run(read_main_graph(folder / "model.tflite", HIFI4), inputs)]


@pytest.mark.parametrize("part", range(len(PARTS)))
@pytest.mark.parametrize("kernels", ["library", "native"])
@pytest.mark.parametrize("name", COMPILERS)
def test_sanitizers(name: str, kernels: str, part: int, tmp_path: Path) -> None:
    """Every function's layers, with the reference compiled as strictly: the interpreter's bytes, also at the ends of int8."""
    bundle = compiled(PARTS[part], tmp_path, replace(HIFI4, kernels=kernels))
    made = Program(bundle, tmp_path, COMPILERS[name], SANITIZERS[name])
    random = random_inputs((tmp_path / "model.tflite").read_bytes())
    for inputs in (random, *([np.full_like(each, value) for each in random] for value in (-128, 127))):
        assert [each.tobytes() for each in made.run(inputs)[0]] == expected(tmp_path, inputs)


@needs_xtensa
@pytest.mark.parametrize("seed", range(20 if SWEEP else 1))
@pytest.mark.parametrize("kernels", ["library", "native"])
def test_on_an_xtensa(kernels: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    layers = (*(EVERY if SWEEP or kernels == "library" else FEW), *(random_layer(rng) for _ in range(8)))
    bundle = compiled(layers, tmp_path, replace(HIFI4, kernels=kernels), seed)
    assert bundle.is_c and bool(bundle.library) == (kernels == "library")
    inputs = random_inputs((tmp_path / "model.tflite").read_bytes(), seed)
    made = run_bundle(bundle, inputs, "qemu")
    assert made.where == "qemu" and [each.tobytes() for each in made.outputs] == expected(tmp_path, inputs)


@needs_xtensa
@pytest.mark.parametrize("kernels", ["library", "native"] if SWEEP else ["library"])
@pytest.mark.parametrize("name", (*INT8, "tflm/sine_float") if SWEEP else ("KWS", "tflm/sine_float"))
def test_golden_on_an_xtensa(name: str, kernels: str) -> None:
    """The second has floats, whose routines libgcc lacks there."""
    agrees(name, replace(HIFI4, kernels=kernels), "qemu")


@pytest.mark.parametrize("kernels", ["library", "native"])
@pytest.mark.parametrize("name", INT8 if SWEEP else ("AD",))
def test_golden_c_on_this_machine(name: str, kernels: str) -> None:
    agrees(name, replace(HIFI4, kernels=kernels), "host")


@pytest.mark.parametrize("path", [path for path in GOLDEN if SWEEP or path.stem in SAMPLE], ids=lambda path: path.stem)
def test_calls_agree_with_generated_code(path: Path) -> None:
    """Byte by byte, floats too, run after run of models with state; and with the golden file. All real models with AOT_SWEEP=1."""
    called, native = (aot.compile(model_of(path), options=replace(HIFI4, kernels=kernels)) for kernels in ("library", "native"))
    with np.load(path) as archive:
        _, samples = golden_samples(called.main, {name: archive[name] for name in archive.files}, path.name)
    assert samples and not native.library
    held: list[bytes | None] = [None, None]
    for sample in samples if called.state_nbytes else samples[:2]:
        made = [
            run_bundle(bundle, sample.inputs, "host", state=state) for bundle, state in zip((called, native), held, strict=True)
        ]
        assert len({tuple(each.tobytes() for each in one.outputs) for one in made}) == 1
        assert not differences(sample.outputs, made[0].outputs)
        held = [one.state for one in made]


def agrees(name: str, options: Options, where: str) -> None:
    bundle = aot.compile(model(name), options=options)
    oracle, samples = golden_samples(bundle.main, np.load(golden(name), allow_pickle=True), name)
    assert not verify(bundle, oracle, samples if SWEEP else samples[:1], where).mismatches


@pytest.mark.parametrize("cpu", ["hifi3", "hifi4", "hifi5", "fusion-f1"])
def test_cpus(cpu: str, tmp_path: Path) -> None:
    """All get C for 32-bit pointers; pools, depthwise convolutions and softmax are no calls on a HiFi 5."""
    bundle = compiled([layers[0] for layers in CASES.values()], tmp_path, replace(HIFI4, target=cpu))
    assert (bundle.backend, bundle.object, bundle.target.pointer_bits) == ("hifi-ref", b"", 32)
    assert set(bundle.library) == (set(CASES) if cpu != "hifi5" else {name for name in CASES if not _only_before_5(name)})
    if cpu == "hifi5":
        inputs = random_inputs((tmp_path / "model.tflite").read_bytes())
        assert [each.tobytes() for each in run_bundle(bundle, inputs).outputs] == expected(tmp_path, inputs)


def _only_before_5(name: str) -> bool:
    return any(part in name for part in ("pool", "depthwise", "softmax"))


def test_files(tmp_path: Path) -> None:
    layers = [layers[0] for layers in CASES.values()]
    made = files(compiled(layers, tmp_path))
    assert {"net.c", "net_weights.c", "net.h", "net.json", "CMakeLists.txt", "net_check_scratch.c", "xa_nn_reference.h"} < set(made)
    assert "net.o" not in made and made == files(compiled(layers, tmp_path))


def test_an_object_beside_c(tmp_path: Path) -> None:
    bundle = compiled(EVERY[:1], tmp_path, replace(HIFI4, triple="riscv32-unknown-none-elf"))
    assert {"net.o", "net.c"} < set(files(bundle))
    assert bundle.library and bundle.code_nbytes


@pytest.mark.parametrize(
    "options,text",
    [
        ({"emit": "object"}, "LLVM has no code generator for hifi4"),
        ({"target": "cortex-m4", "triple": "riscv32-unknown-none-elf"}, "--cpu and --target exclude each other"),
        ({"max_flash_nbytes": 1000}, "--max-flash is for objects"),
    ],
)
def test_refused_options(options: dict, text: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=text):
        compiled(EVERY[:1], tmp_path, replace(HIFI4, **options))


def test_it_runs_here_or_on_an_xtensa(tmp_path: Path) -> None:
    bundle = compiled(EVERY[:1], tmp_path)
    with pytest.raises(CompileError, match="C files are compiled and run on this machine, and under QEMU, not on unicorn"):
        run_bundle(bundle, random_inputs((tmp_path / "model.tflite").read_bytes()), "unicorn")
    assert load_target("hifi4").emits == "c"


@needs_xtensa
@pytest.mark.parametrize("where", ["host", "qemu"])
def test_several_models(where: str, tmp_path: Path) -> None:
    """One pair of files for both; each runs by itself."""
    paths = [tmp_path / name for name in ("first.tflite", "second.tflite")]
    for path, layers in zip(paths, (FEW[:2], FEW[3:5])):
        path.write_bytes(side_by_side(layers))
    bundle = aot.compile(paths, options=replace(HIFI4, share_workspace=True))
    assert set(bundle.sources) == {"net.c", "net_weights.c"}
    for path, part in zip(paths, bundle.parts):
        inputs = random_inputs(path.read_bytes())
        wanted = [each.tobytes() for each in run(read_main_graph(path, HIFI4), inputs)]
        assert [each.tobytes() for each in run_bundle(bundle, inputs, where, part.main).outputs] == wanted


@needs_xtensa
def test_what_an_xtensa_run_sees(tmp_path: Path) -> None:
    """An error that the library returns, and a write beside a region, are no results."""
    bundle = compiled(CASES["xa_nn_fully_connected_sym8sxasym8s_asym8s"][:1], tmp_path)
    inputs = random_inputs((tmp_path / "model.tflite").read_bytes())
    bad = {name: text.replace(", 16, 8, ", ", 16, 0, ") for name, text in bundle.sources.items()}
    assert bad != bundle.sources
    with pytest.raises(Exception, match="net_run returned -3"):
        run_bundle(replace(bundle, sources=bad), inputs, "qemu")
    wide = {
        name: text.replace("const int32_t t0 = xa_nn", "p1[8] = 1; const int32_t t0 = xa_nn")
        for name, text in bundle.sources.items()
    }
    assert wide != bundle.sources
    with pytest.raises(Exception, match="net_run wrote between its regions"):
        run_bundle(replace(bundle, sources=wide), inputs, "qemu")
