/* xa_nn_reference_pools.c - average and maximum of windows, channels last. Elements outside the image are not counted. */
#include "xa_nn_reference.h"
#include "xa_nn_reference_arithmetic.h"

/* 1 / count as a fraction, rounded up (1 itself is the largest fraction); bit by bit, as not every core divides. */
static int32_t reciprocal(int32_t count) {
    uint32_t quotient = 0, rest = 1;
    if (count == 1) {
        return INT32_MAX;
    }
    for (int32_t bit = 0; bit < 31; bit++) {
        rest <<= 1;
        quotient <<= 1;
        if (rest >= (uint32_t)count) {
            rest -= (uint32_t)count;
            quotient |= 1u;
        }
    }
    return (int32_t)(rest != 0u ? quotient + 1u : quotient);
}

static int bad_pool(
    const int8_t *p_out, const int8_t *p_inp, int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format, const void *p_scratch) {
    return xa_ref_is_bad(p_out, 1) || xa_ref_is_bad(p_inp, 1) || xa_ref_is_bad(p_scratch, 8) || input_height <= 0 || input_width <= 0 ||
           input_channels <= 0 || xa_ref_outside(kernel_height, 1, input_height) || xa_ref_outside(kernel_width, 1, input_width) ||
           y_stride <= 0 || x_stride <= 0 || y_padding < 0 || x_padding < 0 || out_height <= 0 || out_width <= 0 ||
           inp_data_format != 0 || out_data_format != 0;
}

int32_t xa_nn_avgpool_8(
    int8_t *p_out, const int8_t *p_inp, int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format, void *p_scratch) {
    if (bad_pool(
            p_out, p_inp, input_height, input_width, input_channels, kernel_height, kernel_width, x_stride, y_stride, x_padding,
            y_padding, out_height, out_width, inp_data_format, out_data_format, p_scratch) ||
        kernel_height > 1024 || kernel_width > 1024) {
        return -1;
    }
    for (int32_t y = 0; y < out_height; y++) {
        const int32_t top = xa_ref_most(0, y * y_stride - y_padding);
        const int32_t bottom = xa_ref_least(input_height, y * y_stride - y_padding + kernel_height);
        for (int32_t x = 0; x < out_width; x++) {
            const int32_t left = xa_ref_most(0, x * x_stride - x_padding);
            const int32_t right = xa_ref_least(input_width, x * x_stride - x_padding + kernel_width);
            const int32_t rows = xa_ref_most(0, bottom - top), columns = xa_ref_most(0, right - left);
            int32_t one = 0; /* an empty window's average is 0 */
            if (rows > 0 && columns > 0) {
                one = kernel_height * kernel_width <= 1024
                          ? reciprocal(rows * columns)
                          : (int32_t)(((int64_t)reciprocal(rows) * reciprocal(columns)) >> 31);
            }
            for (int32_t c = 0; c < input_channels; c++) {
                int32_t sum = 0;
                for (int32_t row = top; row < top + rows; row++) {
                    for (int32_t column = left; column < left + columns; column++) {
                        sum += p_inp[((int64_t)row * input_width + column) * input_channels + c];
                    }
                }
                p_out[((int64_t)y * out_width + x) * input_channels + c] = (int8_t)xa_ref_product_away(sum, one);
            }
        }
    }
    return 0;
}

int32_t xa_nn_maxpool_8(
    int8_t *p_out, const int8_t *p_inp, int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format, void *p_scratch) {
    if (bad_pool(
            p_out, p_inp, input_height, input_width, input_channels, kernel_height, kernel_width, x_stride, y_stride, x_padding,
            y_padding, out_height, out_width, inp_data_format, out_data_format, p_scratch)) {
        return -1;
    }
    for (int32_t y = 0; y < out_height; y++) {
        for (int32_t x = 0; x < out_width; x++) {
            for (int32_t c = 0; c < input_channels; c++) {
                int8_t most = INT8_MIN;
                for (int32_t ky = 0; ky < kernel_height; ky++) {
                    for (int32_t kx = 0; kx < kernel_width; kx++) {
                        const int32_t row = y * y_stride - y_padding + ky, column = x * x_stride - x_padding + kx;
                        if (xa_ref_outside(row, 0, input_height - 1) || xa_ref_outside(column, 0, input_width - 1)) {
                            continue;
                        }
                        const int8_t value = p_inp[((int64_t)row * input_width + column) * input_channels + c];
                        most = value > most ? value : most;
                    }
                }
                p_out[((int64_t)y * out_width + x) * input_channels + c] = most;
            }
        }
    }
    return 0;
}
