/* As the sample digits, in float32: recognises handwritten digits and reports over the UART. */
#include <stdint.h>

#include "digits_float.h"
#include "inputs.h"
#include "pictures.h"
#include "print.h"
#include "ticks.h"

static uint8_t workspace[DIGITS_FLOAT_WORKSPACE_SIZE] __attribute__((aligned(DIGITS_FLOAT_WORKSPACE_ALIGN)));
static float image[DIGITS_FLOAT_INPUT_0_ELEMENTS];
static float scores[DIGITS_FLOAT_OUTPUT_0_ELEMENTS];

static int best(void) {
    int found = 0;
    for (int digit = 1; digit < (int)DIGITS_FLOAT_OUTPUT_0_ELEMENTS; digit++) {
        if (scores[digit] > scores[found]) {
            found = digit;
        }
    }
    return found;
}

int main(void) {
    int right = 0;
    print_text("digits_float: handwritten digits, 8x8 pixels\n");
    for (int index = 0; index < PICTURE_COUNT; index++) {
        picture_draw(index, picture_labels[index], pictures[index], PICTURE_SIDE);
        for (int i = 0; i < PICTURE_SIDE * PICTURE_SIDE; i++) {
            image[i] = (float)pictures[index][i] / 16.0f;
        }
        ticks_start();
        const int error = digits_float_run(image, scores, workspace);
        const uint32_t ticks = ticks_elapsed();
        if (error != DIGITS_FLOAT_OK) {
            print_text("error ");
            print_number(error);
            print_text("\n");
            return 1;
        }
        const int found = best();
        right += found == picture_labels[index];
        picture_recognised(found, (int32_t)((scores[found] * 100.0f) + 0.5f));
        ticks_print(ticks);
    }
    picture_summary("digits_float", right, PICTURE_COUNT);
    return 0;
}
