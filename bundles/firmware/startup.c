/* From reset to main, for any Cortex-M.
 *
 * Sets its own stack pointer and vector table, so that it also runs where a loader jumps to the entry point.
 */
#include <stdint.h>

#include "board.h"
#include "print.h"
#include "registers.h"

#define SCB_VTOR (0xE000ED08u)
#define SCB_CCR (0xE000ED14u)
#define SCB_CPACR (0xE000ED88u)
#define CCR_LOW_OVERHEAD_BRANCHES (1u << 19)
#define CPACR_FPU (0xFu << 20)

/* From the linker script. */
extern uint32_t _data_load[], _data_start[], _data_end[], _bss_start[], _bss_end[], _stack_top[];

int main(void);
void Reset_Handler(void);
void start(void);
void fault(void);

typedef union {
    void (*handler)(void);
    const void *stack;
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {.stack = _stack_top}, {.handler = Reset_Handler}, {.handler = fault}, {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},    {.handler = fault},         {.handler = fault}, {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},    {.handler = fault},         {.handler = fault}, {.handler = fault},
};

__attribute__((naked, used)) void Reset_Handler(void) {
    __asm volatile("ldr r0, =_stack_top\n"
                   "mov sp, r0\n"
                   "ldr r0, =start\n"
                   "bx r0\n");
}

__attribute__((used)) void start(void) {
    REGISTER(SCB_VTOR) = (uint32_t)(uintptr_t)vectors;
    register_set(SCB_CPACR, CPACR_FPU, CPACR_FPU); /* without effect on cores that have no FPU */
#if defined(__ARM_ARCH_8_1M_MAIN__)
    register_set(SCB_CCR, 0u, CCR_LOW_OVERHEAD_BRANCHES);
#endif
    __asm volatile("dsb\n"
                   "isb" ::
                       : "memory");
    for (volatile uint32_t *from = _data_load, *to = _data_start; to < _data_end;) {
        *to++ = *from++;
    }
    for (volatile uint32_t *to = _bss_start; to < _bss_end;) {
        *to++ = 0u;
    }
    board_start();
    (void)main();
    for (;;) {
        __asm volatile("wfi");
    }
}

void fault(void) {
    print_text("fault\n");
    for (;;) {
    }
}
