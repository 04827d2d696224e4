/* Access to memory-mapped registers. */
#ifndef REGISTERS_H
#define REGISTERS_H

#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

/* Replaces the bits of `mask` in a register by those of `bits`. */
static inline void register_set(uint32_t address, uint32_t mask, uint32_t bits) {
    REGISTER(address) = (REGISTER(address) & ~mask) | bits;
}

#endif /* REGISTERS_H */
