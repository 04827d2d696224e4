"""Runs in Linux processes under QEMU: results, exact counts, and everything that must be noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.errors import CompileError, InternalError
from aot.run import default_where, run_bundle
from aot.run.process import counter, program
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


@pytest.mark.parametrize("cpu", PROCESSES)
def test_what_a_call_may_not_do(cpu: str) -> None:
    loop = "volatile int i = 0; for (;;) i++"
    with pytest.raises(InternalError, match=LAYER + "still running after 10000 instructions; at 0x.* of the code"):
        run_bundle(one_layer(loop, cpu), [X], limit=10_000)
    with pytest.raises(InternalError, match="test_run returned -7"):
        run_bundle(one_layer("", cpu, result="-7"), [X])
    with pytest.raises(InternalError, match=r"test_run used [0-9]+ bytes of stack, more than the 64 that the bundle states"):
        run_bundle(one_layer("volatile char some[512]; some[x[0]] = 1", cpu, stack_nbytes=64), [X])
    with pytest.raises(InternalError, match="output 0 'y' depends on what memory held before the run"):
        run_bundle(one_layer("", cpu, result="(y[3] = w[9]) * 0"), [X])
    register, move = SAVED[cpu]
    with pytest.raises(InternalError, match=f"test_run did not preserve {register}: 0x[0-9a-f]+ became 0x"):
        run_bundle(one_layer(f'asm volatile("{move}")', cpu), [X])


SAVED = {
    "cortex-a9": ("r6", "add r6, r6, #1"),
    "cortex-a53": ("d9", "fmov d9, #1.5"),
    "rv32imc": ("s3", "addi s3, s3, 1"),
    "rv64gc": ("fs2", "fadd.d fs2, fs2, fs2"),
    "hexagonv68": ("r18", "r18 = add(r18, #1)"),
}
"""A register that a function must preserve, and an instruction that changes it."""


def test_a_tool_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = one_layer("", "cortex-a53")
    monkeypatch.setattr(counter, "compiled_plugin", lambda qemu: (None, "there is no C compiler for QEMU's plugin"))
    monkeypatch.setattr("aot.run.process.compiled_plugin", counter.compiled_plugin)
    result = run_bundle(made, [X])
    assert (result.instructions, result.per_layer) == (None, None)
    assert result.stack_nbytes is not None and result.outputs[0].tolist() == list(range(12))
    with pytest.raises(CompileError, match="no harness is there for riscv128, which 'odd' is"):
        program.compiler_options(replace(made.target, name="odd", triple="riscv128-none-elf"))
    program._linked.cache_clear()
    monkeypatch.setattr(program.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="running code in a Linux process needs ziglang's compiler and linker"):
        run_bundle(made, [X])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError, match="qemu-aarch64, which runs code of 'cortex-a53', is not installed"):
        run_bundle(made, [X])


def test_a_cpu_that_qemu_does_not_have() -> None:
    made = one_layer("", "cortex-a53")
    target = replace(made.target, run={"qemu": {"program": "qemu-aarch64", "cpu": "cortex-a1000"}})
    with pytest.raises(CompileError, match=r"qemu-aarch64 can't run the code: .*unable to find CPU model 'cortex-a1000'"):
        run_bundle(replace(made, target=target), [X])
    unfinished = process_object("extern int other(void); int test_run(void) { return other(); }", "cortex-a53")
    with pytest.raises(CompileError, match=r"can't link the bundle: .*undefined symbol: other"):
        run_bundle(bundle(unfinished, "cortex-a53"), [])


LOOPS = {
    "cortex-a9": ("mov r12, #0\n1: add r12, r12, #1\ncmp r12, %0\nbne 1b", '"r12", "cc"', 3),
    "cortex-a53": ("mov w9, #0\n1: add w9, w9, #1\ncmp w9, %w0\nb.ne 1b", '"x9", "cc"', 3),
    "rv32imc": ("li t3, 0\n1: addi t3, t3, 1\nbne t3, %0, 1b", '"t3"', 2),
    "rv64gc": ("li t3, 0\n1: addi t3, t3, 1\nbne t3, %0, 1b", '"t3"', 2),
    "hexagonv68": ("r6 = #0\n1:\n{ r6 = add(r6, #1) }\n{ p0 = cmp.eq(r6, %0) }\n{ if (!p0) jump 1b }", '"r6", "p0"', 3),
}
"""A loop in assembly, what it changes, and the instructions (a Hexagon's packets) of a turn."""


@pytest.mark.parametrize("cpu", PROCESSES)
def test_counts_are_exact(cpu: str) -> None:
    code, changed, turn = LOOPS[cpu]

    def counted(turns: int) -> int:
        text = code.replace("\n", "\\n")
        result = run_bundle(one_layer(f'int n = {turns}; asm volatile("{text}" :: "r"(n) : {changed})', cpu), [X])
        assert result.per_layer is not None
        return dict(result.per_layer)["layer_0"]

    assert counted(2000) - counted(1000) == 1000 * turn
