/* A program for a Glow bundle with a dynamic interface: blocks are allocated, inputs and outputs are looked up by name. On a system with files
 * the weights come from one, else they are part of the program. */
#include <stdio.h>

#include "digits.h"
#include "picture.h"

static uint8_t memory[16384];
static uint32_t used;

static uint8_t *allocated(uint64_t nbytes) {
    const uintptr_t mask = (uintptr_t)digits_config.alignment - 1;
    uint8_t *start = memory + used;
    while (((uintptr_t)start & mask) != 0) {
        start++;
    }
    used = (uint32_t)(start - memory) + (uint32_t)nbytes;
    return used <= sizeof memory ? start : 0;
}

static int same(const char *a, const char *b) {
    for (; *a && *a == *b; a++, b++) {
    }
    return *a == *b;
}

static const SymbolTableEntry *symbol(const char *name) {
    for (uint64_t i = 0; i < digits_config.numSymbols; i++) {
        const SymbolTableEntry *entry = &digits_config.symbolTable[i];
        if (entry->kind == 1 && same(entry->name, name)) {
            return entry;
        }
    }
    return 0;
}

#ifdef FILES
static int fill(uint8_t *constants) {
    FILE *file = fopen("digits.weights.bin", "rb");
    const uint64_t nbytes = file ? fread(constants, 1, (size_t)digits_config.constantWeightVarsMemSize + 1, file) : 0;
    return nbytes == digits_config.constantWeightVarsMemSize;
}
#else
static int fill(uint8_t *constants) {
    static const uint8_t weights[] = {
#include "digits.weights.txt"
    };
    for (uint32_t i = 0; i < sizeof weights; i++) {
        constants[i] = weights[i];
    }
    return sizeof weights == digits_config.constantWeightVarsMemSize;
}
#endif

int main(void) {
    uint8_t *constants = allocated(digits_config.constantWeightVarsMemSize + 1);
    uint8_t *mutable_block = allocated(digits_config.mutableWeightVarsMemSize);
    uint8_t *activations = allocated(digits_config.activationsMemSize);
    const SymbolTableEntry *input = symbol("image"), *output = symbol("scores");
    if (!constants || !mutable_block || !activations || !input || !output || !fill(constants)) {
        printf("no memory, no symbol or no weights\n");
        return 1;
    }
    if (input->size != PICTURE_SIDE * PICTURE_SIDE) {
        printf("another input\n");
        return 1;
    }
    for (int index = 0; index < PICTURE_COUNT; index++) {
        put_picture((int8_t *)(mutable_block + input->offset), index);
        const int error = digits(constants, mutable_block, activations);
        if (error != GLOW_SUCCESS) {
            printf("error %d\n", error);
            return 1;
        }
        printf("class %d\n", largest((const int8_t *)(mutable_block + output->offset), (int)output->size));
    }
    return 0;
}
