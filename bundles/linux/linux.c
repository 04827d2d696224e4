/* What the samples need of a board, on Linux: characters go to standard output, times are those of the monotonic clock. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <time.h>

#include "board.h"
#include "print.h"
#include "ticks.h"

static struct timespec started;

void board_start(void) {
}

void board_put(char character) {
    if (character != '\r') {
        (void)putchar(character);
    }
}

void ticks_start(void) {
    (void)clock_gettime(CLOCK_MONOTONIC, &started);
}

uint32_t ticks_elapsed(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)((now.tv_sec - started.tv_sec) * 1000000 + (now.tv_nsec - started.tv_nsec) / 1000);
}

void ticks_print(uint32_t ticks) {
    print_text("# ");
    print_number((int32_t)ticks);
    print_text(" microseconds\n");
}
