"""Layers whose output is their sums, on Helium: every byte, on an emulated board; and networks in which they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.board import count, needs_board
from tests.backends.contracts import Case, inputs_of
from tests.backends.test_dsp_kernels import CHANNELS, KERNELS, NUMBERS, WINDOWS, numbers, windowed
from tests.backends.test_endings import MODELS, compiled, sums_of
from tests.backends.test_helium_kernels import M55, check, geometry_of, helium_of
from tests.graph.lowered import sweep
from tests.graph.running import runs_agree
from tests.graph.test_ops_lstm import lstm
from tests.graph.test_ops_lstm import runs_of as lstm_runs


@pytest.mark.parametrize("part", range(2))
def test_convolutions(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": (*CHANNELS, 64), "channels": CHANNELS}
    cases = [
        windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        for number, choice in enumerate(sweep(15, part, **choices))
    ]
    check([sums_of(case) for case in cases], splits=part == 1)


def test_dense() -> None:
    choices = {**NUMBERS, "rows": (1, 1, 2, 3, 5, 8), "depth": (*CHANNELS, 64, 100, 640), "channels": CHANNELS}
    cases = [
        Case(
            "dense", (choice["rows"], 1, 1, choice["depth"]), choice["channels"], seed=number, **numbers(choice, choice["channels"])
        )
        for number, choice in enumerate(sweep(15, 9, **choices))
    ]
    check([sums_of(case) for case in cases])


@pytest.mark.parametrize("name", MODELS)
def test_all_layers_have_a_kernel(name: str) -> None:
    layers = [layer for layer in compiled(MODELS[name], "cortex-m55").main.layers if layer.macs]
    generic = [layer.operators for layer in layers if layer.kernel.startswith("generic")]
    assert len(generic) < len(layers) and generic == ([("SVDF",)] if name == "svdf" else [])


def test_networks_with_a_state() -> None:
    needs_board()
    for batch, depth, units in ((1, 4, 5), (2, 17, 8)):
        model = lstm(batch, 3, depth, units, seed=units)
        runs_agree(model, lstm_runs(model), cpu="cortex-m55", oracle=None)


def test_cost() -> None:
    program = sums_of(replace(Case("dense", (4, 1, 1, 64), 64), seed=1))
    answer = helium_of(program)
    assert answer is not None and answer.cost is not None
    counted = count(program, M55, inputs_of(program))
    assert counted / geometry_of(program).macs <= 0.2
    assert 0.9 < answer.cost.instructions / counted < 1.1
