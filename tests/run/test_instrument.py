"""What instrumented entries tell while they run: counters filled, layers named before and after, outputs the same."""

from __future__ import annotations

import os
import shutil
from functools import cache

import numpy as np
import pytest

import aot
from aot.bundle import Bundle
from aot.errors import InternalError
from aot.run import RunResult, run_bundle
from aot.run.observer import OBSERVER, Observer
from aot.samples import random_inputs
from tests.shared import ROOT

MODEL = ROOT / "bundles" / "digits" / "digits.tflite"
WAYS: dict[str, dict[str, object]] = {
    "by rows": {"optimize": "ram"},
    "row by row": {"stream_input": True},
    "in regions": {"regions": {"fast": 1024, "slow": 65536}},
}
if os.environ.get("AOT_SWEEP"):
    WAYS |= {"whole": {"optimize": "speed"}, "weights apart": {"weights": "separate", "io": "workspace"}}


def compiled(cpu: str | None = "cortex-m4", **options: object) -> Bundle:
    return aot.compile(MODEL, options=aot.Options(target=cpu, **options))  # type: ignore[arg-type]


def ran(bundle: Bundle, where: str = "auto") -> RunResult:
    return run_bundle(bundle, random_inputs(bundle.main, 3), where)


@cache
def expected() -> RunResult:
    """What a bundle without instrumentation computes."""
    return ran(compiled(None))


def same_outputs(result: RunResult) -> None:
    for a, b in zip(expected().outputs, result.outputs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("way", WAYS)
def test_each_layers_instructions_are_counted(way: str) -> None:
    """Unicorn's counter goes past zero in the run, and counts instructions: each layer's, and a few for each of its steps."""
    made = compiled(instrument="cycles", **WAYS[way])
    result = ran(made)
    same_outputs(result)
    assert result.cycles is not None and result.per_layer is not None and made.main.plan is not None
    steps = [step.position for step in made.main.plan.schedule.kernel_steps]
    exact = dict(result.per_layer)
    for layer, position, counted in zip(made.main.layers, made.main.plan.schedule.kernel_positions, result.cycles, strict=True):
        assert exact[layer.symbol] < counted <= exact[layer.symbol] + 60 * steps.count(position)


@pytest.mark.parametrize("cpu", ["cortex-m3", "cortex-m7", "cortex-m33"])
def test_other_cores_with_the_unit(cpu: str) -> None:
    result = ran(compiled(cpu, instrument="cycles"))
    assert result.cycles is not None and min(result.cycles) > 0 and sum(result.cycles) < (result.instructions or 0)


def test_a_timer_instead_of_the_unit() -> None:
    result = ran(compiled("cortex-m0", instrument="cycles", cycle_counter=0x40000024))
    assert result.cycles is not None and min(result.cycles) > 0 and sum(result.cycles) < (result.instructions or 0)


def test_a_board_without_the_unit_leaves_zeros() -> None:
    """QEMU models no DWT unit: its registers read as zero. Counters that held garbage are zero then."""
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("needs qemu-system-arm")
    result = ran(compiled(instrument="cycles"), "qemu")
    assert result.cycles is not None and set(result.cycles) == {0}


@pytest.mark.parametrize("where", ["host", "unicorn"])
@pytest.mark.parametrize("way", WAYS)
def test_layers_are_told_in_the_order_of_their_steps(way: str, where: str) -> None:
    made = compiled(None if where == "host" else "cortex-m4", instrument="hooks", **WAYS[way])
    result = ran(made, where)
    same_outputs(result)
    assert made.main.plan is not None
    schedule = made.main.plan.schedule
    numbers = {position: layer for layer, position in enumerate(schedule.kernel_positions)}
    steps = [numbers[step.position] for step in schedule.kernel_steps]
    assert result.told == tuple((layer, before) for layer in steps for before in (True, False))


def test_layers_in_parts_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from aot.lower import parts

    monkeypatch.setattr(parts, "LEAST_WORK", 1000)
    made = compiled(None, instrument="hooks", threads=3)
    assert any(layer.parts > 1 for layer in made.main.layers)
    assert ran(made).told == tuple((layer, before) for layer in range(len(made.main.layers)) for before in (True, False))


def test_a_function_that_is_null_is_not_called() -> None:
    """QEMU's boards pass null."""
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("needs qemu-system-arm")
    made = compiled(instrument="hooks")
    same_outputs(ran(made, "qemu"))


@pytest.mark.parametrize(
    "calls", [[(0, 0)], [(0, 1), (1, 1)], [(0, 1), (1, 0)], [(9, 1)], [(-1, 1)], [(0, 2)], [(0, 1), (0, 0), (0, 0)]]
)
def test_an_order_that_can_not_be(calls: list[tuple[int, int]]) -> None:
    observer = Observer(compiled(None, optimize="speed").main)
    with pytest.raises(InternalError, match="on_layer"):
        for layer, before in calls:
            observer.tell(OBSERVER, layer, before)


def test_a_layer_without_end() -> None:
    observer = Observer(compiled(None, optimize="speed").main)
    observer.tell(OBSERVER, 0, 1)
    with pytest.raises(InternalError, match="was not called after layer 0"):
        observer.check()
