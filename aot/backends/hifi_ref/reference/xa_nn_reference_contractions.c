/* xa_nn_reference_contractions.c - convolutions and fully connected layers: sums of products in 64 bits, rescaled for each channel. */
#include "xa_nn_reference.h"
#include "xa_nn_reference_arithmetic.h"

/* The bounds of the library's parameters. */
static int bad_biases(int32_t input_zero_bias, int32_t out_zero_bias) {
    return xa_ref_outside(input_zero_bias, -127, 128) || xa_ref_outside(out_zero_bias, -128, 127);
}

static int bad_shifts(const int32_t *shifts, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        if (xa_ref_outside(shifts[i], -31, 31)) {
            return 1;
        }
    }
    return 0;
}

static int64_t dot(const int8_t *a, const int8_t *b, int32_t count, int32_t a_bias) {
    int64_t sum = 0;
    for (int32_t i = 0; i < count; i++) {
        sum += (int64_t)((a[i] + a_bias) * b[i]);
    }
    return sum;
}

int32_t xa_nn_conv2d_std_per_chan_sym8sxasym8s(
    int8_t *p_out, const int8_t *p_inp, const int8_t *p_kernel, const int32_t *p_bias,
    int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t out_channels,
    int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding, int32_t out_height, int32_t out_width,
    int32_t input_zero_bias, int32_t *p_out_multiplier, int32_t *p_out_shift, int32_t out_zero_bias,
    int32_t out_data_format, void *p_scratch) {
    if (xa_ref_is_bad(p_out, 1) || xa_ref_is_bad(p_inp, 1) || xa_ref_is_bad(p_kernel, 1) || xa_ref_is_bad(p_scratch, 1) ||
        (p_bias != 0 && xa_ref_is_bad(p_bias, 4)) || p_out_multiplier == 0 || p_out_shift == 0) {
        return -1;
    }
    if (input_height <= 0 || input_width <= 0 || input_channels <= 0 || kernel_height <= 0 || kernel_width <= 0 ||
        out_channels <= 0 || y_stride <= 0 || x_stride <= 0 || y_padding < 0 || x_padding < 0 || out_height <= 0 || out_width <= 0 ||
        bad_biases(input_zero_bias, out_zero_bias) || xa_ref_outside(out_data_format, 0, 1) ||
        bad_shifts(p_out_shift, out_channels)) {
        return -1;
    }
    for (int32_t y = 0; y < out_height; y++) {
        for (int32_t x = 0; x < out_width; x++) {
            const int32_t top = y * y_stride - y_padding, left = x * x_stride - x_padding;
            const int32_t first = xa_ref_most(0, -left), last = xa_ref_least(kernel_width, input_width - left);
            for (int32_t c = 0; c < out_channels; c++) {
                const int8_t *weights = p_kernel + (int64_t)c * kernel_height * kernel_width * input_channels;
                int64_t sum = p_bias == 0 ? 0 : p_bias[c];
                for (int32_t ky = 0; ky < kernel_height; ky++) {
                    const int32_t row = top + ky;
                    if (row < 0 || row >= input_height || last <= first) {
                        continue;
                    }
                    sum += dot(
                        p_inp + ((int64_t)row * input_width + left + first) * input_channels,
                        weights + ((int64_t)ky * kernel_width + first) * input_channels,
                        (last - first) * input_channels,
                        input_zero_bias);
                }
                const int64_t place = out_data_format == 0 ? ((int64_t)y * out_width + x) * out_channels + c
                                                           : ((int64_t)c * out_height + y) * out_width + x;
                p_out[place] = xa_ref_finish(sum, p_out_multiplier[c], p_out_shift[c], out_zero_bias);
            }
        }
    }
    return 0;
}

int32_t xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s(
    int8_t *p_out, int8_t *p_kernel, int8_t *p_inp, int32_t *p_bias,
    int32_t input_height, int32_t input_width, int32_t input_channels, int32_t out_channels,
    int32_t input_zero_bias, int32_t *p_out_multiplier, int32_t *p_out_shift, int32_t out_zero_bias,
    int32_t out_data_format) {
    if (xa_ref_is_bad(p_out, 1) || xa_ref_is_bad(p_kernel, 1) || xa_ref_is_bad(p_inp, 1) || xa_ref_is_bad(p_bias, 4) ||
        xa_ref_is_bad(p_out_multiplier, 4) || xa_ref_is_bad(p_out_shift, 4)) {
        return -1;
    }
    if (input_height <= 0 || input_width <= 0 || input_channels <= 0 || out_channels <= 0 ||
        bad_biases(input_zero_bias, out_zero_bias) || xa_ref_outside(out_data_format, 0, 1) ||
        bad_shifts(p_out_shift, out_channels)) {
        return -1;
    }
    const int32_t pixels = input_height * input_width;
    for (int32_t i = 0; i < pixels; i++) {
        for (int32_t c = 0; c < out_channels; c++) {
            const int64_t sum =
                p_bias[c] + dot(p_inp + (int64_t)i * input_channels, p_kernel + (int64_t)c * input_channels, input_channels, input_zero_bias);
            const int64_t place = out_data_format == 0 ? (int64_t)i * out_channels + c : (int64_t)c * pixels + i;
            p_out[place] = xa_ref_finish(sum, p_out_multiplier[c], p_out_shift[c], out_zero_bias);
        }
    }
    return 0;
}

int32_t xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s(
    int8_t *p_out, const int8_t *p_kernel, const int8_t *p_inp, const int32_t *p_bias,
    int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t channels_multiplier,
    int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding, int32_t out_height, int32_t out_width,
    int32_t input_zero_bias, const int32_t *p_out_multiplier, const int32_t *p_out_shift, int32_t out_zero_bias,
    int32_t inp_data_format, int32_t out_data_format, void *p_scratch) {
    if (xa_ref_is_bad(p_out, 1) || xa_ref_is_bad(p_kernel, 1) || xa_ref_is_bad(p_inp, 1) || xa_ref_is_bad(p_bias, 4) ||
        xa_ref_is_bad(p_scratch, 8) || p_out_multiplier == 0 || p_out_shift == 0) {
        return -1;
    }
    if (input_height <= 0 || input_width <= 0 || input_channels <= 0 || kernel_height <= 0 || kernel_width <= 0 ||
        channels_multiplier <= 0 || y_stride <= 0 || x_stride <= 0 || y_padding < 0 || x_padding < 0 || out_height <= 0 ||
        out_width <= 0 || bad_biases(input_zero_bias, out_zero_bias) || inp_data_format != 0 || out_data_format != 0 ||
        bad_shifts(p_out_shift, input_channels * channels_multiplier)) {
        return -1;
    }
    const int32_t channels = input_channels * channels_multiplier;
    for (int32_t y = 0; y < out_height; y++) {
        for (int32_t x = 0; x < out_width; x++) {
            int32_t from = 0, copies = 0; /* channel c is the copies-th of input channel `from` */
            for (int32_t c = 0; c < channels; c++) {
                int64_t sum = p_bias[c];
                for (int32_t ky = 0; ky < kernel_height; ky++) {
                    for (int32_t kx = 0; kx < kernel_width; kx++) {
                        const int32_t row = y * y_stride - y_padding + ky, column = x * x_stride - x_padding + kx;
                        if (xa_ref_outside(row, 0, input_height - 1) || xa_ref_outside(column, 0, input_width - 1)) {
                            continue;
                        }
                        const int8_t input = p_inp[((int64_t)row * input_width + column) * input_channels + from];
                        sum += (int64_t)((input + input_zero_bias) * p_kernel[((int64_t)ky * kernel_width + kx) * channels + c]);
                    }
                }
                p_out[((int64_t)y * out_width + x) * channels + c] =
                    xa_ref_finish(sum, p_out_multiplier[c], p_out_shift[c], out_zero_bias);
                if (++copies == channels_multiplier) {
                    copies = 0;
                    from++;
                }
            }
        }
    }
    return 0;
}

int32_t xa_nn_fully_connected_sym8sxasym8s_asym8s(
    int8_t *p_out, const int8_t *p_weight, const int8_t *p_inp, const int32_t *p_bias,
    int32_t weight_depth, int32_t out_depth,
    int32_t input_zero_bias, int32_t out_multiplier, int32_t out_shift, int32_t out_zero_bias) {
    if (xa_ref_is_bad(p_out, 1) || xa_ref_is_bad(p_weight, 1) || xa_ref_is_bad(p_inp, 1) || (p_bias != 0 && xa_ref_is_bad(p_bias, 4))) {
        return -1;
    }
    if (weight_depth <= 0 || out_depth <= 0 || bad_biases(input_zero_bias, out_zero_bias) || xa_ref_outside(out_shift, -31, 31)) {
        return -1;
    }
    for (int32_t c = 0; c < out_depth; c++) {
        const int64_t sum = (p_bias == 0 ? 0 : p_bias[c]) + dot(p_inp, p_weight + (int64_t)c * weight_depth, weight_depth, input_zero_bias);
        p_out[c] = xa_ref_finish(sum, out_multiplier, out_shift, out_zero_bias);
    }
    return 0;
}
