#include "ticks.h"

#include "print.h"
#include "registers.h"

#define DEMCR (0xE000EDFCu)
#define DEMCR_TRCENA (1u << 24)
#define DWT_CTRL (0xE0001000u)
#define DWT_CYCCNT (0xE0001004u)
#define DWT_LAR (0xE0001FB0u)
#define DWT_UNLOCK (0xC5ACCE55u)
#define SYST_CSR (0xE000E010u)
#define SYST_RVR (0xE000E014u)
#define SYST_CVR (0xE000E018u)
#define SYST_LAST (0xFFFFFFu)

static int dwt_counts;

void ticks_start(void) {
    register_set(DEMCR, 0u, DEMCR_TRCENA);
    REGISTER(DWT_LAR) = DWT_UNLOCK;
    REGISTER(DWT_CYCCNT) = 0u;
    register_set(DWT_CTRL, 0u, 1u);
    const uint32_t before = REGISTER(DWT_CYCCNT);
    for (volatile int i = 0; i < 100; i++) {
    }
    dwt_counts = REGISTER(DWT_CYCCNT) != before;
    if (dwt_counts) {
        REGISTER(DWT_CYCCNT) = 0u;
        return;
    }
    REGISTER(SYST_RVR) = SYST_LAST;
    REGISTER(SYST_CVR) = 0u;
    REGISTER(SYST_CSR) = 5u; /* on, on the processor's clock, without interrupt */
}

uint32_t ticks_elapsed(void) {
    /* SysTick counts down: 0 at first, then SYST_LAST. */
    return dwt_counts ? REGISTER(DWT_CYCCNT) : (0u - REGISTER(SYST_CVR)) & SYST_LAST;
}

void ticks_print(uint32_t ticks) {
    print_text("# ");
    print_number((int32_t)ticks);
    print_text(dwt_counts ? " DWT cycles\n" : " SysTick ticks\n");
}
