"""Instructions of models and layers against bench/results.json: a rise of more than 2 % fails; a fall asks for `make bench`.

By default a sample; AOT_SWEEP=1 counts all models on all CPUs in all modes, and all layers.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping

import pytest

from aot.errors import InternalError
from aot.lower.tradeoff import Optimize
from aot.target import load_target
from bench.application import CORES, MODELS
from bench.layers import LAYERS, cmsis_nn_instructions, our_instructions
from bench.measure import CPUS, MODES, model_figures
from bench.page import page
from bench.results import Change, Results, change, load, load_baselines
from tests.cmsis_nn_sources import require_cmsis_nn
from tests.shared import FIVE, model

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

AGAIN = "run `make bench` (or a part: python -m bench --cpu CPU --model MODEL) and commit bench/results.json and docs/benchmarks.*"
OTHERS = tuple(cpu for cpu in CPUS if cpu != "cortex-m4")
SWEEP = bool(os.environ.get("AOT_SWEEP"))
SAMPLE: tuple[tuple[str, str, Optimize], ...] = (
    *((name, "cortex-m4", "balanced") for name in FIVE),
    *(("KWS", cpu, "balanced") for cpu in OTHERS),
    *(("AD", cpu, mode) for cpu in ("cortex-m0plus", "cortex-m4") for mode in MODES if mode != "balanced"),
)
CASES = tuple((name, cpu, mode) for name in FIVE for cpu in CPUS for mode in MODES) if SWEEP else SAMPLE
SINGLE = tuple(
    (index, cpu)
    for index in (range(len(LAYERS)) if SWEEP else (5, 6, 12, 15))
    for cpu in (CPUS if SWEEP else ("cortex-m0plus", "cortex-m3", "cortex-m4"))
)


@pytest.fixture(scope="module")
def results() -> Results:
    return load()


def check(committed: Change | None) -> None:
    if committed is None:
        pytest.fail(f"nothing was committed for this: {AGAIN}")
    assert not committed.rises, f"{committed}; where that is meant, {AGAIN}"
    if committed.falls:
        warnings.warn(f"{committed}: {AGAIN}", stacklevel=2)


def needs_emulator(cpu: str) -> None:
    if cpu == "cortex-m55" and shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")


@pytest.mark.parametrize(("name", "cpu", "mode"), CASES)
def test_models(results: Results, name: str, cpu: str, mode: Optimize) -> None:
    model(name)
    needs_emulator(cpu)
    before: Mapping[str, int] | None = results["models"].get(name, {}).get(cpu, {}).get(mode)
    check(change(f"{name}, {cpu}, {mode}", before, model_figures(name, cpu, [mode])[mode]))


@pytest.mark.parametrize(
    ("name", "cpu"), [(name, cpu) for name in MODELS for cpu in CORES if SWEEP or (name == "KWS" and cpu != "cortex-a9")]
)
def test_application_cores(results: Results, name: str, cpu: str) -> None:
    model(MODELS[name])
    program = str(load_target(cpu).run["qemu"]["program"])
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    pytest.importorskip("ziglang", reason="ziglang, which links the process, is not installed")
    before = results["application"].get(name, {}).get(cpu, {}).get("speed")
    check(change(f"{name}, {cpu}, speed", before, model_figures(MODELS[name], cpu, ["speed"])["speed"]))


@pytest.mark.parametrize(("index", "cpu"), SINGLE)
def test_layers(results: Results, index: int, cpu: str) -> None:
    needs_emulator(cpu)
    layer = LAYERS[index]
    before = results["layers"].get(layer.name, {}).get(cpu, {}).get("balanced")
    check(change(f"{layer.name}, {cpu}", before, our_instructions(layer, cpu, ["balanced"])[0]["balanced"]))


@pytest.mark.parametrize(("index", "cpu"), [(4, "cortex-m4"), (9, "cortex-m55"), (12, "cortex-m0plus"), (16, "cortex-m33")])
def test_cmsis_nn_computes_the_same(index: int, cpu: str) -> None:
    """A convolution of one pixel, one of a large window with strides, a depthwise one with strides, a dense layer."""
    needs_emulator(cpu)
    require_cmsis_nn(load_target(cpu))
    layer = LAYERS[index]
    _, output = our_instructions(layer, cpu, ["balanced"])
    assert len(set(output.reshape(-1).tolist())) > 40 and cmsis_nn_instructions(layer, cpu, output) > layer.macs / 8
    with pytest.raises(InternalError, match="CMSIS-NN computes other bytes"):
        cmsis_nn_instructions(layer, cpu, output ^ 1)


@pytest.mark.parametrize(
    ("now", "outcome"), [(1000, None), (1020, None), (1021, pytest.fail.Exception), (980, None), (979, UserWarning)]
)
def test_two_percent(now: int, outcome: type[BaseException] | None) -> None:
    def judged(call: Callable[[], None]) -> type[BaseException] | None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                call()
            except AssertionError:
                return pytest.fail.Exception
            except UserWarning as warning:
                assert "make bench" in str(warning)
                return UserWarning
        return None

    assert judged(lambda: check(change("a model", {"instructions": 1000}, {"instructions": now}))) is outcome


def test_page_is_made_of_the_results() -> None:
    from bench.page import PAGE

    assert PAGE.read_text() == page(load(), load_baselines()), "`make bench`, or `python -m bench --page`, writes it again"
