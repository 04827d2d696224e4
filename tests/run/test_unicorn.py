"""Runs in Unicorn: results, counts, and everything that must be noticed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from aot.errors import CompileError, InternalError
from aot.run import run_bundle
from tests.run.objects import X, arm_object, assembled, bundle, function, one_layer, port

CPUS = ["cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m23", "cortex-m33"]
LAYER = r"layer layer_0 \(test kernel, node 0 TEST\): "


@pytest.mark.parametrize("cpu", CPUS)
def test_result_and_layers(cpu: str) -> None:
    source = """
        #define LAYER static __attribute__((noipa)) void
        LAYER layer_0(const signed char *x, signed char *w) { for (int i = 0; i < 64; i++) w[i] = x[i] * 3; }
        LAYER layer_1(const signed char *w, signed char *y) { for (int i = 0; i < 12; i++) y[i] = w[5 * i] + 1; }
        int test_run(const signed char *x, signed char *y, signed char *w) { layer_0(x, w); layer_1(w, y); return 0; }
    """
    ports = {"inputs": [port("x", (490,))], "outputs": [port("y", (3, 4))]}
    result = run_bundle(bundle(arm_object(source, cpu), cpu, layers=["layer_0", "layer_1"], **ports), [X])
    assert result.where == "unicorn"
    np.testing.assert_array_equal(result.outputs[0], (X[:60:5] * 3 + 1).astype(np.int8).reshape(3, 4))
    assert result.per_layer is not None
    assert [name for name, _ in result.per_layer] == ["layer_0", "layer_1", "test_run"]
    assert sum(count for _, count in result.per_layer) == result.instructions
    assert all(count > 5 for _, count in result.per_layer)


def test_float_arithmetic_uses_the_fpu() -> None:
    source = "int test_run(const float *x, float *y, void *w) { for (int i = 0; i < 4; i++) y[i] = x[i] * 1.5f + 2.0f; return 0; }"
    from aot.graph.ir import DType

    ports = {"inputs": [port("x", (4,), DType.FLOAT32)], "outputs": [port("y", (4,), DType.FLOAT32)]}
    x = np.array([1, -2, 0.5, 1e10], np.float32)
    for cpu in ("cortex-m4", "cortex-m7", "cortex-m33"):
        result = run_bundle(bundle(arm_object(source, cpu), cpu, **ports), [x])
        np.testing.assert_array_equal(result.outputs[0], x * np.float32(1.5) + np.float32(2))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x[-1]", "reads 1 byte at 0x[0-9a-f]+, 1 byte before the start of input 0 'x' .read-only, 490 bytes."),
        ("x[492]", "reads 1 byte at .*, 3 bytes past the end of input 0 'x'"),
        ("w[64] = 1", "writes 1 byte at .*, 1 byte past the end of the workspace .64 bytes."),
        ("w[-1] = 1", "writes 1 byte at .*, 1 byte before the start of the workspace"),
        ("y[12] = 1", "writes 1 byte at .*, 1 byte past the end of output 0 'y' .12 bytes."),
        ("y[-1]", "reads 1 byte at .*, 1 byte before the start of output 0 'y'"),
        ("((volatile char *)x)[5] = 1", "writes 1 byte at .*, at offset 5 of input 0 'x' .read-only"),
        ("w[5000000] = 1", "writes 1 byte at .* past the end of the stack"),
        ("volatile char big[20000]; big[0] = 1", "writes 1 byte at .* before the start of the stack .4096 bytes."),
        ("*(volatile int *)0 = 1", "writes 4 bytes at 0x0, [0-9]+ bytes before the start of the code"),
        ('asm volatile("bx %0" :: "r"(0x12345))', "jumps to 0x12344, .* outside the code"),
        ('asm volatile("bx %0" :: "r"((int)w + 1))', "jumps to .* of the workspace|an instruction that the CPU does not have"),
        ('asm volatile("udf #0")', "an instruction that the CPU does not have; at 0x0 of the code"),
    ],
)
def test_wrong_access_names_the_layer(body: str, message: str) -> None:
    with pytest.raises(InternalError, match=LAYER + message):
        run_bundle(one_layer(body, "cortex-m4"), [X])


@pytest.mark.parametrize(
    ("cpu", "body", "message"),
    [
        ("cortex-m0", "*(volatile int *)(x + 2)", "an exception: an unaligned access"),
        ("cortex-m0", "*(volatile short *)(x + 1)", "an exception: an unaligned access"),
        ("cortex-m4", 'asm volatile("ldrd r0, r1, [%0]" :: "r"(x + 2) : "r0", "r1")', "an unaligned access of 4 bytes"),
        ("cortex-m4", 'asm volatile("ldm %0, {r0, r1}" :: "r"(x + 2) : "r0", "r1")', "an unaligned access of 4 bytes"),
        ("cortex-m4", 'asm volatile("movs r2, %0; stm r2!, {r0, r1}" :: "l"(y + 2) : "r2")', "an unaligned access of 4 bytes"),
        ("cortex-m4", 'asm volatile("vldr d0, [%0]" :: "r"(x + 2) : "d0")', "an unaligned access of 8 bytes"),
        ("cortex-m33", 'asm volatile("strd r0, r1, [%0]" :: "r"(w + 1))', "an unaligned access of 4 bytes"),
    ],
)  # fmt: skip
def test_unaligned_access_that_the_cpu_refuses(cpu: str, body: str, message: str) -> None:
    with pytest.raises(InternalError, match=LAYER + message):
        run_bundle(one_layer(body, cpu), [X])


@pytest.mark.parametrize(
    "body", ["*(volatile int *)(x + 2)", "*(volatile short *)(x + 1)", 'asm volatile("vldr d0, [%0]" :: "r"(x + 4) : "d0")']
)
def test_unaligned_access_that_the_cpu_allows(body: str) -> None:
    assert run_bundle(one_layer(body, "cortex-m4"), [X]).outputs[0].tolist() == list(range(12))


def test_unaligned_access_to_a_port_of_bytes() -> None:
    """A caller may pass int8 at any address, also where its size would let it lie at a word."""
    code = function("test_run", "ldrd r2, r3, [r0]\nstr r2, [r1]\nmovs r0, #0\nbx lr", visible=True)
    for align in (1, 4):
        ports = {"inputs": [port("x", (8,), align=align)], "outputs": [port("y", (4,), align=1)]}
        made = bundle(arm_object(f".syntax unified\n.thumb\n{code}\n", "cortex-m4", "s"), "cortex-m4", **ports)
        if align == 4:
            assert run_bundle(made, [X[:8]]).outputs[0].tolist() == [0, 1, 2, 3]
        else:
            with pytest.raises(InternalError, match=r"test_run: an unaligned access of 4 bytes at .*, at offset 0 of input 0 'x'"):
                run_bundle(made, [X[:8]])


def test_what_follows_an_access_in_an_it_block() -> None:
    """Unicorn 2.1 skips the first instruction behind this loop if its stores are hooked: a false alarm, or none."""
    loop = "sub sp, #16\nadd r3, sp, #2\nmovs r2, #2\n1: cmp r2, #9\nit ne\nstrbne r2, [r0]\nsubs r2, #1\nbne 1b\n"
    entry = function("test_run", "push {r4, lr}\nbl layer_0\nmovs r0, #0\npop {r4, pc}", visible=True)
    aligned = function("layer_0", loop + "sub.w r3, #2\nldrd r1, r2, [r3]\nadd sp, #16\nbx lr") + entry
    assert run_bundle(assembled(aligned, "cortex-m4"), []).outputs[0].tolist() == [1]
    unaligned = function("layer_0", loop + "ldrd r1, r2, [r3]\nadd sp, #16\nbx lr") + entry
    with pytest.raises(InternalError, match=LAYER + "an unaligned access of 4 bytes at 0x[0-9a-f]+, .* the stack"):
        run_bundle(assembled(unaligned, "cortex-m4"), [])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('asm volatile("mov r9, #0")', "test_run did not preserve r9: 0x5afe0009 became 0x0"),
        ('asm volatile("mov r10, #1")', "test_run did not preserve r10"),
        ('asm volatile("vmov s16, %0" :: "r"(1))', "test_run did not preserve d8"),
    ],
)
def test_registers_that_must_be_preserved(body: str, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        run_bundle(one_layer(body, "cortex-m4"), [X])


def test_stack_pointer_must_be_restored() -> None:
    code = function("test_run", "movs r0, #0\nsub sp, #8\nbx lr", visible=True)
    with pytest.raises(InternalError, match="test_run returned with a stack pointer -8 bytes off"):
        run_bundle(assembled(code, "cortex-m3"), [])


def test_return_code() -> None:
    with pytest.raises(InternalError, match="test_run returned -2"):
        run_bundle(one_layer("", "cortex-m3", result="-2"), [X])


def test_endless_loop() -> None:
    with pytest.raises(InternalError, match=LAYER + r"still running after 100000 instructions; at 0x0 of the code"):
        run_bundle(one_layer("for (;;)", "cortex-m3"), [X], limit=100000)


def test_reading_what_nobody_wrote() -> None:
    source = (
        "int test_run(const signed char *x, signed char *y, signed char *w) { for (int i = 0; i < 12; i++) y[i] = w[i]; return 0; }"
    )
    ports = {"inputs": [port("x", (490,))], "outputs": [port("y", (12,))]}
    with pytest.raises(InternalError, match="output 0 'y' depends on what memory held before the run"):
        run_bundle(bundle(arm_object(source, "cortex-m4"), "cortex-m4", **ports), [X])


@pytest.mark.parametrize("iterations", [1, 1000, 100000])
def test_count_of_a_loop(iterations: int) -> None:
    """load, then 10 instructions an iteration, store, return: 3 + 10 n in the layer; push, call, move, pop in the entry."""
    loop = f"ldr r2, =#{iterations}\n1: subs r2, #1\n" + "nop\n" * 4 + "nop.w\n" * 4 + "bne 1b\nstrb r2, [r0]\nbx lr\n.ltorg"
    code = function("layer_0", loop) + function("test_run", "push {r4, lr}\nbl layer_0\nmovs r0, #0\npop {r4, pc}", visible=True)
    result = run_bundle(assembled(code, "cortex-m3"), [])
    assert result.instructions == 10 * iterations + 3 + 4
    assert result.per_layer == (("layer_0", 10 * iterations + 3), ("test_run", 4))


def test_count_of_skipped_instructions_and_called_routines() -> None:
    """Instructions that an IT block skips count; a routine counts for the layer that calls it."""
    layer = "push {lr}\nmovs r2, #1\ncmp r2, #0\nitt eq\nmoveq r2, #5\nmoveq r3, #6\nbl routine\nstrb r2, [r0]\npop {pc}"
    code = function("layer_0", layer) + function("routine", "adds r2, #1\nadds r2, #1\nbx lr")
    code += function("test_run", "push {r4, lr}\nbl layer_0\nmovs r0, #0\npop {r4, pc}", visible=True)
    result = run_bundle(assembled(code, "cortex-m4"), [])
    assert result.outputs[0].tolist() == [3]
    assert result.per_layer == (("layer_0", 9 + 3), ("test_run", 4))


def test_stack_of_a_known_frame() -> None:
    layer = "push {r4-r7, lr}\nsub sp, #100\nmovs r2, #0\nstr r2, [sp]\nstrb r2, [r0]\nadd sp, #100\npop {r4-r7, pc}"
    code = function("layer_0", layer) + function("test_run", "push {r4, lr}\nbl layer_0\nmovs r0, #0\npop {r4, pc}", visible=True)
    assert run_bundle(assembled(code, "cortex-m0"), []).stack_nbytes == 8 + 20 + 100


def test_stack_beyond_what_the_bundle_states() -> None:
    with pytest.raises(InternalError, match=r"test_run used 408 bytes of stack, more than the 100 that the bundle states"):
        run_bundle(one_layer("volatile char big[400]; big[0] = 1", "cortex-m4", stack_nbytes=100), [X])


def test_separate_weights_and_arguments_on_the_stack() -> None:
    source = """
        typedef const signed char *in;
        int test_run(in a, in b, in c, signed char *y, signed char *w, in k)
        { w[0] = a[1] + b[2]; y[0] = w[0] + c[3]; y[1] = k[99]; return 0; }
    """
    x = [np.arange(4).astype(np.int8) + 10 * i for i in range(3)]
    ports = {"inputs": [port(name, (4,)) for name in "abc"], "outputs": [port("y", (2,))]}
    made = bundle(arm_object(source, "cortex-m4"), "cortex-m4", weights=bytes(range(104)), **ports)
    assert run_bundle(made, x).outputs[0].tolist() == [1 + 12 + 23, 99]
    made = bundle(arm_object(source.replace("k[99]", "k[104]"), "cortex-m4"), "cortex-m4", weights=bytes(range(104)), **ports)
    with pytest.raises(InternalError, match=r"reads 1 byte at .*, 1 byte past the end of the weights"):
        run_bundle(made, x)


def test_inputs_and_outputs_in_the_workspace() -> None:
    source = "int test_run(signed char *w) { for (int i = 0; i < 8; i++) w[16 + i] = w[8 + i] + 1; return 0; }"
    ports = {"inputs": [port("x", (8,), workspace_offset=8)], "outputs": [port("y", (2, 4), workspace_offset=16)]}
    made = bundle(arm_object(source, "cortex-m0"), "cortex-m0", io_in_workspace=True, workspace_nbytes=24, **ports)
    assert run_bundle(made, [np.arange(8).astype(np.int8)]).outputs[0].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_inputs_that_do_not_fit() -> None:
    made = one_layer("", "cortex-m3")
    with pytest.raises(CompileError, match=r"input 'x': the input is int8\[3\], and the model takes int8\[490\]"):
        run_bundle(made, [X[:3]])
    with pytest.raises(CompileError, match="test_run has 1 inputs, and 0 were given"):
        run_bundle(made, [])


def test_unicorn_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = one_layer("", "cortex-m3")
    monkeypatch.setitem(sys.modules, "unicorn", None)
    with pytest.raises(CompileError, match=r"Unicorn is not installed \(pip install unicorn, or use --on qemu\)"):
        run_bundle(made, [X])


def test_places_that_do_not_suit() -> None:
    with pytest.raises(CompileError, match=r"code of target 'cortex-m3' can't run on host \(use --on unicorn\)"):
        run_bundle(one_layer("", "cortex-m3"), [X], "host")
    with pytest.raises(CompileError, match=r"code of target 'cortex-m55' can't run on unicorn \(use --on qemu\)"):
        run_bundle(one_layer("", "cortex-m55"), [X], "unicorn")
    with pytest.raises(CompileError, match="there is no place to run called 'moon'"):
        run_bundle(one_layer("", "cortex-m3"), [X], "moon")
