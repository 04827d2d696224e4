"""Calls of the firmware's functions, compiled: what they are told, what they compute between other layers, how a run ends that fails."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tflite.TensorType import TensorType

import aot
from aot.artefacts import files
from aot.bundle import Bundle
from aot.driver import Options, resolve_target
from aot.errors import CompileError, InternalError
from aot.graph.ops.firmware import DTYPES
from aot.llvm import elf
from aot.llvm.calls import TYPE_CODES, require_foreign
from aot.run import run_bundle
from aot.run.callbacks import CustomCall
from aot.target import Target
from tests.builder import ModelBuilder
from tests.llvm.test_objects import all_targets
from tests.one_operator import T, one_operator
from tests.shared import ROOT

HEADER = ROOT / "aot" / "templates" / "aot_custom.h"
X = np.array([[1, -2, 3, -4, 5, -6]], np.int8)


def compiled(data: bytes, folder: Path, target: Target | None = None, **options) -> Bundle:
    (folder / "model.tflite").write_bytes(data)
    custom = {"First": "first", "Second": "second"}
    return aot.compile(folder / "model.tflite", target, options=Options(custom=custom, **options))


def between_layers() -> bytes:
    """RELU; First: the sum and the difference of two, and how many there are; ADD; Second: of a constant, an absent input, twice y."""
    m = ModelBuilder()
    x, a = (m.tensor(name, (1, 6), "int8", scale=0.5, zero_point=-1) for name in "xa")
    more, less = (m.tensor(name, (2, 3), "int8", scale=0.5, zero_point=-1) for name in ("more", "less"))
    count, y = m.tensor("count", (1,), "int32"), m.tensor("y", (2, 3), "int8", scale=0.5, zero_point=-1)
    z, other = m.tensor("z", (1,), "float32"), m.constant(np.array([2.5, 4], np.float32))
    m.operator("RELU", [x], [a])
    m.operator("CUSTOM", [x, a], [more, less, count], custom_code="First", custom_options=bytes(range(13)))
    m.operator("MAXIMUM", [more, less], [y], {})
    m.operator("CUSTOM", [other, -1, y, y], [z], custom_code="Second")
    return m.build([x], [y, z, count])


def first(call: CustomCall) -> None:
    x, a = (each.array.reshape(2, 3).astype(int) for each in call.inputs if each)
    for out, values in zip(call.outputs, (x + a, x - a, len(call.options))):
        out.array[...] = values


def second(call: CustomCall) -> int:
    other, absent, y, again = call.inputs
    assert other and y and again and absent is None and np.array_equal(y.array, again.array)
    call.outputs[0].array[0] = other.array.sum() + y.array.sum()
    return 0


@pytest.mark.parametrize(
    "options",
    [{}, {"io": "workspace"}, {"weights": "separate"}, {"position_independent": True}, {"emit": "c", "backend": "generic"}],
)
def test_values(tmp_path: Path, options: dict) -> None:
    bundle = compiled(between_layers(), tmp_path, **options)
    assert bundle.functions == ("first", "second")
    y, z, count = run_bundle(bundle, [X], functions={"first": first, "second": second}).outputs
    relu = np.maximum(X, -1).reshape(2, 3).astype(int)
    expected = np.maximum(X.reshape(2, 3) + relu, X.reshape(2, 3) - relu)
    assert np.array_equal(y, expected) and z[0] == 6.5 + expected.sum() and count[0] == 13


def test_what_a_function_is_told(tmp_path: Path) -> None:
    seen: list[CustomCall] = []

    def watch(call: CustomCall) -> None:
        seen.append(call)
        first(call)

    run_bundle(compiled(between_layers(), tmp_path), [X], functions={"first": watch, "second": second})
    call = seen[0]
    assert call.options == bytes(range(13))
    assert [
        (each.array.shape, each.array.dtype.name, each.scale, each.zero_point) for each in (*call.inputs, *call.outputs) if each
    ] == [
        ((1, 6), "int8", 0.5, -1),
        ((1, 6), "int8", 0.5, -1),
        ((2, 3), "int8", 0.5, -1),
        ((2, 3), "int8", 0.5, -1),
        ((1,), "int32", 0.0, 0),
    ]
    assert not any(each.array.flags.writeable for each in call.inputs if each)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 2, 1, 2)], ids=str)
def test_types(tmp_path: Path, dtype, shape: tuple[int, ...]) -> None:
    """Constants and inputs of every type arrive, scalars among them."""
    array = np.arange(int(np.prod(shape)) * dtype.nbytes, dtype=np.uint8).view(dtype.np).reshape(shape)
    array = array != 0 if dtype.value == "bool" else array
    data = one_operator(
        "CUSTOM", [T((2,), "float32"), T(shape, dtype.value, data=array)], [T((2,), "float32")], custom_code="First"
    )

    def check(call: CustomCall) -> int:
        _, given = call.inputs
        assert given and given.array.dtype == dtype.np and given.array.shape == shape
        assert given.array.tobytes() == array.tobytes()
        return 0

    run_bundle(
        compiled_first(data, tmp_path), [np.zeros(2, np.float32)], functions={"first": lambda call: fill(call) or check(call)}
    )


def compiled_first(data: bytes, folder: Path, target: Target | None = None) -> Bundle:
    (folder / "model.tflite").write_bytes(data)
    return aot.compile(folder / "model.tflite", target, options=Options(custom={"First": "first"}))


def fill(call: CustomCall) -> int:
    for out in call.outputs:
        out.array[...] = 1
    return 0


def test_codes_are_the_schema_s_and_the_header_s() -> None:
    assert TYPE_CODES.keys() == set(DTYPES)
    assert all(getattr(TensorType, dtype.value.upper()) == code for dtype, code in TYPE_CODES.items())
    assert all(f"#define AOT_{dtype.value.upper()} ({code})" in HEADER.read_text() for dtype, code in TYPE_CODES.items())


@pytest.mark.parametrize("code", [1, -7])
def test_a_function_that_fails_ends_the_run(tmp_path: Path, code: int) -> None:
    called = []
    functions = {"first": lambda call: code, "second": lambda call: called.append(call)}
    with pytest.raises(InternalError, match="model_run returned -3"):
        run_bundle(compiled(between_layers(), tmp_path), [X], functions=functions)
    assert not called


def test_what_a_python_function_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run_bundle(compiled(between_layers(), tmp_path), [X], functions={"first": lambda call: 1 // 0, "second": second})


def test_in_a_loop(tmp_path: Path) -> None:
    """WHILE x[0] < 10: x = First(x), which the function makes x + 3; it fails when told to."""
    m = ModelBuilder()
    x, y = m.tensor("x", (1,), "int32"), m.tensor("y", (1,), "int32")
    m.operator("WHILE", [x], [y], {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    m.end_subgraph([x], [y])
    a, small = m.tensor("a", (1,), "int32"), m.tensor("small", (1,), "bool")
    m.operator("LESS", [a, m.constant(np.array([10], np.int32))], [small])
    m.end_subgraph([a], [small])
    b, c = m.tensor("b", (1,), "int32"), m.tensor("c", (1,), "int32")
    m.operator("CUSTOM", [b], [c], custom_code="First")
    bundle = compiled_first(m.build([b], [c]), tmp_path)

    def step(call: CustomCall) -> int:
        value = call.inputs[0].array[0] if call.inputs[0] else 0
        call.outputs[0].array[0] = value + 3
        return int(value == 107)

    def outcome(start: int) -> int:
        return int(run_bundle(bundle, [np.array([start], np.int32)], functions={"first": step}).outputs[0][0])

    assert [outcome(start) for start in (0, 9, 10)] == [12, 12, 10]
    with pytest.raises(InternalError, match="returned -3"):
        run_bundle(bundle, [np.array([1], np.int32)], functions={"first": lambda call: 1})


@pytest.mark.parametrize("pic", [False, True], ids=["static", "pic"])
@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_undefined_are_just_the_functions(tmp_path: Path, target: Target, pic: bool) -> None:
    bundle = compiled(between_layers(), tmp_path, target, position_independent=pic)
    assert elf.undefined(bundle.object) == bundle.functions == ("first", "second")
    kernels = [layer.kernel for layer in bundle.main.layers]
    assert [kernel for kernel in kernels if "firmware" in kernel] == ["firmware first", "firmware second"]
    elf.sizes(bundle.object)  # refuses writable data


def test_a_function_that_nothing_needs_is_no_symbol(tmp_path: Path) -> None:
    m = ModelBuilder()
    x, a, y = (m.tensor(name, (4,), "float32") for name in "xay")
    m.operator("CUSTOM", [x], [a], custom_code="First")
    m.operator("RELU", [x], [y])
    bundle = compiled_first(m.build([x], [y]), tmp_path)
    assert bundle.functions == () and elf.undefined(bundle.object) == () and "aot_custom.h" not in files(bundle)


def test_names_that_the_object_may_have_itself() -> None:
    target, _ = resolve_target(Options())
    for name in ("model_k00", "MODEL_run", "memcpy", "__divdi3"):
        with pytest.raises(CompileError, match=r"bundle's own|is a routine of the compiler"):
            require_foreign([name], "model", target)
    with pytest.raises(CompileError, match="can't be called 'aot_custom'"):
        require_foreign(["first"], "aot_custom", target)
    require_foreign(["models_run", "my_memcpy"], "model", target)


C = r"""
#include "model.h"
#include <stddef.h>
_Static_assert(sizeof(aot_custom_tensor) == 2 * sizeof(void *) + 20 + (sizeof(void *) == 8 ? 4 : 0), "tensor");
_Static_assert(sizeof(aot_custom_call) == 3 * sizeof(void *) + 12 + (sizeof(void *) == 8 ? 4 : 0), "call");
_Static_assert(offsetof(aot_custom_tensor, zero_point) == 2 * sizeof(void *) + 16, "zero_point");
int second(const aot_custom_call *call) {
    const aot_custom_tensor *in = call->inputs;
    float *z = (float *)call->outputs[0].data;
    int i, sum = 0;
    if (call->input_count != 4 || call->output_count != 1 || call->options || call->options_nbytes) return 1;
    if (in[1].data || in[1].dims || in[1].nbytes || in[1].rank || in[1].type || in[1].scale != 0.0f || in[1].zero_point) return 2;
    if (in[2].data != in[3].data || in[2].rank != 2 || in[2].dims[0] != 2 || in[2].dims[1] != 3 || in[2].nbytes != 6) return 3;
    if (in[2].type != AOT_INT8 || in[2].scale != 0.5f || in[2].zero_point != -1) return 4;
    if (in[0].type != AOT_FLOAT32 || in[0].scale != 0.0f || in[0].zero_point != 0 || in[0].rank != 1 || in[0].dims[0] != 2) return 5;
    for (i = 0; i < 6; i++) sum += ((const int8_t *)in[2].data)[i];
    *z = ((const float *)in[0].data)[0] + ((const float *)in[0].data)[1] + (float)sum;
    return 0;
}
int first(const aot_custom_call *call) {
    const int8_t *x = (const int8_t *)call->inputs[0].data, *a = (const int8_t *)call->inputs[1].data;
    uint32_t i;
    if (call->input_count != 2 || call->output_count != 3 || call->options_nbytes != 13 || (uintptr_t)call->options % 8) return 1;
    for (i = 0; i < 13; i++) if (call->options[i] != i) return 2;
    for (i = 0; i < 6; i++) {
        ((int8_t *)call->outputs[0].data)[i] = (int8_t)(x[i] + a[i]);
        ((int8_t *)call->outputs[1].data)[i] = (int8_t)(x[i] - a[i]);
    }
    *(int32_t *)call->outputs[2].data = 13;
    return x[0] == 127;
}
"""
CHECK = r"""
static union { uint32_t words[(MODEL_WORKSPACE_SIZE + 7u) / 4u]; uint64_t align; } workspace;
int check(void);
int check(void) {
    int8_t x[6] = {1, -2, 3, -4, 5, -6}, y[6];
    float z;
    int32_t count, i, sum = 0;
    if (model_run(x, y, &z, &count, &workspace)) return 11;
    for (i = 0; i < 6; i++) {
        const int a = x[i] > -1 ? x[i] : -1, more = x[i] + a, less = x[i] - a;
        if (y[i] != (more > less ? more : less)) return 12;
        sum += y[i];
    }
    if (count != 13 || z != 6.5f + (float)sum) return 13;
    x[0] = 127;
    return model_run(x, y, &z, &count, &workspace) == MODEL_ERROR_CUSTOM ? 0 : 14;
}
"""


@pytest.mark.parametrize("pic", [False, True], ids=["static", "pic"])
def test_in_c_on_this_machine(tmp_path: Path, pic: bool) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    aot.write(compiled(between_layers(), tmp_path, position_independent=pic), tmp_path)
    (tmp_path / "check.c").write_text(C + CHECK)
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "check.c", "model.o", "-o", "check.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ctypes.CDLL(str(tmp_path / "check.so")).check() == 0
