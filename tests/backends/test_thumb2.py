"""Machine code of single instructions against an assembler, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.backends.cmsis_nn.swar.m3.thumb2 import EQ, LR, NE, PC, SP, Code
from aot.errors import InternalError

INSTRUCTIONS: list[tuple[str, Callable[[Code], None]]] = [
    ("push {r1-r11, lr}", lambda code: code.push((*range(1, 12), LR))),
    ("pop.w {r1-r11, pc}", lambda code: code.pop((*range(1, 12), PC))),
    ("ldm r0!, {r1, r2, r3}", lambda code: code.ldm(0, (1, 2, 3))),
    ("ldm.w r0!, {r1, r2, r3, r10, r11, r12}", lambda code: code.ldm(0, (1, 2, 3, 10, 11, 12))),
    ("stm.w lr!, {r4-r9}", lambda code: code.stm(LR, range(4, 10))),
    ("stm.w r0, {r4-r9}", lambda code: code.stm(0, range(4, 10), writes_back=False)),
    ("ldrsb r10, [r12], #1", lambda code: code.ldrsb_post(10, 12)),
    ("ldrb r10, [r12], #3", lambda code: code.ldrb_post(10, 12, 3)),
    ("ldr r1, [r0], #12", lambda code: code.ldr_post(1, 0, 12)),
    ("str r4, [lr], #4", lambda code: code.str_post(4, LR)),
    ("ldrd r1, r2, [r0], #12", lambda code: code.ldrd_post(1, 2, 0, 12)),
    ("ldrd r4, r5, [r3, #8]", lambda code: code.ldrd(4, 5, 3, 8)),
    ("ldr.w r0, [sp, #8]", lambda code: code.ldr(0, SP, 8)),
    ("str.w r12, [sp]", lambda code: code.str(12, SP, 0)),
    ("mla r9, r3, r10, r11", lambda code: code.mla(9, 3, 10, 11)),
    ("mul r10, r10, r1", lambda code: code.mul(10, 10, 1)),
    ("udiv r10, r10, r1", lambda code: code.udiv(10, 10, 1)),
    ("mov r12, r1", lambda code: code.mov(12, 1)),
    ("mov r6, r4", lambda code: code.mov(6, 4)),
    ("movw r11, #32768", lambda code: code.movw(11, 32768)),
    ("movw r1, #0x3ABC", lambda code: code.movw(1, 0x3ABC)),
    ("movt r8, #255", lambda code: code.movt(8, 255)),
    ("and.w r9, r1, r8", lambda code: code.and_(9, 1, 8)),
    ("and.w r1, r8, r1, lsr #8", lambda code: code.and_lsr(1, 8, 1, 8)),
    ("add r4, r10", lambda code: code.add(4, 10)),
    ("addw lr, r2, #1848", lambda code: code.add_number(LR, 2, 1848)),
    ("add.w r5, r5, r1, asr #16", lambda code: code.add_asr(5, 5, 1, 16)),
    ("sub.w r4, r4, r5, lsl #16", lambda code: code.sub_lsl(4, 4, 5, 16)),
    ("bic r0, r0, #3", lambda code: code.bic(0, 0, 3)),
    ("tst.w r10, #1", lambda code: code.tst(10, 1)),
    ("cmp r0, lr", lambda code: code.cmp(0, LR)),
    ("add pc, r10\nnop", lambda code: code.jump(10)),
    ("beq.w . - 300", lambda code: code.branch(EQ, code.nbytes - 300)),
    ("bne.w . + 70000", lambda code: code.branch(NE, code.nbytes + 70000)),
]


def test_instructions_against_an_assembler(tmp_path: Path) -> None:
    assembler, copy = shutil.which("arm-none-eabi-as"), shutil.which("arm-none-eabi-objcopy")
    if assembler is None or copy is None:
        pytest.skip("arm-none-eabi-as is not installed")
    source, object, raw = (tmp_path / name for name in ("a.s", "a.o", "a.bin"))
    source.write_text(".syntax unified\n.thumb\n" + "\n".join(text for text, _ in INSTRUCTIONS) + "\n")
    subprocess.run([assembler, "-mcpu=cortex-m3", "-o", object, source], check=True)
    subprocess.run([copy, "-O", "binary", "-j", ".text", object, raw], check=True)
    code = Code()
    for _, emit in INSTRUCTIONS:
        emit(code)
    assert code.finish().hex(" ", 2) == raw.read_bytes()[: code.nbytes].hex(" ", 2)


@pytest.mark.parametrize(
    "emit",
    [
        lambda code: code.ldm(0, (0, 1)),
        lambda code: code.stm(0, (2, 1)),
        lambda code: code.push((4, PC)),
        lambda code: code.ldr(1, 0, 4096),
        lambda code: code.ldrsb_post(1, 0, 256),
        lambda code: code.movw(1, 65536),
        lambda code: code.cmp(1, 2),
        lambda code: code.branch(EQ, 1 << 21),
    ],
)
def test_what_has_no_encoding_raises(emit: Callable[[Code], None]) -> None:
    with pytest.raises(InternalError):
        emit(Code())
