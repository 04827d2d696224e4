"""Library mode: bundles that call CMSIS-NN, linked with it and run, give TFLite Micro's bytes; what it can't do falls back with a sentence.

Convolutions, dense layers and pools are CMSIS-NN's own code; softmax, sums, products and SVDF, which the download lacks, are
`library_rest.c`. AOT_SWEEP=1 adds cores, models, random layers, and a run of every layer alone between guards.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.artefacts import files
from aot.backends.cmsis_nn.library.facts import (
    average_scratch,
    convolution_scratch,
    core_of,
    depthwise_scratch,
    takes_one_row_path,
)
from aot.backends.library.call import Words, library_call
from aot.bundle import Bundle
from aot.driver import Options, read_main_graph
from aot.errors import CompileError, InternalError
from aot.graph.interpreter import run
from aot.graph.primitive import Geometry
from aot.run import run_bundle
from aot.run.linking import link
from aot.samples import golden_samples
from aot.target import load_target
from aot.verify import verify
from tests import one_operator
from tests.backends import library_layers as layers
from tests.backends.library_layers import Layer, binary, convolution, dense, depthwise, pool, side_by_side, softmax
from tests.builder import ModelBuilder
from tests.cmsis_nn_sources import require_cmsis_nn
from tests.one_operator import T, conv2d, custom, random_inputs
from tests.shared import ROOT, golden, model

SWEEP = bool(os.environ.get("AOT_SWEEP"))
CPUS = ("cortex-m4", "cortex-m3", "cortex-m55", *(("cortex-m0", "cortex-m7", "cortex-m33") if SWEEP else ()))
LIBRARY = Options(kernels="library")

CONVOLUTIONS = (
    *(convolution((1, 5, 5, 3), 8, (3, 3)), convolution((1, 5, 5, 4), 7, (3, 3), (2, 2)), convolution((1, 6, 5, 1), 5, (3, 3))),
    *(convolution((2, 4, 4, 5), 3, (3, 3)), convolution((1, 7, 7, 2), 3, (3, 3), (1, 1), "SAME", (2, 2))),
    *(convolution((1, 4, 4, 8), 8), convolution((1, 4, 4, 7), 5), convolution((1, 5, 5, 16), 4, (1, 1), (2, 2))),
    *(convolution((3, 3, 3, 5), 9), convolution((1, 1, 1, 17), 3), convolution((1, 3, 3, 33), 2, (3, 3), (1, 1), "VALID")),
    *(convolution((1, 1, 9, 4), 6, (1, 3)), convolution((1, 1, 9, 3), 6, (1, 3)), convolution((1, 9, 1, 4), 6, (3, 1))),
    *(convolution((1, 1, 10, 4), 6, (1, 4), (1, 2), "VALID"), convolution((1, 1, 11, 4), 5, (1, 5), (1, 2))),
    *(convolution((1, 2, 2, 3), 4, (5, 5)), convolution((1, 5, 4, 2), 3, (3, 2), (3, 1)), convolution((1, 4, 4, 16), 17, (3, 3))),
    *(convolution((1, 4, 4, 3), 4, (3, 3), zero_points=pair) for pair in ((-128, -128), (127, 127), (-1, 0))),
    convolution((1, 4, 4, 3), 4, (3, 3), bias=False, activation="RELU"),
    *(convolution((1, 4, 4, 3), 4, (2, 2), factor=factor) for factor in (3.0, 200.0)),
    convolution((1, 3, 3, 4), 3, (3, 3), extreme=True),
    *(convolution((1, 3, 4, 5), 4, (3, 2), (2, 1), "VALID", pads=pads) for pads in ((3, 0, 1, 2), (0, 2, 2, 0))),
    convolution((1, 1, 7, 4), 4, (1, 3), (1, 2), "VALID", pads=(0, 0, 3, 0)),
)
DEPTHWISE = (
    *(depthwise((1, 5, 5, 4)), depthwise((1, 5, 5, 3), 1, (3, 3), (2, 2)), depthwise((1, 5, 5, 8), 1, (3, 3), (1, 1), "VALID")),
    *(
        depthwise((1, 6, 6, 5), 1, (5, 5)),
        depthwise((1, 4, 4, 2), 3),
        depthwise((1, 3, 3, 2), 4),
        depthwise((2, 4, 4, 6)),
        depthwise((1, 4, 4, 7), 2, (2, 2)),
    ),
    *(depthwise((1, 5, 5, 1), 8), depthwise((1, 5, 5, 1), 9), depthwise((1, 25, 5, 1), 16, (10, 4), (2, 2))),
    *(depthwise((1, 6, 6, 4), 1, (3, 3), (1, 1), "SAME", (2, 2)), depthwise((1, 3, 3, 17)), depthwise((1, 3, 3, 130), bias=False)),
    *(depthwise((1, 3, 5, 6), 1, (1, 3)), depthwise((1, 2, 2, 4)), depthwise((1, 1, 6, 5)), depthwise((1, 3, 3, 4), 1, (7, 7))),
    *(depthwise((1, 3, 3, 9), zero_points=(-128, 127)), depthwise((1, 4, 4, 4), bias=False, activation="RELU6")),
    *(depthwise((1, 3, 3, 2), 4), depthwise((1, 3, 3, 4), extreme=True), depthwise((1, 6, 6, 8), 1, (4, 4))),
    *(depthwise((1, 3, 4, 5), 1, (3, 2), (2, 1), "VALID", pads=pads) for pads in ((2, 0, 1, 1), (0, 2, 1, 0))),
)
OTHERS = (
    *(
        dense(1, 16, 8),
        dense(1, 7, 5),
        dense(3, 33, 9),
        dense(2, 10, 4, per_channel=True),
        dense(1, 5, 1),
        dense(1, 15, 3, bias=False),
    ),
    *(
        dense(1, 64, 10, zero_points=(-128, -128)),
        dense(1, 200, 13, zero_points=(127, 127)),
        dense(5, 4, 2, per_channel=True, bias=False),
    ),
    *(pool(f"{kind}_POOL_2D", (1, 6, 6, 4), (2, 2), (2, 2)) for kind in ("AVERAGE", "MAX")),
    *(pool(f"{kind}_POOL_2D", (1, 5, 5, 19), (3, 3), (2, 1), activation="RELU") for kind in ("AVERAGE", "MAX")),
    *(pool(f"{kind}_POOL_2D", (1, 3, 3, 1), (5, 5), (1, 1)) for kind in ("AVERAGE", "MAX")),
    *(pool(f"{kind}_POOL_2D", (1, 4, 5, 17), (4, 5), (1, 1), "VALID") for kind in ("AVERAGE", "MAX")),
    *(binary(op, shape) for op in ("ADD", "MUL") for shape in ((1, 3, 3, 7), (1,))),
    *(binary("ADD", (4,), zero_points=(-128, 127, -128)), binary("ADD", (1, 37), scales=(0.3, 0.001, 0.3))),
    *(binary("MUL", (5,), zero_points=(-128, 127, 0)), binary("MUL", (9,), scales=(0.05, 0.07, 0.0001))),
    *(binary("ADD", (1, 21), "int16", scales=(0.001, 0.002, 0.003)), binary("MUL", (1, 21), "int16", scales=(0.001, 0.002, 0.07))),
    *(softmax((1, 10)), softmax((3, 12), 0.01), softmax((2, 7), 1.0), softmax((1, 511), 0.05), softmax((1, 1))),
    *(softmax((2, 9), 0.2, ("int8", "int16")), softmax((2, 8), 0.001, ("int16", "int16")), softmax((2, 5), 0.2, beta=0.5)),
)
CASES = (*CONVOLUTIONS, *DEPTHWISE, *OTHERS)


def objects(cpu: str, tmp_path: Path) -> tuple[Path, ...]:
    """CMSIS-NN and what it lacks, compiled for a CPU; the compiler's own routines."""
    library = require_cmsis_nn(load_target(cpu))
    source, out = Path(__file__).with_name("library_rest.c"), tmp_path / f"rest-{cpu}.o"
    flags = [*library.flags, "-O2", "-Wall", "-fno-tree-loop-distribute-patterns", *(f"-isystem{path}" for path in library.include)]
    gcc("-Werror", *flags, "-c", str(source), "-o", str(out))
    return library.object, out, Path(gcc(*library.flags, "-print-libgcc-file-name").strip())


def gcc(*arguments: str) -> str:
    done = subprocess.run(["arm-none-eabi-gcc", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiled(data: bytes, folder: Path, cpu: str = "cortex-m4", **options) -> Bundle:
    (folder / "model.tflite").write_bytes(data)
    return aot.compile(folder / "model.tflite", cpu, options=replace(LIBRARY, **options))


def check(cases: Sequence[Layer], cpu: str, folder: Path, seed: int = 0, **options) -> Bundle:
    """Layers side by side, every one a call: the interpreter's bytes."""
    if cpu == "cortex-m55" and shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    data = side_by_side(cases, seed)
    bundle, inputs = compiled(data, folder, cpu, **options), random_inputs(data, seed)
    assert all(layer.kernel.startswith("library ") for layer in bundle.main.layers), [
        str(layer.declined) for layer in bundle.main.layers
    ]
    expected = run(read_main_graph(folder / "model.tflite", LIBRARY), inputs)
    result = run_bundle(link(bundle, objects(cpu, folder)), inputs)
    wrong = [number for number, pair in enumerate(zip(result.outputs, expected, strict=True)) if not np.array_equal(*pair)]
    assert not wrong, f"layers {wrong} differ"
    return bundle


@pytest.mark.parametrize("cpu", CPUS)
def test_layers(cpu: str, tmp_path: Path) -> None:
    bundle = check(CASES, cpu, tmp_path)
    assert bundle.functions == () and "arm_convolve_wrapper_s8" in bundle.library


@pytest.mark.parametrize("options", [{"weights": "separate"}, {"io": "workspace"}, {"position_independent": True}], ids=str)
def test_options(options: dict, tmp_path: Path) -> None:
    check((CASES[0], DEPTHWISE[3], OTHERS[0], softmax((2, 8), 0.001, ("int16", "int16"))), "cortex-m4", tmp_path, **options)


@pytest.mark.parametrize("cpu", CPUS if SWEEP else ("cortex-m4", "cortex-m55"))
def test_a_layer_alone_between_guards(cpu: str, tmp_path: Path) -> None:
    """Its scratch is all of the workspace, its weights all constants: both end where the emulated memory does."""
    few = {"cortex-m4": (CONVOLUTIONS[0], CONVOLUTIONS[18], DEPTHWISE[3], OTHERS[9]), "cortex-m55": (CONVOLUTIONS[0], DEPTHWISE[3])}
    for number, case in enumerate(CASES if SWEEP else few[cpu]):
        check([case], cpu, tmp_path, number)


SIZES = """
#include "aot_custom.h"
#include "arm_nnfunctions.h"
int sizes(const aot_custom_call *call) {
    const int32_t *g = call->inputs[0].data, *end = g + call->inputs[0].nbytes / 4;
    for (int32_t *out = call->outputs[0].data; g < end; g += 18, out += 3) {
        const cmsis_nn_dims in = {g[0], g[1], g[2], g[3]}, made = {g[4], g[5], g[6], g[7]};
        const cmsis_nn_dims filter = {g[7], g[8], g[9], g[3]}, separate = {1, g[8], g[9], g[7]};
        const cmsis_nn_conv_params conv = {0, 0, {g[11], g[10]}, {g[15], g[14]}, {g[13], g[12]}, {-128, 127}};
        const cmsis_nn_dw_conv_params depthwise = {0, 0, g[16], {g[11], g[10]}, {g[15], g[14]}, {g[13], g[12]}, {-128, 127}};
        out[0] = arm_convolve_wrapper_s8_get_buffer_size(&conv, &in, &filter, &made);
        out[1] = arm_depthwise_conv_wrapper_s8_get_buffer_size(&depthwise, &in, &separate, &made);
        out[2] = arm_avgpool_s8_get_buffer_size(g[6], g[3]);
    }
    return 0;
}
"""


def random_geometry(rng: np.random.Generator) -> Geometry:
    kernel, stride, dilation = (tuple(rng.choice(values, 2).tolist()) for values in ([1, 1, 3, 3, 5], [1, 1, 2], [1, 1, 1, 2]))
    (h, w), depth, multiplier = rng.integers(1, 9, 2).tolist(), int(rng.integers(2, 140)), int(rng.choice([1, 1, 2]))
    pads = (int(rng.integers(0, kernel[0])), int(rng.integers(0, kernel[1])))
    output = (1, h, w, depth * multiplier)
    return Geometry("conv", (1, h, w, depth), output, kernel, stride, dilation, *pads, multiplier=multiplier)


@pytest.mark.parametrize("cpu", CPUS)
def test_scratch_is_what_the_library_asks_for(cpu: str, tmp_path: Path) -> None:
    """Our sizes beside those of the library's own functions: never less, and more by no more than what later releases ask for."""
    if cpu == "cortex-m55" and shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    library, core, rng = require_cmsis_nn(load_target(cpu)), core_of(load_target(cpu)), np.random.default_rng(3)
    (tmp_path / "sizes.c").write_text(SIZES)
    include = [f"-isystem{path}" for path in (*library.include, ROOT / "aot" / "templates")]
    gcc(*library.flags, *include, "-c", str(tmp_path / "sizes.c"), "-o", str(tmp_path / "sizes.o"))
    found = [random_geometry(rng) for _ in range(300)]
    rows = [(*g.input, *g.output, *g.kernel, *g.stride, *g.dilation, g.pad_top, g.pad_left, g.multiplier, 0) for g in found]
    data = custom("Sizes", [T((len(rows), 18), "int32")], [T((len(rows), 3), "int32")])
    bundle = compiled(data, tmp_path, cpu, custom={"Sizes": "sizes"})
    (theirs,) = run_bundle(link(bundle, [tmp_path / "sizes.o", library.object]), [np.array(rows, np.int32)]).outputs
    for geometry, (conv, separate, average) in zip(found, theirs.tolist(), strict=True):
        ours, least = convolution_scratch(geometry, core), 0 if takes_one_row_path(geometry) and core == "mve" else conv
        assert least <= ours
        assert ours <= conv + 32 or takes_one_row_path(geometry) or (core == "dsp" and ours == 4 * geometry.input[3]), geometry
        depthwise = replace(geometry, kind="depthwise")
        unused = core == "dsp" and geometry.kernel == (3, 3)  # asked for by 4.0.0 alone, whose 3x3 code does not touch it
        assert depthwise_scratch(depthwise, core) == separate or (unused and depthwise_scratch(depthwise, core) in (0, separate))
        assert average_scratch(geometry.input[3], core) == average


@pytest.mark.parametrize("make", [conv2d, one_operator.depthwise, one_operator.fully_connected])
def test_int4_weights(make: Callable[..., bytes], tmp_path: Path) -> None:
    data = make(weights_dtype="int4")
    bundle, inputs = compiled(data, tmp_path), random_inputs(data)
    assert bundle.library
    expected = run(read_main_graph(tmp_path / "model.tflite", LIBRARY), inputs)
    assert np.array_equal(run_bundle(link(bundle, objects("cortex-m4", tmp_path)), inputs).outputs[0], expected[0])


@pytest.mark.skipif(not SWEEP, reason="AOT_SWEEP=1 runs random layers")
@pytest.mark.parametrize("cpu", CPUS)
def test_random_layers(cpu: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for seed in range(6):
        check([layers.random_layer(rng) for _ in range(40)], cpu, tmp_path, seed)


MODELS = ("KWS", "IC", "VWW", "AD", "PD", "tflm/keyword_scrambled", "tflm/keyword_scrambled_8bit")
GOLDEN = (
    *(("KWS", cpu) for cpu in ("cortex-m4", "cortex-m55")),
    *(("AD", cpu) for cpu in ("cortex-m3", "cortex-m55")),
    *(("IC", "cortex-m4"), ("tflm/keyword_scrambled", "cortex-m3")),
)


@pytest.mark.parametrize("name,cpu", [(name, cpu) for name in MODELS for cpu in CPUS] if SWEEP else GOLDEN)
def test_golden_models(name: str, cpu: str, tmp_path: Path) -> None:
    """Real models; of those with state all runs."""
    bundle = aot.compile(model(name), cpu, options=LIBRARY)
    with np.load(golden(name)) as archive:
        _, samples = golden_samples(bundle.main, dict(archive), name)
    kept = samples if bundle.init else samples[:1]
    assert verify(link(bundle, objects(cpu, tmp_path)), "golden", kept, "auto").passed


# What falls back, and why.

REFUSED = {
    "grouped convolution (2 groups)": conv2d(groups=2),
    "int16 activations: the calls are for int8": conv2d(dtype="int16"),
    "could leave int32 when it is rescaled": conv2d(output_q=(1e-9, 0)),
    "2 images: CMSIS-NN's pools take one": side_by_side([pool("MAX_POOL_2D", (2, 4, 4, 3), (2, 2), (2, 2))]),
    "weights with a zero point (3)": one_operator.fully_connected(weight_zero_point=3),
    "rounded once, the library's twice": one_operator.fully_connected((1, 4), 2, weights_dtype="int4", weight_scale=[0.1, 0.2]),
    "a window that lies outside the image": side_by_side([depthwise((1, 2, 2, 3), 1, (2, 2), (1, 1), "VALID", pads=(0, 0, 3, 0))]),
    "a 1x1 convolution that is padded below": side_by_side(
        [convolution((1, 2, 2, 3), 2, (1, 1), (1, 1), "VALID", pads=(0, 1, 0, 0))]
    ),
    "rows of 512 elements": side_by_side([softmax((1, 512))]),
    "int16 rows of 9 elements": side_by_side([softmax((1, 9), 0.001, ("int16", "int16"))]),
    "inputs of different shapes": one_operator.binary("ADD", (1, 4, 4, 3), (3,)),
    "float32: the call is for int8": one_operator.pool(dtype="float32"),
    "no function of CMSIS-NN is called for LOGISTIC": one_operator.unary("LOGISTIC", output_q=(1 / 256, -128)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_left_to_our_kernels(reason: str, tmp_path: Path) -> None:
    bundle = compiled(REFUSED[reason], tmp_path)
    assert bundle.library == ()
    assert reason in dict(bundle.main.layers[0].declined)["library"]
    native = aot.compile(tmp_path / "model.tflite", "cortex-m4")
    assert bundle.object == native.object


def test_one_row_on_a_vector_core_is_a_column(tmp_path: Path) -> None:
    """arm_convolve_1_x_n_s8 guesses the padding there; a pad above or below has no such way out."""
    bundle = compiled(side_by_side([convolution((1, 1, 9, 4), 6, (1, 3))]), tmp_path, "cortex-m55")
    assert bundle.main.plan is not None
    call = library_call(bundle.main.plan.schedule.program.instructions[0])
    assert call is not None
    words = [argument.values for argument in call.arguments if isinstance(argument, Words)]
    assert (1, 9, 1, 4) in words and (6, 3, 1, 4) in words


# The bundle.


def test_files(tmp_path: Path) -> None:
    bundle = compiled(side_by_side([CASES[0], softmax((1, 10))]), tmp_path, name="net")
    made = files(bundle)
    header, cmake = made["net.h"].decode(), made["CMakeLists.txt"].decode()
    assert "#define NET_ERROR_LIBRARY (-3)" in header and "aot_custom" not in header
    assert " *   arm_convolve_wrapper_s8\n *   arm_softmax_s8\n */" in header
    assert "find_library(CMSIS_NN_LIBRARY" in cmake and "CMSIS_NN_ROOT" in cmake
    assert json.loads(made["net.json"])["library"]["functions"] == ["arm_convolve_wrapper_s8", "arm_softmax_s8"]
    assert bundle.object == compiled(side_by_side([CASES[0], softmax((1, 10))]), tmp_path, name="net").object


def test_header_with_functions_of_the_firmware_too(tmp_path: Path) -> None:
    """One error code for both; a C compiler takes the header."""
    m = ModelBuilder()
    x, y = convolution((1, 3, 3, 2), 4, (3, 3))(m, np.random.default_rng(1))
    z = m.tensor("z", (4,), "int8", scale=0.5, zero_point=1)
    m.operator("CUSTOM", [y], [z], custom_code="First")
    bundle = compiled(m.build(x, [z]), tmp_path, name="net", custom={"First": "first"})
    assert (bundle.functions, bundle.library) == (("first",), ("arm_convolve_wrapper_s8",))
    aot.write(bundle, tmp_path)
    text = (tmp_path / "net.h").read_text()
    assert "int first(const aot_custom_call *call);" in text and "#define NET_ERROR_LIBRARY NET_ERROR_CUSTOM" in text
    if shutil.which("arm-none-eabi-gcc"):
        (tmp_path / "use.c").write_text('#include "net.h"\nint code(void) { return NET_ERROR_LIBRARY; }\n')
        gcc(
            "-mcpu=cortex-m4",
            "-mthumb",
            "-ffreestanding",
            "-Wall",
            "-Werror",
            "-c",
            str(tmp_path / "use.c"),
            "-o",
            str(tmp_path / "use.o"),
        )


def test_undefined_symbols_are_the_functions(tmp_path: Path) -> None:
    nm = shutil.which("arm-none-eabi-nm")
    if nm is None:
        pytest.skip("arm-none-eabi-nm is not installed")
    bundle = compiled(side_by_side(CASES), tmp_path)
    (tmp_path / "all.o").write_bytes(bundle.object)
    found = subprocess.run([nm, "-u", str(tmp_path / "all.o")], capture_output=True, text=True, check=True).stdout.split()
    assert tuple(found[1::2]) == bundle.library


def test_cmake_links_the_library(tmp_path: Path) -> None:
    """With CMSIS_NN_ROOT the generated CMake file finds the library; without, it says what is missing."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    library = require_cmsis_nn(load_target("cortex-m4"))
    folder = tmp_path / "net"
    aot.write(compiled(conv2d(), tmp_path, name="net"), folder)
    (tmp_path / "firmware.c").write_text(
        '#include "net.h"\nint main(void) { return NET_RUN_OK; }\n'.replace("NET_RUN_OK", "NET_OK")
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(firmware C)\nadd_subdirectory(net)\n"
        "add_executable(firmware firmware.c)\ntarget_link_libraries(firmware PRIVATE aot::net)\n"
    )
    settings = ["-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_C_COMPILER=arm-none-eabi-gcc", "-DCMAKE_C_COMPILER_WORKS=1"]

    def configured(*more: str) -> subprocess.CompletedProcess:
        command = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), *settings, *more]
        return subprocess.run(command, capture_output=True, text=True)

    without = configured()
    assert without.returncode != 0 and "net calls CMSIS-NN: set CMSIS_NN_ROOT" in without.stderr
    done = configured(f"-DCMSIS_NN_ROOT={library.archive.parent}")
    assert done.returncode == 0, done.stderr
    link_line = tmp_path / "build" / "CMakeFiles" / "firmware.dir" / "link.txt"
    assert str(library.archive) in link_line.read_text()

    # As docs/library.md has it: a variable of the firmware's own CMake file, in a build folder that is new.
    shutil.rmtree(tmp_path / "build")
    project = tmp_path / "CMakeLists.txt"
    setting = f'set(CMSIS_NN_ROOT "{library.archive.parent}")\n'
    project.write_text(project.read_text().replace("add_subdirectory", f"{setting}add_subdirectory"))
    done = configured()
    assert done.returncode == 0, done.stderr
    assert str(library.archive) in link_line.read_text()


def test_an_error_of_the_library_ends_the_run(tmp_path: Path) -> None:
    compiler = shutil.which("arm-none-eabi-gcc")
    if compiler is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    (tmp_path / "no.c").write_text("int arm_convolve_wrapper_s8(void) { return -1; }\n")
    subprocess.run([compiler, "-mcpu=cortex-m4", "-mthumb", "-O2", "-c", "no.c", "-o", "no.o"], cwd=tmp_path, check=True)
    data = conv2d()
    with pytest.raises(InternalError, match="-3"):
        run_bundle(link(compiled(data, tmp_path), [tmp_path / "no.o"]), random_inputs(data))


def test_running_it_alone(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"^net calls CMSIS-NN \(arm_convolve_wrapper_s8\): it must be linked with it to run"):
        run_bundle(compiled(conv2d(), tmp_path, name="net"), random_inputs(conv2d()))


@pytest.mark.parametrize(
    "options,text",
    [
        ({"target": "cortex-m4", "backend": "generic"}, "--kernels library is for the back end cmsis-nn.*, not generic"),
        ({}, "--kernels library is for the back end cmsis-nn.*, not generic"),
        ({"target": "cortex-m4", "name": "arm"}, "a bundle that calls CMSIS-NN can't be called 'arm'"),
        ({"target": "cortex-m4", "custom": {"X": "arm_softmax_s8"}}, "'arm_softmax_s8' is a function of CMSIS-NN"),
    ],
    ids=["generic", "host", "name", "custom"],
)
def test_refused_options(options: dict, text: str, tmp_path: Path) -> None:
    data = custom("X", [T((4,))], [T((4,))]) if "custom" in options else conv2d()
    (tmp_path / "model.tflite").write_bytes(data)
    with pytest.raises(CompileError, match=text):
        aot.compile(tmp_path / "model.tflite", options=replace(LIBRARY, **options))
