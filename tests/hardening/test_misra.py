"""The header keeps to MISRA C:2012, as far as cppcheck can tell, but for the deviations that docs/misra.md lists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aot import artefacts
from aot.bundle import Bundle
from aot.driver import Options, compile
from tests.cli.test_custom import hard_shrink
from tests.hardening.features import FEATURES, bundle_of
from tests.shared import ROOT

needs_cppcheck = pytest.mark.skipif(shutil.which("cppcheck") is None, reason="cppcheck is not installed (apt-get install cppcheck)")
SWEEP = bool(os.environ.get("AOT_SWEEP"))
SAMPLED = ("rows, io in the workspace", "weights in a region, from separate ones")
ADDON = ["cppcheck", "--addon=misra", "--enable=style", "--std=c99", "--quiet", "--suppress=missingIncludeSystem"]


def deviations(folder: Path, bundle: Bundle) -> set[tuple[str, str]]:
    """(rule, file) of all that cppcheck reports; the bundle's own name is NAME."""
    for name, content in artefacts.files(bundle).items():
        if name.endswith(".h"):
            (folder / name).write_bytes(content)
    return reported(folder, f'#include "{bundle.name}.h"\n', bundle.name)


def reported(folder: Path, source: str, name: str = "NAME") -> set[tuple[str, str]]:
    (folder / "use.c").write_text(source)
    done = subprocess.run([*ADDON, "--template={file} {id}", "use.c"], cwd=folder, capture_output=True, text=True, check=True)
    found = re.findall(r"^(\S+) misra-c2012-([0-9.]+)$", done.stderr, re.MULTILINE)
    other = [line for line in done.stderr.splitlines() if line and "misra-c2012" not in line]
    assert not [line for line in other if not line.endswith("unusedFunction")], other
    return {(rule, re.sub(rf"^{name}\.h$", "NAME.h", file)) for file, rule in found}


def listed() -> set[tuple[str, str]]:
    """The deviations of docs/misra.md."""
    return set(re.findall(r"^\| ([0-9.]+) \| `([^`]+)` \| ", (ROOT / "docs/misra.md").read_text(), re.MULTILINE))


@needs_cppcheck
def test_deviations_are_those_of_the_documentation(tmp_path: Path) -> None:
    found: set[tuple[str, str]] = set()
    for number, feature in enumerate(FEATURES if SWEEP else SAMPLED):
        folder = tmp_path / str(number)
        folder.mkdir()
        found |= deviations(folder, bundle_of(feature))
    model = tmp_path / "shrink.tflite"
    model.write_bytes(hard_shrink("int8"))
    found |= deviations(tmp_path, compile(model, options=Options(target="cortex-m4", custom={"HardShrink": "hard_shrink"})))
    assert found == listed()


@needs_cppcheck
def test_a_deviation_is_noticed(tmp_path: Path) -> None:
    assert ("15.5", "use.c") in reported(tmp_path, "int f(int x);\nint f(int x) { if (x > 0) { return 1; } return 0; }\n")
