"""SignalFilterBank and the operators on its channels: against TFLite Micro; lowering; compiled code; refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from aot.errors import CompileError
from tests.graph.closed import compiled
from tests.graph.lowered import agree, read, sweep
from tests.one_operator import T, custom

WORDS = np.array([0, 1, 2, 3, 4, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)


def words(seed: int, count: int) -> np.ndarray:
    """uint32 numbers of every length, and the edges."""
    rng = np.random.default_rng(seed)
    mixed = rng.integers(0, 1 << 32, count, dtype=np.uint32) >> rng.integers(0, 32, count, dtype=np.uint32)
    return np.where(rng.random(count) < 0.2, rng.choice(WORDS, count), mixed).astype(np.uint32)


def longs(seed: int, count: int) -> np.ndarray:
    """uint64 numbers of every length, near squares, and the edges."""
    rng = np.random.default_rng(seed)
    mixed = rng.integers(0, 1 << 64, count, dtype=np.uint64) >> rng.integers(0, 64, count, dtype=np.uint64)
    roots = words(seed, count).astype(np.uint64)
    near = roots * roots + rng.integers(-2, 3, count).astype(np.uint64)
    between = roots * roots + roots + rng.integers(-1, 3, count).astype(np.uint64)
    return np.select([rng.random(count) < 0.3, rng.random(count) < 0.4], [near, between], mixed).astype(np.uint64)


# The filter bank.


def bank(
    sizes=(3, 4, 0, 9, 20, 2), bins: int = 60, seed: int = 0, low: int = 0, contiguous: bool = True, **changed: np.ndarray
) -> bytes:
    """One band more than channels. `low`: the smallest weight."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum((0, *sizes))[:-1]
    first = starts + 1 if contiguous else np.array([rng.integers(0, bins - max(width, 0) + 1) for width in sizes])
    tables: dict[str, np.ndarray] = {
        "weights": rng.integers(low, 4097, sum(sizes)),
        "unweights": rng.integers(low, 4097, sum(sizes)),
        "frequencies": first,
        "starts": starts,
        "widths": np.array(sizes),
        **changed,
    }
    inputs = [T((bins,), "uint32"), *(T(table.shape, "int16", data=table) for table in tables.values())]
    return custom("SignalFilterBank", inputs, [T((len(sizes) - 1,), "uint64")], {"num_channels": len(sizes) - 1})


CASES = {
    "contiguous": bank(),
    "anywhere": bank(contiguous=False),
    "signed": bank(low=-32768, seed=1),
    "signed, anywhere": bank((5, 17, 33, 1, 8), low=-32768, contiguous=False, seed=2),
    "one channel": bank((0, 60), contiguous=False),
    "narrow": bank((1, 1, 1), 3, contiguous=False),
    "no weight": bank((0, 0, 2), weights=np.zeros(2, int), unweights=np.zeros(2, int)),
    "negative width": bank((4, 4, 4), 20, widths=np.array([4, -3, 4])),
    "many": bank(tuple(range(1, 31)), 500, 3),
}


@pytest.mark.parametrize("name", CASES)
def test_filter_bank(name):
    model = CASES[name]
    bins = read(model)[read(model).inputs[0]].size
    inputs = [[words(seed, bins)] for seed in range(3)] + [[np.full(bins, 0xFFFFFFFF, np.uint32)]]
    agree(model, *inputs)
    compiled(read(model), *inputs)


# Roots.


def root(count: int, shape=()) -> bytes:
    return custom("SignalFilterBankSquareRoot", [T((count,), "uint64"), T(shape, "int32")], [T((count,), "uint32")], {})


def test_square_root():
    count, model = 3000, root(3000)
    edges = [1 << power if sign == 0 else (1 << power) + sign for power in range(64) for sign in (-1, 0, 1)] + [
        0,
        2,
        (1 << 64) - 1,
        (1 << 64) - (1 << 33),
        (1 << 32) - (1 << 16),
        ((1 << 32) - 1) ** 2,
        (1 << 32) - 1,
    ]
    first = np.resize(np.array(edges, np.uint64), count)
    inputs = [[x, np.array(bits, np.int32)] for bits in (0, 3, 31) for x in (first, longs(bits, count), longs(bits + 50, count))]
    agree(model, *inputs)
    compiled(read(model), *inputs[:3])


# Noise.

TYPICAL = {
    "alternate_one_minus_smoothing": 15401,
    "alternate_smoothing": 983,
    "clamping": False,
    "min_signal_remaining": 819,
    "num_channels": 9,
    "one_minus_smoothing": 15975,
    "smoothing": 409,
    "smoothing_bits": 10,
    "spectral_subtraction_bits": 14,
}


def subtraction(count: int = 9, dtype: str = "uint32", **changed: object) -> bytes:
    options: dict[str, object] = {**TYPICAL, "num_channels": count, **changed}
    outputs = [T((count,), dtype), T((count,), "uint32")]
    return custom("SignalFilterBankSpectralSubtraction", [T((count,), "uint32")], outputs, options)


@pytest.mark.parametrize(
    "case",
    list(
        sweep(
            10,
            clamping=[False, True],
            smoothing=[0, 409, 16384],
            alternate_smoothing=[409, 983],
            one_minus_smoothing=[15975, 16383],
            alternate_one_minus_smoothing=[15975, 15401],
            min_signal_remaining=[0, 819, 16384],
            smoothing_bits=[0, 4, 10, 31],
            spectral_subtraction_bits=[0, 14, 40],
        )
    ),
    ids=str,
)
def test_spectral_subtraction(case):
    model = subtraction(16, **case)
    inputs = [[words(seed, 16) >> np.uint32(case["smoothing_bits"] * (seed % 2))] for seed in range(6)]
    agree(model, *inputs)
    compiled(read(model), *inputs)


# Gain.


def gain(shift: int = 6, count: int = 500, table: np.ndarray | None = None, size: int = 125) -> bytes:
    inputs = [T((count,), "uint32"), T((count,), "uint32"), T((size,), "int16", data=table)]
    return custom("SignalPCAN", inputs, [T((count,), "uint32")], {"snr_shift": shift})


@pytest.mark.parametrize("shift", [0, 6, 12, 20, 40, 63])
@pytest.mark.parametrize("constant", [True, False])
def test_gain(shift, constant):
    table = np.random.default_rng(shift).integers(-32768, 32768, 125).astype(np.int16)
    model = gain(shift, table=table if constant else None)
    inputs = [[words(seed, 500), words(seed + 9, 500), *([] if constant else [table])] for seed in range(3)]
    agree(model, *inputs)
    compiled(read(model), *inputs)


# Logarithm.


def log(bits: int = 3, scale: int = 64, count: int = 2000, dtype: str = "int16") -> bytes:
    options = {"input_correction_bits": bits, "output_scale": scale}
    return custom("SignalFilterBankLog", [T((count,), "uint32")], [T((count,), dtype)], options)


@pytest.mark.parametrize("bits, scale", [(0, 1), (3, 64), (3, 1600), (0, 65536), (31, 64), (5, (1 << 31) - 1), (0, 0)])
def test_log(bits, scale):
    model = log(bits, scale)
    inputs = [[words(seed, 2000)] for seed in range(3)] + [[np.arange(2000, dtype=np.uint32)]]
    agree(model, *inputs)
    compiled(read(model), *inputs)


def bare(code: str, inputs: list[tuple], outputs: list[tuple], options: Mapping[str, object]) -> bytes:
    return custom(code, [T(*spec) for spec in inputs], [T(*spec) for spec in outputs], options)


U = ((4,), "uint32")
REFUSALS = {
    "bank outside": (bank((4, 4), 7), "its band 1 lies outside the 7 bins or the 8 weights"),
    "bank before": (bank((4, 4), frequencies=np.array([-1, 4])), "its band 0 lies outside the 60 bins or the 8 weights"),
    "bank weights": (bank((4, 4), starts=np.array([0, 5])), "its band 1 lies outside the 60 bins or the 8 weights"),
    "bank tables": (bank((4, 4), widths=np.array([4])), "its tables are too short for 1 channels and one before them"),
    "bank channels": (
        bare("SignalFilterBank", [U] + [((4,), "int16")] * 5, [((4,), "uint64")], {"num_channels": 0}),
        "its option num_channels is 0, not 1 to 4096",
    ),
    "bank variable": (
        bare("SignalFilterBank", [U] + [((5,), "int16")] * 5, [((4,), "uint64")], {"num_channels": 4}),
        "the weights 'in1' must be constant",
    ),
    "bank terms": (
        bank(
            (32767,) * 40,
            32767,
            frequencies=np.zeros(40, int),
            starts=np.zeros(40, int),
            weights=np.ones(32767, int),
            unweights=np.ones(32767, int),
            contiguous=False,
        ),
        "its bands have more than 1048576 bins",
    ),
    "root shift": (root(4, (2,)), "'in1' is 2, not a scalar"),
    "root dtype": (
        bare("SignalFilterBankSquareRoot", [U, ((), "int32")], [U], {}),
        "uint32 is not supported for 'in0' (supported: uint64)",
    ),
    "root rank": (
        bare("SignalFilterBankSquareRoot", [((2, 2), "uint64"), ((), "int32")], [((2, 2), "uint32")], {}),
        "'in0' has 2 dimensions, not 1",
    ),
    "noise channels": (subtraction(num_channels=8), "'in0' has 9 channels, not num_channels 8"),
    "noise bits": (subtraction(smoothing_bits=32), "its option smoothing_bits is 32, not 0 to 31"),
    "noise shift": (subtraction(spectral_subtraction_bits=64), "its option spectral_subtraction_bits is 64, not 0 to 63"),
    "noise option": (subtraction(smoothing="much"), "its options have no number 'smoothing'"),
    "noise dtype": (subtraction(dtype="int32"), "int32 is not supported for 'out0' (supported: uint32)"),
    "gain table": (gain(size=124), "its gain table 'in2' has fewer than 125 elements"),
    "gain shift": (gain(64), "its option snr_shift is 64, not 0 to 63"),
    "gain shapes": (
        bare("SignalPCAN", [U, ((5,), "uint32"), ((125,), "int16")], [U], {"snr_shift": 6}),
        "'in0' and 'in1' have different shapes",
    ),
    "log bits": (log(32), "its option input_correction_bits is 32, not 0 to 31"),
    "log scale": (log(scale=-1), "its option output_scale is -1, not 0 to 2147483647"),
    "log dtype": (log(dtype="int32"), "int32 is not supported for 'out0' (supported: int16)"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    model, text = REFUSALS[name]
    with pytest.raises(CompileError, match=re.escape(text)):
        read(model)
