"""Compiled models with state: NAME_init, instances by state blocks, runs that go on from each other; on this machine and in emulators."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.bundle import Bundle
from aot.graph.interpreter import run
from aot.graph.ops import OPERATORS
from aot.graph.tflite import read_file
from aot.run import initial_state, run_bundle
from tests.graph.stateful import Sub, accumulator, initialiser, model

Q = {"scale": 0.5, "zero_point": 3}
CPUS = (None, "cortex-m4", "cortex-m0plus")


def everything() -> bytes:
    """An accumulator, a sliding window of int8, and a loop that changes a variable; all with contents of their own at first."""

    def main(s: Sub):
        s.call_once(1)
        (x,), (total,) = accumulator(s)
        new, window = s.value((1, 2, 3), "int8", **Q), s.read(s.value((1, 5, 3), "int8", **Q), "window")
        both = s.node("CONCATENATION", [window, new], s.value((1, 7, 3), "int8", **Q), {"axis": 1})
        begin, size = s.constant([0, 2, 0], "int32"), s.constant([1, 5, 3], "int32")
        s.assign(s.node("SLICE", [both, begin, size], s.value((1, 5, 3), "int8", **Q)), "window")
        i, j = s.value((), "int32"), s.value((), "int32")
        s.loop([i], [j], 2, 3)
        return [x, new, i], [total, s.node("RELU", [both], s.like(both)), j, s.read(s.value((3,), "int32"), "counts")]

    def first(s: Sub):
        initialiser(1, 2, 3, 4)(s)
        s.assign(s.constant(np.arange(15).reshape(1, 5, 3), "int8", **Q), "window")
        s.assign(s.constant([7, 0, -7], "int32"), "counts")
        return [], []

    def condition(s: Sub):
        i = s.value((), "int32")
        return [i], [s.node("LESS", [i, s.constant(4, "int32")], s.value((), "bool"))]

    def body(s: Sub):
        i, counts = s.value((), "int32"), s.read(s.value((3,), "int32"), "counts")
        s.assign(s.add(counts, s.constant([1, 2, 3], "int32")), "counts")
        return [i], [s.add(i, s.constant(1, "int32"))]

    return model(main, first, condition, body)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("state") / "keeper.tflite"
    found.write_bytes(everything())
    return found


def samples(seed: int, count: int = 4) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        [
            rng.integers(-9, 9, (1, 4)).astype(np.float32),
            rng.integers(-128, 128, (1, 2, 3)).astype(np.int8),
            np.array(rng.integers(0, 6), np.int32),
        ]
        for _ in range(count)
    ]


def expected(path: Path, runs: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    graph, state = read_file(path, OPERATORS).main, {}
    return [run(graph, inputs, state) for inputs in runs]


def same(outputs, wanted) -> None:
    for a, b in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def check_instances(bundle: Bundle, path: Path, where: str = "auto") -> None:
    """Two instances, their runs interleaved; then one starts anew."""
    runs = [samples(1), samples(2)]
    wanted = [expected(path, each) for each in runs]
    states = [initial_state(bundle, where)] * 2
    for number in range(len(runs[0])):
        for instance in (0, 1):
            result = run_bundle(bundle, runs[instance][number], where, state=states[instance])
            same(result.outputs, wanted[instance][number])
            assert result.state is not None
            states[instance] = result.state
    assert states[0] != states[1]
    same(run_bundle(bundle, runs[1][0], where).outputs, wanted[1][0])
    same(run_bundle(bundle, runs[1][0], where, state=initial_state(bundle, where)).outputs, wanted[1][0])


@pytest.mark.parametrize("io", ["caller", "workspace"])
@pytest.mark.parametrize("weights", ["embedded", "separate"])
@pytest.mark.parametrize("cpu", CPUS)
def test_instances(path: Path, cpu: str | None, weights: str, io: str) -> None:
    bundle = aot.compile(path, cpu, options=aot.Options(weights=weights, io=io))  # type: ignore[arg-type]
    assert bundle.init is not None and bundle.init.symbol == "keeper_init"
    assert bundle.state_nbytes == 16 + 24 + 12, "the window holds what it was joined with: 7 rows, in whole words"
    check_instances(bundle, path)


def test_instances_on_a_core_with_helium(path: Path) -> None:
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    check_instances(aot.compile(path, "cortex-m55"), path, "qemu")


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("inplace", [True, False])
def test_without_passes(path: Path, fuse: bool, inplace: bool) -> None:
    check_instances(aot.compile(path, options=aot.Options(fuse=fuse, inplace=inplace)), path)


def test_every_layer_can_be_shown(path: Path) -> None:
    bundle = aot.compile(path, options=aot.Options(expose=True))
    assert len(bundle.main.outputs) >= 4
    runs, state = samples(3), None
    for inputs, wanted in zip(runs, expected(path, runs), strict=True):
        result = run_bundle(bundle, inputs, state=state)
        state = result.state
        same(result.outputs[:4], wanted)


def test_what_init_writes(path: Path) -> None:
    for cpu in CPUS:
        state = initial_state(aot.compile(path, cpu))
        held = np.frombuffer(state, np.uint8)
        np.testing.assert_array_equal(held[:16].view(np.float32), [1, 2, 3, 4])
        assert held[40:].view(np.int32).tolist() == [7, 0, -7]


@pytest.mark.parametrize("state", [b"", b"\0" * 51, b"\0" * 56], ids=len)
def test_a_state_of_another_size(path: Path, state: bytes) -> None:
    with pytest.raises(aot.CompileError, match=f"the state given has {len(state)} bytes, that of keeper has 52"):
        run_bundle(aot.compile(path), samples(0)[0], state=state)


def test_the_same_file_gives_the_same_object(path: Path) -> None:
    assert aot.compile(path, "cortex-m4").object == aot.compile(path, "cortex-m4").object
