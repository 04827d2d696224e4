/* Prints every tensor of a run, for aot diff-dump: the sample for a bundle made with --instrument dump. */
#include <stdint.h>

#include "digits.h"
#include "digits_layers.h"
#include "inputs.h"
#include "print.h"

static uint8_t workspace[DIGITS_WORKSPACE_SIZE] __attribute__((aligned(DIGITS_WORKSPACE_ALIGN)));
static int8_t image[DIGITS_INPUT_0_SIZE] __attribute__((aligned(4)));
static int8_t scores[DIGITS_OUTPUT_0_SIZE] __attribute__((aligned(4)));
static const void *const arguments[] = {image, scores, workspace}; /* of digits_run, in order */

static void put(void *ctx, const char *text) {
    (void)ctx;
    print_text(text);
}

static void digits_on_layer(void *observer, int layer, int before) {
    if (!before) {
        digits_dump_layer(arguments, layer, put, observer);
    }
}

int main(void) {
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < PICTURE_SIDE * PICTURE_SIDE; i++) {
            image[i] = digits_quantise_input_0((float)pictures[run][i] / 16.0f);
        }
        digits_dump_begin(put, 0);
        if (digits_run(image, scores, workspace, digits_on_layer, 0) != DIGITS_OK) {
            print_text("error\n");
            return 1;
        }
        digits_dump_end(put, 0);
    }
    print_text("digits: end\n");
    return 0;
}
