/* A program for a Glow bundle with a static interface: blocks are arrays, sizes and offsets macros. */
#include <stdio.h>

#include "digits.h"
#include "picture.h"

GLOW_MEM_ALIGN(DIGITS_MEM_ALIGN)
static uint8_t constants[DIGITS_CONSTANT_MEM_SIZE] = {
#include "digits.weights.txt"
};

GLOW_MEM_ALIGN(DIGITS_MEM_ALIGN)
static uint8_t mutable_block[DIGITS_MUTABLE_MEM_SIZE];

GLOW_MEM_ALIGN(DIGITS_MEM_ALIGN)
static uint8_t activations[DIGITS_ACTIVATIONS_MEM_SIZE];

int main(void) {
    for (int index = 0; index < PICTURE_COUNT; index++) {
        put_picture((int8_t *)GLOW_GET_ADDR(mutable_block, DIGITS_image), index);
        const int error = digits(constants, mutable_block, activations);
        if (error != GLOW_SUCCESS) {
            printf("error %d\n", error);
            return 1;
        }
        printf("class %d\n", largest((const int8_t *)GLOW_GET_ADDR(mutable_block, DIGITS_scores), 10));
    }
    return 0;
}
