"""Channels with only one output: left out of the DSP kernels' products, in their places afterwards; every byte compared, with guards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.spread import without_constants
from aot.backends.layers.operands import Layer, read_layer
from aot.graph.expr import axis
from aot.lower.program import Program
from tests.backends import emulator
from tests.backends.contracts import Case, expected, program_of
from tests.backends.test_dsp_kernels import M4, check, offers

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")


def scales(channels: int, live: int, seed: int = 0) -> tuple[float, ...]:
    """Real rescalings of which all but `live` are 0."""
    rng = np.random.default_rng(seed)
    kept = set(rng.choice(channels, live, replace=False).tolist())
    return tuple(0.002 * (1 + number % 3) if number in kept else 0.0 for number in range(channels))


def left_out(program: Program, kind: str) -> int:
    """How many channels the kernel leaves out."""
    layer = read_layer(program, program.instructions[0], M4, kind)
    assert isinstance(layer, Layer)
    kept, spread = without_constants(layer)
    assert spread is None or len(kept.bias) == spread.live
    return 0 if spread is None else spread.channels - spread.live


@pytest.mark.parametrize(
    ("case", "live", "missing"),
    [
        (Case("conv", (1, 3, 3, 32), 64, (1, 1)), 10, 54),
        (Case("conv", (1, 3, 3, 32), 64, (1, 1)), 11, 52),  # in pairs
        (Case("conv", (2, 3, 5, 24), 17, (1, 1)), 4, 13),
        (Case("conv", (1, 5, 4, 9), 16, padding=(1, 1, 1, 1)), 1, 14),
        (Case("conv", (1, 6, 6, 8), 30, stride=(2, 2)), 7, 22),
        (Case("conv", (1, 2, 2, 16), 300, (1, 1)), 8, 292),  # places are halves
        (Case("conv", (1, 3, 3, 32), 16, (1, 1)), 0, 14),
        (Case("dense", (3, 1, 1, 64), 33), 6, 27),
        (Case("dense", (1, 1, 1, 128), 128), 20, 108),
        (Case("conv", (1, 3, 3, 4), 16, (1, 1)), 15, 0),  # does not pay
        (Case("conv", (1, 3, 3, 32), 2, (1, 1)), 1, 0),
    ],
    ids=str,
)
def test_constant_channels(case: Case, live: int, missing: int) -> None:
    case = Case(**{**vars(case), "scales": scales(case.channels, live), "out_zero_point": -7})
    program = program_of(case)
    assert left_out(program, case.kind) == missing
    notes = check(program, split=True).notes
    assert any("only ever have one output" in note for note in notes) == (missing > 0)
    check(program, seed=3, align=1)


def test_pruned_channels_have_outputs_of_their_own() -> None:
    """Biases that drown the sums, and clamps that hide them."""
    program = program_of(Case("conv", (1, 4, 4, 32), 18, (1, 1), large_bias=True, scales=(1e-4,)))
    assert left_out(program, "conv") == 6
    check(program)
    program = program_of(Case("conv", (1, 4, 4, 32), 18, (1, 1), low=5, high=5, out_zero_point=5))
    assert left_out(program, "conv") == 16
    check(program)


@pytest.mark.parametrize("scale", [300.0, 0], ids=["exact", "one scale"])
def test_constant_channels_whose_weights_stay_fit_beside_their_neighbours(scale: float) -> None:
    """256 * -128 + -1 is no int16. A shift that has no short form, and one scale for all channels, keep such a channel's weights; its
    accumulator goes as near to a threshold as it can."""
    near = 0.5 / (128 * 255.5 * 8)
    program = program_of(Case("dense", (3, 1, 1, 8), 8, scales=(near, scale or near) * 4, out_zero_point=0))
    weights = np.repeat(np.array([-128, -1, -128, 100, 5, 6, 7, 8], np.int8)[:, None], 8, 1)
    bias = 261632 - 1020 * weights[:, 0].astype(np.int32)  # in the middle of what a channel reaches lies a threshold
    bias[[0, 2]] = 0
    if scale:
        bias[1::2] = 0
    constants = {"w": weights, "bias": bias}
    buffers = tuple(replace(one, data=constants.get(one.name, one.data)) for one in program.buffers)
    program = replace(program, buffers=buffers)
    assert left_out(program, "dense") == 0
    inputs = {"x": np.stack([np.full(8, x, np.int8) for x in (-128, 127, 5)])}
    for implementation in offers(program):
        outcome = emulator.run(program, implementation, M4, inputs)
        assert outcome.out.tolist() == expected(program, inputs).tolist(), implementation.notes


def test_parts_of_larger_outputs() -> None:
    case = Case("conv", (2, 5, 6, 32), 16, (1, 1), scales=scales(16, 4))
    store = (axis(0), axis(1, 1, 1), axis(2), axis(3, 1, 3))
    program = program_of(case, store=store, out_shape=(2, 7, 6, 23))
    assert left_out(program, "conv") == 12
    check(program, split=True, background=77)
