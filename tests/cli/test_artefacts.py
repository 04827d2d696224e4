"""The files of a bundle: the header compiles everywhere, nothing half-written stays, hostile names stay harmless."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot import artefacts
from aot.bundle import Bundle, Entry, Port, Stream
from aot.errors import CompileError
from aot.graph.ir import DType, Quantisation
from aot.names import unique_identifiers
from aot.target import load_target

HOSTILE = '*/ int x[] = {1}; /* "\\\n#define main 0'


def make_bundle(io_in_workspace: bool = False, weights: bytes | None = None, label: str = HOSTILE) -> Bundle:
    names = unique_identifiers([label, label], "tensor")
    offset = 0 if io_in_workspace else None
    image = Port(names[0], label, DType.INT8, (1, 4, 4, 3), Quantisation((0.1,), (-128,)), 1, offset)
    scores = Port(names[1], label, DType.FLOAT32, (1, 10), None, 4, offset)
    entry = Entry("demo_run", (image,), (scores,), 64, 4, 40, 0, 64, ())
    second = Entry("demo_other_run", (image,), (scores,), 64, 4, 40, 0, 64, ())
    return Bundle("demo", "generic", load_target("cortex-m4"), b"\x7fELF", (entry, second), 4, 8, weights, 8, io_in_workspace, "00")


COMPILERS = [
    ("arm-none-eabi-gcc", ["-std=c99", "-x", "c"]),
    ("arm-none-eabi-g++", ["-std=c++11", "-x", "c++"]),
    ("gcc", ["-std=c99", "-x", "c"]),
    ("g++", ["-std=c++11", "-x", "c++"]),
]


def make_stream(io_in_workspace: bool, weights: bytes | None) -> Bundle:
    """A bundle whose main entry takes its input row by row."""
    bundle = make_bundle(io_in_workspace, weights)
    main, second = bundle.entries
    stream = Stream("demo_begin", "demo_push_rows", "demo_end", "demo_steps", 4, 12)
    image = replace(main.inputs[0], workspace_offset=None)
    return replace(bundle, entries=(replace(main, symbol=stream.push, inputs=(image,), stream=stream), second))


@pytest.mark.parametrize("compiler,flags", COMPILERS, ids=[name for name, _ in COMPILERS])
@pytest.mark.parametrize("io_in_workspace", [False, True], ids=["caller", "workspace"])
@pytest.mark.parametrize("weights", [None, b"1234"], ids=["embedded", "separate"])
@pytest.mark.parametrize("streams", [False, True], ids=["run", "stream"])
def test_header_compiles_clean(
    tmp_path: Path, compiler: str, flags: list[str], io_in_workspace: bool, weights: bytes | None, streams: bool
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    artefacts.write((make_stream if streams else make_bundle)(io_in_workspace, weights), tmp_path)
    given = ", w" if weights else ""
    calls = (
        f"demo_begin(a{given}) + demo_push_rows(a, rows, DEMO_ROWS{given}) + demo_end(a{'' if io_in_workspace else ', out'}{given})"
    )
    source = tmp_path / "use.c"
    source.write_text(
        '#include "demo.h"\n#include "demo.h"\nint shape[] = DEMO_INPUT_0_SHAPE;\n'
        "int use(void *a, const int8_t *rows, float *out, const void *w);\n"
        "int use(void *a, const int8_t *rows, float *out, const void *w) {\n"
        "    (void)a; (void)rows; (void)out; (void)w;\n"
        f"    return demo_quantise_input_0(0.5f) + {calls if streams else 'DEMO_OK'};\n}}\n"
    )
    command = [compiler, *flags, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("cpu,fits", [("cortex-m4", True), ("cortex-m7", True), ("cortex-m3", False), ("cortex-m0", False)])
def test_header_refuses_a_core_that_lacks_instructions(tmp_path: Path, cpu: str, fits: bool) -> None:
    """The bundle is for a Cortex-M4, and may hold instructions of the DSP extension."""
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    artefacts.write(make_bundle(), tmp_path)
    command = ["arm-none-eabi-gcc", f"-mcpu={cpu}", "-mthumb", "-fsyntax-only", "-x", "c", str(tmp_path / "demo.h")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == fits, done.stderr
    assert fits or "whose DSP extension this compiler's target lacks" in done.stderr
    assert subprocess.run([*command, "-DAOT_ANY_CPU"], capture_output=True).returncode == 0


@pytest.mark.parametrize(("scale", "zero_point"), [(0.5, -128), (0.1, 127), (0.3, -3), (1.0, 0), (1e-6, 5)])
def test_header_quantises_as_tflite_does(scale: float, zero_point: int, tmp_path: Path) -> None:
    """Halves lie on both sides of the zero point; numbers next to a half are not rounded twice."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    made = make_bundle()
    port = replace(made.main.inputs[0], quantisation=Quantisation((scale,), (zero_point,)))
    artefacts.write(replace(made, entries=(replace(made.main, inputs=(port,)),)), tmp_path)
    (tmp_path / "use.c").write_text(
        '#include "demo.h"\nint q(float real);\nint q(float real) { return demo_quantise_input_0(real); }\n'
    )
    library = tmp_path / "use.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, tmp_path / "use.c"], check=True)
    quantise = ctypes.CDLL(str(library)).q
    quantise.argtypes = [ctypes.c_float]
    halves = np.arange(-600, 600) * 0.5
    reals = (np.concatenate([halves, np.nextafter(halves, 1e9, dtype=np.float32)]) * scale).astype(np.float32)
    reals = np.concatenate([reals, np.array([0.49999997, -0.49999997, np.inf, -np.inf, 1e30, 0.0], np.float32)])
    scaled = (reals / np.float32(scale)).astype(np.float64)
    expected = np.clip(np.copysign(np.floor(np.abs(scaled) + 0.5), scaled) + zero_point, -128, 127)
    assert [quantise(real) for real in reals.tolist()] == expected.tolist()
    assert quantise(float("nan")) == -128


@pytest.mark.parametrize(
    ("dtype", "zero_point", "converts"),
    [(DType.INT32, 0, True), (DType.INT32, 1, False), (DType.INT16, -5, True), (DType.UINT32, 0, False), (DType.INT64, 0, False)],
)
def test_header_converts_what_32_bits_hold(dtype: DType, zero_point: int, converts: bool, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    made = make_bundle()
    port = replace(made.main.inputs[0], dtype=dtype, quantisation=Quantisation((0.5,), (zero_point,)))
    artefacts.write(replace(made, entries=(replace(made.main, inputs=(port,)),)), tmp_path)
    assert ("demo_quantise_input_0" in (tmp_path / "demo.h").read_text()) == converts
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-fsyntax-only", "-x", "c"]
    subprocess.run([*command, tmp_path / "demo.h"], check=True)


def test_header_has_the_documented_macros() -> None:
    text = artefacts.files(make_bundle())["demo.h"].decode()
    for macro in (
        "WORKSPACE_SIZE (64u)",
        "WORKSPACE_ALIGN (4u)",
        "STACK_SIZE (40u)",
        "INPUT_0_SIZE (48u)",
        "OUTPUT_0_SIZE (40u)",
        "INPUT_0_SCALE (0.1f)",
        "INPUT_0_ZERO_POINT (-128)",
    ):
        assert f"#define DEMO_{macro}" in text
    assert "int demo_run(const int8_t *" in text and "void *workspace);" in text


def test_hostile_label_stays_out_of_the_code() -> None:
    files = artefacts.files(make_bundle())
    assert b"#define main" not in files["demo.h"] and b"int x[]" not in files["demo.h"]
    assert json.loads(files["demo.json"])["entries"][0]["inputs"][0]["label"] == HOSTILE


def test_deterministic() -> None:
    assert artefacts.files(make_bundle()) == artefacts.files(make_bundle())


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(CompileError, match="can't write the bundle"):
        artefacts.write(make_bundle(), tmp_path / "taken")
    with pytest.raises(CompileError, match="can't write the bundle"):
        artefacts.write(make_bundle(), tmp_path / "taken" / "below")
    assert (tmp_path / "taken").read_text() == "mine"


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo.h").mkdir()  # in the way of one of the files
    with pytest.raises(CompileError, match="can't write the bundle"):
        artefacts.write(make_bundle(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["demo.h"]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(CompileError, match="No space left"):
        artefacts.write(make_bundle(), tmp_path / "new" / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.h"]
