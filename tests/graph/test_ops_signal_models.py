"""The signal operators together: TFLite Micro's audio preprocessors, run after run; options that make no sense."""

from __future__ import annotations

import random

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.interpreter import run_all
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_file
from tests.graph.closed import compiled
from tests.graph.lowered import assert_near, lower, read, run_lowered
from tests.one_operator import T, custom
from tests.shared import GOLDEN, MODELS


@pytest.mark.skipif(not MODELS.is_dir(), reason="the real models are not beside the repository")
@pytest.mark.parametrize("dtype", ["int8", "float"])
def test_audio_preprocessor(dtype):
    graph = read_file(MODELS / "tflm" / f"audio_preprocessor_{dtype}.tflite", OPERATORS).main
    golden, state = np.load(GOLDEN / f"tflm__audio_preprocessor_{dtype}.npz"), {}
    frames = [[golden[f"in0_{run}"]] for run in range(5)]
    for run, inputs in enumerate(frames):
        arrays = run_all(graph, inputs, state)
        assert arrays[graph.outputs[0]].tobytes() == golden[f"out0_{run}"].tobytes()
        for name, array in run_lowered(graph, arrays).items():
            assert_near(array, arrays[name], f"{name} lowered and computed", 0.0)
    compiled(graph, *frames)


NUMBERS = (
    0,
    1,
    2,
    3,
    5,
    16,
    -1,
    255,
    1 << 15,
    (1 << 20) + 1,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    (1 << 63) - 1,
    -(1 << 63),
    True,
    0.5,
    "x",
    None,
)
SHAPES = ((), (1,), (5,), (16,), (2, 16), (1, 2, 18), (3, 1 << 16))
OPTIONS = {
    "SignalWindow": ("shift",),
    "SignalFftAutoScale": (),
    "SignalRfft": ("T", "fft_length"),
    "SignalIrfft": ("T", "fft_length"),
    "SignalEnergy": ("start_index", "end_index"),
    "SignalFilterBank": ("num_channels",),
    "SignalFilterBankSquareRoot": (),
    "SignalFilterBankSpectralSubtraction": (
        "alternate_one_minus_smoothing", "alternate_smoothing", "clamping", "min_signal_remaining", "num_channels",
        "one_minus_smoothing", "smoothing", "smoothing_bits", "spectral_subtraction_bits",
    ),
    "SignalPCAN": ("snr_shift",),
    "SignalFilterBankLog": ("input_correction_bits", "output_scale"),
    "SignalFramer": ("frame_size", "frame_step", "prefill"),
    "SignalStacker": ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step"),
    "SignalDelay": ("delay_length",),
    "SignalOverlapAdd": ("T", "frame_step"),
}  # fmt: skip


def test_every_signal_operator_is_here():
    assert sorted(OPTIONS) == sorted(name for name in OPERATORS if name.startswith("Signal"))


@pytest.mark.parametrize("code", OPTIONS)
def test_whatever_the_options_and_shapes_say(code):
    """A graph that can be lowered or a sentence, and quickly."""
    picker = random.Random(code)
    for _ in range(150):
        options = {name: picker.choice(NUMBERS) for name in OPTIONS[code] if picker.random() < 0.95}
        dtypes = picker.choice((("int16",), ("uint32",), ("int16", "float32", "int32", "uint32", "uint64", "bool", "int8")))
        inputs = [_tensor(picker, dtypes) for _ in range(picker.choice((0, 1, 1, 1, 2, 3, 6)))]
        outputs = [_tensor(picker, dtypes) for _ in range(picker.choice((0, 1, 1, 2, 2, 3)))]
        try:
            graph = read(custom(code, inputs, outputs, options))
        except CompileError as error:
            assert "\n" not in str(error)
        else:
            assert lower(graph).primitives


def _tensor(picker: random.Random, dtypes: tuple[str, ...]) -> T:
    shape, dtype = picker.choice(SHAPES), picker.choice(dtypes)
    data = np.full(shape, picker.choice((0, 1, 2, 9))) if picker.random() < 0.3 and np.prod(shape, dtype=int) < 99 else None
    return T(shape, dtype, data=data)
