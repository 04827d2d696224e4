/* How long something takes.
 *
 * The cycle counter of the DWT unit where it runs, else SysTick (24 bits, on the processor's clock). Emulators count virtual time: see
 * boards.mk for how many instructions a tick is.
 */
#ifndef TICKS_H
#define TICKS_H

#include <stdint.h>

/* Starts counting from zero. */
void ticks_start(void);

/* Ticks since ticks_start. */
uint32_t ticks_elapsed(void);

/* Prints a comment line: "# 1234 SysTick ticks". Tests leave lines with # out, for they differ between machines. */
void ticks_print(uint32_t ticks);

#endif /* TICKS_H */
