/* xa_nn_reference_arithmetic.h - a HiFi's fixed-point arithmetic in C99: what each step saturates, and where it rounds.
 *
 * A fraction is an int32_t that means itself / 2^31. Shifts right of negative numbers keep the sign, as every compiler for these cores does.
 */
#ifndef XA_NN_REFERENCE_ARITHMETIC_H
#define XA_NN_REFERENCE_ARITHMETIC_H

#include <stdint.h>

/* Into an int32_t, saturated. */
static inline int32_t xa_ref_saturate(int64_t value) {
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

static inline int32_t xa_ref_add(int32_t a, int32_t b) {
    return xa_ref_saturate((int64_t)a + b);
}

/* a * 2^shift, saturated; 0 <= shift <= 31. */
static inline int32_t xa_ref_shift_left(int32_t a, int32_t shift) {
    return xa_ref_saturate((int64_t)a * ((int64_t)1 << shift));
}

/* a / 2^shift, halves away from zero; 0 <= shift <= 31. */
static inline int32_t xa_ref_shift_right(int32_t a, int32_t shift) {
    const int64_t half = shift > 0 ? (int64_t)1 << (shift - 1) : 0;
    const int64_t size = a < 0 ? -(int64_t)a : (int64_t)a;
    const int64_t result = (size + half) >> shift;
    return (int32_t)(a < 0 ? -result : result);
}

/* The product of two fractions, halves up. */
static inline int32_t xa_ref_product_up(int32_t a, int32_t b) {
    return xa_ref_saturate(((int64_t)a * b + ((int64_t)1 << 30)) >> 31);
}

/* The product of two fractions, halves away from zero. */
static inline int32_t xa_ref_product_away(int32_t a, int32_t b) {
    const int64_t product = (int64_t)a * b;
    const int64_t size = ((product < 0 ? -product : product) + ((int64_t)1 << 30)) >> 31;
    return xa_ref_saturate(product < 0 ? -size : size);
}

/* a * multiplier / 2^31 * 2^shift, rounded twice: after the product, and after a shift right. */
static inline int32_t xa_ref_rescale(int32_t a, int32_t multiplier, int32_t shift) {
    const int32_t scaled = xa_ref_product_up(shift > 0 ? xa_ref_shift_left(a, shift) : a, multiplier);
    return shift < 0 ? xa_ref_shift_right(scaled, -shift) : scaled;
}

static inline int8_t xa_ref_clamp(int32_t value, int32_t low, int32_t high) {
    return (int8_t)(value < low ? low : value > high ? high : value);
}

/* A sum to an int8_t output. */
static inline int8_t xa_ref_finish(int64_t sum, int32_t multiplier, int32_t shift, int32_t zero_point) {
    return xa_ref_clamp(xa_ref_add(xa_ref_rescale(xa_ref_saturate(sum), multiplier, shift), zero_point), -128, 127);
}

/* Whether a pointer is null, or not aligned to so many bytes. */
static inline int xa_ref_is_bad(const void *pointer, uintptr_t align) {
    return pointer == 0 || ((uintptr_t)pointer & (align - 1u)) != 0u;
}

static inline int xa_ref_outside(int32_t value, int32_t low, int32_t high) {
    return value < low || value > high;
}

/* Up to a multiple of a power of two. */
static inline int32_t xa_ref_up(int32_t number, int32_t unit) {
    return (int32_t)((uint32_t)(number + unit - 1) & ~((uint32_t)unit - 1u));
}

static inline int32_t xa_ref_most(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static inline int32_t xa_ref_least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

#endif /* XA_NN_REFERENCE_ARITHMETIC_H */
