/* What a board provides. One file of boards/ implements it; the linker script of the same name places the program. */
#ifndef BOARD_H
#define BOARD_H

/* Makes the UART ready: 115,200 baud, 8N1. Called once, before main. */
void board_start(void);

/* Sends one character, waiting until the UART takes it. */
void board_put(char character);

#endif /* BOARD_H */
