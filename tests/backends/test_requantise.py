"""The requantisation solver against the definition: every form, every kind of scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.backends.layers.requantise import Form, Stage, apply, is_regular, solve, tflite, unified, varies
from aot.graph.evaluate import requantise
from tests.backends.contracts import quantised_multiplier


def stage_of(scales, low, high, zero_point=-128, clamp=(-128, 127)) -> Stage:
    pairs = [quantised_multiplier(float(scale)) for scale in scales]
    multiplier, shift = (np.array([pair[number] for pair in pairs], np.int64) for number in (0, 1))
    return Stage(multiplier, shift, np.asarray(low, np.int64), np.asarray(high, np.int64), zero_point, *clamp)


def definition(stage: Stage, acc: np.ndarray) -> np.ndarray:
    """From the expression language's requantise, which knows nothing of thresholds."""
    column = (slice(None), None)
    scaled = requantise(acc.astype(np.int32), stage.multiplier[column].astype(np.int32), stage.shift[column])
    wrapped = (scaled + np.int32(stage.zero_point)).astype(np.int32)
    return np.clip(wrapped.astype(np.int64), stage.low, stage.high)


def both(stage: Stage) -> tuple[Form, Form]:
    """Forms for pairs of channels and for plain accumulators."""
    place = np.arange(stage.channels) % 2
    zeros, eights = np.zeros(stage.channels, np.int64), np.full(stage.channels, 8)
    return solve(stage, (np.where(place == 0, 8, 0), eights)), solve(stage, (zeros, eights))


def check(stage: Stage, acc: np.ndarray) -> tuple[Form, Form]:
    expected = definition(stage, acc)
    assert (np.clip(tflite(stage, acc), stage.low, stage.high) == expected).all()
    forms = both(stage)
    for form in (*forms, solve(stage, (np.full(stage.channels, 4),), factor=3)):
        if form.kind != "exact":
            assert (apply(form, acc) == expected).all(), form
    return forms


@st.composite
def stages(draw) -> Stage:
    channels = draw(st.integers(1, 5))
    exponent = draw(st.floats(-24, 3))
    spread = draw(st.sampled_from([0.0, 0.3, 1.0, 4.0]))
    scales = [0.0 if draw(st.integers(0, 9)) == 0 else 2.0 ** (exponent + spread * draw(st.floats(-1, 1))) for _ in range(channels)]
    reach = 2 ** draw(st.integers(0, 26))
    low = [-draw(st.integers(0, reach)) for _ in range(channels)]
    high = [draw(st.integers(0, reach)) for _ in range(channels)]
    zero_point = draw(st.sampled_from([-128, -128, -127, -7, -1, 0, 1, 126, 127]))
    clamps = [(-128, 127), (max(zero_point, -128), 127), (-60, 70), (zero_point, min(127, zero_point + 40)), (5, 5)]
    return stage_of(scales, low, high, zero_point, draw(st.sampled_from(clamps)))


@given(stages(), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_forms_equal_the_definition(stage: Stage, seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(stage, rng.integers(stage.acc_low[:, None], stage.acc_high[:, None] + 1, (stage.channels, 300)))


@pytest.mark.parametrize("zero_point", [-128, -7, 0, 127])
@pytest.mark.parametrize("scale", [2**-9, 0.0031, 0.3, 0.999, 1.0, 1.7, 40.0])
def test_every_accumulator(scale: float, zero_point: int) -> None:
    reach = 30000
    stage = stage_of([scale, scale * 0.7], [-reach] * 2, [reach] * 2, zero_point)
    check(stage, np.broadcast_to(np.arange(-reach, reach + 1), (2, 2 * reach + 1)))


def test_rectified_layers_take_two_instructions() -> None:
    rng = np.random.default_rng(1)
    scales = 0.003 * np.exp(rng.normal(0, 0.3, 256))
    stage = stage_of(scales, [-90000] * 256, [90000] * 256)
    for form in both(stage):
        assert (form.kind, form.uniform, form.clamp) == ("saturate", True, None)
    assert 0 in both(stage)[1].pre


def test_layers_with_negative_outputs_are_signed() -> None:
    stage = stage_of([0.003, 0.0041], [-90000] * 2, [90000] * 2, zero_point=-7)
    form = both(stage)[0]
    assert (form.kind, form.uniform) == ("signed", True) and form.correction.any()


def test_distant_scales_have_shifts_of_their_own() -> None:
    scales = [2.0**-exponent for exponent in range(3, 19)]
    stage = stage_of(np.array(scales) * 1.37, [-60 * 2**e for e in range(3, 19)], [300 * 2**e for e in range(3, 19)])
    form = both(stage)[1]
    assert form.kind != "exact" and not form.uniform


def test_wrapping_layers_are_exact() -> None:
    stage = stage_of([3e6], [-(2**20)], [2**20], zero_point=3)
    assert both(stage)[0].kind == "exact"


def test_constant_channels_do_not_vary() -> None:
    stage = stage_of([0.003, 0.0, 1e-9], [-90000, -90000, 2**30], [90000, 90000, 2**30 + 5])
    assert varies(stage).tolist() == [True, False, False]
    form = both(stage)[0]
    assert form.kind == "saturate" and form.multiplier.tolist()[1:] == [0, 0]


@given(stages())
@settings(max_examples=200, deadline=None)
def test_channels_do_not_vary_just_where_both_ends_give_one_output(stage: Stage) -> None:
    ends = definition(stage, np.stack([stage.acc_low, stage.acc_high], 1))
    if is_regular(stage):
        assert (varies(stage) == (ends[:, 0] != ends[:, 1])).all()
    else:
        assert varies(stage).all()


@given(stages(), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_one_scale_needs_one_set_of_constants(stage: Stage, seed: int) -> None:
    """Channels of one scale: the unified form, where there is one, equals the definition, channels with one output included."""
    multiplier, shift = (np.full(stage.channels, array[0]) for array in (stage.multiplier, stage.shift))
    stage = Stage(multiplier, shift, stage.acc_low, stage.acc_high, stage.zero_point, stage.low, stage.high)
    rng = np.random.default_rng(seed)
    acc = rng.integers(stage.acc_low[:, None], stage.acc_high[:, None] + 1, (stage.channels, 300))
    for form in both(stage):
        same = unified(stage, form)
        if same is not None:
            assert (apply(same, acc) == definition(stage, acc)).all(), same
            for pre in np.unique(same.pre):
                alike = same.pre == pre
                constants = np.stack([same.multiplier, same.offset, same.correction, same.right])[:, alike]
                assert (constants == constants[:, :1]).all()


@pytest.mark.parametrize("zero_point", [-128, -7])
def test_layers_of_one_scale_are_unified(zero_point: int) -> None:
    rng = np.random.default_rng(3)
    stage = stage_of([0.0031] * 64, -rng.integers(9000, 90000, 64), rng.integers(9000, 90000, 64), zero_point)
    assert all(unified(stage, form) is not None for form in both(stage))
    different = stage_of([0.003, 0.004], [-9000] * 2, [9000] * 2, zero_point)
    assert all(unified(different, form) is None for form in both(different))


@pytest.mark.parametrize("shift", [-31, -30, 0, 30])
def test_extreme_shifts(shift: int) -> None:
    one = np.array([1 << 30], np.int64)
    stage = Stage(one, np.array([shift]), np.array([-3]), np.array([3]), -5, -128, 127)
    check(stage, np.arange(-3, 4)[None, :])


def test_clamps_that_are_never_reached_cost_nothing() -> None:
    stage = stage_of([0.001], [-20000], [20000], zero_point=0, clamp=(-50, 60))
    assert both(stage)[1].clamp is None
    stage = stage_of([0.01], [-20000], [20000], zero_point=0, clamp=(-50, 60))
    assert both(stage)[1].clamp == (-50, 60)
