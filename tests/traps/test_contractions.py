"""Traps of convolutions and dense layers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builder import ModelBuilder
from tests.graph.test_ops_batch_matmul import batch_matmul
from tests.graph.test_ops_conv import conv_with
from tests.graph.test_ops_transpose_conv import transpose_conv
from tests.one_operator import T, conv2d, depthwise, fully_connected, one_operator, random_inputs
from tests.oracle import litert_runs, tflm_runs
from tests.traps.exact import HOST, exact

ZERO_POINTS = (-128, -1, 0, 1, 127)


@pytest.mark.parametrize("stride", [(2, 2), (3, 2)])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (4, 4), (5, 4)])
def test_trap_1_transpose_conv_with_pads_that_the_stride_does_not_divide(kernel, stride):
    """Padding that is no multiple of the stride: most outputs were wrong, and rows behind the last were written."""
    exact(transpose_conv(size=(4, 4), kernel=kernel, stride=stride, depth=8, channels=4))
    exact(transpose_conv(size=(4, 3), extra=(-1, -1), kernel=kernel, stride=stride, depth=3, channels=5))


@pytest.mark.parametrize(("channels", "filters", "groups"), [(6, 9, 3), (4, 4, 2), (8, 8, 8)])
def test_trap_2_grouped_convolutions_have_the_scratch_they_use(channels, filters, groups):
    """The size of the scratch came from the weights' channels, the work on it from the input's."""
    exact(conv2d((2, 5, 6, channels), filters, groups=groups))


@pytest.mark.parametrize("bias", [(1 << 31) - 1, -(1 << 31), 1 << 30])
@pytest.mark.parametrize("scale", [0.001, 0.00001])
def test_trap_3_accumulators_at_the_edge_of_int32(bias, scale):
    """A large sum, shifted left, needed 33 bits: its sign flipped where it should have saturated."""
    biases = np.array([bias, bias - np.sign(bias) * 40000], np.int64)
    exact(conv_with(bias=T((2,), "int32", data=biases), output=T((1, 2, 2, 2), "int8", scale, 3)))


@pytest.mark.parametrize("channels", [1, 3, 17])
@pytest.mark.parametrize(("stride", "padding"), [((1, 1), "SAME"), ((2, 2), "VALID"), ((1, 2), "SAME")])
def test_trap_8_depthwise_scratch_is_as_large_as_the_kernel_needs(channels, stride, padding):
    """The query of the buffer's size chose another variant of the 3x3 kernel than the call did."""
    exact(depthwise((1, 7, 6, channels), 1, (3, 3), stride=stride, padding=padding))


@pytest.mark.parametrize("columns", [511, 512, 513, 1024])
@pytest.mark.parametrize("weight", [127, -127])
def test_trap_10_int16_dense_layers_of_more_than_512_columns(columns, weight):
    """Sums of more than 512 products of int16 and int8 were added up in 32 bits."""
    weights = T((3, columns), "int8", 0.01, data=np.full((3, columns), weight))
    bias = T((3,), "int64", 1e-4, data=np.array([0, 1 << 33, -(1 << 33)]))
    output = T((2, 3), "int16", 1e3)
    exact(one_operator("FULLY_CONNECTED", [T((2, columns), "int16", 0.01), weights, bias], [output], {}))


@pytest.mark.parametrize("batch", [2, 3])
def test_trap_11_every_batch_of_a_layer_is_written(batch):
    """The output pointer stayed where it was after the first image or row."""
    exact(conv2d((batch, 5, 4, 3), 5, (3, 2)))
    exact(conv2d((batch, 5, 4, 3), 5, (1, 1)))
    exact(depthwise((batch, 5, 4, 6)))
    exact(fully_connected((batch, 33), 7))


@pytest.mark.parametrize("zero_point", ZERO_POINTS)
def test_trap_15_input_zero_points_of_nine_bits(zero_point):
    """The negated zero point was kept in eight bits, where 128 becomes -128."""
    exact(conv2d((1, 4, 5, 4), 6, input_q=(0.05, zero_point)))
    exact(depthwise((1, 4, 5, 6), input_q=(0.05, zero_point)))
    exact(fully_connected((2, 17), 5, input_q=(0.05, zero_point)))


@pytest.mark.parametrize("mantissa", [0.5, 0.7501])
def test_trap_16_every_shift_from_31_right_to_30_left(mantissa):
    """A shift by 31 and a shift of an accumulator of 0 were undefined."""
    scales = [float(mantissa * 2.0**shift) for shift in range(-31, 31)]
    weights = T((62, 1, 1, 1), "int8", scales, 0, np.ones((62, 1, 1, 1)))
    bias = T((62,), "int32", scales, 0, np.tile([0, 1, -1, 1 << 20, -(1 << 30), (1 << 31) - 1, -7], 9)[:62])
    for bias_or_none in (bias, None):
        model = conv_with(
            input=T((1, 2, 2, 1), "int8", 1.0, 3), weights=weights, bias=bias_or_none, output=T((1, 2, 2, 62), "int8", 1.0)
        )
        exact(model, [np.array([3, 4, -128, 127], np.int8).reshape(1, 2, 2, 1)])


@pytest.mark.parametrize("adj_x", [False, True])
@pytest.mark.parametrize("adj_y", [False, True])
@pytest.mark.parametrize("batches", [((1,), (2,)), ((2,), (1,)), ((2, 1), (1, 3))])
def test_trap_20_batch_matmul_transposed_and_broadcast(adj_x, adj_y, batches):
    """A transposed operand was transposed wrongly, or across its batches, where the other had more of them."""
    exact(batch_matmul(batches, adj_x, adj_y, types=("int8",) * 3, zero_points=(3, -5, 7)), cpus=HOST)
    exact(batch_matmul(batches, adj_x, adj_y, constant="right", types=("int8",) * 3, zero_points=(3, 0, 7)))


@pytest.mark.parametrize("zero_point", ZERO_POINTS)
def test_trap_26_padding_is_the_zero_point_where_it_is_folded_into_the_bias(zero_point):
    """With the zero point folded into the bias, padding with 0 was wrong at the border and nowhere else."""
    for model in (conv2d((1, 3, 4, 3), 4, input_q=(0.05, zero_point)), depthwise((1, 4, 3, 5), input_q=(0.05, zero_point))):
        (x,) = random_inputs(model)
        exact(model, [x], [np.full_like(x, zero_point)], [np.full_like(x, -128)])


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_trap_28_kernels_of_one_with_a_stride_of_two(size):
    """The output's size was that of a stride of 1, or of even inputs only."""
    exact(conv2d((1, size, size + 1, 5), 6, (1, 1), stride=(2, 2), padding="SAME" if size < 6 else "VALID"))


@pytest.mark.parametrize("kernel", [(1, 1), (1, 3), (1, 4)])
@pytest.mark.parametrize("stride", [(1, 1), (1, 2)])
def test_trap_38_convolutions_along_a_line(kernel, stride):
    """Where input, kernel and output have one row, the scratch was sized for another case."""
    exact(conv2d((1, 1, 9, 4), 5, kernel, stride=stride))
    exact(depthwise((1, 1, 9, 4), 1, kernel, stride=stride))
    exact(conv2d((1, 9, 1, 4), 5, kernel[::-1], stride=stride[::-1]))


def test_trap_40_layers_without_a_bias():
    """An absent bias, or one without elements, was read through a null pointer."""
    exact(conv2d(bias=False))
    exact(depthwise(bias=False))
    exact(fully_connected(bias=False))
    empty = np.zeros(0, np.int32)
    weights = T((5, 8), "int8", 0.01, data=np.arange(40) - 20)
    model = one_operator(
        "FULLY_CONNECTED", [T((2, 8), "int8", 0.05, 3), weights, T((0,), "int32", data=empty)], [T((2, 5), "int8", 0.3)]
    )
    (x,) = random_inputs(model)
    absent = one_operator("FULLY_CONNECTED", [T((2, 8), "int8", 0.05, 3), weights, None], [T((2, 5), "int8", 0.3)])
    exact(model, [x], oracle=lambda _, invocations: tflm_runs(absent, invocations))


@pytest.mark.parametrize("shape", [(2, 12), (3, 2, 12), (1, 2, 3, 12), (2, 1, 1, 12)])
@pytest.mark.parametrize("keep", [False, True])
def test_trap_53_rows_of_dense_layers_from_inputs_of_any_rank(shape, keep):
    """The integer kernel counted its rows otherwise than the float kernel where dimensions are kept."""
    exact(fully_connected(shape, 5, keep_num_dims=keep))


def test_trap_54_channels_that_were_pruned_away():
    """A channel of zeros with scale 0 divided by it."""
    data = np.random.default_rng(5).integers(-127, 128, (3, 2, 2, 3))
    data[1] = 0
    weights, bias = T((3, 2, 2, 3), "int8", [0.01, 0.0, 0.02], 0, data), T((3,), "int32", data=np.array([5, 7, -9]))
    exact(conv_with(input=T((1, 4, 4, 3), "int8", 0.05, -3), weights=weights, bias=bias, output=T((1, 4, 4, 3), "int8", 0.1, 3)))


def test_trap_62_dense_layers_with_scales_per_channel():
    """The first scale was used for all channels."""
    exact(fully_connected((2, 16), 6, weight_scale=[0.001, 0.004, 0.01, 0.02, 0.05, 0.1]))


def test_trap_66_a_wide_image_has_scratch_of_its_own_size():
    """The scratch of a tiled convolution was computed from another layer's shape."""
    assert exact(conv2d((1, 63, 63, 8), 4, (3, 3)), cpus=("cortex-m4",)) == ["conv 3x3"]


def test_trap_67_deep_chains_stay_exact():
    """Requantisation by a float factor is off by one now and then, which grows with the depth."""
    m, rng = ModelBuilder(), np.random.default_rng(3)
    x = first = m.tensor("x", (1, 6, 5, 4), "int8", scale=0.05, zero_point=-3)
    for layer in range(12):
        w = m.tensor(
            f"w{layer}",
            (4, 3, 3, 4),
            "int8",
            scale=rng.uniform(0.005, 0.01, 4).tolist(),
            zero_point=0,
            data=rng.integers(-127, 128, (4, 3, 3, 4)),
        )
        b = m.tensor(f"b{layer}", (4,), "int32", data=rng.integers(-500, 500, 4))
        y = m.tensor(f"y{layer}", (1, 6, 5, 4), "int8", scale=0.05, zero_point=int(rng.integers(-20, 20)))
        m.operator("CONV_2D", [x, w, b], [y], {"stride_h": 1, "stride_w": 1, "padding": "SAME"})
        x = y
    exact(m.build([first], [x]))


@pytest.mark.parametrize("is_depthwise", [False, True])
def test_trap_68_dilation_as_blocks_of_space(is_depthwise):
    """A dilated convolution that a converter wrote as SPACE_TO_BATCH, convolution, BATCH_TO_SPACE had a wrong shape or was left in float."""
    m, rng = ModelBuilder(), np.random.default_rng(4)
    shape = (1, 3, 3, 4) if is_depthwise else (5, 3, 3, 4)
    channels, axis = (4, 3) if is_depthwise else (5, 0)
    quantised = {"scale": 0.05, "zero_point": -3}
    x = m.tensor("x", (1, 8, 6, 4), "int8", **quantised)
    blocks, paddings, crops = (m.constant(np.array(data, np.int32)) for data in ([2, 2], [[2, 2], [2, 2]], [[0, 0], [0, 0]]))
    spread = m.tensor("spread", (4, 6, 5, 4), "int8", **quantised)
    m.operator("SPACE_TO_BATCH_ND", [x, blocks, paddings], [spread], {})
    w = m.tensor(
        "w",
        shape,
        "int8",
        scale=rng.uniform(0.005, 0.01, channels).tolist(),
        zero_point=0,
        axis=axis,
        data=rng.integers(-127, 128, shape),
    )
    b = m.tensor("b", (channels,), "int32", data=rng.integers(-500, 500, channels))
    inner = m.tensor("inner", (4, 4, 3, channels), "int8", scale=0.2, zero_point=4)
    options = {"stride_h": 1, "stride_w": 1, "padding": "VALID"} | ({"depth_multiplier": 1} if is_depthwise else {})
    m.operator("DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D", [spread, w, b], [inner], options)
    y = m.tensor("y", (1, 8, 6, channels), "int8", scale=0.2, zero_point=4)
    m.operator("BATCH_TO_SPACE_ND", [inner, blocks, crops], [y], {})
    exact(m.build([x], [y]), oracle=litert_runs)  # TFLite Micro's SPACE_TO_BATCH_ND pads with 0
    dilated = depthwise((1, 8, 6, 4), dilation=(2, 2)) if is_depthwise else conv2d((1, 8, 6, 4), 5, dilation=(2, 2))
    exact(dilated)
