"""The loader: byte for byte what GNU ld makes of the same object at the same addresses; and what it refuses."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from llvmlite import binding

from aot.errors import InternalError
from aot.run.hooks import decode
from aot.run.image import ObjectFile
from tests.run.objects import arm_object, function, host_object

CODE, RODATA = 0x10_0000, 0x28_0000
SOURCE = """
    static const signed char table[40] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static const int other[16] = {1, -2, 3, -4, 5, -6, 7};
    static const int *const pointers[2] = {other + 3, other + 9};
    static __attribute__((noipa)) int layer_0(const signed char *x) { int s = 0; for (int i = 0; i < 40; i++) s += x[i] * table[i]; return s; }
    static __attribute__((noipa)) int layer_1(int i) { return other[i & 15] + *pointers[i & 1]; }
    static __attribute__((noipa)) int layer_2(int i) { return layer_1(i + 1); }
    int (*test_pointer(void))(int) { return layer_2; }
    int test_run(const signed char *x, signed char *y, signed char *w) { y[0] = layer_0(x) / (int)(x[0] | 1) + layer_2(3); return 0; }
"""
BRANCHES = (
    function(
        "layer_0", "cmp r0, #1\nbeq.w layer_1\nbne.w test_run\nb.w layer_1\nbl layer_1\nbx lr\n.word layer_1\n.word layer_1 - ."
    )
    + function("layer_1", "movw r0, #:lower16:layer_0\nmovt r0, #:upper16:layer_0\nnop\nbl layer_0\nbl layer_1\nbx lr")
    + function("test_run", "movw r1, #:lower16:(table - .)\nmovt r1, #:upper16:(table - .)\nb.n layer_1\nbx lr", visible=True)
    + '.section .rodata,"a",%progbits\ntable: .word 1, table + 8, layer_1\n'
)


def _linked_by_ld(data: bytes, folder: Path) -> dict[str, bytes]:
    """Sections of the object linked by GNU ld at CODE and RODATA."""
    if shutil.which("arm-none-eabi-ld") is None:
        pytest.skip("arm-none-eabi-ld is not installed")
    (folder / "code.o").write_bytes(data)
    (folder / "script.ld").write_text(
        f"SECTIONS {{ .text {CODE} : {{ *(.text .text.*) }} .rodata {RODATA} : {{ *(.rodata .rodata.*) }} /DISCARD/ : {{ *(*) }} }}"
    )
    command = ["arm-none-eabi-ld", "-T", folder / "script.ld", "-e", "test_run", "-o", folder / "linked", folder / "code.o"]
    subprocess.run(command, check=True)
    with open(folder / "linked", "rb") as stream:
        return {section.name: section.data() for section in ELFFile(stream).iter_sections() if section.name in (".text", ".rodata")}


@pytest.mark.parametrize(
    ("cpu", "options"),
    [
        ("cortex-m0", ""),
        ("cortex-m3", ""),
        ("cortex-m4", "-mslow-flash-data"),
        ("cortex-m33", "-mpure-code -fno-jump-tables"),
        ("cortex-m7", "-fpic -mpic-data-is-text-relative"),
        ("cortex-m55", "-fno-function-sections"),
    ],
)
def test_same_bytes_as_ld(cpu: str, options: str, tmp_path: Path) -> None:
    source = SOURCE.replace("/ (int)(x[0] | 1)", "") if cpu == "cortex-m0" else SOURCE
    source = source.replace("*pointers[i & 1]", "0") if "-fpic" in options else source
    data = arm_object(source, cpu, options=options)
    image, expected = ObjectFile(data).link(CODE, RODATA), _linked_by_ld(data, tmp_path)
    assert image.code.hex() == expected[".text"].hex()
    assert image.rodata.hex() == expected[".rodata"].hex()
    assert {"layer_0", "layer_1", "layer_2", "test_run"} <= set(image.by_name)
    assert image.function_at(image.by_name["layer_2"].address + 2) == "layer_2"


@pytest.mark.parametrize("cpu", ["cortex-m3", "cortex-m33"])
def test_branches_and_moves_as_ld(cpu: str, tmp_path: Path) -> None:
    data = arm_object(f".syntax unified\n.thumb\n{BRANCHES}", cpu, "s")
    image, expected = ObjectFile(data).link(CODE, RODATA), _linked_by_ld(data, tmp_path)
    assert image.code.hex() == expected[".text"].hex()
    assert image.rodata.hex() == expected[".rodata"].hex()


@pytest.mark.parametrize(
    ("triple", "reloc"), [("thumbv6m-none-eabi", "static"), ("thumbv7em-none-eabihf", "static"), ("thumbv7m-none-eabi", "pic")]
)
def test_llvm_objects_as_ld(triple: str, reloc: str, tmp_path: Path) -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    source = f"""target triple = "{triple}"
        @table = private constant [300 x i32] zeroinitializer
        declare void @llvm.memset.p0.i32(ptr, i8, i32, i1)
        define internal i32 @layer_0(ptr %x, i32 %i) noinline nounwind {{
          %p = getelementptr [300 x i32], ptr @table, i32 0, i32 %i
          %v = load i32, ptr %p
          %d = sub i32 %v, 123456789
          ret i32 %d
        }}
        define i32 @test_run(ptr %x) nounwind {{
          %a = load i32, ptr %x
          %r = call i32 @layer_0(ptr %x, i32 %a)
          %s = call i32 @layer_0(ptr %x, i32 %r)
          ret i32 %s
        }}"""
    data = binding.Target.from_triple(triple).create_target_machine(reloc=reloc, opt=2).emit_object(binding.parse_assembly(source))
    image, expected = ObjectFile(data).link(CODE, RODATA), _linked_by_ld(data, tmp_path)
    assert image.code.hex() == expected[".text"].hex()
    assert image.rodata.hex() == expected[".rodata"].hex()


def test_decoding_knows_data_in_code() -> None:
    """A 32-bit instruction, a literal that looks like the first half of one, a 16-bit instruction behind it."""
    code = function("layer_0", "ldm.w r0, {r1, r2}\nb.n 1f\n.word 0xf800f800\n1: vldr s0, [r0]\nldm r0!, {r1}\nbx lr")
    image = ObjectFile(arm_object(f".syntax unified\n.thumb\n{code}", "cortex-m4", "s")).link(CODE, RODATA)
    starts, multiple = decode(image)
    assert starts.tolist() == [True, False, True, False, False, True, False, True, True]
    assert multiple.tolist() == [True, False, False, False, False, True, False, True, False]


def test_refuses_what_a_bundle_never_has() -> None:
    with pytest.raises(InternalError, match="the object leaves 'missing' undefined"):
        ObjectFile(arm_object("int missing(void); int test_run(void) { return missing() + 1; }", "cortex-m4")).link(CODE, RODATA)
    with pytest.raises(InternalError, match=r"section \.data of the object is writable"):
        ObjectFile(arm_object("int counter = 3; int test_run(void) { return counter++; }", "cortex-m4"))
    with pytest.raises(InternalError, match=r"the object is ET_REL for EM_.*, not a relocatable one for Arm"):
        data = host_object("ret i32 0")
        assert ELFFile(io.BytesIO(data))["e_type"] == "ET_REL"
        ObjectFile(data)
