"""Machine code of single Helium instructions against an assembler, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aot.backends.cmsis_nn.helium.mve import GE, GT, LT, SP, Helium
from aot.errors import InternalError


def loop_of_bytes(code: Helium) -> None:
    start = code.while_bytes(4)
    code.vload_post(0, 1, 16)
    code.vstore_post(0, 12, 16)
    code.end_bytes(start)


def counted_loop(code: Helium) -> None:
    start = code.begin_loop(7)
    code.vadd(1, 2, 3)
    code.end_loop(start)


def skipped(code: Helium) -> None:
    at = code.skip(LT)
    code.mov(4, 5)
    code.land(at)


def back(code: Helium) -> None:
    code.mov(4, 5)
    code.branch(GE, 0)
    code.branch(GT, 0)


CASES: list[tuple[Callable[[Helium], None], str]] = [
    (lambda code: code.vload(1, 5, 16), "vldrb.u8 q1, [r5, #16]"),
    (lambda code: code.vload(6, 11, -127), "vldrb.u8 q6, [r11, #-127]"),
    (lambda code: code.vload(7, SP, 508, "w"), "vldrw.u32 q7, [sp, #508]"),
    (lambda code: code.vload(2, 3, 8, "s16"), "vldrb.s16 q2, [r3, #8]"),
    (lambda code: code.vload_post(0, 14, 16), "vldrb.u8 q0, [lr], #16"),
    (lambda code: code.vload_post(3, 1, 16, "w"), "vldrw.u32 q3, [r1], #16"),
    (lambda code: code.vload_post(3, 1, 4, "s32"), "vldrb.s32 q3, [r1], #4"),
    (lambda code: code.vstore(1, 0, 127, "32"), "vstrb.32 q1, [r0, #127]"),
    (lambda code: code.vstore(1, 0, 126, "h32"), "vstrh.32 q1, [r0, #126]"),
    (lambda code: code.vstore_post(0, 3, 8, "h32"), "vstrh.32 q0, [r3], #8"),
    (lambda code: code.vstore(7, SP, 0, "w"), "vstrw.32 q7, [sp]"),
    (lambda code: code.vstore(7, 8, 3), "vstrb.8 q7, [r8, #3]"),
    (lambda code: code.vstore_post(0, 3, 4, "32"), "vstrb.32 q0, [r3], #4"),
    (lambda code: code.vscatter(1, 0, 7, "32"), "vstrb.32 q1, [r0, q7]"),
    (lambda code: code.vscatter(1, 12, 7, "h32"), "vstrh.32 q1, [r12, q7]"),
    (lambda code: code.vpush(), "vpush {d8-d15}"),
    (lambda code: code.vpop(), "vpop {d8-d15}"),
    (lambda code: code.vmov_even(1, 8, 12), "vmov q1[2], q1[0], r8, r12"),
    (lambda code: code.vmov_odd(5, 10, 14), "vmov q5[3], q5[1], r10, lr"),
    (lambda code: code.vdup(5, 7, 8), "vdup.8 q5, r7"),
    (lambda code: code.vdup(5, 7, 16), "vdup.16 q5, r7"),
    (lambda code: code.vdup(5, 7, 32), "vdup.32 q5, r7"),
    (lambda code: code.vmladav(14, 1, 3, True), "vmladava.s8 lr, q1, q3"),
    (lambda code: code.vmladav(12, 7, 2, False), "vmladav.s8 r12, q7, q2"),
    (lambda code: code.vmladav(14, 1, 3, True, 16), "vmladava.s16 lr, q1, q3"),
    (lambda code: code.vmladav(12, 7, 2, False, 16), "vmladav.s16 r12, q7, q2"),
    (lambda code: code.vmlaldav(0, 7, 2, False), "vmlaldav.s16 r0, r1, q7, q2"),
    (lambda code: code.vmlaldav(10, 1, 3, True), "vmlaldava.s16 r10, r11, q1, q3"),
    (lambda code: code.vadd(7, 5, 3), "vadd.i32 q7, q5, q3"),
    (lambda code: code.vadd(7, 5, 3, 16), "vadd.i16 q7, q5, q3"),
    (lambda code: code.vmulh(7, 5, 3), "vmulh.s32 q7, q5, q3"),
    (lambda code: code.vqrdmulh(7, 5, 3), "vqrdmulh.s32 q7, q5, q3"),
    (lambda code: code.vqadd(7, 5, 3), "vqadd.s32 q7, q5, q3"),
    (lambda code: code.vand(7, 5, 3), "vand q7, q5, q3"),
    (lambda code: code.vmax(7, 5, 3, 8), "vmax.s8 q7, q5, q3"),
    (lambda code: code.vmin(7, 5, 3, 8), "vmin.s8 q7, q5, q3"),
    (lambda code: code.vmax(7, 5, 3, 16), "vmax.s16 q7, q5, q3"),
    (lambda code: code.vmin(7, 5, 3, 16), "vmin.s16 q7, q5, q3"),
    (lambda code: code.vshl(7, 5, 3), "vshl.s32 q7, q5, q3"),
    (lambda code: code.vrshl(7, 5, 3), "vrshl.s32 q7, q5, q3"),
    (lambda code: code.vsign(7, 5), "vshr.s32 q7, q5, #31"),
    (lambda code: code.vmull(7, 5, 3, False, 8), "vmullb.s8 q7, q5, q3"),
    (lambda code: code.vmull(7, 5, 3, True, 8), "vmullt.s8 q7, q5, q3"),
    (lambda code: code.vmull(7, 5, 3, True, 16), "vmullt.s16 q7, q5, q3"),
    (lambda code: code.vmovl16(7, 5, False), "vmovlb.s16 q7, q5"),
    (lambda code: code.vmovl16(7, 5, True), "vmovlt.s16 q7, q5"),
    (lambda code: code.vqmovn(7, 5, 32), "vqmovnb.s32 q7, q5"),
    (lambda code: code.vqmovn(7, 5, 16, True), "vqmovnt.s16 q7, q5"),
    (lambda code: code.vctp(32, 5), "vctp.32 r5"),
    (lambda code: code.vctp(8, 11), "vctp.8 r11"),
    (lambda code: (code.vpst(), code.vstore(0, 3, 1, "32")), "vpst\n vstrbt.32 q0, [r3, #1]"),  # type: ignore[arg-type, return-value]
    (loop_of_bytes, "wlstp.8 lr, r4, 2f\n 1: vldrb.u8 q0, [r1], #16\n vstrb.8 q0, [r12], #16\n letp lr, 1b\n 2:"),
    (counted_loop, "dls lr, r7\n 1: vadd.i32 q1, q2, q3\n le lr, 1b"),
    (lambda code: code.umlal(2, 3, 4, 0), "umlal r2, r3, r4, r0"),
    (lambda code: code.asrl(6, 8), "asrl r6, r7, r8"),
    (lambda code: code.ssat16(2, 11), "ssat r2, #16, r11"),
    (lambda code: code.strh_post(2, 12, 2), "strh r2, [r12], #2"),
    (lambda code: code.add_registers(5, 6, 7), "add.w r5, r6, r7"),
    (lambda code: code.sub_number(SP, SP, 20), "subw sp, sp, #20"),
    (lambda code: code.subs_number(11, 2), "subs.w r11, r11, #2"),
    (lambda code: code.compare(1, 0), "cmp.w r1, r0"),
    (lambda code: code.compare_number(0, 2), "cmp.w r0, #2"),
    (lambda code: code.constant(7, -5), "movw r7, #0xfffb\n movt r7, #0xffff"),
    (lambda code: code.add_any(3, 4, 4095, 0), "addw r3, r4, #4095"),
    (lambda code: code.add_any(3, 4, -300, 0), "subw r3, r4, #300"),
    (lambda code: code.add_any(3, 4, 70000, 9), "movw r9, #4464\n movt r9, #1\n add.w r3, r4, r9"),
    (lambda code: code.add_any(3, 4, 0, 9), "mov r3, r4"),
    (skipped, "blt.w 1f\n mov r4, r5\n 1:"),
    (back, "1: mov r4, r5\n bge.w 1b\n bgt.w 1b"),
]


def test_encodings(tmp_path: Path) -> None:
    assembler = shutil.which("arm-none-eabi-as")
    if assembler is None:
        pytest.skip("arm-none-eabi-as is not installed")
    source = [".syntax unified", ".thumb"]
    for number, (_, text) in enumerate(CASES):
        source += [f".section .text.c{number:02d}", text]
    (tmp_path / "all.s").write_text("\n".join(source) + "\n")
    subprocess.run([assembler, "-march=armv8.1-m.main+mve.fp+fp.dp", "-o", tmp_path / "all.o", tmp_path / "all.s"], check=True)
    for number, (emit, text) in enumerate(CASES):
        code = Helium()
        emit(code)
        copy = tmp_path / "one.bin"
        only = ["-O", "binary", "-j", f".text.c{number:02d}", tmp_path / "all.o", copy]
        subprocess.run(["arm-none-eabi-objcopy", *only], check=True)
        assert code.finish() == copy.read_bytes(), text


@pytest.mark.parametrize(("top", "shift", "wanted"), [(False, 1, "9fee420f"), (True, 5, "9bee421f"), (False, 16, "90ee420f")])
def test_narrowing_shifts(top: bool, shift: int, wanted: str) -> None:
    """VQSHRN as LLVM encodes it: GNU as 2.40 gives VQRSHRN for it."""
    code = Helium()
    code.vqshrn32(0, 1, shift, top)
    assert code.finish().hex() == wanted


@pytest.mark.parametrize(
    "emit",
    [
        lambda code: code.vmladav(3, 0, 1, True),
        lambda code: code.vload(0, 1, 128),
        lambda code: code.vload(0, 1, 6, "w"),
        lambda code: code.vqshrn32(0, 1, 17),
        lambda code: code.sub_number(0, 0, 4096),
    ],
)
def test_operands_without_room(emit: Callable[[Helium], None]) -> None:
    with pytest.raises(InternalError):
        emit(Helium())
