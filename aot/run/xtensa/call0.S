/* The start of the program, and Linux's system calls, for the call0 ABI: arguments in a2 to a7, a0 the return address, a1 the stack. */
    .section .text.start, "ax"
    .align 4
    .global _start
_start:
    movi a0, -16
    and a1, a1, a0
    call0 run
    movi a2, 118 /* exit: status 0; what the calls returned is in the report */
    movi a6, 0
    syscall

/* int transfer(int number, int file, void *start, unsigned nbytes): read (12) or write (13). */
    .align 4
    .global transfer
transfer:
    mov a6, a3
    mov a3, a4
    mov a4, a5
    syscall
    ret
