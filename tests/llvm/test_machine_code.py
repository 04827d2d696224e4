"""A function given as machine code: called like any other, marked as code, its stack reported."""

from __future__ import annotations

import io
from pathlib import Path

from elftools.elf.elffile import ELFFile
from llvmlite import ir

import aot
from aot.llvm import elf
from aot.llvm.llvm import Compiler
from aot.llvm.machine_code import machine_code
from aot.llvm.types import I32
from aot.target import load_target
from tests import one_operator
from tests.backends import emulator
from tests.backends.contracts import Case, program_of
from tests.backends.test_dsp_kernels import claim

_SQUARE = bytes.fromhex("f0b4 4043 f0bc 7047".replace(" ", ""))  # push {r4-r7}; muls r0, r0; pop {r4-r7}; bx lr


def module_with_call() -> ir.Module:
    from aot.llvm.emission import KernelFunction

    target, program = load_target("cortex-m3"), program_of(Case())
    module = ir.Module("test")
    function = KernelFunction(module, "kernel", claim(program, target), program, target)
    type = ir.FunctionType(I32, [I32])
    made = [machine_code(function, "square", type, _SQUARE, 16) for _ in range(2)]
    assert made[0] is made[1]
    made[0].section = ".text.mine"
    function.builder.call(made[0], [function.y0])
    function.finish()
    return module


def test_symbol_mark_and_stack() -> None:
    compiler = Compiler(load_target("cortex-m3"))
    emission = compiler.emit(compiler.parse(str(module_with_call())), ordered=True)
    assert emission.frames["aot_square"] == 16
    file = ELFFile(io.BytesIO(elf.finish(emission.object, bare_metal=True)))
    table = file.get_section_by_name(".symtab")
    (square,) = table.get_symbol_by_name("aot_square")
    assert square["st_info"]["type"] == "STT_FUNC" and square["st_value"] & 1
    section = file.get_section(square["st_shndx"])
    assert section.name == ".text.mine"
    assert section.data()[square["st_value"] & ~1 :].startswith(_SQUARE)
    marks = {
        (one["st_shndx"], one["st_value"]): one.name
        for one in table.iter_symbols()
        if one.name.startswith("$") and one.name != "$a"
    }
    assert marks[square["st_shndx"], square["st_value"] & ~1] == "$t"


def test_emulated_kernels_carry_the_mark_too() -> None:
    program, target = program_of(Case(kernel=(1, 1))), load_target("cortex-m3")
    table = ELFFile(io.BytesIO(emulator.assemble(program, claim(program, target), target))).get_section_by_name(".symtab")
    assert not any(one.name == "$d" and one["st_value"] == 0 for one in table.iter_symbols())


def test_code_behind_a_literal_pool_is_marked(tmp_path: Path) -> None:
    """LLVM has no mark of its own there, so that the code would count as the literals' continuation."""
    path = tmp_path / "net.tflite"
    path.write_bytes(one_operator.depthwise((1, 8, 8, 8)))
    bundle = aot.compile(path, "cortex-m0plus", options=aot.Options(optimize="speed"))
    table = ELFFile(io.BytesIO(bundle.object)).get_section_by_name(".symtab")
    symbols = [(one["st_value"] & ~1, one.name) for one in table.iter_symbols()]
    marks = sorted(one for one in symbols if one[1] in ("$d", "$t"))
    (start,) = (at for at, name in symbols if "_taps_" in name)
    assert any(name == "$d" for at, name in marks if at < start)
    assert [name for at, name in marks if at <= start][-1] == "$t"
