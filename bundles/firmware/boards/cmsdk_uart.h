/* The UART of Arm's Cortex-M System Design Kit (ARM DDI 0479), as on the MPS2 and MPS3 boards. */
#ifndef CMSDK_UART_H
#define CMSDK_UART_H

#include "registers.h"

#define CMSDK_UART_DATA (0x000u)
#define CMSDK_UART_STATE (0x004u)
#define CMSDK_UART_CTRL (0x008u)
#define CMSDK_UART_BAUDDIV (0x010u)
#define CMSDK_UART_PID0 (0xFE0u)
#define CMSDK_UART_CID0 (0xFF0u)

/* Whether there is such a UART: its identification registers say so. */
static inline int cmsdk_uart_present(uint32_t base) {
    return REGISTER(base + CMSDK_UART_PID0) == 0x21u && REGISTER(base + CMSDK_UART_CID0) == 0x0Du;
}

static inline void cmsdk_uart_start(uint32_t base) {
    REGISTER(base + CMSDK_UART_BAUDDIV) = 217u; /* 25 MHz / 115,200 */
    REGISTER(base + CMSDK_UART_CTRL) = 1u;      /* transmit */
}

static inline void cmsdk_uart_put(uint32_t base, char character) {
    while ((REGISTER(base + CMSDK_UART_STATE) & 1u) != 0u) {
    }
    REGISTER(base + CMSDK_UART_DATA) = (uint8_t)character;
}

#endif /* CMSDK_UART_H */
