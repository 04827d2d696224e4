"""Headers compile as C and as C++ whatever a model, its tensors and its bundle are called, and with every set of parameters.

A dozen examples by default, many with AOT_SWEEP=1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aot
from aot import artefacts
from tests.builder import ModelBuilder

SWEEP = bool(os.environ.get("AOT_SWEEP"))
WORDS = (
    "read ctx size dst offset parallel_for pool body arg part parts on_layer observer layer before cycles rows n out input output value error "
    "workspace weights state int class concept co_await typeof NULL main linux stdint uint8_t INT8_C _x __x a a_1 A"
).split()
NAMES = st.one_of(
    st.sampled_from(WORDS), st.text(max_size=12), st.sampled_from(["*/ int x; /*", 'a"b', "a\\", "a\nb", "??/", "ü", "x" * 400])
)
WAYS = (
    {},
    {"threads": 2},
    {"page_weights_nbytes": 4096},
    {"weights": "separate"},
    {"instrument": "hooks"},
    {"instrument": "cycles"},
    {"instrument": "dump"},
    {"io": "workspace"},
    {"regions": {"fast": 4096, "slow": 65536}},
    {"emit": "c", "backend": "generic"},
)
FLAGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only")


def model(names: list[str]) -> bytes:
    """(x + y) as two outputs, which is a constant's sum as well, so that there are weights."""
    m = ModelBuilder()
    x, y, one, two = (m.tensor(name, (1, 4), "int8", scale=0.5, zero_point=-1) for name in names)
    m.operator("ADD", [x, y], [one], {})
    m.operator("RELU", [one], [two])
    return m.build([x, y], [one, two])


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="gcc or g++ is not installed")
@settings(max_examples=600 if SWEEP else 12, deadline=None, derandomize=True)
@given(
    names=st.lists(NAMES, min_size=4, max_size=4),
    bundle=st.one_of(st.none(), NAMES),
    way=st.sampled_from(WAYS),
)
def test_any_names(names: list[str], bundle: str | None, way: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.tflite")
        path.write_bytes(model(names))
        try:
            made = aot.compile(path, "cortex-m4", options=aot.Options(name=bundle, **way))
        except aot.CompileError as error:
            assert bundle is not None and "C library" in str(error), error
            return
        files = artefacts.files(made)
        for name, content in files.items():
            assert re.fullmatch(r"[A-Za-z0-9_.]+", name)
            Path(folder, name).write_bytes(content)
        includes = "".join(f'#include "{name}"\n' for name in files if name.endswith(".h")) * 2
        for compiler, suffix in (("gcc", "c"), ("g++", "cpp")):
            Path(folder, f"all.{suffix}").write_text(includes)
            standard = "-std=c99" if suffix == "c" else "-std=c++20"
            done = subprocess.run(
                [compiler, standard, *FLAGS, f"all.{suffix}"], cwd=folder, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (names, bundle, way, done.stderr)
