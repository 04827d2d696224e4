"""Runs in Linux processes under QEMU: results, exact counts, and everything that must be noticed."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import InternalError
from aot.run import default_where, run_bundle
from tests.run.objects import PROCESSES, X, bundle, one_layer, port, process_object

LAYER = r"layer layer_0 \(test kernel, node 0 TEST\): "
SOURCE = """
    #define LAYER static __attribute__((noinline)) void
    LAYER layer_0(const volatile signed char *x, signed char *w) { for (int i = 0; i < 64; i++) w[i] = x[i] * 3; }
    LAYER layer_1(const volatile signed char *w, signed char *y) { for (int i = 0; i < 12; i++) y[i] = w[5 * i] + 1; }
    int test_run(const signed char *x, signed char *y, signed char *w) { layer_0(x, w); layer_1(w, y); return 0; }
"""


@pytest.mark.parametrize("cpu", PROCESSES)
def test_result_and_layers(cpu: str) -> None:
    made = bundle(
        process_object(SOURCE, cpu), cpu, layers=["layer_0", "layer_1"], inputs=[port("x", (490,))], outputs=[port("y", (3, 4))]
    )
    result = run_bundle(made, [X])
    assert result.where == default_where(made.target) == "qemu"
    np.testing.assert_array_equal(result.outputs[0], (X[:60:5] * 3 + 1).astype(np.int8).reshape(3, 4))
    assert result.per_layer is not None
    assert [name for name, _ in result.per_layer] == ["layer_0", "layer_1", "test_run"]
    assert sum(count for _, count in result.per_layer) == result.instructions
    assert all(count > 2 for _, count in result.per_layer)
    assert run_bundle(made, [X]).instructions == result.instructions


@pytest.mark.parametrize("cpu", PROCESSES)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x[-1]", "an access to 0x[0-9a-f]+, outside what the entry was given, 1 byte before the start of input 0 'x'"),
        ("x[492]", "an access to .*, 3 bytes past the end of input 0 'x' .read-only, 490 bytes."),
        ("w[64] = 1", "an access to .*, 1 byte past the end of the workspace .64 bytes."),
        ("y[-1] = 1", "an access to .*, 1 byte before the start of output 0 'y'"),
        ("((volatile char *)x)[5] = 1", "an access to .*, at offset 5 of input 0 'x' .read-only"),
        ("volatile char big[100000]; big[x[0]] = 1", "an access to .* before the start of the stack"),
        ("__builtin_trap()", "an instruction that the CPU does not have|a trap|an access to"),
    ],
)
def test_wrong_access_names_the_layer(cpu: str, body: str, message: str) -> None:
    with pytest.raises(InternalError, match=LAYER + message):
        run_bundle(one_layer(body, cpu), [X])
