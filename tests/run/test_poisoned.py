"""Streamed models touch nothing but live rows: the emulated workspace forgets everything else before each step."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

import numpy as np
import pytest

from aot.bundle import Bundle
from aot.driver import Options, compile
from aot.lower.execute import execute_all
from aot.run import run_bundle
from aot.target import load_target
from tests.llvm import compiled
from tests.llvm.scattered import scattered_plan, streamed_plan
from tests.llvm.test_runs import network
from tests.lower.toy import random_inputs
from tests.run.poisoned import run_poisoned
from tests.shared import MODELS

M4 = load_target("cortex-m4")
NETWORKS = [MODELS / "mlperf_tiny" / f"{name}.tflite" for name in ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")]
RUNS = list(itertools.product(NETWORKS, ("caller", "workspace")))
if not os.environ.get("AOT_SWEEP"):
    RUNS = [(NETWORKS[0], "caller"), (NETWORKS[1], "workspace")]


@pytest.mark.parametrize("io", ["caller", "workspace"])
@pytest.mark.parametrize("plans", ["random", "streamed"])
def test_network(plans: str, io, monkeypatch: pytest.MonkeyPatch) -> None:
    program = network(12)
    plan = scattered_plan(program, M4, 5, io) if plans == "random" else streamed_plan(program, M4, io)
    bundle = bundle_of(program, plan, io, monkeypatch)
    inputs = random_inputs(program)
    values = execute_all(program, inputs)
    for name, have in zip(program.outputs, run_poisoned(bundle, list(inputs.values()), values), strict=True):
        np.testing.assert_array_equal(have, values[name])


def bundle_of(program, plan, io, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "plan_of", lambda *_: plan)
        return compiled.bundle_of(program, M4, io)


def test_a_row_in_the_place_of_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    program = network(12)
    plan = scattered_plan(program, M4, 5)
    (name, offsets), *others = plan.rows
    wrong = (name, (offsets[1], *offsets[1:]))
    bundle = bundle_of(program, replace(plan, rows=(wrong, *others)), "caller", monkeypatch)
    inputs = random_inputs(program)
    with pytest.raises(AssertionError, match="row"):
        run_poisoned(bundle, list(inputs.values()), execute_all(program, inputs))


@pytest.mark.slow
@pytest.mark.parametrize(("path", "io"), RUNS, ids=lambda one: getattr(one, "stem", one))
def test_real_networks(path, io) -> None:
    if not path.exists():
        pytest.skip("the real models are not beside the repository")
    bundles = [compile(path, options=Options(target=M4, io=io, optimize=goal)) for goal in ("balanced", "ram")]
    ports = bundles[0].main.inputs
    inputs = [np.random.default_rng(6).integers(-128, 128, port.shape).astype(port.dtype.np) for port in ports]
    for have, want in zip(run_poisoned(bundles[1], inputs), run_bundle(bundles[0], inputs).outputs, strict=True):
        np.testing.assert_array_equal(have, want)
