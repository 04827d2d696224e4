/* Plots sin(x) as the network computes it, one line of text for each x. */
#include <stdint.h>

#include "inputs.h"
#include "print.h"
#include "sine.h"
#include "ticks.h"

static uint8_t workspace[SINE_WORKSPACE_SIZE] __attribute__((aligned(SINE_WORKSPACE_ALIGN)));

static int32_t rounded(float value) {
    return (int32_t)(value + ((value >= 0.0f) ? 0.5f : -0.5f));
}

static void plot(int32_t x, int32_t y) {
    int32_t star = (y < -100) ? 0 : ((y + 100) * (PLOT_WIDTH - 1)) / 200;
    star = (star > PLOT_WIDTH - 1) ? PLOT_WIDTH - 1 : star;
    print_hundredths(x);
    print_char(' ');
    print_hundredths(y);
    print_text("  |");
    for (int32_t column = 0; column < PLOT_WIDTH; column++) {
        print_char((column == star) ? '*' : ' ');
    }
    print_text("|\n");
}

int main(void) {
    uint32_t ticks = 0u;
    print_text("sine: sin(x) by a network of three layers\n");
    for (int index = 0; index < POINT_COUNT; index++) {
        int8_t output[SINE_OUTPUT_0_SIZE] __attribute__((aligned(4)));
        const int8_t input[SINE_INPUT_0_SIZE] __attribute__((aligned(4))) = {points[index]};
        ticks_start();
        const int error = sine_run(input, output, workspace);
        ticks += ticks_elapsed();
        if (error != SINE_OK) {
            print_text("error ");
            print_number(error);
            print_text("\n");
            return 1;
        }
        plot(point_hundredths[index], rounded(sine_dequantise_output_0(output[0]) * 100.0f));
    }
    ticks_print(ticks);
    print_text("sine: end\n");
    return 0;
}
