"""PAD, PADV2, MIRROR_PAD, TRANSPOSE, REVERSE_V2: all permutations and types, against TFLite Micro, LiteRT or, for what they lack, numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.ops.movement import mirror_positions
from tests.graph.lowered import agree, read
from tests.one_operator import T, one_operator
from tests.oracle import litert_runs, tflm_runs

DTYPES = ("int8", "float32")
OTHERS = ("int16", "uint8", "uint16", "int32", "uint32", "int64", "uint64", "bool")
"""The other types that can be moved."""
ZERO_POINTS = (-128, -1, 0, 127)


def same(model: bytes, expected: Callable[..., np.ndarray]) -> None:
    """Compute and lowering give what numpy does: for what no other engine takes."""
    agree(model, bound=0.0, oracle=lambda _, invocations: [[expected(*inputs)] for inputs in invocations])


def tensor(shape: Sequence[int], dtype: str = "int8", zero_point: int = 0, scale: float = 0.1, data=None) -> T:
    return T(shape, dtype, scale if dtype in ("int8", "uint8", "int16") else None, zero_point, data)


def numbers(*values, dtype: str = "int32") -> T:
    return T(np.shape(values), dtype, data=np.array(values))


# PAD, PADV2


def pad(
    shape: Sequence[int], paddings: Sequence[tuple[int, int]], dtype: str = "int8", zero_point: int = 0, value: float | None = None
) -> bytes:
    out = [size + before + after for size, (before, after) in zip(shape, paddings)]
    inputs = [tensor(shape, dtype, zero_point), T((len(shape), 2), "int32", data=np.array(paddings).reshape(-1, 2))]
    if value is not None:
        inputs.append(tensor((), dtype, zero_point, data=np.array(value)))
    return one_operator("PAD" if value is None else "PADV2", inputs, [tensor(out, dtype, zero_point)], {})


PADDINGS = (
    ((1, 3, 5, 2), ((0, 0), (1, 2), (3, 0), (0, 0))),
    ((2, 3, 2, 3), ((1, 0), (0, 1), (2, 2), (0, 3))),
    ((7,), ((2, 3),)),
    ((3, 4), ((0, 0), (0, 5))),
    ((2, 3, 1), ((1, 1), (1, 1), (1, 1))),
    ((1, 2, 2, 2, 2), ((0, 1), (1, 0), (0, 0), (2, 0), (0, 2))),
    ((2, 3), ((0, 0), (0, 0))),
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad(dtype: str) -> None:
    for (shape, paddings), zero_point, value in itertools.product(PADDINGS, ZERO_POINTS, (None, -5, 100)):
        agree(pad(shape, paddings, dtype, zero_point, value), bound=0.0)


@pytest.mark.parametrize("dtype", OTHERS)
def test_pad_of_other_types(dtype: str) -> None:
    """TFLite Micro has int16 and int32. uint8 is filled with the output's zero point."""
    model, zero = pad((2, 3), ((1, 0), (0, 2)), dtype, 7 if dtype == "uint8" else 0), 7 if dtype == "uint8" else 0
    same(model, lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=zero))
    if dtype in ("int16", "int32"):
        agree(model)
    if dtype in ("uint8", "int64"):
        agree(model, oracle=litert_runs)


def test_pad_of_bytes_without_quantisation() -> None:
    model = one_operator("PAD", [T((2,), "uint8"), numbers((0, 1))], [T((3,), "uint8")], {})
    same(model, lambda x: np.pad(x, ((0, 1),)))


def test_paddings_of_int64() -> None:
    agree(one_operator("PAD", [tensor((2,)), numbers((0, 1), dtype="int64")], [tensor((3,))], {}), oracle=litert_runs)


@pytest.mark.parametrize("dtype", OTHERS)
def test_padv2_of_other_types(dtype: str) -> None:
    same(pad((2, 3), ((1, 0), (0, 2)), dtype, 0, 1), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=1))


def test_pad_fills_with_the_output_zero_point() -> None:
    model = pad((1, 2), ((0, 0), (1, 1)), zero_point=-7)
    assert agree(model, [np.array([[5, 6]], np.int8)])[0].tolist() == [[-7, 5, 6, -7]]


# TRANSPOSE


def transpose(shape: Sequence[int], perm: Sequence[int], dtype: str = "int8") -> bytes:
    out = [shape[number] for number in perm]
    return one_operator("TRANSPOSE", [tensor(shape, dtype), numbers(*perm)], [tensor(out, dtype)], {})


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_every_permutation(rank: int) -> None:
    for perm in itertools.permutations(range(rank)):
        agree(transpose((2, 3, 4, 5)[:rank], perm), bound=0.0)


@pytest.mark.parametrize(("rank", "oracle"), [(5, tflm_runs), (6, litert_runs)])
def test_permutations_of_high_rank(rank: int, oracle) -> None:
    rng = np.random.default_rng(rank)
    for dtype in DTYPES:
        agree(transpose((2, 3, 1, 4, 2, 3)[:rank], rng.permutation(rank).tolist(), dtype), bound=0.0, oracle=oracle)


@pytest.mark.parametrize("dtype", OTHERS)
def test_transpose_of_other_types(dtype: str) -> None:
    same(transpose((2, 3, 4), (2, 0, 1), dtype), lambda x: x.transpose(2, 0, 1))
    if dtype in ("uint8", "int16", "int32", "int64", "bool"):
        agree(transpose((2, 3, 4, 5), (3, 1, 0, 2), dtype), oracle=litert_runs)


def test_every_permutation_of_rank_5_and_6() -> None:
    """numpy.transpose; the bytes of a larger case are in `test_permutations_of_high_rank`."""
    for rank in (5, 6):
        for perm in list(itertools.permutations(range(rank)))[:: 1 if rank == 5 else 7]:
            same(transpose((2, 3, 1, 2, 1, 2)[:rank], perm), lambda x, perm=perm: x.transpose(perm))


def test_negative_permutation_entries() -> None:
    model = one_operator("TRANSPOSE", [tensor((2, 3, 4)), numbers(-1, 0, -2)], [tensor((4, 2, 3))], {})
    agree(model, oracle=litert_runs)


# MIRROR_PAD


def mirror_pad(
    shape: Sequence[int], paddings: Sequence[tuple[int, int]], mode: str, dtype: str = "int8", index: str = "int32"
) -> bytes:
    out = [size + before + after for size, (before, after) in zip(shape, paddings)]
    inputs = [tensor(shape, dtype), T((len(shape), 2), index, data=np.array(paddings))]
    return one_operator("MIRROR_PAD", inputs, [tensor(out, dtype)], {"mode": mode})


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_mirror_pad(mode: str, dtype: str) -> None:
    """Borders up to the longest that there is; axes of size 1; int64 paddings."""
    edge = 1 if mode == "REFLECT" else 0
    for size in (1, 2, 3, 5):
        for before, after in itertools.product(range(size - edge + 1), repeat=2):
            agree(mirror_pad((size,), ((before, after),), mode, dtype), bound=0.0)
    agree(mirror_pad((2, 3, 4, 2), ((0, 0), (1, 2), (3, 0), (1, 1)), mode, dtype, "int64"), bound=0.0)


@pytest.mark.parametrize("dtype", OTHERS)
def test_mirror_pad_of_other_types(dtype: str) -> None:
    """TFLite Micro has int8 and float32, LiteRT more, but no unsigned ones: numpy."""
    model = mirror_pad((3, 4), ((1, 2), (0, 3)), "REFLECT", dtype)
    same(model, lambda x: np.pad(x, ((1, 2), (0, 3)), mode="reflect"))


def test_positions_along_a_mirrored_axis() -> None:
    assert mirror_positions(2, 3, 2, 1) == (2, 1, 0, 1, 2, 1, 0)
    assert mirror_positions(2, 3, 2, 0) == (1, 0, 0, 1, 2, 2, 1)


# REVERSE_V2


def reverse(shape: Sequence[int], axes: Sequence[int], dtype: str = "int8") -> bytes:
    return one_operator(
        "REVERSE_V2", [tensor(shape, dtype), T((len(axes),), "int32", data=np.array(axes))], [tensor(shape, dtype)], {}
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32", "bool"])
def test_reverse(dtype: str) -> None:
    """TFLite Micro's types; axes that are neighbours."""
    for axes in ((0,), (1,), (2,), (3,), (-1,), (1, 2), (2, 1), (0, 1, 2, 3), (3, 2)):
        agree(reverse((2, 3, 4, 2), axes, dtype), bound=0.0)
    agree(reverse((5,), (0,), dtype), bound=0.0)


def test_reverse_of_axes_apart_and_of_none() -> None:
    """TFLite refuses these."""
    same(reverse((2, 3, 4), (0, 2)), lambda x: x[::-1, :, ::-1])
    same(reverse((2, 3), ()), lambda x: x)
    same(reverse((2, 3), (1,), "uint32"), lambda x: x[:, ::-1])


# What is refused


def padding_value(**fields) -> T:
    return T((), "int8", 0.1, fields.pop("zero_point", 0), np.array(3), **fields)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (one_operator("PAD", [tensor((2,)), T((1, 2), "int32")], [tensor((3,))], {}), "the paddings 'in1' must be constant"),
        (one_operator("PAD", [tensor((2,)), numbers((0, 1), (0, 0))], [tensor((3,))], {}), "4 paddings for 1 dimensions, not 2"),
        (one_operator("PAD", [tensor((2,)), numbers((-1, 0))], [tensor((1,))], {}), "negative paddings are not supported"),
        (one_operator("PAD", [tensor((2,)), numbers((0, 1.0), dtype="float32")], [tensor((3,))], {}), "float32 is not supported"),
        (
            one_operator("PAD", [T((2,), "float16"), numbers((0, 1))], [T((3,), "float16")], {}),
            "float16 is not supported for 'in0'",
        ),
        (
            one_operator("PADV2", [tensor((2,)), numbers((0, 1)), tensor((2,), data=np.zeros(2))], [tensor((3,))], {}),
            "the padding value has 2 elements, not one",
        ),
        (
            one_operator("PADV2", [tensor((2,)), numbers((0, 1)), padding_value(zero_point=1)], [tensor((3,))], {}),
            "'in2' and 'out0' must have the same quantisation",
        ),
        (
            one_operator("PADV2", [tensor((2,)), numbers((0, 1)), tensor((), "float32", data=np.zeros(()))], [tensor((3,))], {}),
            "'in2' is float32 but 'in0' is int8",
        ),
        (
            one_operator("PADV2", [tensor((2,)), numbers((0, 1)), tensor(())], [tensor((3,))], {}),
            "the padding value 'in2' must be constant",
        ),
        (one_operator("TRANSPOSE", [tensor((2, 3)), numbers(0, 0)], [tensor((2, 2))], {}), "[0, 0] is not a permutation of 2 axes"),
        (one_operator("TRANSPOSE", [tensor((2, 3)), numbers(0)], [tensor((2,))], {}), "[0] is not a permutation of 2 axes"),
        (one_operator("TRANSPOSE", [tensor((2,)), T((1,), "int32")], [tensor((2,))], {}), "the permutation 'in1' must be constant"),
        (mirror_pad((3,), ((3, 0),), "REFLECT"), "paddings of 3 and 0 are more than an axis of 3 can mirror"),
        (mirror_pad((3,), ((0, 4),), "SYMMETRIC"), "paddings of 0 and 4 are more than an axis of 3 can mirror"),
        (mirror_pad((70000,), ((1, 0),), "REFLECT"), "an axis of 70001 is too long to be mirrored"),
        (mirror_pad((3,), ((-1, 0),), "REFLECT"), "negative paddings are not supported"),
        (one_operator("MIRROR_PAD", [tensor((2,)), T((1, 2), "int32")], [tensor((3,))], {}), "the paddings 'in1' must be constant"),
        (one_operator("REVERSE_V2", [tensor((2,)), T((1,), "int32")], [tensor((2,))], {}), "the axes 'in1' must be constant"),
        (reverse((2, 3), (2,)), "axis 2 is outside the 2 dimensions of 'in0'"),
        (reverse((2, 3), (0, -2)), "the axes [0, -2] name one twice"),
        (reverse((2,), (0, 0, 0)), "3 axes to reverse in 1 dimensions"),
        (
            one_operator(
                "PADV2", [T((2,), "uint8"), numbers((0, 1)), T((), "uint8", 0.1, data=np.array(3))], [T((3,), "uint8", 0.2)], {}
            ),
            "'in2' and 'out0' must have the same quantisation",
        ),
    ],
)
def test_refused(model: bytes, sentence: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(model)
    assert sentence in str(caught.value) and "node 0 " in str(caught.value)
