/* xa_nn_reference_elementwise.c - sums, differences and products of two operands, and clamping. */
#include "xa_nn_reference.h"
#include "xa_nn_reference_arithmetic.h"

typedef struct operand {
    const int8_t *data;
    int32_t zero_bias, shift, multiplier;
} operand;

static int bad_ends(int32_t zero_bias, int32_t low, int32_t high) {
    return xa_ref_outside(zero_bias, -128, 127) || xa_ref_outside(low, -128, 127) || xa_ref_outside(high, -128, 127) || high < low;
}

static int bad_operand(const operand *one) {
    return xa_ref_is_bad(one->data, 1) || xa_ref_outside(one->zero_bias, -127, 128) || xa_ref_outside(one->shift, -31, 0);
}

/* (a << left_shift) rescaled, plus or minus b likewise, rescaled. sign: 1 or -1. */
static int32_t sums(
    int8_t *p_out, int32_t zero_bias, int32_t shift, int32_t multiplier, int32_t low, int32_t high,
    operand a, operand b, int32_t sign, int32_t left_shift, int32_t count) {
    if (xa_ref_is_bad(p_out, 1) || bad_operand(&a) || bad_operand(&b) || bad_ends(zero_bias, low, high) || count <= 0 ||
        xa_ref_outside(shift, -31, 0) || xa_ref_outside(left_shift, 0, 31)) {
        return -1;
    }
    for (int32_t i = 0; i < count; i++) {
        const int32_t left = xa_ref_rescale(xa_ref_shift_left(a.data[i] + a.zero_bias, left_shift), a.multiplier, a.shift);
        const int32_t right = xa_ref_rescale(xa_ref_shift_left(b.data[i] + b.zero_bias, left_shift), b.multiplier, b.shift);
        const int32_t sum = xa_ref_saturate((int64_t)left + (int64_t)sign * right);
        p_out[i] = xa_ref_clamp(xa_ref_add(xa_ref_rescale(sum, multiplier, shift), zero_bias), low, high);
    }
    return 0;
}

int32_t xa_nn_elm_add_asym8sxasym8s_asym8s(
    int8_t *p_out, int32_t out_zero_bias, int32_t out_left_shift, int32_t out_multiplier,
    int32_t out_activation_min, int32_t out_activation_max,
    const int8_t *p_inp1, int32_t inp1_zero_bias, int32_t inp1_left_shift, int32_t inp1_multiplier,
    const int8_t *p_inp2, int32_t inp2_zero_bias, int32_t inp2_left_shift, int32_t inp2_multiplier,
    int32_t left_shift, int32_t num_elm) {
    const operand a = {p_inp1, inp1_zero_bias, inp1_left_shift, inp1_multiplier};
    const operand b = {p_inp2, inp2_zero_bias, inp2_left_shift, inp2_multiplier};
    return sums(
        p_out, out_zero_bias, out_left_shift, out_multiplier, out_activation_min, out_activation_max, a, b, 1, left_shift, num_elm);
}

int32_t xa_nn_elm_sub_asym8sxasym8s_asym8s(
    int8_t *p_out, int32_t out_zero_bias, int32_t out_left_shift, int32_t out_multiplier,
    int32_t out_activation_min, int32_t out_activation_max,
    const int8_t *p_inp1, int32_t inp1_zero_bias, int32_t inp1_left_shift, int32_t inp1_multiplier,
    const int8_t *p_inp2, int32_t inp2_zero_bias, int32_t inp2_left_shift, int32_t inp2_multiplier,
    int32_t left_shift, int32_t num_elm) {
    const operand a = {p_inp1, inp1_zero_bias, inp1_left_shift, inp1_multiplier};
    const operand b = {p_inp2, inp2_zero_bias, inp2_left_shift, inp2_multiplier};
    return sums(
        p_out, out_zero_bias, out_left_shift, out_multiplier, out_activation_min, out_activation_max, a, b, -1, left_shift, num_elm);
}

int32_t xa_nn_elm_mul_asym8sxasym8s_asym8s(
    int8_t *p_out, int32_t out_zero_bias, int32_t out_shift, int32_t out_multiplier,
    int32_t out_activation_min, int32_t out_activation_max,
    const int8_t *p_inp1, int32_t inp1_zero_bias, const int8_t *p_inp2, int32_t inp2_zero_bias, int32_t num_elm) {
    if (xa_ref_is_bad(p_out, 1) || xa_ref_is_bad(p_inp1, 1) || xa_ref_is_bad(p_inp2, 1) || num_elm <= 0 ||
        xa_ref_outside(inp1_zero_bias, -127, 128) || xa_ref_outside(inp2_zero_bias, -127, 128) ||
        xa_ref_outside(out_shift, -31, 31) || bad_ends(out_zero_bias, out_activation_min, out_activation_max)) {
        return -1;
    }
    for (int32_t i = 0; i < num_elm; i++) {
        const int32_t product = (p_inp1[i] + inp1_zero_bias) * (p_inp2[i] + inp2_zero_bias);
        const int32_t scaled = xa_ref_add(xa_ref_rescale(product, out_multiplier, out_shift), out_zero_bias);
        p_out[i] = xa_ref_clamp(scaled, out_activation_min, out_activation_max);
    }
    return 0;
}

int32_t xa_nn_vec_activation_min_max_8_8(
    int8_t *p_out, const int8_t *p_vec, int activation_min, int activation_max, int32_t vec_length) {
    if (xa_ref_is_bad(p_out, 1) || xa_ref_is_bad(p_vec, 1) || vec_length <= 0 || activation_max < activation_min) {
        return -1;
    }
    for (int32_t i = 0; i < vec_length; i++) {
        p_out[i] = xa_ref_clamp(p_vec[i], activation_min, activation_max);
    }
    return 0;
}
