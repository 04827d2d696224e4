/* Text over the board's UART. */
#ifndef PRINT_H
#define PRINT_H

#include <stdint.h>

/* One character; a line feed becomes carriage return and line feed. */
void print_char(char character);

void print_text(const char *text);

/* In decimal, as short as possible. */
void print_number(int32_t number);

/* Two decimals, one sign: -7 prints "-0.07", 7 prints " 0.07". */
void print_hundredths(int32_t number);

#endif /* PRINT_H */
