"""The folder in which a reader of the documentation types: the files that its commands name.

Enters: an empty folder, a page. Leaves: the folder with models and data of the project's own. Invariant: no real model is needed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

import aot
from aot.dump import reference
from aot.instrument import fingerprint
from tests.builder import ModelBuilder
from tests.shared import ROOT

_BUNDLES = ROOT / "bundles"
_APPLICATION = """#include "model.h"
static uint8_t workspace[MODEL_WORKSPACE_SIZE] __attribute__((aligned(MODEL_WORKSPACE_ALIGN)));
int main(void) {
    static int8_t input[MODEL_INPUT_0_SIZE], output[MODEL_OUTPUT_0_SIZE];
    return model_run(input, output, workspace);
}
"""


def furnish(folder: Path, page: str) -> None:
    """Put into the folder what the commands of a page expect to find."""
    for name, sample in {"model": "digits", "wake": "sine", "speech": "digits", "digits": "digits"}.items():
        shutil.copy(_BUNDLES / sample / f"{sample}.tflite", folder / f"{name}.tflite")
    shutil.copytree(_BUNDLES, folder / "bundles", ignore=shutil.ignore_patterns("__pycache__", "build"))
    shutil.copy(_BUNDLES / "digits" / "golden.npz", folder / "golden.npz")
    (folder / "images").mkdir()
    with np.load(folder / "golden.npz") as golden:
        np.savez(folder / "in.npz", in0=golden["in0_0"])
        golden["in0_0"].tofile(folder / "input.bin")
        np.savetxt(folder / "labels.txt", golden["labels"], "%d")
        for number in range(len(golden["labels"])):
            np.save(folder / "images" / f"{number:02}.npy", golden[f"in0_{number}"])
    (folder / "app.c").write_text(_APPLICATION)
    if page in ("docs/instrument.md", "aot diff-dump --help"):
        (folder / "dump.txt").write_text(_dump(folder))
    if page == "aot check --help":
        aot.write(aot.compile(folder / "model.tflite"), folder / "out")
    if page == "docs/custom.md":
        (folder / "model.tflite").write_bytes(_shrinking())


def _dump(folder: Path) -> str:
    """A dump of the model for a Cortex-M4, of a run on the first sample of the golden file, in which all is right."""
    entry = aot.compile(folder / "model.tflite", "cortex-m4", options=aot.Options(instrument="dump")).main
    with np.load(folder / "golden.npz") as golden:
        tensors = reference(entry, [golden["in0_0"]], {})
    lines = [f"@dump {entry.symbol} {fingerprint(entry.tensors):08x}"]
    for number, (content,) in tensors.items():
        lines += [f"@tensor {number:08x} {content.nbytes:08x}", f"@ {content.tobytes().hex()}"]
    return "\n".join([*lines, "@end", ""])


def _shrinking() -> bytes:
    """A model of the custom operator of that page."""
    m = ModelBuilder()
    x, y = m.tensor("x", (1, 4), "float32"), m.tensor("y", (1, 4), "float32")
    m.operator("CUSTOM", [x], [y], custom_code="HardShrink", custom_options=np.float32(0.5).tobytes())
    return m.build([x], [y])
