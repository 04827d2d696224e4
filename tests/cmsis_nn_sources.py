"""CMSIS-NN itself, to compare with: its sources downloaded, and compiled for a CPU.

Enters: a target. Leaves: `CmsisNn`: folders of headers, an archive, one object with everything in it; or `Unavailable` with the reason.
Invariant: nothing of it is in the repository: it lies in `build/`, made again where it is missing. The download is pinned by its hash.

The PyPI package `bakenn` holds CMSIS-NN 4.0.0's int8 convolutions, depthwise convolutions, fully connected layers and pools. The cross
compiler may have no C library, so the few headers that they include are here, and the functions memcpy and memset, word by word.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from aot.target import Target
from tests.shared import ROOT

PACKAGE, VERSION = "bakenn==1.0.0", "CMSIS-NN 4.0.0"
_SHA256 = "b8251e71a8fc39252df0d308fe9a5837bd86f7a31f1596a7dd4a319196f30e56"
_VENDOR = "bakenn/backend/cmsis_nn/vendor"
_CACHE = ROOT / "build" / "cmsis-nn"
_COMPILER, _ARCHIVER = "arm-none-eabi-gcc", "arm-none-eabi-ar"
_FLAGS = ("-mthumb", "-O3", "-ffreestanding", "-fbuiltin", "-ffunction-sections", "-fdata-sections")
_HEADERS = {
    "string.h": "#include <stddef.h>\nvoid *memcpy(void *, const void *, size_t);\nvoid *memset(void *, int, size_t);\n",
    "math.h": "",
}
_MEMORY = """
#include <stddef.h>
#include <stdint.h>
typedef struct { uint32_t word; } __attribute__((packed, may_alias)) any;
typedef uint32_t __attribute__((may_alias)) aligned;

void *memcpy(void *to, const void *from, size_t n)
{
    uint8_t *d = to;
    const uint8_t *s = from;
    if ((((uintptr_t)d | (uintptr_t)s) & 3) == 0) {
        for (; n >= 16; n -= 16, d += 16, s += 16) {
            uint32_t a = ((const aligned *)s)[0], b = ((const aligned *)s)[1];
            uint32_t e = ((const aligned *)s)[2], f = ((const aligned *)s)[3];
            ((aligned *)d)[0] = a, ((aligned *)d)[1] = b, ((aligned *)d)[2] = e, ((aligned *)d)[3] = f;
        }
        for (; n >= 4; n -= 4, d += 4, s += 4)
            *(aligned *)d = *(const aligned *)s;
    }
#ifdef __ARM_FEATURE_UNALIGNED
    for (; n >= 4; n -= 4, d += 4, s += 4)
        ((any *)d)->word = ((const any *)s)->word;
#endif
    while (n--)
        *d++ = *s++;
    return to;
}

void *memset(void *to, int value, size_t n)
{
    uint8_t *d = to;
    uint32_t word = (uint8_t)value * 0x01010101u;
    for (; n && ((uintptr_t)d & 3); n--)
        *d++ = (uint8_t)value;
    for (; n >= 4; n -= 4, d += 4)
        *(aligned *)d = word;
    while (n--)
        *d++ = (uint8_t)value;
    return to;
}
"""


class Unavailable(Exception):
    """CMSIS-NN can't be had here: why."""


@dataclass(frozen=True)
class CmsisNn:
    """CMSIS-NN for one CPU. `object`: all of it, linked to one relocatable object without undefined symbols."""

    include: tuple[Path, ...]
    flags: tuple[str, ...]
    archive: Path
    object: Path


def require_cmsis_nn(target: Target) -> CmsisNn:
    """CMSIS-NN for the target; skips the test, with the reason, where it can't be had."""
    try:
        return cmsis_nn(target)
    except Unavailable as reason:
        pytest.skip(f"CMSIS-NN: {reason}")


def cmsis_nn(target: Target) -> CmsisNn:
    """CMSIS-NN for the target, from the cache or made now. Unavailable says why it can't be."""
    if shutil.which(_COMPILER) is None:
        raise Unavailable(f"{_COMPILER} is not installed")
    sources = _sources()
    flags = (f"-mcpu={target.cpu}", f"-mfloat-abi={target.float_abi}", *_FLAGS)
    include = (sources / "cmsis_nn" / "Include", sources / "cmsis_core" / "Include", sources / "headers")
    # What it is made of names the folder, so that a change of flags or of this file's C makes another one.
    key = hashlib.sha256(repr((_SHA256, flags, _HEADERS, _MEMORY)).encode()).hexdigest()[:12]
    folder = _CACHE / f"{target.name}-{key}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=_CACHE) as made:
            _compile(sources, (*flags, *(f"-I{path}" for path in include)), Path(made))
            _keep(Path(made), folder)
    return CmsisNn(include, flags, folder / "libcmsis-nn.a", folder / "cmsis-nn.o")


def _sources() -> Path:
    """The folder with CMSIS-NN's sources, downloaded at the first call."""
    folder = _CACHE / f"sources-{_SHA256[:12]}"
    if folder.is_dir():
        return folder
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as name:
        made = Path(name)
        wheel = _download(made)
        with zipfile.ZipFile(wheel) as archive:
            wanted = [member for member in archive.namelist() if member.startswith(f"{_VENDOR}/")]
            archive.extractall(made, wanted)
        sources = made / _VENDOR
        (sources / "headers").mkdir()
        for name, text in _HEADERS.items():
            (sources / "headers" / name).write_text(text)
        (sources / "memory.c").write_text(_MEMORY)
        _keep(sources, folder)
    return folder


def _download(folder: Path) -> Path:
    """The package's wheel: data only, nothing of it is executed."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--retries", "1"]
    command += ["--disable-pip-version-check", "--dest", str(folder), PACKAGE]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = sorted(folder.glob("*.whl"))
    if ended.returncode or not wheels:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        raise Unavailable(f"{PACKAGE} could not be downloaded: {lines[-1] if lines else 'no wheel'}")
    if hashlib.sha256(wheels[0].read_bytes()).hexdigest() != _SHA256:
        raise Unavailable(f"{wheels[0].name} is not the file that was expected")
    return wheels[0]


def _compile(sources: Path, flags: Sequence[str], folder: Path) -> None:
    """Every source to an object, the objects to an archive and to one object."""
    files = [*sorted((sources / "cmsis_nn" / "Source").rglob("arm_*.c")), sources / "memory.c"]
    made = []
    for file in files:
        own = ("-fno-tree-loop-distribute-patterns",) if file.name == "memory.c" else ()  # its loops would call themselves
        made.append(folder / f"{file.stem}.o")
        run_tool(_COMPILER, *flags, *own, "-c", str(file), "-o", str(made[-1]))
    objects = [str(path) for path in made]
    run_tool(_ARCHIVER, "rcsD", str(folder / "libcmsis-nn.a"), *objects)
    run_tool(_COMPILER, *flags, "-r", "-nostdlib", *objects, "-lgcc", "-o", str(folder / "cmsis-nn.o"))
    for path in made:
        path.unlink()


def run_tool(*command: str) -> None:
    """Run a compiler or archiver; Unavailable with what it says if it fails."""
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode:
        raise Unavailable(f"{command[0]} failed: {next(iter(ended.stderr.splitlines()), '')}")


def _keep(made: Path, folder: Path) -> None:
    """Move a folder to its place at once, so that another process sees all of it or nothing; the first one stays."""
    try:
        os.replace(made, folder)
        made.mkdir()  # the temporary folder removes itself
    except OSError:
        if not folder.is_dir():
            raise
