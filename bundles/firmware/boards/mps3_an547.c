/* MPS3 board with Arm's AN547 image (Cortex-M55, Corstone SSE-300), in Secure state: UART0 at its Secure address. */
#include "board.h"
#include "cmsdk_uart.h"

#define UART0 (0x59303000u)

void board_start(void) {
    cmsdk_uart_start(UART0);
}

void board_put(char character) {
    cmsdk_uart_put(UART0, character);
}
