"""SignalFramer, SignalStacker, SignalDelay, SignalOverlapAdd: runs in a row against TFLite Micro; lowering; compiled code; refusals.

Where an output is not valid yet TFLite Micro leaves what was there: such outputs are not compared with it.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.interpreter import run_all
from tests.graph.closed import compiled
from tests.graph.lowered import agree, assert_near, read, run_lowered, sweep
from tests.one_operator import T, custom
from tests.oracle import tflm_runs


def samples(shape: tuple[int, ...], count: int = 8, seed: int = 0) -> list[list[np.ndarray]]:
    """Successive inputs; int16 over its whole range, often at its ends."""
    rng = np.random.default_rng(seed)
    some = rng.integers(-32768, 32768, (count, *shape))
    return [[array.astype(np.int16)] for array in np.where(rng.random(some.shape) < 0.1, rng.choice([-32768, 32767]), some)]


def agree_where_valid(model: bytes, inputs: list[list[np.ndarray]], frames: tuple[int, ...] = ()) -> list[bool]:
    """As `agree`, for a model whose second output says whether the first is valid; the flags."""
    graph, state, flags = read(model), {}, []
    for given, (expected, flag) in zip(inputs, tflm_runs(model, inputs), strict=True):
        arrays = run_all(graph, given, state)
        for name, array in run_lowered(graph, arrays).items():
            assert_near(array, arrays[name], f"{name} lowered and computed")
        out, valid = (arrays[name] for name in graph.outputs)
        assert bool(valid) == bool(flag.reshape(())), flags
        if valid:
            assert_near(out, expected.reshape(out.shape), "computed and TFLite Micro")
        flags.append(bool(valid))
    compiled(graph, *inputs)
    return flags


def framer(shape=(6,), size: int = 4, step: int = 2, prefill: object = False, out=None) -> bytes:
    frames = (*shape[:-1], max(shape[-1] // max(step, 1), 1), size) if shape else (1, size)
    outputs = [T(out or frames, "int16"), T((), "bool")]
    return custom("SignalFramer", [T(shape, "int16")], outputs, {"frame_size": size, "frame_step": step, "prefill": prefill})


@pytest.mark.parametrize(
    "case",
    [
        *sweep(
            24, shape=[(6,), (12,), (2, 6), (1, 12), (2, 2, 6)], step=[1, 2, 3, 6], size=[6, 7, 9, 12, 20], prefill=[False, True]
        ),
        {"shape": (6,), "size": 6, "step": 6},
        {"shape": (12,), "size": 2, "step": 6},
        {"shape": (6,), "size": 1, "step": 1},
        {"shape": (160,), "size": 400, "step": 160},
        {"shape": (320,), "size": 480, "step": 320, "prefill": True},
    ],
    ids=str,
)
def test_framer(case):
    flags = agree_where_valid(framer(**case), samples(case["shape"], 16 if case["step"] == 1 else 8))
    assert flags[-1]
    assert flags[0] or not case.get("prefill")


def stacker(channels: int = 3, left: int = 1, right: int = 1, step: int = 2, shape=None, out: int | None = None) -> bytes:
    width = channels * max(left + right + 1, 1)
    options = {"num_channels": channels, "stacker_left_context": left, "stacker_right_context": right, "stacker_step": step}
    outputs = [T((out or width,), "int16"), T((), "bool")]
    return custom("SignalStacker", [T(shape or (channels,), "int16")], outputs, options)


@pytest.mark.parametrize(
    "channels, left, right, step",
    [(3, 1, 1, 2), (1, 0, 0, 1), (5, 0, 0, 1), (4, 2, 0, 1), (4, 0, 2, 1), (2, 3, 2, 6), (40, 5, 4, 2), (2, 1, 3, 3), (1, 4, 1, 5)],
)
def test_stacker(channels, left, right, step):
    flags = agree_where_valid(stacker(channels, left, right, step), samples((channels,), 20))
    assert flags.index(True) == right
    assert flags.count(True) == len(range(right, 20, step))


def delay(shape=(2, 5), length: int = 3, dtype: str = "int16") -> bytes:
    return custom("SignalDelay", [T(shape, dtype)], [T(shape, dtype)], {"delay_length": length})


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 1, 4)])
@pytest.mark.parametrize("length", [0, 1, 4, 5, 13])
def test_delay(shape, length):
    agree(delay(shape, length), *samples(shape))
    compiled(read(delay(shape, length)), *samples(shape))


def overlap_add(shape=(2, 3, 8), step: int = 3, dtype: str = "int16", out=None, number: int | None = None) -> bytes:
    options = {"T": {"int16": 7, "float32": 0}.get(dtype, 9) if number is None else number, "frame_step": step}
    result = out or ((*shape[:-2], shape[-2] * step) if len(shape) > 1 else shape)
    return custom("SignalOverlapAdd", [T(shape, dtype)], [T(result, dtype)], options)


@pytest.mark.parametrize(
    "case",
    list(sweep(24, shape=[(1, 8), (2, 8), (3, 8), (2, 3, 8), (2, 1, 2, 9)], step=[1, 2, 3, 4, 7, 8], dtype=["int16", "float32"])),
    ids=str,
)
def test_overlap_add(case):
    model, inputs = overlap_add(**case), samples(case["shape"])
    inputs = [[array.astype(case["dtype"]) for array in given] for given in inputs]
    agree(model, *inputs, bound=0.0)
    compiled(read(model), *inputs)


@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_overlap_add_of_speech_frames(dtype):
    model, inputs = overlap_add((1, 512), 128, dtype), samples((1, 512))
    agree(model, *([array.astype(dtype) for array in given] for given in inputs), bound=0.0)


REFUSALS = {
    "framer size": (framer(size=0), "its option frame_size is 0, not 1 to 1048576"),
    "framer step": (framer(step=-2), "its option frame_step is -2, not 1 to 1048576"),
    "framer prefill": (framer(prefill=2), "its option prefill is 2, not 0 to 1"),
    "framer gap": (
        framer(size=2, step=3, prefill=True),
        "its frame_step 3 is more than its frame_size 2, which prefill can't make up for",
    ),
    "framer rows": (framer((7,)), "its rows have 7 samples, no multiple of its frame_step 2"),
    "framer scalar": (framer(()), "'in0' is scalar, not samples in 1 or more dimensions"),
    "framer memory": (framer((2, 3, 2), 1 << 19), "it would keep 2x3x524286 samples, more than 1048576"),
    "framer shape": (framer(out=(3, 5)), "the file says its output is 3x5, its inputs give 3x4"),
    "framer dtype": (
        custom(
            "SignalFramer", [T((4,), "int8")], [T((2, 3), "int8"), T((), "bool")], {"frame_size": 3, "frame_step": 2, "prefill": 1}
        ),
        "int8 is not supported for 'in0' (supported: int16)",
    ),
    "framer outputs": (
        custom("SignalFramer", [T((4,), "int16")], [T((2, 3), "int16")], {"frame_size": 3, "frame_step": 2, "prefill": 1}),
        "has 1 inputs and 1 outputs, not 1 and 2",
    ),
    "stacker step": (stacker(step=0), "its option stacker_step is 0, not 1 to 3"),
    "stacker long step": (stacker(step=4), "its option stacker_step is 4, not 1 to 3"),
    "stacker context": (stacker(left=-1), "its option stacker_left_context is -1, not 0 to 1048576"),
    "stacker channels": (stacker(0, out=3, shape=(1,)), "its option num_channels is 0, not 1 to 1048576"),
    "stacker samples": (stacker(1 << 19), "it stacks 1572864 samples, more than 1048576"),
    "stacker shape": (stacker(shape=(4,)), "'in0' is 4, not 3 channels"),
    "delay length": (delay(length=-1), "its option delay_length is -1, not 0 to 1048576"),
    "delay memory": (delay(length=1 << 20), "it would keep 2x1048576 samples, more than 1048576"),
    "delay dtype": (delay(dtype="int32"), "int32 is not supported for 'in0' (supported: int16)"),
    "delay scalar": (delay(()), "'in0' is scalar, not samples in 1 or more dimensions"),
    "overlap step": (overlap_add(step=9), "its frame_step 9 is more than the 8 samples of its frames"),
    "overlap many": (
        overlap_add((1, 33), 1),
        "more than 32 of its frames overlap: they have 33 samples, its frame_step is 1",
    ),
    "overlap rank": (overlap_add((8,)), "'in0' is 8, not samples in 2 or more dimensions"),
    "overlap shape": (overlap_add((2, 8), out=(7,)), "the file says its output is 7, its inputs give 6"),
    "overlap dtype": (overlap_add(dtype="int32"), "int32 is not supported for 'in0' (supported: float32, int16)"),
    "overlap T": (overlap_add(number=0), "its option T is 0, which does not say int16"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    model, text = REFUSALS[name]
    with pytest.raises(CompileError, match=re.escape(text)):
        read(model)
