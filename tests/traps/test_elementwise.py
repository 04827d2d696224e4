"""Traps of elementwise operators, activations and pools."""

from __future__ import annotations

import numpy as np
import pytest

from aot.errors import CompileError
from tests.builder import ModelBuilder
from tests.graph.lowered import read
from tests.graph.test_ops_joining import concatenation
from tests.one_operator import T, binary, one_operator, pool, random_inputs, unary
from tests.oracle import litert_runs
from tests.traps.exact import HOST, exact


@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_trap_12_pools_write_every_batch(op):
    """Only the first image of a batch was pooled."""
    exact(pool(op, (3, 6, 5, 4), padding="SAME"))


@pytest.mark.parametrize("factor", [0.3, 1.0, 1.7, 5.0, 300.0])
def test_trap_13_products_with_a_multiplier_of_one_or_more(factor):
    """A multiplier of 1 or more shifts left, which was done to the right."""
    exact(binary("MUL", (1, 16, 16, 1), left_q=(0.05, -3), right_q=(0.07, 4), output_q=(0.05 * 0.07 / factor, 5)), cpus=HOST)


@pytest.mark.parametrize("channels", [1, 7, 15, 17, 33])
def test_trap_17_max_pools_of_any_number_of_channels(channels):
    """The last channels that fill no vector were masked for elements of another width."""
    exact(pool("MAX_POOL_2D", (1, 5, 4, channels), (3, 2), stride=(1, 1), padding="SAME"))


@pytest.mark.parametrize("ratio", [1, 10, 200])
@pytest.mark.parametrize("op", ["ADD", "SUB"])
def test_trap_18_sums_of_two_scales(op, ratio):
    """Both inputs are scaled by twice the larger scale first; other derivations of the multipliers round differently."""
    exact(binary(op, (1, 16, 16, 1), left_q=(0.001 * ratio, -3), right_q=(0.001, 100), output_q=(0.0013 * ratio, 5)), cpus=HOST)


@pytest.mark.parametrize(
    "shapes", [((1, 3), (4, 3), (4, 3)), ((4, 3), (1, 3), (4, 1)), ((4, 1), (4, 3), (3,)), ((), (4, 3), (4, 3))]
)
def test_trap_21_selections_that_broadcast_into_the_same_size(shapes):
    """No broadcasting was done where the output was as large as an input."""
    values = [T(shape, "int8", 0.05) for shape in shapes[1:]]
    exact(one_operator("SELECT_V2", [T(shapes[0], "bool"), *values], [T((4, 3), "int8", 0.05)], {}), _choice(shapes), cpus=HOST)


def _choice(shapes) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.integers(0, 2, shapes[0]).astype(bool), *(rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes[1:])]


@pytest.mark.parametrize("zero_point", [-128, -1, 0, 127])
def test_trap_24_averages_divide_by_what_is_inside_and_round_half_away(zero_point):
    """Negative sums were rounded towards zero, and padding was counted."""
    model = pool("AVERAGE_POOL_2D", (1, 7, 7, 3), (3, 4), stride=(1, 2), padding="SAME", q=(0.05, zero_point))
    (x,) = random_inputs(model)
    exact(model, [x], [-np.abs(x // 2)], [np.full_like(x, -128)], [(x % 2 - 1).astype(np.int8)], cpus=HOST)


@pytest.mark.parametrize("value", [127, -128])
def test_trap_25_averages_of_many_large_numbers(value):
    """Sums were kept in eight bits."""
    model = pool("AVERAGE_POOL_2D", (1, 16, 16, 2), (16, 16), stride=(1, 1))
    exact(model, [np.full((1, 16, 16, 2), value, np.int8)])


@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_trap_30_a_pool_over_the_whole_image(op):
    """Without the scratch that its size query would have asked for, the kernel gave up at run time."""
    exact(pool(op, (1, 25, 5, 8), (25, 5), stride=(25, 5)))


@pytest.mark.parametrize("alpha", [0.1, -0.5, 1.5])
def test_trap_32_leaky_relu_of_negative_numbers(alpha):
    """An error below 0 stayed hidden while all test data was positive."""
    model = unary("LEAKY_RELU", (256,), input_q=(0.05, 7), output_q=(0.04, -9), options={"alpha": alpha})
    exact(model, [np.arange(-128, 128, dtype=np.int8)], cpus=HOST)


@pytest.mark.parametrize("op", ["TANH", "LOGISTIC"])
@pytest.mark.parametrize("scale", [1 / 4096, 1 / 3000, 1 / 20000, 1 / 1024])
def test_trap_34_int16_tables_of_any_scale(op, scale):
    """Scales that are no power of two were rounded to one, and the largest number looked behind the table."""
    model = unary(op, (1 << 16,), dtype="int16", input_q=(scale, 0), output_q=(1 / 32768, 0))
    exact(model, [np.arange(-(1 << 15), 1 << 15).astype(np.int16)], cpus=HOST)


def test_trap_35_int16_outputs_that_use_few_bits():
    """A table for an output range below 16 bits was shifted by a negative count, and all zeros."""
    model = unary("LEAKY_RELU", (1 << 16,), dtype="int16", input_q=(1 / 4096, 0), output_q=(0.25, 0), options={"alpha": 0.1})
    exact(model, [np.arange(-(1 << 15), 1 << 15).astype(np.int16)], cpus=HOST)


@pytest.mark.parametrize("zero_point", [-128, -5, 0, 33, 127])
def test_trap_36_softmax_of_any_zero_point(zero_point):
    """A zero point that is not 0 was said to leave the range of the fixed-point arithmetic; it changes nothing."""
    exact(unary("SOFTMAX", (3, 17), input_q=(0.1, zero_point), output_q=(1 / 256, -128), options={"beta": 1.0}), cpus=HOST)


def test_trap_50_requantised_parts_of_a_concatenation():
    """QUANTIZE behind a clamp was dropped, and the part kept another scale than its neighbours."""
    m = ModelBuilder()
    x, y = (m.tensor(name, (1, 2, 3), "int8", scale=scale, zero_point=3) for name, scale in (("x", 0.1), ("y", 0.05)))
    clipped = m.tensor("clipped", (1, 2, 3), "int8", scale=0.05, zero_point=3)
    m.operator("RELU6", [y], [clipped])
    same = m.tensor("same", (1, 2, 3), "int8", scale=0.1, zero_point=3)
    m.operator("QUANTIZE", [clipped], [same], {})
    joined = m.tensor("joined", (1, 2, 6), "int8", scale=0.1, zero_point=3)
    m.operator("CONCATENATION", [x, same], [joined], {"axis": 2})
    exact(m.build([x, y], [joined]))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_trap_56_concatenation_of_other_scales(dtype):
    """Whether scales that differ are rescaled, refused or ignored depends on the type; here: as TFLite, or refused."""
    inputs = [T((1, 4), dtype, 0.1), T((1, 4), dtype, 0.2)]
    model = one_operator("CONCATENATION", inputs, [T((1, 8), dtype, 0.1)], {"axis": 1})
    with pytest.raises(CompileError, match="must have the same quantisation"):
        read(model)


def test_trap_56_concatenation_of_uint8_is_rescaled():
    """uint8 alone is rescaled, in float."""
    inputs = [T((1, 256), "uint8", 0.1, 3), T((1, 256), "uint8", 0.2, 128)]
    model = one_operator("CONCATENATION", inputs, [T((1, 512), "uint8", 0.15, 7)], {"axis": 1})
    exact(model, [np.arange(256, dtype=np.uint8).reshape(1, 256)] * 2, oracle=litert_runs, cpus=HOST)
    exact(concatenation([(1, 3), (1, 2)], 1, "uint8"), oracle=litert_runs, cpus=HOST)


@pytest.mark.parametrize("zero_point", [-128, 0, 127])
def test_trap_61_a_padded_max_pool(zero_point):
    """Cells padded with the smallest number must never win; a float minimum became useless integers."""
    m = ModelBuilder()
    quantised = {"scale": 0.05, "zero_point": zero_point}
    x, padded, y = (
        m.tensor(name, shape, "int8", **quantised)
        for name, shape in (("x", (1, 4, 5, 3)), ("p", (1, 6, 7, 3)), ("y", (1, 2, 3, 3)))
    )
    lowest = m.tensor("lowest", (1,), "int8", **quantised, data=np.array([-128]))
    m.operator("PADV2", [x, m.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)), lowest], [padded], {})
    options = {"filter_height": 3, "filter_width": 3, "stride_h": 2, "stride_w": 2, "padding": "VALID"}
    m.operator("MAX_POOL_2D", [padded], [y], options)
    exact(m.build([x], [y]))
