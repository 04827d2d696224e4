"""Targets: the package's own files, this machine, LLVM triples."""

from __future__ import annotations

from pathlib import Path

import pytest
from llvmlite import binding

from aot.errors import CompileError
from aot.run import default_where
from aot.target import host_target, load_target, target_names, triple_target


@pytest.mark.parametrize("name", target_names())
def test_llvm_knows_the_target(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM complains on standard error about a CPU or feature that it does not know."""
    target = load_target(name)
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(target.triple).create_target_machine(cpu=target.cpu, features=target.features)
    machine.emit_assembly(binding.parse_assembly(f'target triple = "{target.triple}"\ndefine void @f() {{\n  ret void\n}}'))
    assert capfd.readouterr().err == ""
    assert target.summary
    assert {"unicorn", "qemu", "renode"} >= set(target.run)
    assert (target.float_abi == "hard") == target.triple.endswith("hf")


@pytest.mark.parametrize(
    ("name", "place"), [("cortex-m0", "unicorn"), ("cortex-m33", "unicorn"), ("cortex-m55", "qemu"), ("cortex-m85", "qemu")]
)
def test_default_place(name: str, place: str) -> None:
    assert default_where(load_target(name)) == place


def test_no_place() -> None:
    with pytest.raises(CompileError, match="no emulator runs code of target 'riscv32'"):
        default_where(load_target("riscv32"))


def test_host_is_the_baseline() -> None:
    target = host_target()
    assert target.is_host
    assert target.cpu in ("x86-64", "generic", "pentium4")
    assert default_where(target) == "host"


def test_triples() -> None:
    soft = triple_target("thumbv7em-none-eabi")
    assert (soft.cpu, soft.float_abi, soft.pointer_bits) == ("", "soft", 32)
    assert soft.has == {"dsp", "divide", "long_multiply", "saturate", "unaligned"}
    assert triple_target("thumbv7em-none-eabihf").cpu == "cortex-m4"
    assert triple_target("thumbv7em-none-eabihf", "cortex-m7").features == "-fp64"
    assert "fpu" in triple_target("thumbv8m.main-none-eabihf").has
    assert triple_target("avr").pointer_bits == 16
    assert triple_target("aarch64-linux-gnu").pointer_bits == 64
    assert triple_target("riscv32-unknown-elf", features="+m,+c").has == {"divide", "long_multiply"}
    assert default_where(soft) == "unicorn"


@pytest.mark.parametrize("triple", ["xtensa", "nonsense-none", "", "thumbv7em-none-eabi\0x", "thumbv7em; rm"])
def test_unknown_triple(triple: str) -> None:
    with pytest.raises(CompileError, match="LLVM has no target"):
        triple_target(triple)


def test_hard_float_without_fpu() -> None:
    with pytest.raises(
        CompileError, match="cortex-m0 has no FPU, so it can't pass floats in registers as 'thumbv6m-none-eabihf' asks"
    ):
        triple_target("thumbv6m-none-eabihf")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("triple: [", "can't be read as YAML: line 1: expected the node content"),
        ('triple: "\\UFFFFFFFF"', "can't be read as YAML: "),
        ("triple: 2001-13-01", "can't be read as YAML: month must be in 1..12"),
        ("triple: " + "[" * 9999, "can't be read as YAML: "),
        ("- 3", "a target file is a YAML mapping with at least a triple"),
        ("triple: thumbv7m-none-eabi\nspeed: 3", "unknown field 'speed'"),
        ("triple: nonsense", "LLVM has no target 'nonsense'"),
        ("triple: thumbv7m-none-eabi\ncpu: 3", "cpu is not text"),
        ("triple: thumbv7m-none-eabi\nhas: dsp", "has is a list of some of divide, dotprod, dsp"),
        ("triple: thumbv7m-none-eabi\nhas: [wings]", "has is a list of some of divide, dotprod, dsp"),
        ("triple: thumbv7m-none-eabi\nhas: [dsp]", "thumbv7m has no dsp, which needs thumbv7em or thumbv8m.main"),
        ("triple: riscv32-unknown-none-elf\nhas: [saturate]", "riscv32 has no saturate, which needs thumbv7m"),
        ("triple: thumbv7m-none-eabi\nfeatures: fp16", "features are like"),
        ("triple: thumbv7m-none-eabi\nname: host", "name is one line of text, and not host"),
        ('triple: thumbv7m-none-eabi\nname: "a\\nb"', "name is one line of text"),
        ("triple: thumbv7m-none-eabi\npointer_bits: 64", "a pointer of thumbv7m-none-eabi has 32 bits"),
        ("triple: thumbv7m-none-eabi\nfloat_abi: firm", "float_abi is hard or soft"),
        ("triple: thumbv7m-none-eabi\npointer_bits: 33", "pointer_bits is 16, 32 or 64"),
        ("triple: thumbv7m-none-eabi\nmemory: {code: low}", "memory is a mapping of names to addresses and sizes"),
        ("triple: thumbv7m-none-eabi\nrun: {bochs: {}}", "run is a mapping of unicorn, qemu, renode to their parameters"),
        ("triple: thumbv7m-none-eabi\nrun: {unicorn: {}}", "run of unicorn lacks model"),
        ("triple: thumbv7m-none-eabi\nrun: {renode: {cpu: cortex-m3}}", "run of renode needs memory's code"),
        ("triple: thumbv7m-none-eabi\nrun: {qemu: {}}", "run of qemu lacks machine"),
        ("triple: armv7-none-eabi\nrun: {qemu: {program: qemu-arm}}", "run of qemu lacks cpu"),
        ("triple: armv7-none-eabi\nl2_nbytes: big", "l2_nbytes is a number of bytes"),
    ],
)
def test_bad_target_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(CompileError, match=message):
        load_target(str(path))


def test_own_target_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("triple: riscv64-unknown-none-elf\nfeatures: +m\nhas: [divide]\n")
    target = load_target(str(path))
    assert (target.name, target.pointer_bits, target.has, target.float_abi) == ("mine", 64, {"divide"}, "")


def test_unknown_cpu() -> None:
    with pytest.raises(CompileError, match=r"unknown CPU 'cortex-m5'.*did you mean cortex-m[0-9]+.*known: cortex-a15, "):
        load_target("cortex-m5")
