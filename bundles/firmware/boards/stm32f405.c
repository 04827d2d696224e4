/* STM32F405, STM32F407 and their like (STM32F4-Discovery): USART2, transmit on PA2, on the 16 MHz clock after reset. */
#include "board.h"
#include "registers.h"

#define RCC_AHB1ENR (0x40023830u)
#define RCC_APB1ENR (0x40023840u)
#define GPIOA_MODER (0x40020000u)
#define GPIOA_AFRL (0x40020020u)
#define USART2_SR (0x40004400u)
#define USART2_DR (0x40004404u)
#define USART2_BRR (0x40004408u)
#define USART2_CR1 (0x4000440Cu)
#define SR_TXE (1u << 7)
#define CR1_UE (1u << 13)
#define CR1_TE (1u << 3)

void board_start(void) {
    register_set(RCC_AHB1ENR, 0u, 1u << 0);         /* GPIOA on */
    register_set(RCC_APB1ENR, 0u, 1u << 17);        /* USART2 on */
    register_set(GPIOA_MODER, 3u << 4, 2u << 4);    /* PA2: alternate function */
    register_set(GPIOA_AFRL, 0xFu << 8, 7u << 8);   /* number 7: USART2 */
    REGISTER(USART2_BRR) = 139u;                    /* 16 MHz / 115,200 */
    REGISTER(USART2_CR1) = CR1_UE | CR1_TE;
}

void board_put(char character) {
    while ((REGISTER(USART2_SR) & SR_TXE) == 0u) {
    }
    REGISTER(USART2_DR) = (uint8_t)character;
}
