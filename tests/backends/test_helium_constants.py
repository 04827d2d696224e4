"""Channels with only one output: left out of the Helium kernels' products, in their places all the same; every byte compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.backends.layers import constant_channels
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.requantise import varies
from aot.graph.expr import axis
from aot.graph.ir import DType
from aot.lower.program import Buffer
from tests.backends.board import count
from tests.backends.contracts import INT8, Case, inputs_of, program_of
from tests.backends.test_dsp_kernels import residual
from tests.backends.test_helium_int16 import residual16
from tests.backends.test_helium_kernels import M55, check
from tests.backends.test_spread import scales

CASES = [
    # layer, channels that vary
    (Case("conv", (1, 3, 3, 64), 64, (1, 1)), 10),
    (Case("conv", (1, 3, 3, 64), 64, (1, 1)), 11),
    (Case("conv", (2, 3, 5, 24), 17, (1, 1)), 4),
    (Case("conv", (1, 5, 4, 9), 16, padding=(1, 1, 1, 1)), 1),
    (Case("conv", (2, 6, 6, 8), 30, stride=(2, 2)), 7),
    (Case("conv", (1, 5, 9, 3), 40, (3, 3), dilation=(1, 2), padding=(1, 1, 2, 2)), 13),
    (Case("conv", (1, 2, 2, 64), 300, (1, 1)), 9),
    (Case("conv", (1, 3, 3, 64), 16, (1, 1)), 0),
    (Case("conv", (1, 3, 5, 100), 37, padding=(1, 1, 1, 1)), 18),
    (Case("dense", (3, 1, 1, 64), 33), 6),
    (Case("dense", (1, 1, 1, 640), 128), 20),
    (Case("dense", (2, 1, 1, 1500), 130, saturated=True), 30),
]


def left_out(note: str) -> int:
    return int(note.split(" of ")[0]) if "only ever have one output" in note else 0


def cases_of(sums: str) -> list[Case]:
    return [
        replace(case, scales=scales(case.channels, live, seed=number), out_zero_point=-7, sums=sums, seed=number, low=-100)
        for number, (case, live) in enumerate(CASES)
    ]


@pytest.mark.parametrize("sums", ["", "wide", "double"])
def test_constant_channels(sums: str) -> None:
    found = check([program_of(case) for case in cases_of(sums)], splits=True)
    for one, (case, live) in zip(found, CASES, strict=True):
        wraps = sums == "double" and case.saturated
        assert left_out(one.notes[-1]) == (0 if wraps else case.channels - max(live, 1)), one.notes


def test_all_inputs_extreme() -> None:
    check([program_of(case) for case in cases_of("")], seeds=[3] * len(CASES))
    check([program_of(case) for case in cases_of("wide")], seeds=[3] * len(CASES))


@pytest.mark.parametrize("sums", ["", "wide"])
def test_what_is_fused_behind_and_parts_of_outputs(sums: str) -> None:
    dtype, rest = (DType.INT16, residual16) if sums else (INT8, residual)
    programs = []
    for case in cases_of(sums)[:6]:
        shape = program_of(case)["y"].shape
        programs.append(program_of(case, rest, extra=[Buffer("r", dtype, shape, "input")]))
        store = tuple(axis(number, 1, offset) for number, offset in enumerate((0, 1, 2, 3)))
        programs.append(program_of(case, store=store, out_shape=(shape[0], shape[1] + 1, shape[2] + 2, shape[3] + 8)))
    assert all("only ever have one output" in one.notes[-1] for one in check(programs))


def test_pruned_channels() -> None:
    """Biases that drown the sums, and clamps that hide them."""
    pruned = Case("conv", (1, 4, 4, 64), 18, (1, 1), large_bias=True, scales=(1e-4,))
    hidden = Case("conv", (1, 4, 4, 64), 18, (1, 1), low=5, high=5, out_zero_point=5)
    found = check([program_of(case) for case in (pruned, hidden, replace(pruned, sums="wide"))])
    assert [left_out(one.notes[-1]) for one in found] == [6, 17, 6]


def test_where_it_does_not_pay() -> None:
    (one,) = check([program_of(Case("conv", (1, 3, 3, 4), 16, (1, 1), scales=scales(16, 15), out_zero_point=-7))])
    assert "one output" not in one.notes[-1]


@pytest.mark.parametrize("sums", ["", "wide"])
def test_cost(sums: str) -> None:
    """Half of the channels left out saves a third and more; the estimate is not far off."""
    whole = Case("conv", (1, 12, 12, 64), 64, (1, 1), sums=sums)
    half = replace(whole, scales=scales(64, 32))
    counts = [count(program_of(case), M55, inputs_of(program_of(case))) for case in (whole, half)]
    (one,) = check([program_of(half)])
    assert one.cost is not None and 0.9 < one.cost.instructions / counts[1] < 1.1
    assert counts[1] < 0.65 * counts[0], counts


@pytest.mark.parametrize("seed", range(3))
def test_which_channels_vary(seed: int) -> None:
    """The ends of what a channel reaches say the same as its thresholds."""
    rng = np.random.default_rng(seed)
    case = Case(
        "dense", (1, 1, 1, 6), 40, scales=tuple(np.exp(rng.uniform(-16, -2, 40))), low=-100, large_bias=seed == 1, seed=seed
    )
    layer = read_layer(program_of(case), program_of(case).instructions[0], M55, "dense")
    assert isinstance(layer, Layer)
    found = constant_channels.varying(layer)
    assert 0 < found.sum() < 40
    assert np.array_equal(found, varies(constant_channels.stage_of(layer, range(40))))
