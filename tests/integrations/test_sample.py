"""The packages' sample calls whatever interface a bundle has, and finds the same class as the bundle does when aot runs it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.artefacts import write
from aot.driver import Options
from aot.errors import CompileError
from aot.graph.ir import DType
from aot.integrations import Package, package_files
from aot.integrations.sample import array_text
from aot.run import run_bundle
from tests.graph.stateful import accumulator, initialiser, model
from tests.integrations.firmware import BUNDLES, need, run

REGIONS = {"fast": 4096, "slow": 65536}
CASES = {
    "plain": Options(),
    "regions, separate weights, loaded": Options(regions=REGIONS, weights_in="fast", weights="separate"),
    "pages": Options(page_weights_nbytes=4096),
    "C, rows": Options(emit="c", backend="generic", stream_input=True),
    "in the workspace": Options(io="workspace"),
    "in regions": Options(regions=REGIONS, io="workspace"),
    "separate weights": Options(weights="separate"),
    "rows, in the workspace": Options(stream_input=True, io="workspace"),
    "threads": Options(threads=2),
    "both": Options(emit="both", backend="generic"),
    "hooks": Options(instrument="hooks"),
}
QUICK = list(CASES)[1:4]


def found(bundle: aot.Bundle, inputs: list[np.ndarray], folder: Path) -> int:
    """What the sample of a package for this machine prints, built as strict C99."""
    write(bundle, folder, package_files(Package(bundle, inputs=inputs), ["platformio"]))
    package = folder / f"{bundle.name}-platformio"
    sources = [*sorted((package / "examples").rglob("*.c")), *sorted((package / "src").glob("*.c"))]
    libraries = [] if bundle.sources else sorted((package / "lib").rglob("*.a"))
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{package}/include"]
    run(["gcc", *strict, *sources, *libraries, "-o", folder / "sample"], folder)
    return int(run([folder / "sample"], folder).removeprefix(f"{bundle.name}: class "))


@pytest.mark.parametrize("case", CASES if os.environ.get("AOT_SWEEP") else QUICK)
def test_sample_of_each_interface(tmp_path: Path, case: str) -> None:
    need("gcc")
    golden = np.load(BUNDLES / "digits" / "golden.npz")
    bundle = aot.compile(BUNDLES / "digits" / "digits.tflite", options=CASES[case])
    assert found(bundle, [golden["in0_7"]], tmp_path) == int(golden["out0_7"].argmax()) == 7


def test_sample_of_a_bundle_that_counts(tmp_path: Path) -> None:
    """It passes an array for the counters: null would be refused."""
    need("arm-none-eabi-gcc")
    bundle = aot.compile(BUNDLES / "digits" / "digits.tflite", options=Options(target="cortex-m4", instrument="cycles"))
    write(bundle, tmp_path, package_files(Package(bundle), ["platformio"]))
    package = tmp_path / "digits-platformio"
    (source,) = package.rglob("digits_sample.c")
    assert "memory_0, cycles);" in source.read_text()
    flags = ["-mcpu=cortex-m4", "-mthumb", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{package}/include"]
    run(["arm-none-eabi-gcc", *flags, "-c", source, "-o", tmp_path / "sample.o"], tmp_path)


def test_sample_of_a_model_with_state(tmp_path: Path) -> None:
    """The state is filled first: the running total begins with the variable's own first content."""
    need("gcc")
    path = tmp_path / "keeper.tflite"

    def main(sub):
        sub.call_once(1)
        (x,), (total,) = accumulator(sub)
        return [x], [total]

    path.write_bytes(model(main, initialiser(1, 2, 9, 4)))
    bundle = aot.compile(path)
    (port,) = bundle.main.inputs
    inputs = [np.zeros(port.shape, port.dtype.np)]
    wanted = run_bundle(bundle, inputs).outputs[0]
    assert wanted.argmax() > 0
    assert found(bundle, inputs, tmp_path) == int(wanted.argmax())


def test_numbers_are_read_back_as_they_were() -> None:
    for dtype, values in {
        DType.FLOAT32: [0.1, -1e-45, 3.4e38, 1.0],
        DType.INT64: [-(1 << 63), (1 << 63) - 1],
        DType.UINT32: [(1 << 32) - 1],
    }.items():
        array = np.array(values, dtype.np)
        texts = array_text(array, dtype).replace("\n", " ").split(", ")
        read = [eval(text.rstrip("fu").replace("ll", "")) for text in texts]
        assert np.array_equal(np.array(read, dtype.np), array)


def test_infinity_has_no_name() -> None:
    with pytest.raises(CompileError, match="is not finite"):
        array_text(np.array([np.inf], np.float32), DType.FLOAT32)
