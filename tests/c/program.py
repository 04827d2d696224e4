"""A bundle's C as a program of its own, with sanitizers: one process for each call of one of its functions.

Enters: a bundle of C files, a compiler. Leaves: what the regions hold after a run.
Invariant: each region is a block of the heap of exactly its size, so that the address sanitizer sees what is read or written beside it; the
C must compile without a warning.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aot.bundle import Bundle, Entry
from aot.run import memory
from aot.run.compiled import write_sources
from aot.run.memory import CONTEXT, READ, ROWS, Region

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")
SANITIZERS = {
    "gcc": ("-O1", "-g0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "clang": ("-O1", "-g0", "-fsanitize=undefined", "-fsanitize-trap=undefined"),
}
"""What each compiler checks at run time; clang's traps need no library, which is not installed everywhere."""
_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "NAME.h"

static unsigned char *pages;
static unsigned char *regions[64];

int read_pages(void *ctx, uint32_t offset, uint32_t size, void *dst);
int read_pages(void *ctx, uint32_t offset, uint32_t size, void *dst)
{
    (void)ctx;
    if (size) {
        memcpy(dst, pages + offset, size);
    }
    return 0;
}

static unsigned char *taken(FILE *file, size_t size)
{
    unsigned char *block = malloc(size ? size : 1);
    if (!block || fread(block, 1, size, file) != size) {
        exit(3);
    }
    return block;
}

int main(int argc, char **argv)
{
    const uint32_t number = (uint32_t)atoi(argv[2]);
    int code = 4;
    int count = argc - 4;
    FILE *file = fopen(argv[3], "r+b");
    (void)number;
    pages = taken(file, (size_t)atoi(argv[4]));
    for (int i = 1; i < count; i++) {
        regions[i - 1] = taken(file, (size_t)atoi(argv[4 + i]));
    }
CALLS
    rewind(file);
    for (int i = 1; i < count; i++) {
        fwrite(regions[i - 1], 1, (size_t)atoi(argv[4 + i]), file);
        free(regions[i - 1]);
    }
    free(pages);
    fclose(file);
    return code;
}
"""


def compilers() -> dict[str, list[str]]:
    """The C compilers of this machine: gcc, clang, and zig's clang where there is no other."""
    found = {name: [path] for name in ("gcc", "clang") if (path := shutil.which(name))}
    return found if "clang" in found else {**found, "clang": [sys.executable, "-m", "ziglang", "cc"]}


@dataclass
class Program:
    """The compiled program. flags: besides those for warnings."""

    bundle: Bundle
    folder: Path
    command: Sequence[str]
    flags: Sequence[str]

    def __post_init__(self) -> None:
        sources = write_sources(self.bundle, self.folder)
        calls = [self._case(entry) for entry in (*self.bundle.entries, *(model.init for model in self.bundle.parts if model.init))]
        text = _MAIN.replace("NAME", self.bundle.name).replace("CALLS", "\n".join(calls))
        (self.folder / "main.c").write_text(text)
        objects = []
        for name in sources:
            objects.append(f"{name}.o")
            self._compile([*WARNINGS, *self.flags, "-c", name, "-o", objects[-1]])
        self._compile(["-std=c99", *self.flags, "main.c", *objects, "-o", "program"])

    def _compile(self, words: Sequence[str]) -> None:
        done = subprocess.run([*self.command, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr

    def _case(self, entry: Entry) -> str:
        """The calls of an entry's functions, on regions in the order of their parameters."""
        names = ["symbol"]
        garbage = [np.zeros(port.shape, port.dtype.np) for port in entry.inputs]
        if memory.takes_state(entry):
            garbage.append(np.zeros(entry.state_nbytes, np.uint8))
        model = self.bundle.model_of(entry)
        _, calls = memory.arguments(model, entry, garbage, 0)
        lines = []
        for call in {call.symbol: call for call in calls}.values():
            number = iter(range(len(names) + 64))
            words = []
            for one in call.arguments:
                if isinstance(one, int):
                    words.append("number")
                else:
                    words.append({READ: "read_pages", CONTEXT: "NULL"}.get(one) or f"(void *)regions[{next(number)}]")
            lines.append(
                f'    if (strcmp(argv[1], "{call.symbol}") == 0) {{\n        code = {call.symbol}({", ".join(words)});\n    }}'
            )
        return "\n".join(lines)

    def call(self, symbol: str, number: int, contents: Sequence[bytes]) -> list[bytes]:
        """Call a function; returns what the regions hold then."""
        pages = self.bundle.pages or b""
        path = self.folder / "memory.bin"
        path.write_bytes(b"".join([pages, *contents]))
        sizes = [str(len(each)) for each in (pages, *contents)]
        words = ["./program", symbol, str(number), path.name, *sizes]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        assert not done.returncode, f"{symbol}: {done.returncode}\n{done.stderr}"
        data, held = path.read_bytes(), []
        for each in contents:
            held.append(data[: len(each)])
            data = data[len(each) :]
        return held

    def run(self, inputs: Sequence[np.ndarray], entry: Entry | None = None, state: bytes = b"") -> tuple[list[np.ndarray], bytes]:
        """A run of an entry: its outputs, and the state after it."""
        entry = entry or self.bundle.main
        model = self.bundle.model_of(entry)
        if memory.takes_state(entry) and not state:
            assert model.init is not None
            state = self.run([], model.init)[1]
        given = [*inputs, np.frombuffer(state, np.uint8)] if memory.takes_state(entry) else list(inputs)
        regions, calls = memory.arguments(model, entry, given, 1)
        held = {region.name: region.content for region in regions}
        for call in calls:
            if ROWS in call.arguments:
                held[ROWS] = call.rows
            names = [one for one in call.arguments if isinstance(one, str) and one not in (READ, CONTEXT)]
            number = next((one for one in call.arguments if isinstance(one, int)), 0)
            after = dict(zip(names, self.call(call.symbol, number, [held[name] for name in names]), strict=True))
            self._check(regions, held, after)
            held |= after
        outputs = list(memory.outputs(model, entry, held))
        return (outputs[:-1], outputs[-1].tobytes()) if entry.state_nbytes else (outputs, b"")

    def _check(self, regions: Sequence[Region], before: dict[str, bytes], after: dict[str, bytes]) -> None:
        for region in regions:
            if not region.writable and region.name in after:
                assert before[region.name] == after[region.name], f"{region.name} was written"
