"""Workspaces in several memories: the same outputs, no region exceeded, weights that are loaded once, pointers that are refused.

Skips where the models are absent.
"""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pytest

import aot
from aot.bundle import Bundle
from aot.run import run_bundle
from aot.samples import differences, golden_samples, random_inputs
from tests.models.callers import Caller
from tests.shared import ROOT, golden, model

DIGITS = ROOT / "bundles" / "digits" / "digits.tflite"

SWEEP = bool(os.environ.get("AOT_SWEEP"))
REGIONS = {"fast": 16 << 10, "slow": 64 << 10}
NARROW = {"KWS": {"fast": 3 << 10, "slow": 4 << 10}, "VWW": {"fast": 8 << 10, "slow": 32 << 10}}
"""Too small for running layer by layer."""


@cache
def compiled(name: str, cpu: str | None, narrow: bool = False, **options: object) -> Bundle:
    sizes = NARROW[name] if narrow else REGIONS
    return aot.compile(model(name), cpu, options=aot.Options(regions=sizes, **options))  # type: ignore[arg-type]


def samples(name: str, bundle: Bundle) -> list:
    with np.load(golden(name)) as archive:
        return golden_samples(bundle.main, {key: archive[key] for key in archive.files}, name)[1]


def check(name: str, bundle: Bundle, runs: int = 2) -> None:
    """Golden outputs, where every byte around a region is a guard, or not there at all."""
    for region, pointer in zip(bundle.main.regions, bundle.main.workspaces, strict=True):
        assert 0 <= region.nbytes <= pointer.nbytes <= region.size_nbytes
    for sample in samples(name, bundle)[:runs]:
        assert differences(sample.outputs, run_bundle(bundle, sample.inputs).outputs) == []


@pytest.mark.parametrize(
    "name,cpu,weights_in",
    [
        *(("KWS", cpu, weights_in) for cpu in (None, "cortex-m4") for weights_in in (None, "fast", "slow")),
        ("KWS", "cortex-m0plus", "slow"),
        *(
            [("VWW", "cortex-m4", "fast"), ("VWW", None, "slow"), ("VWW", "cortex-m4", None), ("KWS", "cortex-m0plus", "fast")]
            if SWEEP
            else []
        ),
    ],
)
def test_outputs_are_the_same(name: str, cpu: str | None, weights_in: str | None) -> None:
    bundle = compiled(name, cpu, weights_in=weights_in, io="caller" if name == "KWS" else "workspace")
    check(name, bundle, 1)
    assert (bundle.load is None) == (weights_in is None)
    if bundle.load is not None:
        region = next(each for each in bundle.main.regions if each.name == weights_in)
        assert bundle.load.loaded.offset >= region.nbytes
        assert bundle.load.loaded.nbytes == len(bundle.load.image) > (-1 if weights_in == "fast" and name == "KWS" else 1000)


def test_outputs_lie_on_inputs() -> None:
    """In a region as in a workspace of its own: all fits the first then, with nothing run by rows."""
    bundle = compiled("KWS", "cortex-m4", io="workspace")
    assert bundle.main.plan and not bundle.main.plan.schedule.by_rows
    fast, slow = bundle.main.plan.regions
    assert fast.nbytes < 9_500 and slow.nbytes == 0


@pytest.mark.parametrize("name,weights", [("KWS", "embedded"), ("VWW", "separate")] if SWEEP else [("KWS", "separate")])
def test_layers_run_by_rows_where_that_is_what_it_takes(name: str, weights: str) -> None:
    bundle = compiled(name, "cortex-m4", True, io="workspace", weights=weights, weights_in="slow")
    assert bundle.main.plan and bundle.main.plan.schedule.by_rows
    check(name, bundle, 1)


def test_the_smallest_workspace_in_regions() -> None:
    bundle = compiled("KWS", "cortex-m4", True, io="workspace", optimize="ram")
    assert bundle.main.plan and bundle.main.plan.schedule.by_rows
    check("KWS", bundle, 1)


@pytest.mark.parametrize("cpu", [None, "cortex-m4"], ids=["host", "m4"])
def test_rows_that_arrive(cpu: str | None) -> None:
    """Where the progress of a run is kept is in a region, too."""
    options = aot.Options(regions={"fast": 600, "slow": 1 << 14}, stream_input=True, weights_in="slow", weights="separate")
    bundle, plain = aot.compile(DIGITS, cpu, options=options), aot.compile(DIGITS)
    inputs = random_inputs(plain.main, 1)
    assert bundle.main.stream and bundle.main.plan and all(region.nbytes for region in bundle.main.regions)
    for rows in (1, 3, bundle.main.stream.rows):
        assert differences(run_bundle(plain, inputs).outputs, run_bundle(bundle, inputs, push_rows=rows).outputs) == []


@pytest.mark.parametrize("cpu", [None, "cortex-m4"], ids=["host", "m4"])
def test_weights_stay_from_run_to_run(cpu: str | None) -> None:
    """Loaded once; what else is in the regions is garbage before each run, and what is around them is untouched."""
    bundle = compiled("KWS", cpu, weights_in="slow", io="workspace")
    caller, rng = Caller(bundle), np.random.default_rng(1)
    caller.load()
    caller.check()
    for sample in samples("KWS", bundle)[:3]:
        caller.poison(rng)
        assert differences(sample.outputs, caller.run(bundle.main, sample.inputs)) == []
        caller.check()
    assert bundle.load
    held = caller.memory.read(caller.spaces["slow"] + bundle.load.loaded.offset, bundle.load.loaded.nbytes)
    assert held == bundle.load.image


@pytest.mark.parametrize("cpu", [None, "cortex-m4"], ids=["host", "m4"])
def test_pointers_are_checked_before_anything_is_touched(cpu: str | None) -> None:
    bundle = compiled("KWS", cpu, True, weights_in="slow", io="workspace")
    caller = Caller(bundle)
    assert bundle.load
    fast, slow = caller.spaces["fast"], caller.spaces["slow"]
    calls = [(bundle.load.symbol, [0], -1), (bundle.load.symbol, [slow + 4], -2)]
    calls += [(bundle.main.symbol, [fast, 0], -1), (bundle.main.symbol, [0, slow], -1)]
    calls += [(bundle.main.symbol, [fast + 2, slow], -2), (bundle.main.symbol, [fast, slow + 4], -2)]
    for symbol, arguments, code in calls:
        assert np.int32(np.uint32(caller.memory.call(symbol, arguments) & 0xFFFFFFFF)) == code
    for pointer in bundle.shared:
        assert set(caller.memory.read(caller.spaces[pointer.name], pointer.nbytes)) == {0xA5}


@pytest.mark.parametrize("name", ["AD"])
def test_two_models_share_regions(name: str) -> None:
    """Weights of both are loaded behind what either needs."""
    options = aot.Options(regions=REGIONS, weights_in="slow", share_workspace=True, io="workspace", name="both")
    bundle = aot.compile([model("KWS"), model(name)], "cortex-m4", options=options)
    caller, rng = Caller(bundle), np.random.default_rng(2)
    caller.load()
    for part, which in zip(bundle.models, ("KWS", name), strict=True):
        for sample in samples(which, part)[:2]:
            caller.poison(rng)
            assert differences(sample.outputs, caller.run(part.main, sample.inputs)) == []
    caller.check()


@pytest.mark.parametrize("cpu", [None, "cortex-m4"], ids=["host", "m4"])
def test_weights_come_in_pages(cpu: str | None) -> None:
    """A page is a buffer like any other, in whichever region there is room for it."""
    bundle = compiled("KWS", cpu, io="workspace", page_weights_nbytes=8 << 10)
    assert bundle.main.paging and len(bundle.main.regions) == 2
    check("KWS", bundle, 1)
    with pytest.raises(aot.CompileError, match="so that --weights-in has nothing to copy"):
        compiled("KWS", cpu, page_weights_nbytes=8 << 10, weights_in="slow")


def test_no_region_changes_nothing() -> None:
    options = aot.Options(io="workspace")
    plain, empty = (
        aot.compile(model("KWS"), "cortex-m4", options=each) for each in (options, aot.Options(io="workspace", regions={}))
    )
    assert plain.object == empty.object and plain.main.regions == () and plain.load is None


@pytest.mark.parametrize(
    "sizes,options,text",
    [
        (
            {"fast": 128, "slow": 64},
            {},
            r"not everything fits the regions: \w+ has \d+ bytes, and would have to hold \d+ \(most is needed",
        ),
        ({"fast": 0}, {}, "a region has one byte or more"),
        ({"my fast": 1}, {}, "can't be the name of a parameter in C"),
        ({"int": 1}, {}, "can't be the name of a parameter in C"),
        ({"workspace": 1}, {}, "can't be the name of a parameter in C"),
        ({"input_0": 1}, {}, "the header has other macros of this name"),
        ({"Error": 1}, {}, "the header has other macros of this name"),
        ({"NULL": 1}, {}, "can't be the name of a parameter in C"),
        ({"Fast": 1, "fast": 1}, {}, "another region has this name, capitals apart"),
        (REGIONS, {"weights_in": "fats"}, "unknown region 'fats' .did you mean fast"),
        ({}, {"weights_in": "fast"}, "--weights-in fast needs regions"),
    ],
)
def test_refusals(sizes: dict[str, int], options: dict[str, object], text: str) -> None:
    with pytest.raises(aot.CompileError, match=text):
        aot.compile(DIGITS, "cortex-m4", options=aot.Options(regions=sizes, **options))  # type: ignore[arg-type]


def test_models_without_a_region_in_common_load_nothing() -> None:
    with pytest.raises(aot.CompileError, match="--weights-in is for one model, or for several that share their regions"):
        aot.compile([model("KWS"), model("AD")], "cortex-m4", options=aot.Options(regions=REGIONS, weights_in="slow"))
