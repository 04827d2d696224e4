"""Kernels with six bytes a channel and one code for all sizes: the six bytes against the definition, every output byte on an emulated
Cortex-M4, with guards around every buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.backends.cmsis_nn.dsp.compact import Numbers, compact
from aot.backends.cmsis_nn.dsp.compact_depthwise import compact_depthwise
from aot.backends.cmsis_nn.dsp.compact_pointwise import compact_pointwise
from aot.backends.cmsis_nn.dsp.convolution import TAKES
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.requantise import agreement, apply, tflite
from aot.graph.expr import Affine, axis
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer
from tests.backends.contracts import INT8, Case, program_of
from tests.backends.test_dsp_kernels import M4, check, numbers, offers, padded, residual
from tests.backends.test_requantise import definition, stage_of
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

SAME = (1, 1, 1, 1)
NUMBERS = {
    "zero_point": (-128, -1, 0, 127),
    "out_zero_point": (-128,),
    "activation": ("none", "none", "relu6", "inside"),
    "scale": ("fitting",),
    "bias": ("some", "some", "none", "large"),
    "weights": ("any", "any", "saturated"),
    "batch": (1,),
}


def layer_of(case: Case, kind: str = "", **options) -> Layer:
    program = program_of(case, **options)
    layer = read_layer(program, program.instructions[0], M4, kind or case.kind, "dsp", TAKES)
    assert isinstance(layer, Layer)
    return layer


def frugal(case: Case) -> list[Implementation]:
    return [one for one in offers(program_of(case)) if one.is_frugal]


def fitting(seed: int, channels: int) -> tuple[float, ...]:
    """Scales of one layer's channels, within a factor of four."""
    rng = np.random.default_rng(seed)
    return tuple(2.0 ** -rng.uniform(6, 8, channels))


@st.composite
def layers(draw) -> tuple:
    """Scales, ends of the reach, biases."""
    channels = draw(st.integers(1, 6))
    middle, spread = draw(st.floats(-12, -1)), draw(st.sampled_from([0, 1, 2, 5]))
    scales = [2.0 ** (middle + draw(st.floats(-1, 1)) * spread / 2) for _ in range(channels)]
    reach = 2 ** draw(st.integers(2, 18))
    low, high = ([sign * draw(st.integers(0, reach)) for _ in range(channels)] for sign in (-1, 1))
    biases = [draw(st.integers(-(1 << 19), (1 << 19) - 1)) for _ in range(channels)]
    return scales, low, high, biases, draw(st.sampled_from([-128, -128, -128, 0, 17]))


@given(layers(), st.integers(0, 1000))
@settings(deadline=None, max_examples=150)
def test_six_bytes_are_the_definition(drawn: tuple, seed: int) -> None:
    scales, low, high, biases, zero_point = drawn
    stage = stage_of(scales, low, high, zero_point)
    found = compact(stage, np.array(biases))
    if found is None:
        return
    rng = np.random.default_rng(seed)
    acc = np.sort(rng.integers(stage.acc_low[:, None], stage.acc_high[:, None] + 1, (stage.channels, 400)))
    words, halves = found.words.astype(np.uint32), found.halves.astype(np.int16)  # what is stored
    assert (words == found.words).all() and (halves == found.halves).all()
    low = found.low
    bias = halves.astype(np.int64) * (1 << low) + (words & ((1 << low) - 1))
    multiplier = (words >> low << low).astype(np.int64) >> 1
    offset = (2 * zero_point + 1 << found.right - 1) + np.array([128 >> 32 - int(m).bit_length() for m in multiplier])
    assert (bias == biases).all()
    y = offset[:, None] + ((acc << 8) * multiplier[:, None] >> 32) >> found.right
    assert (np.clip(y, -128, 127) == definition(stage, acc)).all()


def test_usual_layers_fit_and_others_do_not() -> None:
    """Scales of trained layers; sums of more than 24 bits; a bias of more than 20 bits; a wide spread."""
    channels = 64
    scales, reach = fitting(1, channels), np.full(channels, 1 << 16)
    stage, bias = stage_of(scales, -reach, reach), np.arange(channels)
    assert compact(stage, bias) is not None
    assert compact(stage, bias + (1 << 19)) is None
    assert compact(stage_of(scales, -256 * reach, 256 * reach), bias) is None
    assert compact(stage_of((0.4, *(2.0**-14,) * 63), -reach, reach), bias) is None
    assert compact(stage_of(scales, -reach, reach, zero_point=0), bias) is None  # rounding turns round at zero


def test_agreement_is_channel_by_channel() -> None:
    reach = np.full(8, 1 << 15)
    stage = stage_of(fitting(2, 8), -reach, reach)
    found = compact(stage, np.zeros(8, np.int64))
    assert found is not None and agreement(stage, found.form).all()
    wrong = replace(found.form, multiplier=found.form.multiplier + (np.arange(8) % 2 << 16))
    assert agreement(stage, wrong).tolist() == [True, False] * 4
    acc = np.arange(-(1 << 15), 1 << 15)[None] + np.zeros((8, 1), np.int64)
    assert (apply(found.form, acc) == np.clip(tflite(stage, acc), -128, 127)).all()


@pytest.mark.parametrize("part", range(3))
def test_depthwise(part: int) -> None:
    choices = {
        **NUMBERS,
        "kernel": ((3, 3), (3, 3), (1, 1), (2, 2), (3, 1), (1, 5), (4, 3), (5, 5), (8, 2)),
        "height": (1, 2, 3, 5, 8, 13, 17),
        "width": (1, 2, 3, 5, 6, 9),
        "stride": ((1, 1), (1, 1), (2, 2), (1, 2), (3, 1), (4, 4)),
        "padding": ((0, 0, 0, 0), SAME, (0, 1, 0, 1), (2, 0, 1, 2)),
        "depth": (1, 2, 3, 5, 8, 17),
        "multiplier": (1, 1, 1, 2, 3),
    }
    taken = 0
    for number, choice in enumerate(sweep(24, part, **choices)):
        channels = choice["depth"] * choice["multiplier"]
        size, kernel, stride = (choice["height"], choice["width"]), choice["kernel"], choice["stride"]
        fields = {**numbers(choice, channels), "scales": fitting(number, channels)}
        padding = padded(size, kernel, stride, (1, 1), choice["padding"])
        image = (1, *size, choice["depth"])
        case = Case("depthwise", image, 0, kernel, stride, (1, 1), padding, choice["multiplier"], seed=number, **fields)
        for implementation in frugal(case):
            check(program_of(case), number, split=True, implementation=implementation)
            taken += 1
    assert taken >= 8


def test_a_single_channel_goes_to_many() -> None:
    case = Case("conv", (1, 21, 20, 1), 8, (3, 3), (2, 2), padding=(0, 1, 0, 1), scales=fitting(3, 8))
    (implementation,) = frugal(case)
    check(program_of(case), split=True, implementation=implementation)
    check(program_of(case), align=1, implementation=implementation)


@pytest.mark.parametrize("part", range(3))
def test_pointwise(part: int) -> None:
    choices = {
        **NUMBERS,
        "size": ((1, 4), (1, 5), (2, 2), (3, 3), (4, 1), (5, 3), (7, 1), (6, 2), (3, 9), (25, 5)),
        "depth": (4, 8, 12, 16, 20, 36, 64, 128),
        "channels": (1, 2, 3, 7, 8, 16, 33),
    }
    taken = 0
    for number, choice in enumerate(sweep(20, part, **choices)):
        fields = {**numbers(choice, choice["channels"]), "scales": fitting(number, choice["channels"])}
        case = Case("conv", (1, *choice["size"], choice["depth"]), choice["channels"], (1, 1), seed=number, **fields)
        for implementation in frugal(case):
            check(program_of(case), number, split=True, implementation=implementation)
            check(program_of(case), number, align=1, implementation=implementation)
            taken += 1
    assert taken >= 8


CONCATENATED = (
    Case("depthwise", (1, 5, 6, 4), padding=SAME),
    Case("depthwise", (1, 5, 6, 3), padding=SAME, multiplier=2),
    Case("conv", (1, 5, 6, 4), 6, (1, 1)),
)


@pytest.mark.parametrize("case", CONCATENATED, ids=str)
def test_output_beside_other_channels(case: Case) -> None:
    """Pixels lie further apart than they have channels; what is between stays."""
    channels = case.image[3] * case.multiplier if case.kind == "depthwise" else case.channels
    case = replace(case, scales=fitting(4, channels))
    store = (*(axis(number) for number in range(3)), axis(3, case.multiplier, 5) if case.kind == "depthwise" else axis(3, 1, 5))
    if case.multiplier > 1:
        store = (*store[:3], Affine(((3, case.multiplier), (4, 1)), 5))
    program = program_of(case, store=store, out_shape=(1, 5, 6, channels + 9))
    (implementation, *_) = [one for one in offers(program) if one.is_frugal]
    check(program, split=True, background=77, implementation=implementation)


def shared(case: Case) -> Sequence[tuple[str, int]]:
    (one, *_) = frugal(case)
    assert one.cost is not None
    return one.cost.shared


def test_layers_of_all_sizes_share_code() -> None:
    depthwise = [
        Case("depthwise", (1, 9, 7, 8), stride=stride, padding=padding, multiplier=each, scales=fitting(5, 8 * each))
        for stride, padding, each in (((1, 1), SAME, 1), ((2, 2), (0, 1, 0, 1), 1), ((1, 1), SAME, 2))
    ]
    assert len({tuple(shared(case)) for case in depthwise}) == 1
    pointwise = [Case("conv", (1, *size, depth), 8, (1, 1), scales=fitting(6, 8)) for *size, depth in ((3, 3, 16), (5, 9, 64))]
    assert len({tuple(shared(case)) for case in pointwise}) == 1


def test_refusals() -> None:
    reads = ("x",)
    scales = fitting(7, 4)
    usual = Case("depthwise", (1, 6, 6, 4), padding=SAME, scales=scales)
    residue = [Buffer("r", INT8, program_of(usual)["y"].shape, "input")]
    fused = layer_of(usual, rest=residual, extra=residue)
    assert compact_depthwise(fused, reads) == "something is fused behind it, which is code of its own"
    for case, why in (
        (replace(usual, image=(2, 6, 6, 4)), "several images"),
        (replace(usual, image=(1, 9, 9, 4), dilation=(2, 2)), "a 3x3 kernel, dilated by (2, 2): it is for small ones without gaps"),
        (replace(usual, image=(1, 9, 9, 4), kernel=(7, 7)), "a 7x7 kernel, dilated by (1, 1): it is for small ones without gaps"),
        (replace(usual, sums="double", scales=()), "int16 activations: it is for int8"),
        (replace(usual, out_zero_point=0), "its requantisation needs more than six bytes a channel"),
        (replace(usual, image=(1, 3, 9000, 4)), "sizes beyond 16 bits"),
    ):
        assert compact_depthwise(layer_of(case), reads) == why
    point = Case("conv", (1, 3, 3, 8), 4, (1, 1), scales=scales)
    assert len(compact_pointwise(layer_of(point), reads)) == 2
    for case in (
        replace(point, image=(2, 3, 3, 8)),
        replace(point, image=(1, 3, 1, 8)),
        replace(point, image=(1, 3, 3, 6)),
        replace(point, stride=(2, 2)),
        replace(point, sums="double", scales=()),
        replace(point, out_zero_point=0),
    ):
        assert compact_pointwise(layer_of(case), reads) == ()


def test_numbers_of_16_bits() -> None:
    made = Numbers(a=-(1 << 15), b=(1 << 15) - 1, c=7)
    assert made.fit and made.nbytes == 8 and made.data == b"\x00\x80\xff\x7f\x07\x00\x00\x00"
    assert not Numbers(a=1 << 15).fit
