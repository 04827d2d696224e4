"""How much scratch the functions of Cadence's library ask for: what their `_getsize` functions answer, known at compile time.

Enters: a layer's geometry and whether the core is a HiFi 5. Leaves: bytes.
Invariant: a number is at least what the function answers, by release 4.1.0 of the library for HiFi 3 and 4 (nnlib-hifi4) and of that for
HiFi 5 (nnlib-hifi5); the bundle's NAME_check_scratch.c asks the functions themselves. Pointers have 4 bytes there.
Source: those releases, xa_nn_conv2d_std_circ_buf.c, xa_nn_conv2d_depthwise.c, xa_nn_circ_buf.c, xa_nn_avgpool.c, xa_nn_maxpool.c,
xa_nn_softmax_asym8_asym8.c.
"""

from __future__ import annotations

from aot.graph.primitive import Geometry

_ALIGNMENT = 8
_CONVOLUTION_STATE = 24
"""Six pointers: four of a circular buffer, the padded kernel, the input."""
_DEPTHWISE_STATE = 28
"""A circular buffer of three pointers and three numbers, and a pointer."""
_MOST_ROWS_IN_16_BITS = 127
"""Rows of an average's window up to which the library adds in 16 bits."""


def convolution_nbytes(geometry: Geometry, hifi5: bool) -> int:
    """xa_nn_conv2d_std_getsize for int8 (precision -4): a circular buffer of a column of windows, padded; and padded weights."""
    turned = geometry.input[1] == geometry.kernel[0] == geometry.output[1] == 1
    height, rows = (geometry.input[2], geometry.output[2]) if turned else (geometry.input[1], geometry.output[1])
    kernel = geometry.kernel[::-1] if turned else geometry.kernel
    stride = geometry.stride[1] if turned else geometry.stride[0]
    before = geometry.pad_left if turned else geometry.pad_top
    below = max(0, kernel[0] + (rows - 1) * stride - (before + height))
    depth, channels = geometry.input[3], geometry.output[3]
    padded = depth if hifi5 else _up(depth, 4)
    column = kernel[1] * padded
    buffer = (before + height + below) * column
    while buffer % 16:
        buffer += column
    if hifi5:
        return _CONVOLUTION_STATE + 15 + buffer + 16
    total = _ALIGNMENT + _CONVOLUTION_STATE + 7 + buffer + 7 + 8
    return total if padded == depth else total + kernel[0] * column * channels + 7


def depthwise_nbytes(geometry: Geometry) -> int:
    """xa_nn_conv2d_depthwise_getsize for int8, channels last, on HiFi 3 and 4."""
    (height, width), rows = geometry.kernel, geometry.output[1]
    buffer_rows = max(height + (rows - 1) * geometry.stride[0], geometry.pad_top + geometry.input[1])
    buffer = buffer_rows * _up(geometry.output[3], 4) * width
    return _up(_DEPTHWISE_STATE, _ALIGNMENT) + _up(buffer, _ALIGNMENT) + _up(4 * height * width, _ALIGNMENT)


def average_nbytes(geometry: Geometry) -> int:
    """xa_nn_avgpool_getsize for precision 8, channels last."""
    (height, width), (_, rows, columns, channels) = geometry.kernel, geometry.output
    input_width, stride = geometry.input[2], geometry.stride[1]
    if channels == 1:
        full = max(width + (columns - 1) * stride, _up(geometry.pad_left, 2) + input_width)
        line = _up(_up(full, _ALIGNMENT // 2) + width, 4)
        return _up(12, _ALIGNMENT) + _up(4 * (rows + columns), _ALIGNMENT) + 2 * line * 4
    plane, unit = input_width * channels, 2 if height <= _MOST_ROWS_IN_16_BITS else 4
    counts = _up(4 * rows, _ALIGNMENT) + _up(4 * columns, _ALIGNMENT)
    sums = _up(unit * plane, _ALIGNMENT) + _up(4 * channels, _ALIGNMENT)
    return _up(counts + sums + max(plane, unit * channels), _ALIGNMENT)


def maximum_nbytes(geometry: Geometry) -> int:
    """xa_nn_maxpool_getsize for precision 8, channels last."""
    width, columns, channels, input_width = geometry.kernel[1], geometry.output[2], geometry.output[3], geometry.input[2]
    if channels == 1:
        full = max(width + (columns - 1) * geometry.stride[1], geometry.pad_left + input_width)
        return _up(4, _ALIGNMENT) + 2 * _up(_up(full, _ALIGNMENT // 2) + width, 4) * 2
    return _up(2 * channels * input_width, _ALIGNMENT) + _up(2 * channels, _ALIGNMENT)


def softmax_nbytes(length: int) -> int:
    """get_softmax_scratch_size: an exponential for each element."""
    return _up(4 * length, _ALIGNMENT)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
