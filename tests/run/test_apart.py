"""Layers in parts: no part touches what another writes; every order, and every number of threads, leaves the same bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from aot.driver import Options, compile, compile_model, resolve_target
from aot.errors import InternalError
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_model
from aot.lower import parts
from aot.run import run_bundle
from aot.run.workers import POOL, Workers
from aot.samples import random_inputs
from tests.differential.images import image_net
from tests.run.apart import Apart, run_apart
from tests.shared import FIVE, FLOAT, model

SWEEP = bool(os.environ.get("AOT_SWEEP"))
SEEDS = range(400) if SWEEP else range(8)
MODELS = (*FIVE, *FLOAT) if SWEEP else ("KWS",)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_nets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a layer is: its parts are apart, and outputs are those of one thread."""
    monkeypatch.setattr(parts, "LEAST_WORK", 1)
    random, net = Random(seed), image_net(seed)
    read, inputs = read_model(net.build(), "case.tflite", OPERATORS), net.arrays()
    options = Options(io=random.choice(("caller", "workspace")), optimize=random.choice(("balanced", "speed")))
    plain = Options(io=options.io, optimize=options.optimize)
    threads = Options(io=options.io, optimize=options.optimize, threads=random.choice((2, 3, 4, 7)))
    expected, bundle = (compile_model(read, *resolve_target(each), each, lambda stage, result: None) for each in (plain, threads))
    outputs, calls = run_apart(bundle, inputs)
    assert calls == sum(layer.parts > 1 for layer in bundle.main.layers)
    for want, *got in zip(run_bundle(expected, inputs).outputs, outputs, run_bundle(bundle, inputs).outputs, strict=True):
        for each in got:
            assert each.tobytes() == want.tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_real_models(name: str) -> None:
    plain, bundle = (compile(model(name), options=Options(threads=threads)) for threads in (1, 3))
    inputs = random_inputs(plain.main, 7)
    outputs, calls = run_apart(bundle, inputs)
    assert calls == sum(layer.parts > 1 for layer in bundle.main.layers)
    for want, got in zip(run_bundle(plain, inputs).outputs, outputs, strict=True):
        assert got.tobytes() == want.tobytes()


def _run(work: Callable[[np.ndarray, int], None]) -> np.ndarray:
    """Memory of 8 bytes after three parts that do this to it."""
    memory = np.arange(8, dtype=np.uint8)
    Apart([memory[:3], memory[3:]]).run(3, lambda _, part: work(memory, part), 0)
    return memory


def test_parts_that_are_apart() -> None:
    def work(memory: np.ndarray, part: int) -> None:
        memory[part] = memory[6] + memory[part]

    assert _run(work).tolist() == [6, 7, 8, 3, 4, 5, 6, 7]


def test_parts_that_write_the_same_byte() -> None:
    def work(memory: np.ndarray, part: int) -> None:
        memory[part : part + 2] = 9

    with pytest.raises(AssertionError, match="parts 0 and 1 of layer 1 write the same 1 bytes"):
        _run(work)


@pytest.mark.parametrize("towards", [1, -1])
def test_a_part_that_reads_what_another_writes(towards: int) -> None:
    def work(memory: np.ndarray, part: int) -> None:
        memory[part] = memory[(part + towards) % 3] ^ 50

    with pytest.raises(AssertionError, match="part 0 of layer 1 reads what another part writes"):
        _run(work)


@pytest.mark.parametrize("threads", [False, True])
def test_workers(threads: bool) -> None:
    """Each part runs once, on one thread in an order drawn at random or on several."""
    workers, seen = Workers(9, threads), []
    workers.run(POOL, 9, lambda argument, part: seen.append((argument, part)), 5)
    assert sorted(seen) == [(5, part) for part in range(9)]
    assert threads or seen != sorted(seen)


@pytest.mark.parametrize(("pool", "parts"), [(POOL, 5), (POOL, 1), (0, 2)])
def test_a_call_that_no_entry_may_make(pool: int, parts: int) -> None:
    with pytest.raises(InternalError, match=rf"parallel_for is called for {parts} parts, of at most 4, with pool {pool:#x}"):
        Workers(4, False).run(pool, parts, lambda argument, part: None, 0)
