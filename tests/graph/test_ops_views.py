"""RESHAPE, SQUEEZE, EXPAND_DIMS, SHAPE against TFLite Micro; how a RESHAPE finds its target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from tests.builder import ModelBuilder
from tests.graph.lowered import agree, lower, read
from tests.graph.test_ops_movement import OTHERS
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs

DTYPES = ("int8", "float32")


def tensor(shape: Sequence[int], dtype: str = "int8") -> T:
    return T(shape, dtype, 0.1 if dtype == "int8" else None)


def numbers(values: Sequence[int] | int, dtype: str = "int32") -> T:
    return T(np.shape(values), dtype, data=np.array(values, dtype))


def reshape(shape: Sequence[int], out: Sequence[int], target=None, attribute=None, dtype: str = "int8") -> bytes:
    inputs = [tensor(shape, dtype), *([] if target is None else [numbers(target)])]
    options = None if attribute is None else {"new_shape": attribute}
    return one_operator("RESHAPE", inputs, [tensor(out, dtype)], options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reshape(dtype: str) -> None:
    for shape, out, target in (
        ((2, 3, 4), (6, 4), (6, 4)),
        ((2, 3, 4), (6, 4), (-1, 4)),
        ((2, 3, 4), (24,), (-1,)),
        ((24,), (1, 2, 3, 4), (1, 2, -1, 4)),
        ((1,), (), ()),
        ((), (1, 1), (1, 1)),
    ):
        agree(reshape(shape, out, target, dtype=dtype), bound=0.0)
        if target:
            agree(reshape(shape, out, None, target, dtype), bound=0.0)
        agree(reshape(shape, out, target, (99, 98), dtype), bound=0.0)  # the second input wins


def test_reshape_to_a_scalar_the_old_way() -> None:
    agree(reshape((1,), (), None, [0]))


def test_reshape_without_any_target_takes_the_shape_in_the_file() -> None:
    agree(reshape((2, 3), (3, 2)))


def test_a_shape_chain_gives_the_target() -> None:
    """SHAPE, STRIDED_SLICE, PACK, RESHAPE, as converters write it for a flexible batch."""
    m = ModelBuilder()
    x = m.tensor("x", (2, 3, 4), "int8", scale=0.1)
    shape, batch, target = m.tensor("shape", (3,), "int32"), m.tensor("batch", (), "int32"), m.tensor("target", (2,), "int32")
    y = m.tensor("y", (2, 12), "int8", scale=0.1)
    bounds = [m.constant(np.array([k], np.int32)) for k in (0, 1, 1)]
    m.operator("SHAPE", [x], [shape], {"out_type": 2})
    m.operator("STRIDED_SLICE", [shape, *bounds], [batch], {"shrink_axis_mask": 1})
    m.operator("PACK", [batch, m.constant(np.array(12, np.int32))], [target], {"values_count": 2})
    m.operator("RESHAPE", [x, target], [y])
    agree(m.build([x], [y]))


def test_views_lower_to_nothing() -> None:
    for model in (
        reshape((2, 3), (6,), (6,)),
        one_operator("SQUEEZE", [tensor((1, 3))], [tensor((3,))], {}),
        one_operator("EXPAND_DIMS", [tensor((3,)), numbers(0)], [tensor((1, 3))], {}),
    ):
        lowering = lower(read(model))
        assert lowering.primitives == [] and lowering.values == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_squeeze(dtype: str) -> None:
    for shape, axes, out in (
        ((1, 3, 1, 4), (), (3, 4)),
        ((1, 3, 1, 4), (0,), (3, 1, 4)),
        ((1, 3, 1, 4), (-2,), (1, 3, 4)),
        ((1, 3, 1, 4), (2, 0), (3, 4)),
        ((1, 1), (), ()),
    ):
        agree(one_operator("SQUEEZE", [tensor(shape, dtype)], [tensor(out, dtype)], {"squeeze_dims": axes}), bound=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_expand_dims(dtype: str) -> None:
    for axis in (-3, -2, -1, 0, 1, 2):
        place = axis + 3 if axis < 0 else axis
        shape = [3, 4]
        shape.insert(place, 1)
        agree(one_operator("EXPAND_DIMS", [tensor((3, 4), dtype), numbers([axis])], [tensor(shape, dtype)], {}), bound=0.0)


def test_shape() -> None:
    for shape in ((2, 3, 4), (7,)):
        agree(one_operator("SHAPE", [tensor(shape)], [T((len(shape),), "int32")], {"out_type": 2}))
    agree(one_operator("SHAPE", [tensor((2, 3))], [T((2,), "int64")], {"out_type": 4}), oracle=litert_runs)


@pytest.mark.parametrize("dtype", [*OTHERS, "float16", "float64"])
def test_views_of_other_types(dtype: str) -> None:
    """The bytes stay; SHAPE reads none."""
    x = np.arange(6).reshape(2, 3).astype(dtype)
    view = lambda shape: lambda *_: [[x.reshape(shape)]]  # noqa: E731
    agree(reshape((2, 3), (3, 2), (3, 2), dtype=dtype), [x], oracle=view((3, 2)))
    agree(one_operator("EXPAND_DIMS", [T((2, 3), dtype), numbers(1)], [T((2, 1, 3), dtype)], {}), [x], oracle=view((2, 1, 3)))
    squeeze = one_operator("SQUEEZE", [T((1, 2, 3), dtype)], [T((2, 3), dtype)], {})
    agree(squeeze, [x.reshape(1, 2, 3)], oracle=view((2, 3)))
    shape = one_operator("SHAPE", [T((2, 3), dtype)], [T((2,), "int32")], {"out_type": "INT32"})
    agree(shape, [x], oracle=lambda *_: [[np.array([2, 3], np.int32)]])


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (reshape((2, 3), (4,), (4,)), "6 elements of 'in0' do not fill the target shape [4]"),
        (reshape((2, 3), (4,), (-1, 4)), "6 elements of 'in0' do not fill the target shape [-1, 4]"),
        (reshape((2, 3), (6,), (-1, -1)), "the target shape [-1, -1] is not a shape with at most one -1"),
        (reshape((2, 3), (6,), (-2, -3)), "the target shape [-2, -3] is not a shape with at most one -1"),
        (reshape((1,), (1,), (1,) * 9), "the target shape has 9 dimensions, more than 8"),
        (reshape((1,), (1,), (1 << 30,) * 200_000), "the target shape has 200000 dimensions, more than 8"),
        (reshape((2, 3), (6,), None, (7,)), "6 elements of 'in0' do not fill the target shape [7]"),
        (
            one_operator("RESHAPE", [tensor((2,)), numbers([2], "float32")], [tensor((2,))], {}),
            "float32 is not supported for 'in1'",
        ),
        (
            one_operator("RESHAPE", [tensor((2,)), numbers([2])], [tensor((2,), "float32")], {}),
            "'out0' is float32 but 'in0' is int8",
        ),
        (one_operator("SQUEEZE", [tensor((2, 1))], [tensor((1,))], {"squeeze_dims": [0]}), "axis 0 of shape 2x1 can't be squeezed"),
        (one_operator("SQUEEZE", [tensor((2, 1))], [tensor((2,))], {"squeeze_dims": [2]}), "axis 2 of shape 2x1 can't be squeezed"),
        (one_operator("EXPAND_DIMS", [tensor((2,)), numbers(2)], [tensor((2, 1))], {}), "there is no axis 2 to add to shape 2"),
        (one_operator("EXPAND_DIMS", [tensor((2,)), T((), "int32")], [tensor((2, 1))], {}), "the axis 'in1' must be constant"),
        (one_operator("EXPAND_DIMS", [tensor((2,)), numbers([0, 1])], [tensor((2, 1))], {}), "the axis has 2 elements, not one"),
        *(
            (one_operator(op, [T((1, 2), dtype)], [T(out, kind or dtype)], options), f"{dtype} is not supported for 'in0'")
            for op, out, kind, options in (
                ("RESHAPE", (2,), None, {"new_shape": [2]}),
                ("SQUEEZE", (2,), None, {}),
                ("SHAPE", (2,), "int32", {"out_type": "INT32"}),
            )
            for dtype in ("string", "resource", "bfloat16", "complex64")
        ),
        (one_operator("SHAPE", [tensor((2,))], [T((1,), "float32")], {}), "float32 is not supported for 'out0'"),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
