"""Grouped convolutions in parts: the same bytes, and what becomes of the Program."""

from __future__ import annotations

import pytest

from aot.backends.cmsis_nn import BACKEND
from aot.graph.primitive import Contract, Map
from aot.lower.fuse import fuse
from aot.lower.groups import MOST_GROUPS, split_groups
from aot.lower.program import Program
from tests.graph.lowered import sweep
from tests.lower.test_signed import agree, built
from tests.one_operator import conv2d


def parted(model: bytes) -> Program:
    before = built(model)
    after = split_groups(fuse(before))
    agree(before, after, model)
    return after


def kinds(program: Program) -> list[str]:
    return [
        each.geometry.kind if isinstance(each, Contract) and each.geometry else type(each).__name__ for each in program.instructions
    ]


def test_no_byte_changes() -> None:
    choices = {
        "groups": (2, 3, 5),
        "depth": (1, 2, 3),
        "each": (1, 2, 5),
        "kernel": ((1, 1), (3, 3), (2, 4)),
        "stride": ((1, 1), (2, 1)),
        "dilation": ((1, 1), (2, 1)),
        "padding": ("SAME", "VALID"),
        "activation": ("NONE", "RELU6"),
        "dtype": ("int8", "int8", "int16"),
        "bias": (True, False),
        "batch": (1, 2),
    }
    for number, case in enumerate(sweep(40, 0, **choices)):
        groups, shape = case["groups"], (case["batch"], 5, 6, case["groups"] * case["depth"])
        window = {name: case[name] for name in ("kernel", "stride", "dilation", "padding", "activation", "dtype", "bias")}
        found = kinds(parted(conv2d(shape, groups * case["each"], groups=groups, seed=number, **window)))
        if case["depth"] == 1:
            assert found == ["depthwise"]
        elif case["kernel"] != (1, 1):
            assert found == ["Map", "conv"] * groups


def test_each_group_stores_to_its_channels() -> None:
    program = parted(conv2d((1, 4, 4, 6), 8, groups=2))
    first, second = (each for each in program.instructions if isinstance(each, Contract))
    assert [str(each.store[3]) for each in (first, second)] == ["i3", "i3 + 4"]
    assert (
        first.geometry == second.geometry and first.geometry and (first.geometry.input, first.geometry.groups) == ((1, 4, 4, 3), 1)
    )


@pytest.mark.parametrize(
    "model",
    [
        conv2d((1, 4, 4, 6), 8),
        conv2d((1, 4, 4, 6), 4, (1, 1), groups=2),
        conv2d((1, 3, 3, 2 * (MOST_GROUPS + 1)), MOST_GROUPS + 1, groups=MOST_GROUPS + 1),
        conv2d((1, 4, 4, 6), 8, groups=2, dtype="float32"),
    ],
    ids=["one group", "too little work", "too many groups", "float32"],
)
def test_what_stays(model: bytes) -> None:
    program = fuse(built(model))
    assert split_groups(program) is program


def test_uint8_groups_with_weights_beyond_int8() -> None:
    model = conv2d((1, 4, 4, 6), 8, groups=2, dtype="uint8", weight_scale=0.01, weight_zero_point=130, input_q=(0.05, 9))
    before = built(model)
    after = fuse(before, passes=BACKEND.passes)
    agree(before, after, model)
    assert [kind for kind in kinds(after) if kind != "Map"] == ["conv", "conv"]
    assert all(each.right_zero_point == 0 for each in after.instructions if isinstance(each, Contract))
    assert isinstance(after.instructions[0], Map)
