"""The kinds of packages: which files each has, and where.

Enters: a `Package`. Leaves: its files by path. Invariant: paths and fields are what the build system's own specification asks for;
tests/integrations checks them against it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping

from aot.errors import CompileError
from aot.integrations.package import Files, Package, within

_NO_LIBRARY = "the object calls {library}, which this package has no way to name: take --kernels native"
_STACK_NBYTES = 1024
"""What a sample's main function and the system's printing need of the stack besides the entry."""


def zephyr(package: Package) -> Files:
    """A Zephyr module: zephyr/module.yml, Kconfig and CMakeLists.txt, and a sample.

    Source: Zephyr's documentation, Modules (External projects); the schema in its scripts/zephyr_module.py.
    """
    sample = f"samples/{package.name}"
    stack_nbytes = _STACK_NBYTES + (package.bundle.main.stack_nbytes or 0)
    return {
        "zephyr/module.yml": package.render("zephyr/module.yml.j2"),
        "zephyr/Kconfig": package.render("zephyr/Kconfig.j2"),
        "zephyr/CMakeLists.txt": package.render("zephyr/CMakeLists.txt.j2"),
        **within("include", package.headers),
        **within("lib", package.library),
        **within("src", package.sources),
        **within("weights", package.weights),
        f"{sample}/CMakeLists.txt": package.render("zephyr/sample.cmake.j2"),
        f"{sample}/prj.conf": package.render("zephyr/prj.conf.j2", stack_nbytes=-(-stack_nbytes // 1024) * 1024),
        f"{sample}/sample.yaml": package.render("zephyr/sample.yaml.j2"),
        f"{sample}/src/main.c": package.render("zephyr/main.c.j2"),
        **within(f"{sample}/src", package.sample),
    }


def arduino(package: Package) -> Files:
    """An Arduino library of revision 1.5: headers and C files in src, the object as a precompiled library in src/MCU, an example.

    Source: Arduino's library specification.
    """
    require_no_library(package)
    example = f"examples/{package.name}"
    return {
        "library.properties": package.render("arduino/library.properties.j2"),
        **within("src", package.headers | package.sources),
        **within(f"src/{package.cpu}", package.library),
        **within("extras", package.weights),
        f"{example}/{package.name}.ino": package.render("arduino/example.ino.j2"),
        **within(example, package.sample),
    }


def platformio(package: Package) -> Files:
    """A PlatformIO library: library.json, whose flags name the static library, and an example.

    Source: PlatformIO's documentation, library.json.
    """
    require_no_library(package)
    example = f"examples/{package.name}"
    sample = {"main.c": package.render("platformio/main.c.j2"), **package.sample}
    link = {"flags": [f"-Llib/{package.cpu}", f"-l{package.name}"]} if package.linked else {}
    manifest = {
        "name": f"aot_{package.name}",
        "version": package.version,
        "description": package.sentence,
        "keywords": ["neural network", "inference", "tinyml"],
        "frameworks": "*",
        "platforms": "*",
        "headers": [f"{package.name}.h"],
        "examples": [{"name": package.name, "base": example, "files": sorted(sample)}],
        "build": {"includeDir": "include", "srcDir": "src", **link},
    }
    return {
        "library.json": (json.dumps(manifest, indent=2) + "\n").encode(),
        **within("include", package.headers),
        **within("src", package.sources),
        **within(f"lib/{package.cpu}", package.library),
        **within("weights", package.weights),
        **within(example, sample),
    }


CORES: Mapping[str, str] = {
    "cortex-m0": "Cortex-M0",
    "cortex-m0plus": "Cortex-M0+",
    "cortex-m3": "Cortex-M3",
    "cortex-m4": "Cortex-M4",
    "cortex-m7": "Cortex-M7",
    "cortex-m23": "Cortex-M23",
    "cortex-m33": "Cortex-M33",
    "cortex-m55": "Cortex-M55",
    "cortex-m85": "Cortex-M85",
}
"""Cores as CMSIS-Pack calls them."""
VENDOR = "aot"


def cmsis_pack(package: Package) -> Files:
    """A CMSIS-Pack: its description (.pdsc), what that names, and all of it zipped as VENDOR.NAME.VERSION.pack.

    Source: the Open-CMSIS-Pack specification, and its schema PACK.xsd.
    """
    contents = {
        f"{VENDOR}.{package.name}.pdsc": package.render(
            "cmsis-pack/package.pdsc.j2",
            vendor=VENDOR,
            core=CORES.get(package.bundle.target.cpu) if package.linked else None,
            headers=sorted(package.headers),
            sources=sorted(package.sources),
            libraries=sorted(package.library) if package.linked else [],
            weights=sorted(package.weights),
            samples=sorted(package.sample),
        ),
        **within("include", package.headers),
        **within("src", package.sources),
        **within("lib", package.library),
        **within("weights", package.weights),
        **within("sample", package.sample),
    }
    return {**contents, f"{VENDOR}.{package.name}.{package.version}.pack": zipped(contents)}


def zipped(contents: Mapping[str, bytes]) -> bytes:
    """A zip archive without times of its own: equal files give equal bytes (they are stored, so that no release of zlib matters)."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as target:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            target.writestr(entry, contents[name])
    return stream.getvalue()


def require_no_library(package: Package) -> None:
    """CompileError if the object needs a library that its package can't ask for."""
    notes = package.bundle.library_notes
    if notes is not None and package.bundle.library and not notes.reference:
        raise CompileError(_NO_LIBRARY.format(library=notes.name))


KINDS: Mapping[str, Callable[[Package], Files]] = {
    "zephyr": zephyr,
    "arduino": arduino,
    "platformio": platformio,
    "cmsis-pack": cmsis_pack,
}
"""By name what makes them."""
