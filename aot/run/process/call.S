/* The first instructions of the process, and a call with registers and stack of its own: what each instruction set needs said in assembly.
 *
 * aot_call(function, registers, stack_pointer, frame): registers are the arguments that go there; frame is harness.c's.
 * Sources: AAPCS64, AAPCS32, RISC-V calling convention, Hexagon V68 ABI (registers that a function preserves).
 */
    .text
    .globl _start
    .globl aot_call

#if defined(__aarch64__)

_start:
    mov x29, xzr
    bl aot_main
    .type aot_call, %function
aot_call:
    stp x29, x30, [sp, #-160]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    adrp x9, kept
    add x9, x9, :lo12:kept
    mov x10, sp
    stp x10, x3, [x9]
    mov sp, x2
    mov x16, x0
    mov x17, x1
    ldp x19, x20, [x3]
    ldp x21, x22, [x3, #16]
    ldp x23, x24, [x3, #32]
    ldp x25, x26, [x3, #48]
    ldp x27, x28, [x3, #64]
    ldr x29, [x3, #80]
    ldp d8, d9, [x3, #272]
    ldp d10, d11, [x3, #288]
    ldp d12, d13, [x3, #304]
    ldp d14, d15, [x3, #320]
    ldp x0, x1, [x17]
    ldp x2, x3, [x17, #16]
    ldp x4, x5, [x17, #32]
    ldp x6, x7, [x17, #48]
    blr x16
    adrp x9, kept
    add x9, x9, :lo12:kept
    ldp x10, x3, [x9]
    mov x11, sp
    mov sp, x10
    stp x19, x20, [x3, #128]
    stp x21, x22, [x3, #144]
    stp x23, x24, [x3, #160]
    stp x25, x26, [x3, #176]
    stp x27, x28, [x3, #192]
    str x29, [x3, #208]
    str x11, [x3, #256]
    str d8, [x3, #368]
    str d9, [x3, #376]
    str d10, [x3, #384]
    str d11, [x3, #392]
    str d12, [x3, #400]
    str d13, [x3, #408]
    str d14, [x3, #416]
    str d15, [x3, #424]
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x29, x30, [sp], #160
    ret

#elif defined(__arm__)

    .arm
    .type _start, %function
_start:
    mov r11, #0
    bl aot_main
    .type aot_call, %function
aot_call:
    push {r4-r11, lr}
    sub sp, sp, #4
    vpush {d8-d15}
    ldr r12, =kept
    str sp, [r12]
    str r3, [r12, #4]
    mov sp, r2
    mov lr, r0
    mov r12, r1
    add r2, r3, #136
    vldmia r2, {d8-d15}
    ldmia r3, {r4-r11}
    ldmia r12, {r0-r3}
    mov r12, lr
    blx r12
    ldr r12, =kept
    ldr r3, [r12, #4]
    add r1, r3, #64
    stmia r1, {r4-r11}
    str sp, [r3, #128]
    add r1, r3, #232
    vstmia r1, {d8-d15}
    ldr sp, [r12]
    vpop {d8-d15}
    add sp, sp, #4
    pop {r4-r11, pc}
    .ltorg

#elif defined(__riscv)

#if __riscv_xlen == 64
#define W 8
#define LOAD ld
#define STORE sd
#else
#define W 4
#define LOAD lw
#define STORE sw
#endif
.macro all instruction, base, offset
    \instruction s0, \offset(\base)
    \instruction s1, \offset + W(\base)
    \instruction s2, \offset + 2 * W(\base)
    \instruction s3, \offset + 3 * W(\base)
    \instruction s4, \offset + 4 * W(\base)
    \instruction s5, \offset + 5 * W(\base)
    \instruction s6, \offset + 6 * W(\base)
    \instruction s7, \offset + 7 * W(\base)
    \instruction s8, \offset + 8 * W(\base)
    \instruction s9, \offset + 9 * W(\base)
    \instruction s10, \offset + 10 * W(\base)
    \instruction s11, \offset + 11 * W(\base)
.endm
.macro floats instruction, base, offset
#if defined(__riscv_flen) && __riscv_flen == 64
    \instruction fs0, \offset(\base)
    \instruction fs1, \offset + 8(\base)
    \instruction fs2, \offset + 16(\base)
    \instruction fs3, \offset + 24(\base)
    \instruction fs4, \offset + 32(\base)
    \instruction fs5, \offset + 40(\base)
    \instruction fs6, \offset + 48(\base)
    \instruction fs7, \offset + 56(\base)
    \instruction fs8, \offset + 64(\base)
    \instruction fs9, \offset + 72(\base)
    \instruction fs10, \offset + 80(\base)
    \instruction fs11, \offset + 88(\base)
#endif
.endm

_start:
    call aot_main
    .type aot_call, %function
aot_call:
    addi sp, sp, -256
    STORE ra, 240(sp)
    all STORE, sp, 0
    floats fsd, sp, 96
    la t0, kept
    STORE sp, 0(t0)
    STORE a3, W(t0)
    mv sp, a2
    mv t1, a0
    mv t2, a1
    all LOAD, a3, 0
    floats fld, a3, 34 * W
    LOAD a0, 0(t2)
    LOAD a1, W(t2)
    LOAD a2, 2 * W(t2)
    LOAD a3, 3 * W(t2)
    LOAD a4, 4 * W(t2)
    LOAD a5, 5 * W(t2)
    LOAD a6, 6 * W(t2)
    LOAD a7, 7 * W(t2)
    jalr t1
    la t0, kept
    LOAD a3, W(t0)
    STORE sp, 32 * W(a3)
    LOAD sp, 0(t0)
    all STORE, a3, 16 * W
    floats fsd, a3, 34 * W + 96
    all LOAD, sp, 0
    floats fld, sp, 96
    LOAD ra, 240(sp)
    addi sp, sp, 256
    ret

#elif defined(__hexagon__)

_start:
    { r30 = #0; jump aot_main }
    .type aot_call, @function
aot_call:
    allocframe(#48)
    memd(r29 + #0) = r17:16
    memd(r29 + #8) = r19:18
    memd(r29 + #16) = r21:20
    memd(r29 + #24) = r23:22
    memd(r29 + #32) = r25:24
    memd(r29 + #40) = r27:26
    r4 = ##kept
    memw(r4 + #0) = r29
    memw(r4 + #4) = r3
    r29 = r2
    r6 = r0
    r7 = r1
    r17:16 = memd(r3 + #0)
    r19:18 = memd(r3 + #8)
    r21:20 = memd(r3 + #16)
    r23:22 = memd(r3 + #24)
    r25:24 = memd(r3 + #32)
    r27:26 = memd(r3 + #40)
    r0 = memw(r7 + #0)
    r1 = memw(r7 + #4)
    r2 = memw(r7 + #8)
    r3 = memw(r7 + #12)
    r4 = memw(r7 + #16)
    r5 = memw(r7 + #20)
    callr r6
    r4 = ##kept
    r5 = r29
    r29 = memw(r4 + #0)
    r3 = memw(r4 + #4)
    memw(r3 + #128) = r5
    memd(r3 + #64) = r17:16
    memd(r3 + #72) = r19:18
    memd(r3 + #80) = r21:20
    memd(r3 + #88) = r23:22
    memd(r3 + #96) = r25:24
    memd(r3 + #104) = r27:26
    r17:16 = memd(r29 + #0)
    r19:18 = memd(r29 + #8)
    r21:20 = memd(r29 + #16)
    r23:22 = memd(r29 + #24)
    r25:24 = memd(r29 + #32)
    r27:26 = memd(r29 + #40)
    dealloc_return

#endif

    .bss
    .balign 8
kept:
    .space 16
