/* What each layer takes: the sample for a bundle made with --instrument cycles.
 *
 * Reads the cycle counter of the DWT unit, or with COUNTER=0x40000024 timer 2 of an STM32F405, which QEMU has: there it counts instructions.
 */
#include <stdint.h>

#include "digits.h"
#include "digits_layers.h"
#include "inputs.h"
#include "pictures.h"
#include "print.h"
#include "registers.h"
#include "ticks.h"

#define DWT_CYCCNT (0xE0001004u)
#define RCC_APB1ENR (0x40023840u)
#define TIM2_CR1 (0x40000000u)
#define TIM2_EGR (0x40000014u)
#define TIM2_PSC (0x40000028u)
#define TIM2_ARR (0x4000002Cu)

static uint8_t workspace[DIGITS_WORKSPACE_SIZE] __attribute__((aligned(DIGITS_WORKSPACE_ALIGN)));
static int8_t image[DIGITS_INPUT_0_SIZE] __attribute__((aligned(4)));
static int8_t scores[DIGITS_OUTPUT_0_SIZE] __attribute__((aligned(4)));

static void counter_start(void) {
    if (DIGITS_CYCLE_COUNTER == DWT_CYCCNT) {
        ticks_start(); /* starts CYCCNT, too */
        return;
    }
    register_set(RCC_APB1ENR, 0u, 1u); /* timer 2 on */
    REGISTER(TIM2_PSC) = 0u;
    REGISTER(TIM2_ARR) = 0xFFFFFFFFu;
    REGISTER(TIM2_EGR) = 1u;
    REGISTER(TIM2_CR1) = 1u;
}

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
    static uint32_t cycles[DIGITS_LAYERS];
    for (int i = 0; i < PICTURE_SIDE * PICTURE_SIDE; i++) {
        image[i] = digits_quantise_input_0((float)pictures[0][i] / 16.0f);
    }
    for (uint32_t layer = 0u; layer < DIGITS_LAYERS; layer++) {
        cycles[layer] = 0xA5A5A5A5u; /* any content before */
    }
    counter_start();
    const int error = digits_run(image, scores, workspace, cycles);
    if (error != DIGITS_OK) {
        print_text("error ");
        print_number(error);
        print_text("\n");
        return 1;
    }
    for (uint32_t layer = 0u; layer < DIGITS_LAYERS; layer++) {
        print_text("cycles ");
        print_number((int32_t)cycles[layer]);
        print_text(": ");
        print_text(digits_layers[layer].name);
        print_text(", ");
        print_text(digits_layers[layer].kernel);
        print_text("\n");
    }
    picture_summary("digits", best() == picture_labels[0], 1);
    return 0;
}
