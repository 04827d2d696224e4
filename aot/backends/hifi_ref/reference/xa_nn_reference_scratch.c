/* xa_nn_reference_scratch.c - how much scratch the library's functions want on a HiFi 3 or 4, where a pointer has 4 bytes. */
#include "xa_nn_reference.h"
#include "xa_nn_reference_arithmetic.h"

#define UNIT 8 /* what the library aligns parts of its scratch to */

int32_t xa_nn_conv2d_std_getsize(
    int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t kernel_channels,
    int32_t y_stride, int32_t y_padding, int32_t x_stride, int32_t x_padding, int32_t out_height, int32_t out_width,
    int32_t output_channels, int32_t input_precision, int32_t kernel_precision,
    int32_t dilation_height, int32_t dilation_width, int32_t out_data_format) {
    (void)kernel_precision;
    (void)dilation_height;
    (void)dilation_width;
    (void)out_data_format;
    if (input_height <= 0 || input_channels <= 0 || kernel_height <= 0 || kernel_width <= 0 || kernel_channels <= 0 || y_stride <= 0 ||
        y_padding < 0 || x_stride <= 0 || x_padding < 0 || out_height <= 0 || out_width <= 0 || output_channels <= 0 ||
        kernel_channels != input_channels || input_precision != XA_NN_PRECISION_ASYM8S) {
        return -1;
    }
    /* An image of one row is turned into one of one column. */
    const int turned = input_height == 1 && kernel_height == 1 && out_height == 1;
    const int32_t height = turned ? input_width : input_height, rows = turned ? out_width : out_height;
    const int32_t taps = turned ? kernel_width : kernel_height, columns = turned ? kernel_height : kernel_width;
    const int32_t stride = turned ? x_stride : y_stride, above = turned ? x_padding : y_padding;
    const int32_t below = xa_ref_most(0, taps + (rows - 1) * stride - (above + height));
    const int32_t padded = xa_ref_up(kernel_channels, 4);
    int32_t buffer = (above + height + below) * columns * padded;
    while (buffer % 16 != 0) {
        buffer += columns * padded;
    }
    const int32_t nbytes = UNIT + 24 + (UNIT - 1) + buffer + (UNIT - 1) + UNIT; /* 24: a state of six pointers */
    return padded == kernel_channels ? nbytes : nbytes + kernel_height * kernel_width * padded * output_channels + (UNIT - 1);
}

int32_t xa_nn_conv2d_depthwise_getsize(
    int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t channels_multiplier,
    int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding, int32_t output_height, int32_t output_width,
    int32_t circ_buf_precision, int32_t inp_data_format) {
    if (input_height <= 0 || input_width <= 0 || input_channels <= 0 || kernel_height <= 0 || kernel_width <= 0 ||
        channels_multiplier <= 0 || x_stride <= 0 || y_stride <= 0 || x_padding < 0 || y_padding < 0 || output_height <= 0 ||
        output_width <= 0 || circ_buf_precision != XA_NN_PRECISION_ASYM8S || inp_data_format != 0) {
        return -1;
    }
    const int32_t rows = xa_ref_most(kernel_height + (output_height - 1) * y_stride, y_padding + input_height);
    const int32_t buffer = rows * xa_ref_up(input_channels * channels_multiplier, 4) * kernel_width;
    return 32 + xa_ref_up(buffer, UNIT) + xa_ref_up(4 * kernel_height * kernel_width, UNIT); /* 32: a state of seven words */
}

int32_t xa_nn_avgpool_getsize(
    int32_t input_channels, int32_t inp_precision, int32_t out_precision, int32_t input_height, int32_t input_width,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format) {
    (void)out_precision;
    (void)input_height;
    (void)y_stride;
    (void)y_padding;
    (void)inp_data_format;
    if (inp_precision != XA_NN_PRECISION_8 || out_data_format != 0 || kernel_height > 1024 || kernel_width > 1024) {
        return -1;
    }
    if (input_channels == 1) {
        int32_t full = xa_ref_most(kernel_width + (out_width - 1) * x_stride, xa_ref_up(x_padding, 2) + input_width);
        full = xa_ref_up(xa_ref_up(full, UNIT / 2) + kernel_width, 4);
        return 16 + xa_ref_up(4 * (out_height + out_width), UNIT) + 2 * full * 4; /* 16: a state of three pointers */
    }
    const int32_t plane = input_width * input_channels, unit = kernel_height <= 127 ? 2 : 4;
    const int32_t counts = xa_ref_up(4 * out_height, UNIT) + xa_ref_up(4 * out_width, UNIT);
    const int32_t totals = xa_ref_up(unit * plane, UNIT) + xa_ref_up(4 * input_channels, UNIT);
    return xa_ref_up(counts + totals + xa_ref_most(plane, unit * input_channels), UNIT);
}

int32_t xa_nn_maxpool_getsize(
    int32_t input_channels, int32_t inp_precision, int32_t out_precision, int32_t input_height, int32_t input_width,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format) {
    (void)out_precision;
    (void)input_height;
    (void)kernel_height;
    (void)y_stride;
    (void)y_padding;
    (void)out_height;
    (void)inp_data_format;
    if (inp_precision != XA_NN_PRECISION_8 || out_data_format != 0) {
        return -1;
    }
    if (input_channels == 1) {
        const int32_t full = xa_ref_most(kernel_width + (out_width - 1) * x_stride, x_padding + input_width);
        return UNIT + 2 * xa_ref_up(xa_ref_up(full, UNIT / 2) + kernel_width, 4) * 2;
    }
    return xa_ref_up(2 * input_channels * input_width, UNIT) + xa_ref_up(2 * input_channels, UNIT);
}

int get_softmax_scratch_size(int inp_precision, int out_precision, int length) {
    (void)out_precision;
    return inp_precision != XA_NN_PRECISION_ASYM8S || length <= 0 ? -1 : (int)xa_ref_up(4 * length, UNIT);
}
