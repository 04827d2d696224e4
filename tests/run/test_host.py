"""Runs in process: results, guards, errors."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import InternalError
from aot.run import default_where, run_bundle
from aot.target import host_target
from tests.run.objects import X, bundle, host_object, port

COPY = "%v = load <8 x i8>, ptr %x, align 1\n%s = add <8 x i8> %v, splat (i8 1)\nstore <8 x i8> %s, ptr %y, align 1\n"
PORTS = {"inputs": [port("x", (490,), align=1)], "outputs": [port("y", (8,), align=1)]}


def _store(where: str, offset: int) -> str:
    return f"%p = getelementptr i8, ptr %{where}, i64 {offset}\nstore i8 77, ptr %p\n"


def test_result() -> None:
    result = run_bundle(bundle(host_object(f"{COPY}ret i32 0"), "host", **PORTS), [X])
    np.testing.assert_array_equal(result.outputs[0], X[:8] + 1)
    assert (result.where, result.instructions, result.stack_nbytes, result.per_layer) == ("host", None, None, None)
    assert default_where(host_target()) == "host"


@pytest.mark.parametrize(
    ("where", "offset", "message"),
    [
        ("y", 8, "the code wrote 1 byte past the end of output 0 'y' .8 bytes."),
        ("y", -3, "the code wrote 3 bytes before the start of output 0 'y'"),
        ("w", 64, "the code wrote 1 byte past the end of the workspace .64 bytes."),
        ("x", 4, "the code wrote at offset 4 of input 0 'x', which is read-only"),
    ],
)
def test_writes_outside(where: str, offset: int, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        run_bundle(bundle(host_object(f"{COPY}{_store(where, offset)}ret i32 0"), "host", **PORTS), [X])


def test_output_that_is_not_written() -> None:
    with pytest.raises(InternalError, match="output 0 'y' depends on what memory held before the run"):
        run_bundle(bundle(host_object("ret i32 0"), "host", **PORTS), [X])


def test_return_code() -> None:
    with pytest.raises(InternalError, match="test_run returned -1"):
        run_bundle(bundle(host_object("ret i32 -1"), "host", **PORTS), [X])


def test_separate_weights() -> None:
    body = "%v = load <8 x i8>, ptr %k, align 1\nstore <8 x i8> %v, ptr %y, align 1\nret i32 0"
    data = host_object(body, "ptr %x, ptr %y, ptr %w, ptr %k")
    assert run_bundle(bundle(data, "host", weights=bytes(range(8)), **PORTS), [X]).outputs[0].tolist() == list(range(8))


def test_inputs_and_outputs_in_the_workspace() -> None:
    body = "%q = getelementptr i8, ptr %w, i64 8\n%v = load i64, ptr %w\nstore i64 %v, ptr %q\nret i32 0"
    ports = {"inputs": [port("x", (8,), workspace_offset=0)], "outputs": [port("y", (8,), workspace_offset=8)]}
    made = bundle(host_object(body, "ptr %w"), "host", io_in_workspace=True, workspace_nbytes=16, **ports)
    assert run_bundle(made, [X[:8]]).outputs[0].tolist() == X[:8].tolist()
