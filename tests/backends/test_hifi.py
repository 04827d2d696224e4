"""The `hifi-ref` back end: layers by calls of Cadence's NN library, which our own reference stands for.

What is called gives the interpreter's bytes; what is not says why. The reference refuses what the library refuses.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.artefacts import files
from aot.backends.hifi_ref import HIFI_NN, reference_files
from aot.backends.hifi_ref.others import MOST_TAPS, UNLIKE
from aot.backends.hifi_ref.scratch import average_nbytes, convolution_nbytes, depthwise_nbytes, maximum_nbytes, softmax_nbytes
from aot.backends.library.call import library_call
from aot.bundle import Bundle
from aot.driver import Options, read_main_graph
from aot.errors import CompileError
from aot.graph import arithmetic
from aot.graph.interpreter import run
from aot.graph.primitive import Geometry
from aot.run import run_bundle
from aot.run.reference import host_compiler
from aot.samples import golden_samples
from aot.target import host_target, load_target
from aot.verify import verify
from tests.backends.library_layers import Layer, binary, convolution, dense, depthwise, pool, random_layer, side_by_side, softmax
from tests.one_operator import random_inputs
from tests.shared import FIVE, INT8, golden, model

SWEEP = bool(os.environ.get("AOT_SWEEP"))
HIFI = Options(target=host_target(), backend="hifi-ref")
NET = replace(HIFI, name="net")
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")

CASES: dict[str, tuple[Layer, ...]] = {
    "xa_nn_conv2d_std_per_chan_sym8sxasym8s": (
        *(convolution((1, 5, 5, 3), 8, (3, 3)), convolution((1, 5, 5, 4), 7, (3, 3), (2, 2)), convolution((1, 6, 5, 1), 5, (3, 3))),
        *(convolution((2, 4, 4, 5), 3, (3, 3)), convolution((1, 5, 5, 16), 4, (1, 1), (2, 2))),
        *(convolution((1, 1, 9, 4), 6, (1, 3)), convolution((1, 9, 1, 4), 6, (3, 1)), convolution((1, 5, 4, 2), 3, (3, 2), (3, 1))),
        *(convolution((1, 4, 4, 3), 4, (3, 3), zero_points=pair) for pair in ((-128, -128), (127, 127), (-1, 0))),
        convolution((1, 4, 4, 3), 4, (2, 2), factor=200.0),
        convolution((1, 3, 3, 4), 3, (3, 3), extreme=True),
        convolution((1, 20, 20, 1), 8, (2, 2), bias=False, halves=True),
        *(convolution((1, 3, 4, 5), 4, (3, 2), (2, 1), "VALID", pads=pads) for pads in ((2, 0, 1, 1), (0, 1, 1, 0))),
    ),
    "xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s": (
        *(convolution((1, 4, 4, 8), 8), convolution((1, 4, 4, 7), 5), convolution((3, 3, 3, 5), 9), convolution((1, 1, 1, 17), 3)),
        *(dense(3, 33, 9), dense(2, 10, 4, per_channel=True), dense(1, 12, 5, per_channel=True, bias=False)),
        convolution((1, 20, 20, 2), 8, bias=False, halves=True),
    ),
    "xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s": (
        *(depthwise((1, 5, 5, 4)), depthwise((1, 5, 5, 3), 1, (3, 3), (2, 2)), depthwise((1, 5, 5, 8), 1, (3, 3), (1, 1), "VALID")),
        *(depthwise((1, 6, 6, 5), 1, (5, 5)), depthwise((1, 4, 4, 2), 3), depthwise((2, 4, 4, 6)), depthwise((1, 5, 5, 1), 9)),
        *(depthwise((1, 3, 3, 17)), depthwise((1, 3, 3, 9), zero_points=(-128, 127)), depthwise((1, 3, 3, 4), extreme=True)),
        *(depthwise((1, 3, 3, 5), bias=False), depthwise((1, 16, 16, 12), 1, (2, 1), bias=False, halves=True)),
    ),
    "xa_nn_fully_connected_sym8sxasym8s_asym8s": (
        *(dense(1, 16, 8), dense(1, 7, 5), dense(1, 5, 1), dense(1, 15, 3, bias=False)),
        *(dense(1, 64, 10, zero_points=(-128, -128)), dense(1, 200, 13, zero_points=(127, 127))),
        dense(1, 4, 3000, bias=False, halves=True),
    ),
    "xa_nn_avgpool_8": (
        *(pool("AVERAGE_POOL_2D", (1, 6, 6, 4), (2, 2), (2, 2)), pool("AVERAGE_POOL_2D", (1, 5, 5, 19), (3, 3), (2, 1))),
        *(
            pool("AVERAGE_POOL_2D", (2, 4, 5, 1), (4, 5), (1, 1), "VALID"),
            pool("AVERAGE_POOL_2D", (1, 16, 16, 2), (16, 16), (1, 1)),
        ),
    ),
    "xa_nn_maxpool_8": (
        *(pool("MAX_POOL_2D", (1, 6, 6, 4), (2, 2), (2, 2)), pool("MAX_POOL_2D", (1, 5, 5, 19), (3, 3), (2, 1))),
        pool("MAX_POOL_2D", (2, 4, 5, 1), (4, 5), (1, 1), "VALID"),
    ),
    "xa_nn_elm_add_asym8sxasym8s_asym8s": (
        *(binary("ADD", (1, 3, 3, 7)), binary("ADD", (4,), zero_points=(-128, 127, -128))),
        *(binary("ADD", (1, 37), scales=(0.3, 0.001, 0.3)), binary("ADD", (1, 900), scales=(0.5, 0.25, 1.0))),
    ),
    "xa_nn_elm_sub_asym8sxasym8s_asym8s": (
        *(binary("SUB", (1, 3, 3, 7)), binary("SUB", (4,), zero_points=(-128, 127, -128))),
        binary("SUB", (1, 900), scales=(0.5, 0.25, 1.0)),
    ),
    "xa_nn_elm_mul_asym8sxasym8s_asym8s": (
        *(binary("MUL", (1, 3, 3, 7)), binary("MUL", (5,), zero_points=(-128, 127, 0))),
        *(binary("MUL", (9,), scales=(0.05, 0.07, 0.0001)), binary("MUL", (1, 900), scales=(0.5, 0.5, 4.0))),
    ),
    "xa_nn_vec_softmax_asym8s_asym8s": (
        *(softmax((1, 10)), softmax((3, 12), 0.01), softmax((2, 7), 1.0), softmax((1, 511), 0.05), softmax((1, 1))),
    ),
}
"""By function: layers that are each one call of it, or several."""
CLAMPED = (
    *(convolution((1, 4, 4, 3), 4, (3, 3), activation="RELU"), depthwise((1, 4, 4, 4), activation="RELU6")),
    *(pool(f"{kind}_POOL_2D", (1, 5, 5, 19), (3, 3), (2, 1), activation="RELU") for kind in ("AVERAGE", "MAX")),
)
REFUSED: dict[str, Layer] = {
    "a dilated kernel": convolution((1, 7, 7, 2), 3, (3, 3), (1, 1), "SAME", (2, 2)),
    "a window that lies outside the image": convolution((1, 3, 4, 5), 4, (3, 2), (2, 1), "VALID", pads=(3, 0, 1, 2)),
    "a window larger than the image": pool("MAX_POOL_2D", (1, 3, 3, 1), (5, 5), (1, 1)),
    "a window of 272 elements": pool("AVERAGE_POOL_2D", (1, 17, 16, 2), (17, 16), (1, 1)),
    "17 images": depthwise((17, 2, 2, 2)),
    "17 rows": softmax((17, 3)),
    "rows of 512 elements": softmax((1, 512)),
    "int8 to int16: the call is for int8": softmax((2, 9), 0.2, ("int8", "int16")),
    "int16: the call is for int8": binary("ADD", (1, 21), "int16", scales=(0.001, 0.002, 0.003)),
}


def compiled(layers: Sequence[Layer], folder: Path, seed: int = 0, options: Options = HIFI) -> Bundle:
    (folder / "model.tflite").write_bytes(side_by_side(layers, seed))
    return aot.compile(folder / "model.tflite", options=options)


def check(layers: Sequence[Layer], folder: Path, seed: int = 0) -> Bundle:
    """The interpreter's bytes, on random inputs and at the ends of int8."""
    bundle = compiled(layers, folder, seed)
    graph = read_main_graph(folder / "model.tflite", HIFI)
    inputs = random_inputs((folder / "model.tflite").read_bytes(), seed)
    for given in (inputs, [np.full_like(each, -128) for each in inputs], [np.full_like(each, 127) for each in inputs]):
        given = [each if each.dtype == np.int8 else original for each, original in zip(given, inputs)]
        for made, expected in zip(run_bundle(bundle, given).outputs, run(graph, given), strict=True):
            assert made.tobytes() == expected.tobytes()
    return bundle


@pytest.mark.parametrize("function", CASES)
def test_a_function(function: str, tmp_path: Path) -> None:
    bundle = check(CASES[function], tmp_path)
    assert bundle.library == (function,)
    assert {layer.kernel for layer in bundle.main.layers} == {f"library {function}"}


def test_every_function_has_cases() -> None:
    named = {name for row in HIFI_NN.functions for name in row.names}
    assert named == {*CASES, "xa_nn_vec_activation_min_max_8_8"}


def test_a_clamp_is_a_call_of_its_own(tmp_path: Path) -> None:
    bundle = check(CLAMPED, tmp_path)
    kernels = [layer.kernel for layer in bundle.main.layers]
    assert kernels.count("library xa_nn_vec_activation_min_max_8_8") == len(CLAMPED) and len(kernels) == 2 * len(CLAMPED)


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_left_to_generated_code(reason: str, tmp_path: Path) -> None:
    bundle = check([REFUSED[reason]], tmp_path)
    assert bundle.library == ()
    assert reason in dict(bundle.main.layers[0].declined)["library"]


@pytest.mark.parametrize("seed", range(200 if SWEEP else 4))
def test_random_layers(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    check([random_layer(rng) for _ in range(8)], tmp_path, seed)


# The reference.


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The reference, compiled strictly, as a library."""
    folder = tmp_path_factory.mktemp("reference")
    for name, content in reference_files():
        (folder / name).write_bytes(content)
    sources = [name for name, _ in reference_files() if name.endswith(".c")]
    command = [*host_compiler(), *STRICT, "-O2", "-fPIC", "-shared", *sources, "-o", "reference.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "reference.so"))


def test_averages_are_exact_for_every_sum(reference: ctypes.CDLL) -> None:
    """A sum times a reciprocal that is rounded up, halves away from zero: TFLite Micro's quotient, for all sums of up to 256 elements."""
    for count in range(1, MOST_TAPS + 1):
        one = arithmetic.INT32_MAX if count == 1 else -(-(1 << 31) // count)
        sums = np.arange(-128 * count, 127 * count + 1, dtype=np.int64)
        products = sums * one
        made = np.sign(products) * ((np.abs(products) + (1 << 30)) >> 31)
        expected = np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))
        assert (made == expected).all(), count


def test_the_reference_averages(reference: ctypes.CDLL) -> None:
    """Windows of every size, at the ends of int8 and around halves."""
    rng = np.random.default_rng(0)
    scratch = np.zeros(512, np.uint64)
    for count in range(1, MOST_TAPS + 1):
        images = [np.full(count, value) for value in (-128, 127)] + [rng.integers(-128, 128, count) for _ in range(4)]
        for image in images:
            given, made = image.astype(np.int8), np.zeros(1, np.int8)
            pointers = [ctypes.c_void_p(each.ctypes.data) for each in (made, given, scratch)]
            sizes = (1, count, 1, 1, count, 1, 1, 0, 0, 1, 1, 0, 0)
            assert reference.xa_nn_avgpool_8(*pointers[:2], *sizes, pointers[2]) == 0
            total = int(image.sum())
            assert made[0] == int(np.sign(total)) * ((2 * abs(total) + count) // (2 * count))


@pytest.mark.parametrize(("sign", "end"), [(1, 127), (-1, -128)])
def test_the_reference_saturates(sign: int, end: int, reference: ctypes.CDLL) -> None:
    """Sums beyond int32 (no layer that is called has any) and what is shifted left out of it stay at its ends."""
    given, weights, made = np.full(4, 127, np.int8), np.full(4, 127 * sign, np.int8), np.zeros(1, np.int8)
    for bias, shift in ((arithmetic.INT32_MAX * sign, 0), (sign << 30, 1), (sign << 20, 12)):
        biases = np.array([bias], np.int32)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (made, weights, given, biases)]
        assert reference.xa_nn_fully_connected_sym8sxasym8s_asym8s(*pointers, 4, 1, 0, 1 << 30, shift, 0) == 0
        assert made[0] == end


def test_reciprocals_that_the_library_rounds_otherwise() -> None:
    """Products that round halves away from zero: unlike gemmlowp's at the fractions named, and not around them."""

    def product_away(a: int, b: int) -> int:
        return (abs(a * b) + (1 << 30) >> 31) * (1 if a * b >= 0 else -1)

    def reciprocal(fraction: int) -> int:
        half = (fraction + (1 << 31)) >> 1
        estimate = product_away(half, -1010580540) + 1515870810
        for _ in range(3):
            estimate += 4 * product_away(estimate, (1 << 29) - product_away(half, estimate))
        return min(2 * estimate, arithmetic.INT32_MAX)

    for fraction, more in UNLIKE.items():
        assert reciprocal(fraction) - int(arithmetic.reciprocal_of_one_plus(np.array(fraction))) == more
    rng = np.random.default_rng(0)
    others = {each + step for each in UNLIKE for step in (-4, -2, 2, 4)} | set(rng.integers(0, 1 << 31, 2000).tolist())
    for fraction in sorted(others - {each + step for each in UNLIKE for step in (0, 1)}):
        assert reciprocal(fraction) == int(arithmetic.reciprocal_of_one_plus(np.array(fraction)))


def test_scratch_is_what_the_library_asks_for(reference: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000 if SWEEP else 200):
        height, width, channels, kernel_h, kernel_w, count = rng.integers(1, 40, 6).tolist()
        stride_y, stride_x, rows, columns = rng.integers(1, 9, 4).tolist()
        top, left = int(rng.integers(0, kernel_h)), int(rng.integers(0, kernel_w))
        multiplier = count % 4 + 1
        sizes = (height, width, channels, kernel_h, kernel_w)

        plain = Geometry(
            "depthwise",
            (1, height, width, channels),
            (1, rows, columns, channels),
            (kernel_h, kernel_w),
            (stride_y, stride_x),
            pad_top=top,
            pad_left=left,
        )
        asked = reference.xa_nn_conv2d_std_getsize(
            *sizes, channels, stride_y, top, stride_x, left, rows, columns, count, -4, -5, 1, 1, 0
        )
        assert convolution_nbytes(replace(plain, kind="conv", output=(1, rows, columns, count)), hifi5=False) == asked
        steps = (stride_x, stride_y, left, top, rows, columns)
        asked = reference.xa_nn_conv2d_depthwise_getsize(*sizes, multiplier, *steps, -4, 0)
        assert depthwise_nbytes(replace(plain, output=(1, rows, columns, channels * multiplier))) == asked
        shape = (channels, 8, 8, height, width, kernel_h, kernel_w, *steps, 0, 0)
        assert average_nbytes(plain) == reference.xa_nn_avgpool_getsize(*shape)
        assert maximum_nbytes(plain) == reference.xa_nn_maxpool_getsize(*shape)
        assert softmax_nbytes(count) == reference.get_softmax_scratch_size(-4, -4, count)


def test_scratch_as_the_library_states_it() -> None:
    """Sizes of real layers, worked out by hand from the library's formulas: a padded image of three channels, and one that needs no padding."""
    first = Geometry("conv", (1, 96, 96, 3), (1, 48, 48, 8), (3, 3), (2, 2))
    assert convolution_nbytes(first, hifi5=False) == 8 + 31 + 1200 + 7 + 8 + 3 * 3 * 4 * 8 + 7
    plain = Geometry("conv", (1, 32, 32, 16), (1, 32, 32, 16), (3, 3), pad_top=1, pad_left=1)
    assert convolution_nbytes(plain, hifi5=False) == 8 + 31 + 34 * 3 * 16 + 7 + 8
    narrow = Geometry("depthwise", (1, 25, 5, 64), (1, 25, 5, 64), (3, 3), pad_top=1, pad_left=1)
    assert depthwise_nbytes(narrow) == 32 + 27 * 64 * 3 + 40


def call(reference: ctypes.CDLL, function: str, changed: dict[int, object] | None = None) -> int:
    """A small call with some of its arguments changed; what it returns."""
    room = (ctypes.c_char * 4096)()
    here = ctypes.addressof(room) + (-ctypes.addressof(room)) % 16
    data, words, scratch = (ctypes.c_void_p(here + offset) for offset in (0, 1024, 2048))
    shifts = ctypes.c_void_p(here + 1536)
    window = (3, 3, 4, 2, 2)
    steps = (1, 1, 0, 0, 2, 2)
    arguments: dict[str, tuple[object, ...]] = {
        "xa_nn_conv2d_std_per_chan_sym8sxasym8s": (*(data,) * 3, words, *window, 4, *steps, 0, words, shifts, 0, 0, scratch),
        "xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s": (*(data,) * 3, words, 3, 3, 4, 4, 0, words, shifts, 0, 0),
        "xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s": (
            *(data,) * 3,
            words,
            *window,
            1,
            *steps,
            0,
            words,
            shifts,
            0,
            0,
            0,
            scratch,
        ),
        "xa_nn_fully_connected_sym8sxasym8s_asym8s": (*(data,) * 3, words, 4, 4, 0, 1 << 30, 0, 0),
        "xa_nn_avgpool_8": (data, data, *window, *steps, 0, 0, scratch),
        "xa_nn_maxpool_8": (data, data, *window, *steps, 0, 0, scratch),
        "xa_nn_elm_add_asym8sxasym8s_asym8s": (data, 0, 0, 1, -128, 127, data, 0, 0, 1, data, 0, 0, 1, 20, 5),
        "xa_nn_elm_sub_asym8sxasym8s_asym8s": (data, 0, 0, 1, -128, 127, data, 0, 0, 1, data, 0, 0, 1, 20, 5),
        "xa_nn_elm_mul_asym8sxasym8s_asym8s": (data, 0, 0, 1, -128, 127, data, 0, data, 0, 5),
        "xa_nn_vec_activation_min_max_8_8": (data, data, -3, 3, 5),
        "xa_nn_vec_softmax_asym8s_asym8s": (data, data, -200, 3, 1 << 30, 5, scratch),
    }
    given = [changed.get(number, one) if changed else one for number, one in enumerate(arguments[function])]
    return int(getattr(reference, function)(*given))


BAD: dict[str, tuple[tuple[int, object], ...]] = {
    "xa_nn_conv2d_std_per_chan_sym8sxasym8s": (
        *((number, None) for number in (0, 1, 2, 21)),
        *((number, 0) for number in (4, 5, 6, 7, 8, 9, 10, 11, 14, 15)),
        *((12, -1), (13, -1), (16, 129), (16, -128), (19, 128), (19, -129), (20, 2)),
    ),
    "xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s": (
        *((number, None) for number in (0, 1, 2, 3, 9, 10)),
        *((number, 0) for number in (4, 5, 6, 7)),
        *((8, 129), (11, 128), (12, 2)),
    ),
    "xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s": (
        *((number, None) for number in (0, 1, 2, 3, 22)),
        *((number, 0) for number in (4, 5, 6, 7, 8, 9, 10, 11, 14, 15)),
        *((12, -1), (13, -1), (16, 129), (19, 128), (21, 1)),
    ),
    "xa_nn_fully_connected_sym8sxasym8s_asym8s": ((0, None), (1, None), (2, None), (5, 0), (6, 129), (8, 32), (8, -32), (9, 128)),
    "xa_nn_avgpool_8": ((0, None), (1, None), (15, None), (2, 0), (5, 4), (6, 4), (7, 0), (9, -1), (11, 0), (14, 1)),
    "xa_nn_maxpool_8": ((0, None), (1, None), (15, None), (2, 0), (5, 4), (6, 4), (7, 0), (9, -1), (11, 0), (14, 1)),
    "xa_nn_elm_add_asym8sxasym8s_asym8s": (
        (0, None),
        (6, None),
        (10, None),
        (1, 128),
        (2, 1),
        (4, 127 + 1),
        (7, 129),
        (8, 1),
        (14, 32),
        (15, 0),
    ),
    "xa_nn_elm_sub_asym8sxasym8s_asym8s": (
        (0, None),
        (6, None),
        (10, None),
        (1, 128),
        (2, 1),
        (5, -129),
        (11, 129),
        (12, 1),
        (14, -1),
        (15, 0),
    ),
    "xa_nn_elm_mul_asym8sxasym8s_asym8s": ((0, None), (6, None), (8, None), (1, 128), (2, 32), (7, 129), (9, -128), (10, 0)),
    "xa_nn_vec_activation_min_max_8_8": ((0, None), (1, None), (2, 4), (4, 0)),
    "xa_nn_vec_softmax_asym8s_asym8s": ((0, None), (1, None), (6, None), (3, -1), (3, 32), (4, -1), (5, 0)),
}
"""By function: an argument's number, and a value that the library refuses."""


@pytest.mark.parametrize("function", BAD)
def test_refused_arguments(function: str, reference: ctypes.CDLL) -> None:
    assert call(reference, function) == 0
    for number, value in BAD[function]:
        assert call(reference, function, {number: value}) == -1, (number, value)


# The bundle.


def test_files(tmp_path: Path) -> None:
    bundle = compiled(
        [CASES["xa_nn_avgpool_8"][0], softmax((1, 10))],
        tmp_path,
        options=NET,
    )
    made = files(bundle)
    assert {name for name, _ in reference_files()} < set(made)
    header, cmake = made["net.h"].decode(), made["CMakeLists.txt"].decode()
    assert " *   xa_nn_avgpool_8\n *   xa_nn_vec_softmax_asym8s_asym8s\n" in header and "CMSIS" not in header + cmake
    assert "XA_NNLIB_LIBRARY" in cmake
    again = files(
        compiled(
            [CASES["xa_nn_avgpool_8"][0], softmax((1, 10))],
            tmp_path,
            options=NET,
        )
    )
    assert made == again


def test_the_check_of_scratch(tmp_path: Path) -> None:
    """The file that comes with a bundle finds its scratch enough, and says how much is missing where it is not."""
    cases = [CASES[name][0] for name in CASES]
    name, content = _check(compiled(cases, tmp_path, options=NET))
    asked = set(re.findall(r"most\(lacking, \d+, (\w+)\(", content.decode()))
    assert len(asked) == 5, "one question for each function that has scratch"
    for text, expected in ((content, 0), (content.replace(b"most(lacking, ", b"most(lacking, -100 + "), 100)):
        (tmp_path / name).write_bytes(text + b"int main(void) { return net_check_scratch(); }\n")
        for file, source in reference_files():
            (tmp_path / file).write_bytes(source)
        sources = [name, *(file for file, _ in reference_files() if file.endswith(".c"))]
        built = subprocess.run([*host_compiler(), *STRICT, *sources, "-o", "check"], cwd=tmp_path, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        assert subprocess.run([tmp_path / "check"]).returncode == expected


def _check(bundle: Bundle) -> tuple[str, bytes]:
    assert bundle.library_notes is not None and bundle.library_notes.check is not None
    return bundle.library_notes.check


def test_native(tmp_path: Path) -> None:
    options = replace(HIFI, kernels="native")
    bundle = compiled([CASES["xa_nn_avgpool_8"][0]], tmp_path, options=options)
    assert bundle.library == () and bundle.library_notes is None
    assert not any(name.startswith("xa_nn") for name in files(bundle))


def test_a_name_of_the_library(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="a bundle that calls Cadence's NN library can't be called 'xa'"):
        compiled([softmax((1, 10))], tmp_path, options=replace(HIFI, name="xa"))


def test_images_are_calls_one_after_another(tmp_path: Path) -> None:
    bundle = compiled([depthwise((3, 4, 4, 6))], tmp_path)
    assert bundle.main.plan is not None
    found = library_call(bundle.main.plan.schedule.program.instructions[0])
    assert found is not None and len(found.runs) == 3


# Real models.


@pytest.mark.parametrize(
    "name,kernels",
    [
        *((name, "library") for name in (INT8 if SWEEP else FIVE)),
        *((name, "native") for name in (INT8 if SWEEP else ("KWS", "AD"))),
    ],
)
def test_golden(name: str, kernels: str) -> None:
    bundle = aot.compile(model(name), options=replace(HIFI, kernels=kernels))
    oracle, samples = golden_samples(bundle.main, np.load(golden(name), allow_pickle=True), name)
    verdict = verify(bundle, oracle, samples if SWEEP else samples[:1], "host")
    assert not verdict.mismatches
    assert bool(bundle.library) == (kernels == "library")


@pytest.mark.parametrize("cpu", ["rv32imc", "cortex-a9", "hexagonv68", "rv64gc", "cortex-a53"] if SWEEP else ["rv32imc"])
def test_the_reference_on_other_cores(cpu: str, tmp_path: Path) -> None:
    """Its C, compiled for a core without a division, beside the object for it."""
    target = load_target(cpu)
    if shutil.which(str(target.run["qemu"]["program"])) is None:
        pytest.skip(f"{target.run['qemu']['program']} is not installed")
    bundle = compiled([CASES[name][0] for name in CASES], tmp_path, options=replace(HIFI, target=target))
    inputs = random_inputs((tmp_path / "model.tflite").read_bytes())
    expected = run(read_main_graph(tmp_path / "model.tflite", HIFI), inputs)
    made = run_bundle(bundle, inputs, "qemu").outputs
    assert [each.tobytes() for each in made] == [each.tobytes() for each in expected]
