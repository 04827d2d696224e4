"""SignalWindow, SignalFftAutoScale, SignalEnergy: against TFLite Micro; lowering; compiled code; refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aot.errors import CompileError
from aot.graph.interpreter import run_all
from tests.graph.closed import compiled
from tests.graph.lowered import agree, assert_near, read, run_lowered, sweep
from tests.one_operator import T, custom, random_inputs
from tests.oracle import tflm_runs

RNG = np.random.default_rng(5)


def window(shape=(2, 24), weights: int = 24, shift: int = 12, data: np.ndarray | None = None, out=None) -> bytes:
    inputs = [T(shape, "int16"), T((weights,), "int16", data=data)]
    return custom("SignalWindow", inputs, [T(out or shape, "int16")], {"shift": shift})


@pytest.mark.parametrize(
    "case", list(sweep(12, shape=[(24,), (1, 24), (3, 48), (2, 2, 12)], weights=[12, 4, 1], shift=[0, 1, 12, 15, 30, 31])), ids=str
)
def test_window(case):
    model = window(**case)
    low = [np.full(array.shape, -32768, np.int16) for array in random_inputs(model)]
    agree(model, random_inputs(model), low)
    constant = window(**case, data=RNG.integers(-4096, 4097, case["weights"]))
    agree(constant)
    compiled(read(constant), random_inputs(constant))


def auto_scale(size: int) -> bytes:
    return custom("SignalFftAutoScale", [T((size,), "int16")], [T((size,), "int16"), T((), "int32")], {})


def test_auto_scale():
    model = auto_scale(7)
    rows = [RNG.integers(-(1 << bits), 1 << bits, 7) for bits in range(16)]
    rows += [np.full(7, value) for value in (0, 1, -1, 32767, -32767, -32768)]
    agree(model, *([row.astype(np.int16)] for row in rows))
    for size in (1, 2):
        short = [[np.resize(row, size).astype(np.int16)] for row in rows]
        agree(auto_scale(size), *short)
        compiled(read(auto_scale(size)), *short[-8:])


def test_auto_scale_overflows_as_the_reference_does():
    """TFLite Micro's largest magnitude is an int16: at -32768 it wraps, and what comes after decides."""
    model, small = auto_scale(5), np.array([-32768, -5, -4, -1, 0, 3, 900], np.int16)
    rows = [RNG.choice(small, 5) for _ in range(300)]
    rows += [np.array(row, np.int16) for row in ([-32768, -9, -7, -3, -1], [9, 9, 9, 9, -32768], [-32768, -3, -3, -2, -1])]
    agree(model, *([row] for row in rows))
    compiled(read(model), *([row] for row in rows[:40]))


def energy(size: int = 18, start: int = 0, end: int = 9, out: int | None = None) -> bytes:
    options = {"start_index": start, "end_index": end}
    return custom("SignalEnergy", [T((size,), "int16")], [T((size // 2 if out is None else out,), "uint32")], options)


@pytest.mark.parametrize("size, start, end", [(18, 0, 9), (18, 2, 7), (18, 8, 9), (18, 5, 5), (18, 7, 2), (18, 30, 4), (2, 0, 1)])
def test_energy(size, start, end):
    """Bins outside are 0; TFLite Micro leaves what was there."""
    model = energy(size, start, end)
    graph, given = read(model), [random_inputs(model), [np.full(size, -32768, np.int16)]]
    for inputs, (expected,) in zip(given, tflm_runs(model, given), strict=True):
        arrays = run_all(graph, inputs)
        found = arrays[graph.outputs[0]]
        assert_near(run_lowered(graph, arrays)[graph.outputs[0]], found, "lowered and computed")
        assert_near(found[start:end], expected[start:end], "computed and TFLite Micro")
        assert not found[:start].any() and not found[max(start, end) :].any()
    compiled(graph, *given)


REFUSALS = {
    "window size": (window((2, 10), 4), "'in0' is 2x10, whose rows are no multiple of its 4 weights"),
    "window shift": (window(shift=32), "its option shift is 32, not 0 to 31"),
    "window options": (
        custom("SignalWindow", [T((4,), "int16"), T((4,), "int16")], [T((4,), "int16")]),
        "its options have no number 'shift'",
    ),
    "window dtype": (
        custom("SignalWindow", [T((4,), "int16"), T((4,), "int32")], [T((4,), "int16")], {"shift": 1}),
        "int32 is not supported for 'in1' (supported: int16)",
    ),
    "window rank": (
        custom("SignalWindow", [T((4,), "int16"), T((2, 2), "int16")], [T((4,), "int16")], {"shift": 1}),
        "'in1' has 2 dimensions, not 1",
    ),
    "scale outputs": (custom("SignalFftAutoScale", [T((4,), "int16")], [T((4,), "int16")], {}), "has 1 outputs, not 2"),
    "scale dtype": (
        custom("SignalFftAutoScale", [T((4,), "int16")], [T((4,), "int16"), T((), "int16")], {}),
        "int16 is not supported for 'out1' (supported: int32)",
    ),
    "energy end": (energy(end=10), "its option end_index is 10, not 0 to 9"),
    "energy start": (energy(start=-1), "its option start_index is -1, not 0 to 2147483647"),
    "energy shape": (energy(out=8), "the file says its output is 8, its inputs give 9"),
    "energy dtype": (
        custom("SignalEnergy", [T((4,), "int16")], [T((2,), "int32")], {"start_index": 0, "end_index": 2}),
        "int32 is not supported for 'out0' (supported: uint32)",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    model, text = REFUSALS[name]
    with pytest.raises(CompileError, match=re.escape(text)):
        read(model)
