/* STM32F746 (STM32F746G-Discovery): USART1, transmit on PA9, on the 16 MHz clock after reset.
 *
 * QEMU has a Cortex-M7 only on the MPS2 board (mps2-an500), whose RAM covers this chip's flash and RAM. So that the same program runs there
 * too, the UART is chosen at start: where the MPS2's first UART identifies itself, it is used. On the STM32F746 that address belongs to
 * UART4, which is off and reads as zero.
 */
#include "board.h"
#include "cmsdk_uart.h"
#include "registers.h"

#define MPS2_UART0 (0x40004000u)
#define RCC_AHB1ENR (0x40023830u)
#define RCC_APB2ENR (0x40023844u)
#define GPIOA_MODER (0x40020000u)
#define GPIOA_AFRH (0x40020024u)
#define USART1_CR1 (0x40011000u)
#define USART1_BRR (0x4001100Cu)
#define USART1_ISR (0x4001101Cu)
#define USART1_TDR (0x40011028u)
#define ISR_TXE (1u << 7)
#define CR1_UE (1u << 0)
#define CR1_TE (1u << 3)

static int on_mps2;

void board_start(void) {
    on_mps2 = cmsdk_uart_present(MPS2_UART0);
    if (on_mps2) {
        cmsdk_uart_start(MPS2_UART0);
        return;
    }
    register_set(RCC_AHB1ENR, 0u, 1u << 0);         /* GPIOA on */
    register_set(RCC_APB2ENR, 0u, 1u << 4);         /* USART1 on */
    register_set(GPIOA_MODER, 3u << 18, 2u << 18);  /* PA9: alternate function */
    register_set(GPIOA_AFRH, 0xFu << 4, 7u << 4);   /* number 7: USART1 */
    REGISTER(USART1_BRR) = 139u;                    /* 16 MHz / 115,200 */
    REGISTER(USART1_CR1) = CR1_UE | CR1_TE;
}

void board_put(char character) {
    if (on_mps2) {
        cmsdk_uart_put(MPS2_UART0, character);
        return;
    }
    while ((REGISTER(USART1_ISR) & ISR_TXE) == 0u) {
    }
    REGISTER(USART1_TDR) = (uint8_t)character;
}
