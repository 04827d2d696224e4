"""Armv6-M machine code of single instructions against an assembler, where there is one; what does not fit raises."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.backends.cmsis_nn.thumb1.assembler import ALWAYS, EQ, GE, LE, LR, LS, NE, PC, SP, Code
from aot.errors import InternalError

INSTRUCTIONS: list[tuple[str, Callable[[Code], None]]] = [
    ("push {r4-r7, lr}", lambda code: code.push((4, 5, 6, 7, LR))),
    ("push {r4-r7}", lambda code: code.push((4, 5, 6, 7))),
    ("pop {r4-r7, pc}", lambda code: code.pop((4, 5, 6, 7, PC))),
    ("ldm r6!, {r0-r2}", lambda code: code.ldm(6, (0, 1, 2))),
    ("stm r3!, {r0-r2, r4, r5, r7}", lambda code: code.stm(3, (0, 1, 2, 4, 5, 7))),
    ("ldr r3, [sp, #1020]", lambda code: code.ldr(3, SP, 1020)),
    ("ldr r3, [r7, #124]", lambda code: code.ldr(3, 7, 124)),
    ("str r2, [sp, #8]", lambda code: code.str(2, SP, 8)),
    ("str r2, [r5, #8]", lambda code: code.str(2, 5, 8)),
    ("ldrh r2, [r1, #62]", lambda code: code.ldrh(2, 1, 62)),
    ("ldrb r2, [r1, #31]", lambda code: code.ldrb(2, 1, 31)),
    ("ldrsb r2, [r0, r3]", lambda code: code.ldrsb(2, 0, 3)),
    ("strb r1, [r5, #5]", lambda code: code.strb(1, 5, 5)),
    ("strb r1, [r5, r3]", lambda code: code.strb_at(1, 5, 3)),
    ("mov r8, r5", lambda code: code.mov(8, 5)),
    ("mov r0, lr", lambda code: code.mov(0, LR)),
    ("add r8, r0", lambda code: code.add(8, 0)),
    ("add r0, r10", lambda code: code.add(0, 10)),
    ("movs r2, #255", lambda code: code.movs(2, 255)),
    ("adds r1, r1, r2", lambda code: code.adds(1, 1, 2)),
    ("subs r0, r0, r1", lambda code: code.subs(0, 0, 1)),
    ("adds r1, #200", lambda code: code.add_number(1, 200)),
    ("subs r1, #128", lambda code: code.add_number(1, -128)),
    ("add r7, sp, #32", lambda code: code.add_sp(7, 32)),
    ("sub sp, #508\nsub sp, #4", lambda code: code.move_sp(-512)),
    ("add sp, #8", lambda code: code.move_sp(8)),
    ("movs r3, #1\nlsls r3, r3, #8\nadds r3, #44", lambda code: code.number(3, 300)),
    ("movs r3, #1\nlsls r3, r3, #16\nadds r3, #2", lambda code: code.number(3, 65538)),
    ("movs r3, #2\nlsls r3, r3, #8", lambda code: code.number(3, 512)),
    ("movs r3, #0", lambda code: code.number(3, 0)),
    ("sxtb r1, r4", lambda code: code.sxtb(1, 4)),
    ("lsls r1, r4, #16", lambda code: code.lsls(1, 4, 16)),
    ("lsrs r1, r1, #32", lambda code: code.lsrs(1, 1, 32)),
    ("asrs r1, r2, #31", lambda code: code.asrs(1, 2, 31)),
    ("asrs r1, r7", lambda code: code.asrs_by(1, 7)),
    ("adcs r4, r0", lambda code: code.adcs(4, 0)),
    ("ands r1, r2", lambda code: code.ands(1, 2)),
    ("muls r0, r3, r0", lambda code: code.muls(0, 3)),
    ("mvns r1, r1", lambda code: code.mvns(1, 1)),
    ("cmp r1, r2", lambda code: code.cmp(1, 2)),
    ("cmp r1, #255", lambda code: code.cmp_number(1, 255)),
    ("cmp r6, r8", lambda code: code.cmp_any(6, 8)),
    ("str r1, [r2, r3]", lambda code: code.str_at(1, 2, 3)),
    ("subs r5, #56", lambda code: code.move(5, -56, 1)),
    ("movs r1, #1\nlsls r1, r1, #8\nadds r1, #4\nsubs r5, r5, r1", lambda code: code.move(5, -260, 1)),
    ("movs r1, #1\nlsls r1, r1, #8\nadds r5, r5, r1", lambda code: code.move(5, 256, 1)),
    ("bx lr", lambda code: code.bx(LR)),
]
BRANCHES = """a: movs r0, #1
subs r0, #1
bne a
beq b
bge b
ble b
bls b
b c
b a
b: bl a
bl c
c: bx lr"""


def branches(code: Code) -> None:
    code.label("a")
    code.movs(0, 1)
    code.repeat_until_zero(0, "a")
    for condition in (EQ, GE, LE, LS):
        code.branch(condition, "b")
    code.branch(ALWAYS, "c")
    code.branch(ALWAYS, "a")
    code.label("b")
    code.bl("a")
    code.bl("c")
    code.label("c")
    code.bx(LR)


def test_instructions_against_an_assembler(tmp_path: Path) -> None:
    assembler, copy = shutil.which("arm-none-eabi-as"), shutil.which("arm-none-eabi-objcopy")
    if assembler is None or copy is None:
        pytest.skip("arm-none-eabi-as is not installed")
    source, object, raw = (tmp_path / name for name in ("a.s", "a.o", "a.bin"))
    text = "\n".join(text for text, _ in INSTRUCTIONS) + "\n" + BRANCHES
    source.write_text(f".syntax unified\n.thumb\n{text}\n")
    subprocess.run([assembler, "-mcpu=cortex-m0", "-o", object, source], check=True)
    subprocess.run([copy, "-O", "binary", "-j", ".text", object, raw], check=True)
    code = Code()
    for _, emit in INSTRUCTIONS:
        emit(code)
    branches(code)
    assert code.finish() == raw.read_bytes()[: code.nbytes]


REFUSED: list[tuple[str, Callable[[Code], None]]] = [
    ("1024 does not fit 8 bits of 4", lambda code: code.ldr(0, SP, 1024)),
    ("128 does not fit", lambda code: code.ldr(0, 1, 128)),
    ("6 does not fit", lambda code: code.ldr(0, SP, 6)),
    ("-4 does not fit", lambda code: code.str(0, SP, -4)),
    ("256 does not fit", lambda code: code.movs(0, 256)),
    ("256 does not fit", lambda code: code.add_number(0, -256)),
    ("32 does not fit", lambda code: code.strb(0, 1, 32)),
    ("64 does not fit", lambda code: code.ldrh(0, 1, 64)),
    ("a shift by 0", lambda code: code.asrs(0, 1, 0)),
    ("a shift by 32", lambda code: code.lsls(0, 1, 32)),
    ("r8 is no low register", lambda code: code.muls(8, 1)),
    ("CMP of two low", lambda code: code.cmp_any(0, 1)),
    ("no such list", lambda code: code.ldm(0, (0, 1))),
    ("no such list", lambda code: code.stm(0, (2, 1))),
    ("no such list", lambda code: code.push((PC,))),
]


@pytest.mark.parametrize(("reason", "emit"), REFUSED)
def test_what_does_not_fit(reason: str, emit: Callable[[Code], None]) -> None:
    with pytest.raises(InternalError, match=reason):
        emit(Code())


@pytest.mark.parametrize(("count", "fits"), [(126, True), (127, False)])
def test_labels_out_of_reach(count: int, fits: bool) -> None:
    code = Code()
    code.label("start")
    for _ in range(count):
        code.movs(0, 0)
    code.branch(NE, "start")
    if fits:
        assert len(code.finish()) == 2 * count + 2
        return
    with pytest.raises(InternalError, match="a branch over -258 bytes"):
        code.finish()


def test_a_label_stands_once() -> None:
    code = Code()
    code.label("a")
    with pytest.raises(InternalError, match="label a stands twice"):
        code.label("a")
