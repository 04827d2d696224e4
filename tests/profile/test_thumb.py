"""The cycle model's decoder against a disassembler: kinds by mnemonic, registers by the operands' text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aot.profile.instruction import FLAGS, LR, PC, SP, Instruction, Kind
from aot.profile.thumb import decode

NAMES = {f"r{number}": 1 << number for number in range(13)} | {
    "sl": 1 << 10,
    "fp": 1 << 11,
    "ip": 1 << 12,
    "sp": SP,
    "lr": LR,
    "pc": PC,
}
WIDE = {  # kind: instructions of Armv7E-M with the single-precision FPU
    Kind.ALU: """add.w r0,r1,r2; adds.w r1,r2,r3,lsl #4; sub.w r9,r10,#0x1000; subw r1,r2,#4095; addw r1,r2,#1; mov.w r1,#0xff00ff
        movw r1,#1000; movt r1,#1000; mvn r1,r2,asr #3; tst.w r1,r2; teq r1,r2; cmn.w r1,r2; cmp.w r1,r2,lsl #1; cmp.w r1,#0x10000
        orn r1,r2,r3; rsb r1,r2,r3,lsl #1; sbc.w r1,r2,r3; adc.w r1,r2,#1; bic r8,r9,#1; mov.w r1,r2; mvn r1,#1; add.w r1,sp,#256""",
    Kind.SHIFT: "lsl.w r0,r1,#3; asr.w r0,r1,r2; ror.w r3,r4,#1; lsrs.w r9,r10,r11; rrx r1,r2",
    Kind.BITS: """ubfx r1,r2,#3,#4; sbfx r1,r2,#3,#4; bfi r1,r2,#0,#8; bfc r1,#3,#4; ssat r1,#8,r2,asr #3; usat r1,#8,r2; ssat16 r1,#8,r2
        sxtb16 r1,r2,ror #8; sxtab16 r1,r2,r3; uxtab r1,r2,r3; sxtb.w r9,r10; uxth.w r1,r9; rev.w r9,r1; rbit r1,r2; clz r1,r2
        pkhbt r1,r2,r3,lsl #16; pkhtb r1,r2,r3,asr #16; sadd16 r1,r2,r3; qadd r1,r2,r3; qdsub r1,r2,r3; uhsub8 r1,r2,r3; sel r1,r2,r3""",
    Kind.MULTIPLY: "mul r1,r2,r9; smulbb r1,r2,r3; smuad r1,r2,r3; smmul r1,r2,r3; smmulr r1,r2,r3; smulwt r1,r2,r3; usad8 r1,r2,r3",
    Kind.ACCUMULATE: """mla r1,r2,r3,r4; mls r1,r2,r3,r4; smlabb r1,r2,r3,r4; smlatt r1,r2,r3,r4; smlad r1,r2,r3,r4; smladx r1,r2,r3,r4
        smmla r1,r2,r3,r4; smmlar r1,r2,r3,r4; smlsd r1,r2,r3,r4; smlawb r1,r2,r3,r4; usada8 r1,r2,r3,r4""",
    Kind.LONG_MULTIPLY: "smull r1,r2,r3,r4; umull r1,r2,r3,r4",
    Kind.LONG_ACCUMULATE: "smlal r1,r2,r3,r4; umlal r1,r2,r3,r4; umaal r1,r2,r3,r4; smlald r1,r2,r3,r4; smlalbt r1,r2,r3,r4",
    Kind.DIVIDE: "sdiv r1,r2,r3; udiv r9,r10,r11",
    Kind.LOAD: """ldr.w r9,[r1]; ldr.w r1,[r2,#4095]; ldr r1,[r2,#-4]; ldr r1,[r2],#4; ldr r1,[r2,#8]!; ldr.w r1,[r2,r3,lsl #2]
        ldrb.w r1,[r2,#40]; ldrsb.w r1,[r2,#1]; ldrsh.w r1,[r2,r3]; ldrsb r1,[r2],#1; ldrh.w r9,[r1,#2]; ldrex r1,[r2]; vldr s3,[r1,#8]""",
    Kind.STORE: """str.w r9,[r1]; str r1,[r2,#-4]; strb.w r1,[r2,#40]; strh r1,[r2],#2; str r1,[r2,#8]!; str.w r1,[r2,r3,lsl #2]
        strex r3,r1,[r2]; vstr s3,[r1]""",
    Kind.LOAD_SEVERAL: """ldrd r1,r2,[r3]; ldrd r1,r2,[r3],#8; ldrd r1,r2,[r3,#-8]!; ldm.w r9,{r1,r2}; ldm.w r9!,{r1,r2,r11}
        ldmdb r1,{r2,r3}; pop.w {r4-r11,pc}; vldm r1!,{s0-s3}; vpop {d8-d9}; vldr d1,[r2]""",
    Kind.STORE_SEVERAL: """strd r1,r2,[r3]; strd r1,r2,[r3],#8; stm.w r9!,{r1,r2}; push.w {r4-r11,lr}; stmdb r1!,{r2,r3}; vpush {d8}
        vstm r1,{s4-s6}""",
    Kind.BRANCH: "b.w .+1000; beq.w .+1000; bge.w .-64",
    Kind.CALL: "bl .+1000; bl .-2000",
    Kind.TABLE: "tbb [r1,r2]; tbh [r1,r2,lsl #1]",
    Kind.NOP: "nop.w; pld [r1,#4]",
    Kind.SYSTEM: "mrs r1,primask; dsb; isb; dmb",
    Kind.FLOAT: "vadd.f32 s0,s1,s2; vmul.f32 s0,s1,s2; vsub.f32 s1,s2,s3; vcmp.f32 s0,s1; vmov.f32 s0,#1.0; vcvt.s32.f32 s0,s1; vneg.f32 s1,s2",
    Kind.FLOAT_ACCUMULATE: "vmla.f32 s0,s1,s2; vfma.f32 s0,s1,s2; vfnms.f32 s0,s1,s2; vmls.f32 s0,s1,s2",
    Kind.FLOAT_DIVIDE: "vdiv.f32 s0,s1,s2; vsqrt.f32 s0,s1",
    Kind.FLOAT_MOVE: "vmov r1,s3; vmov s3,r1; vmov r1,r2,d3; vmov d3,r1,r2; vmrs apsr_nzcv,fpscr",
}
NARROW = {
    Kind.ALU: """movs r0,#1; movs r1,r2; mov r9,r1; adds r1,r2,r3; adds r1,#200; adds r1,r2,#7; subs r1,r2,r3; subs r7,#1; cmp r1,#3; cmp r1,r2
        cmp r9,r1; ands r1,r2; eors r1,r2; orrs r1,r2; bics r1,r2; mvns r1,r2; rsbs r1,r2,#0; tst r1,r2; cmn r1,r2; adcs r1,r2; sbcs r1,r2
        add r9,r1; add sp,#16; sub sp,#16; add r1,sp,#64""",
    Kind.SHIFT: "lsls r1,r2,#3; lsrs r1,r2,#31; asrs r1,r2,#1; lsls r1,r2; asrs r1,r2; rors r1,r2; lsrs r1,r2",
    Kind.BITS: "sxtb r1,r2; sxth r1,r2; uxtb r1,r2; uxth r1,r2; rev r1,r2; rev16 r1,r2; revsh r1,r2",
    Kind.MULTIPLY: "muls r1,r2,r1",
    Kind.LOAD: "ldr r1,[r2,#124]; ldrb r1,[r2,#31]; ldrh r1,[r2,#62]; ldr r1,[r2,r3]; ldrsb r1,[r2,r3]; ldrsh r1,[r2,r3]; ldr r1,[sp,#8]",
    Kind.STORE: "str r1,[r2]; strb r1,[r2,#31]; strh r1,[r2,#62]; str r1,[r2,r3]; strb r1,[r2,r3]; strh r1,[r2,r3]; str r1,[sp,#1020]",
    Kind.LOAD_SEVERAL: "ldm r1!,{r2-r4}; ldm r1,{r1,r2}; pop {r1,r4}; pop {r4,pc}",
    Kind.STORE_SEVERAL: "stm r1!,{r2-r4}; push {r1,r4}; push {r4,lr}",
    Kind.BRANCH: "beq .+100; b .+1000; bne .-20",
    Kind.INDIRECT: "bx lr; bx r3; mov pc,r1",
    Kind.CALL: "blx r3; bl .+100",
    Kind.NOP: "mov r8,r8",
    Kind.SYSTEM: "bkpt #1; cpsid i; svc #3",
}
ONLY_MAINLINE = {Kind.BRANCH: "cbz r1,.+20; cbnz r1,.+40", Kind.NOP: "nop", Kind.IT: "itt eq; moveq r1,r2; moveq r1,r3"}
LINE = re.compile(r"\s+[0-9a-f]+:\t([0-9a-f]{4})(?: ([0-9a-f]{4}))?\s+\t(\S+)\t?(.*)")
WRITES_NOTHING = ("tst", "teq", "cmp", "cmn")


def disassembled(source: str, cpu: str, folder: Path) -> list[tuple[Instruction, str, str]]:
    """(instruction, mnemonic, operands) of each line."""
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    path, made = folder / "code.s", folder / "code.o"
    path.write_text(".syntax unified\n.thumb\n.text\n" + source.replace(";", "\n") + "\n")
    subprocess.run(["arm-none-eabi-gcc", "-mthumb", *cpu.split(), "-c", path, "-o", made], check=True)
    text = subprocess.run(["arm-none-eabi-objdump", "-d", made], check=True, capture_output=True, text=True).stdout
    found = []
    for line in text.splitlines():
        if match := LINE.match(line):
            first, second, mnemonic, operands = match.groups()
            instruction = decode(int(first, 16), int(second or "ffff", 16))
            assert instruction.halves == (2 if second else 1), line
            found.append((instruction, mnemonic, re.split("[;@<]", operands)[0]))
    return found


def mentioned(mnemonic: str, operands: str, instruction: Instruction) -> int:
    """The core's registers that the text names, and those that it implies."""
    found = 0
    for first, last in re.findall(rf"\b({'|'.join(NAMES)})(?:-({'|'.join(NAMES)}))?\b", operands):
        low = NAMES[first].bit_length() - 1
        high = NAMES[last].bit_length() - 1 if last else low
        found |= sum(1 << number for number in range(low, high + 1))
    if mnemonic.startswith(("push", "pop", "vpush", "vpop")):
        found |= SP
    return found | (LR if instruction.kind is Kind.CALL else 0)


@pytest.mark.parametrize(
    ("cpu", "groups"),
    [
        ("-mcpu=cortex-m4 -mfloat-abi=hard", WIDE),
        ("-mcpu=cortex-m0", NARROW),
        ("-mcpu=cortex-m4", ONLY_MAINLINE),
    ],
    ids=["wide", "narrow", "mainline"],
)
def test_kinds_and_registers(cpu: str, groups: dict[Kind, str], tmp_path: Path) -> None:
    for kind, source in groups.items():
        found = disassembled(source, cpu, tmp_path)
        assert len(found) == len(re.split("[;\n]", source.strip()))
        for instruction, mnemonic, operands in found:
            if kind is Kind.IT and not mnemonic.startswith("it"):
                continue
            assert instruction.kind is kind, (mnemonic, operands)
            if mnemonic == "nop":
                continue
            both = (instruction.reads | instruction.writes) & ~FLAGS
            assert both == mentioned(mnemonic, operands, instruction), (mnemonic, operands)
            inside = re.search(r"\[([^\]]*)\]", operands)
            if inside:
                assert instruction.address == mentioned("", inside[1], Instruction(Kind.NOP, 1)), (mnemonic, operands)


def test_what_is_written(tmp_path: Path) -> None:
    """The first operand is written, but for those that only read; loads of several write their list, and a base with !."""
    source = "; ".join(WIDE[kind] for kind in (Kind.ALU, Kind.SHIFT, Kind.BITS, Kind.MULTIPLY, Kind.ACCUMULATE, Kind.DIVIDE))
    for instruction, mnemonic, operands in disassembled(source, "-mcpu=cortex-m4", tmp_path):
        first = NAMES[operands.split(",")[0].strip()]
        assert instruction.writes & ~FLAGS == (0 if mnemonic.startswith(WRITES_NOTHING) else first), (mnemonic, operands)
    for text, writes, updates in (
        ("ldm.w r9!,{r1,r2}", 0b10_0000_0110, 1 << 9),
        ("ldm r1,{r1,r2}", 0b110, 0),
        ("ldrd r1,r2,[r3],#8", 0b1110, 1 << 3),
        ("str r1,[r2],#4", 1 << 2, 1 << 2),
        ("ldr r1,[r2,#4]!", 0b110, 1 << 2),
        ("smlal r1,r2,r3,r4", 0b110, 0),
        ("pop {r4,pc}", SP | PC | 1 << 4, SP),
    ):
        ((instruction, _, _),) = disassembled(text, "-mcpu=cortex-m4", tmp_path)
        assert (instruction.writes, instruction.updates) == (writes, updates), text


def test_every_encoding_has_an_answer() -> None:
    for first in range(0, 0x10000, 7):
        for second in (0x0000, 0x5555, 0xAAAA, 0xF0F0, 0xFFFF):
            assert decode(first, second).halves == (2 if first >= 0xE800 else 1)
