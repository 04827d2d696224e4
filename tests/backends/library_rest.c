/* What the sources that tests download lack of CMSIS-NN: softmax, sums, products, SVDF. Written from TensorFlow Lite's definitions, plainly,
 * against the library's own header, so that its compiler checks the interface and their results check what a bundle passes.
 */
#include "arm_nnfunctions.h"

static int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

/* a * b / 2^31, halves up; a = b = -2^31 does not occur. */
static int32_t product(int32_t a, int32_t b) { return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31); }

/* x / 2^n, halves away from zero. */
static int32_t shifted(int32_t x, int32_t n) {
    const int64_t half = n ? (int64_t)1 << (n - 1) : 0;
    return (int32_t)(x < 0 ? -((-(int64_t)x + half) >> n) : (x + half) >> n);
}

static int32_t rescaled(int32_t x, int32_t multiplier, int32_t shift) {
    return shifted(product(shift > 0 ? (int32_t)((uint32_t)x << shift) : x, multiplier), shift < 0 ? -shift : 0);
}

/* exp(x) in Q0.31 for x <= 0 in Q5.26. */
static int32_t exponential(int32_t x) {
    static const int32_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = 1 << 24, rest = (x & (quarter - 1)) - quarter;
    const int32_t a = (rest << 5) + (1 << 28), a2 = product(a, a), a3 = product(a2, a), a4 = product(a2, a2);
    const int32_t high = shifted(product(shifted(a4, 2) + a3, 715827883) + a2, 1);
    int32_t result = 1895147668 + product(1895147668, a + high), whole = rest - x, i;
    for (i = 0; i < 7; i++) {
        result = whole & (1 << (24 + i)) ? product(result, factors[i]) : result;
    }
    return x == 0 ? INT32_MAX : result;
}

/* 1 / (1 + x) in Q0.31 for x in [0, 1), by three steps of Newton's method in Q2.29. */
static int32_t reciprocal(int32_t x) {
    const int32_t half = (int32_t)(((int64_t)x + INT32_MAX + 1) >> 1);
    int32_t y = 1515870810 + product(half, -1010580540), i;
    for (i = 0; i < 3; i++) {
        y += (int32_t)((uint32_t)product(y, (1 << 29) - product(half, y)) << 2);
    }
    return y > (1 << 30) - 1 ? INT32_MAX : y << 1;
}

static void softmax(const int8_t *in, int32_t length, int32_t mult, int32_t shift, int32_t least, int32_t bits, int8_t *out8, int16_t *out16) {
    int32_t most = in[0], sum = 0, zeros, scale, i, low = -(1 << (bits - 1));
    for (i = 1; i < length; i++) {
        most = in[i] > most ? in[i] : most;
    }
    for (i = 0; i < length; i++) {
        sum += in[i] - most < least ? 0 : shifted(exponential(product((in[i] - most) * (1 << shift), mult)), 12);
    }
    zeros = __builtin_clz((uint32_t)sum);
    scale = reciprocal((int32_t)(((uint32_t)sum << zeros) - 0x80000000u));
    for (i = 0; i < length; i++) {
        const int32_t e = in[i] - most < least ? 0 : exponential(product((in[i] - most) * (1 << shift), mult));
        const int32_t y = clamp(shifted(product(scale, e), 12 - zeros + 31 - bits) + low, low, -low - 1);
        if (out8) {
            out8[i] = (int8_t)y;
        } else {
            out16[i] = (int16_t)y;
        }
    }
}

void arm_softmax_s8(const int8_t *input, const int32_t num_rows, const int32_t row_size, const int32_t mult, const int32_t shift,
                    const int32_t diff_min, int8_t *output) {
    int32_t row;
    for (row = 0; row < num_rows; row++) {
        softmax(input + row * row_size, row_size, mult, shift, diff_min, 8, output + row * row_size, 0);
    }
}

void arm_softmax_s8_s16(const int8_t *input, const int32_t num_rows, const int32_t row_size, const int32_t mult, const int32_t shift,
                        const int32_t diff_min, int16_t *output) {
    int32_t row;
    for (row = 0; row < num_rows; row++) {
        softmax(input + row * row_size, row_size, mult, shift, diff_min, 16, 0, output + row * row_size);
    }
}

#define SUM(suffix, type)                                                                                                                \
    arm_cmsis_nn_status arm_elementwise_add_##suffix(                                                                                    \
        const type *a, const type *b, const int32_t a_offset, const int32_t a_mult, const int32_t a_shift, const int32_t b_offset,       \
        const int32_t b_mult, const int32_t b_shift, const int32_t left_shift, type *out, const int32_t out_offset,                      \
        const int32_t out_mult, const int32_t out_shift, const int32_t low, const int32_t high, const int32_t count) {                   \
        int32_t i;                                                                                                                       \
        for (i = 0; i < count; i++) {                                                                                                    \
            const int32_t x = rescaled((a[i] + a_offset) * (1 << left_shift), a_mult, a_shift);                                          \
            const int32_t y = rescaled((b[i] + b_offset) * (1 << left_shift), b_mult, b_shift);                                          \
            out[i] = (type)clamp(rescaled(x + y, out_mult, out_shift) + out_offset, low, high);                                          \
        }                                                                                                                                \
        return ARM_CMSIS_NN_SUCCESS;                                                                                                     \
    }                                                                                                                                    \
    arm_cmsis_nn_status arm_elementwise_mul_##suffix(const type *a, const type *b, const int32_t a_offset, const int32_t b_offset,       \
                                                     type *out, const int32_t out_offset, const int32_t out_mult,                        \
                                                     const int32_t out_shift, const int32_t low, const int32_t high,                     \
                                                     const int32_t count) {                                                              \
        int32_t i;                                                                                                                       \
        for (i = 0; i < count; i++) {                                                                                                    \
            const int32_t x = (a[i] + a_offset) * (b[i] + b_offset);                                                                     \
            out[i] = (type)clamp(rescaled(x, out_mult, out_shift) + out_offset, low, high);                                              \
        }                                                                                                                                \
        return ARM_CMSIS_NN_SUCCESS;                                                                                                     \
    }

SUM(s8, int8_t)
SUM(s16, int16_t)

arm_cmsis_nn_status arm_softmax_s16(const int16_t *input, const int32_t num_rows, const int32_t row_size, const int32_t mult,
                                    const int32_t shift, const cmsis_nn_softmax_lut_s16 *tables, int16_t *output) {
    int32_t row, i;
    for (row = 0; row < num_rows; row++, input += row_size, output += row_size) {
        int32_t most = input[0], sum = 0, position, zeros, inverse;
        for (i = 1; i < row_size; i++) {
            most = input[i] > most ? input[i] : most;
        }
        for (i = 0; i < row_size; i++) {
            const int32_t x = clamp(rescaled(input[i] - most, mult, shift) + 32767, -32768, 32767);
            const int16_t *entry = tables->exp_lut + 256 + (x >> 7);
            output[i] = (int16_t)(entry[0] + (((entry[1] - entry[0]) * (x & 127) + 64) >> 7));
            sum += output[i];
        }
        zeros = __builtin_clz((uint32_t)sum);
        position = clamp((int32_t)((((uint32_t)sum << (zeros - 1)) + (1 << 13)) >> 14) - 98304, -32768, 32767);
        inverse = tables->one_by_one_lut[256 + (position >> 7)];
        inverse += ((tables->one_by_one_lut[257 + (position >> 7)] - inverse) * (position & 127) + 64) >> 7;
        for (i = 0; i < row_size; i++) {
            output[i] = (int16_t)(((output[i] * inverse >> (30 - zeros)) + 1) >> 1);
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_svdf_state_s16_s8(const cmsis_nn_context *input_ctx, const cmsis_nn_context *output_ctx,
                                          const cmsis_nn_svdf_params *params, const cmsis_nn_per_tensor_quant_params *in_quant,
                                          const cmsis_nn_per_tensor_quant_params *out_quant, const cmsis_nn_dims *input_dims,
                                          const int8_t *input, const cmsis_nn_dims *state_dims, int16_t *state,
                                          const cmsis_nn_dims *feature_dims, const int8_t *feature, const cmsis_nn_dims *time_dims,
                                          const int16_t *time, const cmsis_nn_dims *bias_dims, const int32_t *bias,
                                          const cmsis_nn_dims *output_dims, int8_t *output) {
    const int32_t batch = input_dims->n, depth = input_dims->h, filters = feature_dims->n, memory = time_dims->h, rank = params->rank;
    int32_t *sums = input_ctx->buf, *totals = output_ctx->buf, b, f, i;
    if (!sums || !totals || input_ctx->size != 4 * batch * filters || output_ctx->size != 4 * batch * filters / rank ||
        state_dims->h * state_dims->n != batch * filters * memory || feature_dims->h != depth || time_dims->n != filters ||
        bias_dims->n * rank != filters || output_dims->n * output_dims->h != batch * filters / rank) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
    for (b = 0; b < batch; b++) {
        for (f = 0; f < filters; f++) {
            int16_t *past = state + (b * filters + f) * memory;
            int32_t acc = 0, total = 0;
            for (i = 0; i < depth; i++) {
                acc += (input[b * depth + i] - params->input_offset) * feature[f * depth + i];
            }
            for (i = 0; i + 1 < memory; i++) {
                past[i] = past[i + 1];
            }
            acc = rescaled(acc, in_quant->multiplier, in_quant->shift);
            past[memory - 1] = (int16_t)clamp(acc, params->input_activation.min, params->input_activation.max);
            for (i = 0; i < memory; i++) {
                total += past[i] * time[f * memory + i];
            }
            sums[b * filters + f] = total;
        }
        for (f = 0; f < filters / rank; f++) {
            int32_t total = bias ? bias[f] : 0;
            for (i = 0; i < rank; i++) {
                total += sums[b * filters + f * rank + i];
            }
            totals[b * filters / rank + f] = total;
        }
    }
    for (i = 0; i < batch * filters / rank; i++) {
        const int32_t y = rescaled(totals[i], out_quant->multiplier, out_quant->shift) + params->output_offset;
        output[i] = (int8_t)clamp(y, params->output_activation.min, params->output_activation.max);
    }
    return ARM_CMSIS_NN_SUCCESS;
}
