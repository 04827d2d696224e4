/* xa_nn_reference.h - the functions of Cadence's HiFi NN library that bundles of aot call, as portable C99.
 *
 * They stand for the library where it is not at hand: on a workstation, in an emulator, on any other core. Written from what the library's
 * functions are documented to compute, with the rounding, saturation and 64-bit accumulation of a HiFi DSP; a firmware for a HiFi links
 * Cadence's library instead of these files. Names and parameters are those of its public header, release 4.1.0; WORD8 is int8_t, WORD32 is
 * int32_t. All return 0, or -1 where an argument is one that the library refuses; nothing is written then.
 *
 * Layouts: images have their channels last. x is along the width, y along the height. A zero_bias of an input or operand is minus its zero
 * point; out_zero_bias is the output's zero point. A value is rescaled by multiplier / 2^31 * 2^shift.
 */
#ifndef XA_NN_REFERENCE_H
#define XA_NN_REFERENCE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the library calls PREC_8, PREC_ASYM8S and PREC_SYM8S, for the functions that say how much scratch is needed. */
#define XA_NN_PRECISION_8 8
#define XA_NN_PRECISION_ASYM8S (-4)
#define XA_NN_PRECISION_SYM8S (-5)

int32_t xa_nn_conv2d_std_per_chan_sym8sxasym8s(
    int8_t *p_out, const int8_t *p_inp, const int8_t *p_kernel, const int32_t *p_bias,
    int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t out_channels,
    int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding, int32_t out_height, int32_t out_width,
    int32_t input_zero_bias, int32_t *p_out_multiplier, int32_t *p_out_shift, int32_t out_zero_bias,
    int32_t out_data_format, void *p_scratch);

int32_t xa_nn_conv2d_pointwise_per_chan_sym8sxasym8s(
    int8_t *p_out, int8_t *p_kernel, int8_t *p_inp, int32_t *p_bias,
    int32_t input_height, int32_t input_width, int32_t input_channels, int32_t out_channels,
    int32_t input_zero_bias, int32_t *p_out_multiplier, int32_t *p_out_shift, int32_t out_zero_bias,
    int32_t out_data_format);

int32_t xa_nn_conv2d_depthwise_per_chan_sym8sxasym8s(
    int8_t *p_out, const int8_t *p_kernel, const int8_t *p_inp, const int32_t *p_bias,
    int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t channels_multiplier,
    int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding, int32_t out_height, int32_t out_width,
    int32_t input_zero_bias, const int32_t *p_out_multiplier, const int32_t *p_out_shift, int32_t out_zero_bias,
    int32_t inp_data_format, int32_t out_data_format, void *p_scratch);

int32_t xa_nn_fully_connected_sym8sxasym8s_asym8s(
    int8_t *p_out, const int8_t *p_weight, const int8_t *p_inp, const int32_t *p_bias,
    int32_t weight_depth, int32_t out_depth,
    int32_t input_zero_bias, int32_t out_multiplier, int32_t out_shift, int32_t out_zero_bias);

int32_t xa_nn_avgpool_8(
    int8_t *p_out, const int8_t *p_inp, int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format, void *p_scratch);

int32_t xa_nn_maxpool_8(
    int8_t *p_out, const int8_t *p_inp, int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format, void *p_scratch);

int32_t xa_nn_elm_add_asym8sxasym8s_asym8s(
    int8_t *p_out, int32_t out_zero_bias, int32_t out_left_shift, int32_t out_multiplier,
    int32_t out_activation_min, int32_t out_activation_max,
    const int8_t *p_inp1, int32_t inp1_zero_bias, int32_t inp1_left_shift, int32_t inp1_multiplier,
    const int8_t *p_inp2, int32_t inp2_zero_bias, int32_t inp2_left_shift, int32_t inp2_multiplier,
    int32_t left_shift, int32_t num_elm);

int32_t xa_nn_elm_sub_asym8sxasym8s_asym8s(
    int8_t *p_out, int32_t out_zero_bias, int32_t out_left_shift, int32_t out_multiplier,
    int32_t out_activation_min, int32_t out_activation_max,
    const int8_t *p_inp1, int32_t inp1_zero_bias, int32_t inp1_left_shift, int32_t inp1_multiplier,
    const int8_t *p_inp2, int32_t inp2_zero_bias, int32_t inp2_left_shift, int32_t inp2_multiplier,
    int32_t left_shift, int32_t num_elm);

int32_t xa_nn_elm_mul_asym8sxasym8s_asym8s(
    int8_t *p_out, int32_t out_zero_bias, int32_t out_shift, int32_t out_multiplier,
    int32_t out_activation_min, int32_t out_activation_max,
    const int8_t *p_inp1, int32_t inp1_zero_bias, const int8_t *p_inp2, int32_t inp2_zero_bias, int32_t num_elm);

/* p_out may be p_vec. */
int32_t xa_nn_vec_activation_min_max_8_8(
    int8_t *p_out, const int8_t *p_vec, int activation_min, int activation_max, int32_t vec_length);

int32_t xa_nn_vec_softmax_asym8s_asym8s(
    int8_t *p_out, const int8_t *p_vec, int32_t diffmin, int32_t input_beta_left_shift, int32_t input_beta_multiplier,
    int32_t vec_length, void *p_scratch);

/* How many bytes of scratch the functions above want; -1 for arguments that they would refuse. These functions need less than the
 * library's, and answer what the library answers on a HiFi 3 or 4. */
int32_t xa_nn_conv2d_std_getsize(
    int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t kernel_channels,
    int32_t y_stride, int32_t y_padding, int32_t x_stride, int32_t x_padding, int32_t out_height, int32_t out_width,
    int32_t output_channels, int32_t input_precision, int32_t kernel_precision,
    int32_t dilation_height, int32_t dilation_width, int32_t out_data_format);

int32_t xa_nn_conv2d_depthwise_getsize(
    int32_t input_height, int32_t input_width, int32_t input_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t channels_multiplier,
    int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding, int32_t output_height, int32_t output_width,
    int32_t circ_buf_precision, int32_t inp_data_format);

int32_t xa_nn_avgpool_getsize(
    int32_t input_channels, int32_t inp_precision, int32_t out_precision, int32_t input_height, int32_t input_width,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format);

int32_t xa_nn_maxpool_getsize(
    int32_t input_channels, int32_t inp_precision, int32_t out_precision, int32_t input_height, int32_t input_width,
    int32_t kernel_height, int32_t kernel_width, int32_t x_stride, int32_t y_stride, int32_t x_padding, int32_t y_padding,
    int32_t out_height, int32_t out_width, int32_t inp_data_format, int32_t out_data_format);

int get_softmax_scratch_size(int inp_precision, int out_precision, int length);

#ifdef __cplusplus
}
#endif

#endif /* XA_NN_REFERENCE_H */
