"""PlatformIO itself builds the example with the library, and the firmware prints the right class on QEMU.

Its platforms and compilers come from a registry: a platform of our own (`platformio/platform`) names the compiler that is installed. Its build
tool is SCons, which is PyPI's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.firmware import BUNDLES, CPU, STAND_INS, need, printed

PLATFORM = Path(__file__).parent / "platformio" / "platform"


def core_folder(folder: Path) -> Path:
    """PlatformIO's own folder, in which SCons is the package that it would install."""
    dependencies = pytest.importorskip("platformio.dependencies", reason="needs PlatformIO's core: pip install platformio")
    pytest.importorskip("SCons", reason="needs SCons: pip install scons")
    version = dependencies.get_core_dependencies()["tool-scons"].lstrip("~^")
    tool = folder / "packages" / "tool-scons"
    tool.mkdir(parents=True)
    (tool / "package.json").write_text(json.dumps({"name": "tool-scons", "version": version}))
    spec = {"owner": "platformio", "id": None, "name": "tool-scons", "requirements": None, "uri": None}
    (tool / ".piopm").write_text(json.dumps({"type": "tool", "name": "tool-scons", "version": version, "spec": spec}))
    (tool / "scons.py").write_text("import SCons.Script\n\nSCons.Script.main()\n")
    return folder


def test_platformio_builds_the_example(tmp_path: Path, seven: Path) -> None:
    need("arm-none-eabi-gcc")
    core = core_folder(tmp_path / "core")
    library = seven / "digits-platformio"
    project = tmp_path / "project"
    shutil.copytree(library / "examples" / "digits", project / "src")
    (project / "platformio.ini").write_text(f"[env:m4]\nplatform = symlink://{PLATFORM}\nlib_deps = symlink://{library}\n")
    settings = {
        "PLATFORMIO_CORE_DIR": str(core),
        "PLATFORMIO_SETTING_ENABLE_TELEMETRY": "no",
        "AOT_FIRMWARE": str(BUNDLES / "firmware"),
        "AOT_STAND_INS": str(STAND_INS),
        "AOT_CPU": " ".join(CPU),
    }
    command = [sys.executable, "-m", "platformio", "run", "-d", str(project)]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert printed(project / ".pio" / "build" / "m4" / "firmware.elf", 1) == ["digits: class 7"]
