/* The pictures as the network takes them: int8, 0 to 16 becomes -128 to 127. */
#include <stdint.h>

#include "inputs.h"

static void put_picture(int8_t *input, int index) {
    for (int i = 0; i < PICTURE_SIDE * PICTURE_SIDE; i++) {
        const int pixel = pictures[index][i] * 16 - 128;
        input[i] = (int8_t)(pixel > 127 ? 127 : pixel);
    }
}

static int largest(const int8_t *output, int count) {
    int found = 0;
    for (int i = 1; i < count; i++) {
        if (output[i] > output[found]) {
            found = i;
        }
    }
    return found;
}
