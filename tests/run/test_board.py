"""Runs on QEMU's boards: results, counts that agree with Unicorn's, faults; and the firmware's other way out, the UART."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from aot.errors import CompileError, InternalError
from aot.run import board, default_where, renode, run_bundle
from aot.run.firmware import Clock, Firmware, Output
from aot.target import load_target
from tests.run.objects import FLAGS, X, arm_object, assembled, bundle, function, needs_qemu, one_layer, port

LAYER = r"layer layer_0 \(test kernel, node 0 TEST\): "
LOOPS = "for (int k = 0; k < 1000; k++) for (int i = 0; i < 490; i++) w[i & 63] = x[i]"


@pytest.fixture(autouse=True)
def _qemu() -> None:
    needs_qemu()


@pytest.mark.parametrize("cpu", list(FLAGS))
def test_agrees_with_unicorn(cpu: str) -> None:
    made = one_layer(LOOPS, cpu)
    result = run_bundle(made, [X], "qemu")
    assert result.where == "qemu"
    assert result.outputs[0].tolist() == list(range(12))
    assert result.instructions is not None
    if "unicorn" in made.target.run:
        other = run_bundle(made, [X], "unicorn")
        assert other.instructions is not None
        assert result.stack_nbytes == other.stack_nbytes
        assert abs(result.instructions - other.instructions) <= 4
    else:
        assert default_where(made.target) == "qemu"
        assert result.instructions > 1000 * 490 * 4


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m33", "cortex-m55"])
def test_count_of_a_loop(cpu: str) -> None:
    loop = "ldr r2, =#100000\n1: subs r2, #1\n" + "nop\n" * 8 + "bne 1b\nstrb r2, [r0]\nbx lr\n.ltorg"
    code = function("layer_0", loop) + function("test_run", "push {r4, lr}\nbl layer_0\nmovs r0, #0\npop {r4, pc}", visible=True)
    counted = run_bundle(assembled(code, cpu), [], "qemu").instructions
    assert counted is not None
    assert abs(counted - (10 * 100000 + 3 + 4)) <= 4


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m33", "cortex-m55"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("w[64] = 1", "1 byte past the end of the workspace .64 bytes."),
        ("w[-1] = 1", "1 byte before the start of the workspace"),
        ("y[12] = 1", "1 byte past the end of output 0 'y' .12 bytes."),
        ("((volatile char *)x)[5] = 1", "at offset 5 of input 0 'x' .read-only"),
        ('asm volatile("mov r9, #0")', "test_run did not preserve r9: 0x5afe0009 became 0x0"),
        ('asm volatile("udf #0")', LAYER + "an instruction that the CPU does not have"),
        ('asm volatile("bx %0" :: "r"(0x12345))', "test_run: .*outside the code"),
        ('asm volatile("ldrd r0, r1, [%0]" :: "r"(x + 2) : "r0", "r1")', LAYER + "an unaligned access"),
        ("for (;;)", LAYER + "still running after 1000000 instructions; at 0x[0-9a-f]+ of the code"),
    ],
)
def test_faults(cpu: str, body: str, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        run_bundle(one_layer(body, cpu), [X], "qemu", limit=1000000)


@pytest.mark.parametrize("cpu", ["cortex-m33", "cortex-m55"])
def test_reads_outside_fault_with_an_mpu(cpu: str) -> None:
    with pytest.raises(InternalError, match=LAYER + r"an access outside .*, 1 byte before the start of input 0 'x'"):
        run_bundle(one_layer("x[-1]", cpu), [X], "qemu")
    with pytest.raises(InternalError, match=LAYER + r"an access outside .*, 3 bytes past the end of input 0 'x'"):
        run_bundle(one_layer("x[492]", cpu), [X], "qemu")


def test_unaligned_access_of_a_core_that_allows_none() -> None:
    with pytest.raises(InternalError, match=LAYER + "an unaligned access"):
        run_bundle(one_layer("*(volatile short *)(x + 1)", "cortex-m0plus"), [X], "qemu")


@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m7", "cortex-m85"])
def test_separate_weights_and_arguments_on_the_stack(cpu: str) -> None:
    source = """
        typedef const signed char *in;
        int test_run(in a, in b, in c, signed char *y, signed char *w, in k)
        { w[0] = a[1] + b[2]; y[0] = w[0] + c[3]; y[1] = k[99]; return 0; }
    """
    x = [np.arange(4).astype(np.int8) + 10 * i for i in range(3)]
    ports = {"inputs": [port(name, (4,)) for name in "abc"], "outputs": [port("y", (2,))]}
    made = bundle(arm_object(source, cpu), cpu, weights=bytes(range(104)), **ports)
    assert run_bundle(made, x, "qemu").outputs[0].tolist() == [1 + 12 + 23, 99]


def test_code_that_is_larger_than_the_board() -> None:
    made = one_layer("", "cortex-m4")
    with pytest.raises(CompileError, match=r"the emulated board has too little RAM: 4194304 bytes, and [0-9]+ needed"):
        run_bundle(bundle(made.object, "cortex-m4", workspace_nbytes=5_000_000), [], "qemu")


def test_qemu_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = one_layer("", "cortex-m55")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CompileError, match=r"qemu-system-arm is not installed \(apt install qemu-system-arm\)"):
        run_bundle(made, [X])


def test_firmware_hands_memory_over_through_a_uart() -> None:
    """What Renode gets: the same firmware, but for the last step, on QEMU's board with its UART written to a file."""
    made = one_layer(LOOPS, "cortex-m4")

    def execute(firmware: Firmware, folder: Path) -> bytes:
        loads = []
        for number, (address, content) in enumerate((*firmware.code, firmware.ram)):
            (folder / f"{number}.bin").write_bytes(content)
            loads += ["-device", f"loader,file={folder}/{number}.bin,addr={address:#x},force-raw=on"]
        output = folder / "memory"
        command = ["qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", f"file:{output}"]
        running = subprocess.Popen([*command, *loads, "-icount", "shift=0"])
        for _ in range(600):
            if output.is_file() and output.stat().st_size >= len(firmware.ram[1]):
                break
            try:
                running.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        running.kill()
        running.wait()
        return output.read_bytes()

    clock = Clock(40, 10**9)
    result = board.run_board(made, made.main, [X], clock, lambda folder: Output(uart=0x40004000), execute, "uart")
    assert result.outputs[0].tolist() == list(range(12))
    assert result.instructions == run_bundle(made, [X], "qemu").instructions


def test_renode_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = one_layer("", "cortex-m4")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CompileError, match="renode is not installed"):
        run_bundle(made, [X], "renode")


def test_renode_files(tmp_path: Path) -> None:
    code, ram = (0x11000000, b"c" * 5000), (0x31000000, b"r" * 100)
    vectors = (0x10000000, (0x31000040).to_bytes(4, "little") + (0x10000041).to_bytes(4, "little"))
    made = Firmware(0x10000000, (vectors, code), ram, 10, Clock(None, 10**8))
    script = renode.write_files(load_target("cortex-m55"), made, tmp_path, 10**8).read_text().splitlines()
    assert f"sysbus LoadBinary @{tmp_path}/1.bin 0x11000000" in script
    assert {f"sysbus.cpu {one}" for one in ("SP 0x31000040", "PC 0x10000041", "VectorTableOffset 0x10000000")} <= set(script)
    assert script[-2:] == ['emulation RunFor "1.000"', "quit"]
    platform = (tmp_path / "board.repl").read_text()
    assert "memory1: Memory.MappedMemory @ sysbus 0x11000000\n    size: 0x2000\n\n" in platform
    assert 'cpuType: "cortex-m55"' in platform
    assert (tmp_path / "2.bin").read_bytes() == ram[1]


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m7", "cortex-m55"])
def test_renode(cpu: str) -> None:
    if shutil.which("renode") is None:
        pytest.skip("renode is not installed")
    made = one_layer(LOOPS, cpu)
    result = run_bundle(made, [X], "renode")
    expected = run_bundle(made, [X], "qemu")
    assert result.outputs[0].tolist() == list(range(12))
    assert result.instructions is not None and expected.instructions is not None
    assert abs(result.instructions - expected.instructions) <= 4
