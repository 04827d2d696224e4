/* Recognises handwritten digits: draws each picture on the UART and says what the network takes it for. */
#include <stdint.h>

#include "digits.h"
#include "inputs.h"
#include "pictures.h"
#include "print.h"
#include "ticks.h"

static uint8_t workspace[DIGITS_WORKSPACE_SIZE] __attribute__((aligned(DIGITS_WORKSPACE_ALIGN)));
static int8_t image[DIGITS_INPUT_0_SIZE] __attribute__((aligned(4)));
static int8_t scores[DIGITS_OUTPUT_0_SIZE] __attribute__((aligned(4)));

static int best(void) {
    int found = 0;
    for (int digit = 1; digit < (int)DIGITS_OUTPUT_0_SIZE; digit++) {
        if (scores[digit] > scores[found]) {
            found = digit;
        }
    }
    return found;
}

int main(void) {
    int right = 0;
    print_text("digits: handwritten digits, 8x8 pixels\n");
    for (int index = 0; index < PICTURE_COUNT; index++) {
        picture_draw(index, picture_labels[index], pictures[index], PICTURE_SIDE);
        for (int i = 0; i < PICTURE_SIDE * PICTURE_SIDE; i++) {
            image[i] = digits_quantise_input_0((float)pictures[index][i] / 16.0f);
        }
        ticks_start();
        const int error = digits_run(image, scores, workspace);
        const uint32_t ticks = ticks_elapsed();
        if (error != DIGITS_OK) {
            print_text("error ");
            print_number(error);
            print_text("\n");
            return 1;
        }
        const int found = best();
        right += found == picture_labels[index];
        picture_recognised(found, ((int32_t)scores[found] - DIGITS_OUTPUT_0_ZERO_POINT) * 100 / 256);
        ticks_print(ticks);
    }
    picture_summary("digits", right, PICTURE_COUNT);
    return 0;
}
