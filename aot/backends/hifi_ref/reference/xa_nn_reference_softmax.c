/* xa_nn_reference_softmax.c - softmax of one row in fixed point: exponentials in 31 bits of fraction, their sum in 19, one reciprocal.
 *
 * The algorithms are those of gemmlowp's fixedpoint.h: a polynomial around -1/8 and a product of constants for the exponential, three steps
 * of Newton's method for the reciprocal. Products round halves away from zero, where gemmlowp's round them up.
 */
#include "xa_nn_reference.h"
#include "xa_nn_reference_arithmetic.h"

#define QUARTER (1 << 24) /* 1/4 with 26 bits of fraction */

/* exp(-1/8), and exp(-2^k) for k from -2 on, as fractions. */
static const int32_t EXP_OF_MINUS_EIGHTH = 1895147668;
static const int32_t EXP_OF_MINUS_POWER[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};

/* exp(x) as a fraction, of x <= 0 with 26 bits of fraction. */
static int32_t exponential(int32_t x) {
    if (x == 0) {
        return INT32_MAX;
    }
    const int32_t part = (int32_t)((uint32_t)x & (uint32_t)(QUARTER - 1)) - QUARTER; /* -1/4 <= part < 0 */
    const int32_t rest = part - x;                                                    /* a multiple of 1/4 */
    const int32_t near = xa_ref_add(xa_ref_shift_left(part, 5), 1 << 28);             /* part + 1/8, as a fraction */
    const int32_t square = xa_ref_product_away(near, near), cube = xa_ref_product_away(square, near);
    const int32_t fourth = xa_ref_product_away(square, square);
    const int32_t third_order = xa_ref_product_away(xa_ref_add(xa_ref_shift_right(fourth, 2), cube), 715827883); /* 1/3 */
    const int32_t sum = xa_ref_add(near, xa_ref_shift_right(xa_ref_add(third_order, square), 1));
    int32_t result = xa_ref_add(xa_ref_product_away(sum, EXP_OF_MINUS_EIGHTH), EXP_OF_MINUS_EIGHTH);
    for (int32_t k = 0; k < 7; k++) {
        if ((rest & (int32_t)((uint32_t)QUARTER << k)) != 0) {
            result = xa_ref_product_away(result, EXP_OF_MINUS_POWER[k]);
        }
    }
    return result;
}

/* 1 / (1 + x) as a fraction, of a fraction 0 <= x < 1. */
static int32_t reciprocal_of_one_plus(int32_t x) {
    const int32_t half = (int32_t)(((int64_t)x + ((int64_t)1 << 31)) >> 1);                            /* (1 + x) / 2 */
    int32_t estimate = xa_ref_add(xa_ref_product_away(half, -1010580540), 1515870810);                 /* 48/17 - 32/17 * half, with 29 bits */
    for (int32_t step = 0; step < 3; step++) {
        const int32_t error = xa_ref_saturate(((int64_t)1 << 29) - xa_ref_product_away(half, estimate));
        estimate = xa_ref_add(estimate, xa_ref_shift_left(xa_ref_product_away(estimate, error), 2));
    }
    return xa_ref_shift_left(estimate, 1);
}

int32_t xa_nn_vec_softmax_asym8s_asym8s(
    int8_t *p_out, const int8_t *p_vec, int32_t diffmin, int32_t input_beta_left_shift, int32_t input_beta_multiplier,
    int32_t vec_length, void *p_scratch) {
    if (xa_ref_is_bad(p_out, 1) || xa_ref_is_bad(p_vec, 1) || xa_ref_is_bad(p_scratch, 1) || vec_length <= 0 ||
        xa_ref_outside(input_beta_left_shift, 0, 31) || input_beta_multiplier < 0) {
        return -1;
    }
    int32_t *exponentials = (int32_t *)(void *)((char *)p_scratch + ((0u - (unsigned)(uintptr_t)p_scratch) & 7u));
    int32_t largest = INT8_MIN, total = 0, zeros = 0;
    for (int32_t i = 0; i < vec_length; i++) {
        largest = xa_ref_most(largest, p_vec[i]);
    }
    for (int32_t i = 0; i < vec_length; i++) {
        const int32_t difference = p_vec[i] - largest;
        exponentials[i] = 0;
        if (difference >= diffmin) {
            exponentials[i] = exponential(xa_ref_rescale(difference, input_beta_multiplier, input_beta_left_shift));
        }
        total = xa_ref_add(total, xa_ref_shift_right(exponentials[i], 12)); /* 19 bits of fraction */
    }
    while (zeros < 31 && ((uint32_t)total << zeros >> 31) == 0) {
        zeros++;
    }
    const int32_t one = reciprocal_of_one_plus((int32_t)(((uint32_t)total << zeros) & 0x7fffffffu));
    const int32_t shift = 12 - zeros + 31 - 8;
    for (int32_t i = 0; i < vec_length; i++) {
        const int32_t scaled = xa_ref_shift_right(xa_ref_product_up(exponentials[i], one), xa_ref_least(shift, 31));
        p_out[i] = xa_ref_clamp(scaled - 128, -128, 127);
    }
    return 0;
}
