/* What each layer takes, by the firmware's own clock: the sample for a bundle made with --instrument hooks. */
#include <stdint.h>

#include "digits.h"
#include "digits_layers.h"
#include "inputs.h"
#include "pictures.h"
#include "print.h"
#include "ticks.h"

typedef struct {
    uint32_t begun;
    uint32_t ticks[DIGITS_LAYERS];
} profile;

static uint8_t workspace[DIGITS_WORKSPACE_SIZE] __attribute__((aligned(DIGITS_WORKSPACE_ALIGN)));
static int8_t image[DIGITS_INPUT_0_SIZE] __attribute__((aligned(4)));
static int8_t scores[DIGITS_OUTPUT_0_SIZE] __attribute__((aligned(4)));

/* A layer that runs by rows comes several times. */
static void digits_on_layer(void *observer, int layer, int before) {
    profile *const held = observer;
    if (before) {
        held->begun = ticks_elapsed();
    } else {
        held->ticks[layer] += ticks_elapsed() - held->begun;
    }
}

int main(void) {
    static profile taken;
    for (int i = 0; i < PICTURE_SIDE * PICTURE_SIDE; i++) {
        image[i] = digits_quantise_input_0((float)pictures[0][i] / 16.0f);
    }
    ticks_start();
    const int error = digits_run(image, scores, workspace, digits_on_layer, &taken);
    if (error != DIGITS_OK) {
        print_text("error ");
        print_number(error);
        print_text("\n");
        return 1;
    }
    for (uint32_t layer = 0u; layer < DIGITS_LAYERS; layer++) {
        print_text(digits_layers[layer].name);
        print_text(", ");
        print_text(digits_layers[layer].kernel);
        print_text(":\n");
        ticks_print(taken.ticks[layer]);
    }
    print_text("digits: end\n");
    return 0;
}
