"""Models whose input comes row by row: random networks and real ones, the rows pushed in several ways; and what misuse gets."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot import artefacts
from aot.bundle import Bundle
from aot.driver import Options, compile, read_main_graph
from aot.errors import CompileError, InternalError
from aot.graph.interpreter import run as interpret
from aot.run import host, run_bundle
from aot.run.callbacks import Callbacks
from aot.samples import golden_samples, random_inputs
from tests.lower.unsigned_networks import SCALE, Network
from tests.one_operator import T, one_operator
from tests.run.poisoned import run_poisoned
from tests.shared import golden, model

SEEDS = range(100) if os.environ.get("AOT_SWEEP") else (*range(6), 9)
"""9: x + convolution(x), where the rows of x lie scattered."""
ALL = 1 << 20
TOO_MANY_OR_FEW = -4


def image(shape: Sequence[int]) -> T:
    return T(shape, "int8", 0.1, 3)


class Images(Network):
    """Networks of int8 layers."""

    def activation(self, shape, zero_point: int | None = None) -> int:
        zero_point = int(self.rng.integers(-128, 128)) if zero_point is None else zero_point
        number = self.m.tensor(f"a{len(self.shapes)}", shape, "int8", scale=SCALE, zero_point=zero_point)
        self.shapes[number], self.zero_points[number] = tuple(shape), zero_point
        return number

    def weights(self, shape) -> int:
        return self.m.constant(self.rng.integers(-127, 128, shape).astype(np.int8), scale=0.01, zero_point=0)

    def layer(self, x: int) -> int:
        _, h, w, channels = self.shapes[x]
        draw = self.rng.integers
        match self.rng.choice(["conv", "conv", "depthwise", "pool", "residual", "join"]):
            case "pool" if min(h, w) >= 4:
                return self.pool(x, self.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"]))
            case "depthwise":
                return self.depthwise(x, int(draw(1, 3)), int(draw(1, 3)))
            case "residual":
                return self.add(x, self.conv(x, channels, (3, 3)))
            case "join" if channels <= 8:
                return self.join(x, self.conv(x, 3, (1, 1)))
        kernel = (int(draw(1, 6)), int(draw(1, 6)))
        padding = self.rng.choice(["SAME", "VALID"]) if min(h - kernel[0], w - kernel[1]) >= 0 else "SAME"
        return self.conv(x, int(draw(1, 9)), kernel, int(draw(1, 4)), padding)


def network(seed: int, kind: type[Network] = Images, whole: bool = False) -> bytes:
    """Some layers, and a dense one behind them; whole: what they make is the output."""
    net = kind(seed)
    draw = net.rng.integers
    x = net.activation((1, int(draw(9, 41)), int(draw(6, 20)), int(net.rng.choice([1, 3, 4]))))
    y = x
    for _ in range(int(draw(2, 6))):
        y = net.layer(y) if isinstance(net, Images) else net.conv(y, 4, (3, 3))
    y = y if whole else net.dense(net.reshape(y, (1, int(np.prod(net.shapes[y])))), 5)
    return net.m.build([x], [y])


def made(path: Path, content: bytes, **options: Any) -> tuple[Bundle, list[np.ndarray], Sequence[np.ndarray]]:
    """The bundle of a model, random inputs and what its outputs must be."""
    path.write_bytes(content)
    given = Options(name="net", stream_input=True, **options)
    bundle = compile(path, options=given)
    inputs = random_inputs(bundle.main, 5)
    return bundle, inputs, interpret(read_main_graph(path, given), inputs)


def same(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for have, want in zip(got, expected, strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("cpu", [None, "cortex-m4", "cortex-m0plus"])
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_in_any_number(seed: int, cpu: str | None, tmp_path: Path) -> None:
    weights = "separate" if seed % 3 == 1 else "embedded"
    options = {"target": cpu, "weights": weights, "io": "workspace" if seed % 2 else "caller"}
    bundle, inputs, expected = made(tmp_path / "net.tflite", network(seed, whole=seed % 4 == 1), **options)
    for push_rows in (1, 3, ALL):
        same(run_bundle(bundle, inputs, push_rows=push_rows).outputs, expected)
    if cpu:
        same(run_poisoned(bundle, inputs), expected)


@pytest.mark.parametrize("cpu", [None, "cortex-m4"])
def test_a_first_layer_that_makes_rows_of_rows_takes_them_itself(cpu: str | None, tmp_path: Path) -> None:
    """uint8 becomes int8 on the way in: no copy of the row but that one."""
    bundle, inputs, expected = made(tmp_path / "net.tflite", network(2, Network), target=cpu)
    same(run_bundle(bundle, inputs, push_rows=2).outputs, expected)
    plan = bundle.main.plan
    assert plan is not None
    rows = [buffer for buffer in plan.schedule.program.buffers if buffer.pushed]
    assert [buffer.name.endswith(".rows") for buffer in rows] == [cpu is None]


def test_the_image_is_not_in_the_workspace(tmp_path: Path) -> None:
    net = Images(1)
    x = net.activation((1, 64, 16, 3))
    y = net.conv(net.conv(x, 4, (3, 3), 2), 4, (3, 3), 2)
    y = net.dense(net.reshape(y, (1, 256)), 5)
    bundle, *_ = made(tmp_path / "net.tflite", net.m.build([x], [y]), target="cortex-m4")
    assert bundle.workspace_nbytes < 64 * 16 * 3 // 2
    plan = bundle.main.plan
    assert plan is not None
    assert all(x.nbytes < 64 * 16 * 3 for x in plan.lifetimes)


class Loaded:
    """A bundle for this machine, its functions called by hand on one workspace."""

    def __init__(self, bundle: Bundle) -> None:
        self.engine = host._load(bundle.object, Callbacks({}).addresses)
        self.begins, self.pushes, self.ends = bundle.main.functions
        self.workspace = np.full(bundle.workspace_nbytes + 8, 0x5A, np.uint8)[: bundle.workspace_nbytes]
        self.output = np.full(bundle.main.outputs[0].shape, 77, bundle.main.outputs[0].dtype.np)

    def begin(self) -> int:
        return self._call(self.begins, self.workspace)

    def push(self, rows: np.ndarray, count: int | None = None, null: bool = False) -> int:
        n = len(rows) if count is None else count
        return self._call(self.pushes, self.workspace, None if null else rows, ctypes.c_uint32(n))

    def end(self) -> int:
        return self._call(self.ends, self.workspace, self.output)

    def refused(self, call, code: int = TOO_MANY_OR_FEW) -> None:
        """A call returns the code, and changes nothing."""
        before = self.workspace.tobytes(), self.output.tobytes()
        assert call() == code
        assert (self.workspace.tobytes(), self.output.tobytes()) == before

    def _call(self, symbol: str, *arguments: np.ndarray | ctypes.c_uint32 | None) -> int:
        types = [ctypes.c_uint32 if isinstance(one, ctypes.c_uint32) else ctypes.c_void_p for one in arguments]
        values = [one.ctypes.data if isinstance(one, np.ndarray) else one for one in arguments]
        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(self.engine.get_function_address(symbol))(*values)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, np.ndarray, np.ndarray]:
    """A bundle, its input's rows, its output."""
    bundle, inputs, expected = made(tmp_path_factory.mktemp("small") / "net.tflite", network(4))
    return bundle, inputs[0][0], expected[0]


def test_any_mix_of_counts(small) -> None:
    bundle, rows, expected = small
    loaded = Loaded(bundle)
    for turn in range(4):
        random = np.random.default_rng(turn)
        assert loaded.begin() == 0
        come = 0
        while come < len(rows):
            n = int(random.integers(0, len(rows) - come + 1))
            chunk = rows[come : come + n].copy()
            assert loaded.push(chunk if n else rows[:1], n) == 0
            chunk[:] = 99  # what has been passed is not read again
            come += n
        assert loaded.end() == 0
        np.testing.assert_array_equal(loaded.output, expected)


def test_misuse_is_refused_and_touches_nothing(small) -> None:
    bundle, rows, expected = small
    loaded = Loaded(bundle)
    loaded.refused(lambda: loaded.push(rows))  # no beginning, whatever the workspace holds
    loaded.refused(loaded.end)
    assert loaded.begin() == 0
    loaded.refused(loaded.end)
    loaded.refused(lambda: loaded.push(rows, len(rows) + 1))
    loaded.refused(lambda: loaded.push(rows, (1 << 32) - 1))
    assert loaded.push(rows[:4]) == 0
    loaded.refused(lambda: loaded.push(rows, len(rows) - 3))
    loaded.refused(lambda: loaded.push(rows, (1 << 32) - 4))
    loaded.refused(lambda: loaded.push(rows, 1, null=True), -1)
    loaded.refused(loaded.end)
    assert loaded.push(rows[4:]) == 0
    loaded.refused(lambda: loaded.push(rows, 1))
    assert loaded.end() == 0
    np.testing.assert_array_equal(loaded.output, expected)
    loaded.refused(loaded.end)
    loaded.refused(lambda: loaded.push(rows, 1))
    loaded.refused(lambda: loaded.push(rows, 0))


def test_a_beginning_starts_anew(small) -> None:
    bundle, rows, expected = small
    loaded = Loaded(bundle)
    for given_up in (3, len(rows)):
        assert loaded.begin() == 0
        assert loaded.push(~rows[:given_up]) == 0
    assert loaded.begin() == 0
    assert loaded.push(rows) == 0
    assert loaded.end() == 0
    np.testing.assert_array_equal(loaded.output, expected)


def test_pointers_are_checked(small) -> None:
    bundle, rows, _ = small
    loaded = Loaded(bundle)
    aligned = loaded.workspace
    loaded.workspace = None  # type: ignore[assignment]
    assert [loaded.begin(), loaded.push(rows), loaded.end()] == [-1, -1, -1]
    loaded.workspace = aligned[1:]
    assert [loaded.begin(), loaded.push(rows), loaded.end()] == [-2, -2, -2]


def test_garbage_in_the_workspace_is_no_beginning(small) -> None:
    """Whatever number the workspace holds: it is that of a step which waits for a row, or refused."""
    bundle, rows, _ = small
    plan = bundle.main.plan
    assert plan is not None
    loaded = Loaded(bundle)
    word = loaded.workspace[plan.offset_of["input.progress"] :][:4].view(np.uint32)
    for number in [*range(len(plan.schedule.steps) + 9), 1 << 16, 1 << 31, (1 << 32) - 1]:
        word[0] = number
        assert loaded.push(rows, len(rows) + 1) == TOO_MANY_OR_FEW


_FIRMWARE = """
#include <stdio.h>
#include "net.h"
static uint32_t workspace[NET_WORKSPACE_SIZE / 4];
int main(void) {
    static int8_t line[NET_ROW_SIZE], out[NET_OUTPUT_0_SIZE];
    int error = net_begin(workspace);
    uint32_t y;
    if (net_end(workspace, out) != NET_ERROR_ROWS) return 2;
    for (y = 0; y < NET_ROWS && !error && fread(line, 1, sizeof line, stdin) == sizeof line; y++)
        error = net_push_rows(workspace, line, 1);
    error = error ? error : net_end(workspace, out);
    return error || fwrite(out, 1, sizeof out, stdout) != sizeof out;
}
"""


def test_a_program_in_c(small, tmp_path: Path) -> None:
    """The header's functions, called as a firmware would."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    bundle, rows, expected = small
    artefacts.write(bundle, tmp_path)
    (tmp_path / "main.c").write_text(_FIRMWARE)
    program = [str(tmp_path / name) for name in ("main", "main.c", "net.o")]
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", *program], check=True)
    done = subprocess.run(program[:1], input=rows.tobytes(), capture_output=True, check=True)
    assert done.stdout == expected.tobytes()


def test_an_image_that_comes_flat(tmp_path: Path) -> None:
    """The model's first layer is a reshape: its rows are pushed."""
    net = Images(3)
    x = net.activation((1, 20 * 9 * 2))
    content = net.m.build([x], [net.conv(net.conv(net.reshape(x, (1, 20, 9, 2)), 4, (3, 3)), 3, (3, 3))])
    bundle, inputs, expected = made(tmp_path / "net.tflite", content, io="workspace")
    assert bundle.main.stream is not None and (bundle.main.stream.rows, bundle.main.stream.row_nbytes) == (20, 18)
    same(run_bundle(bundle, inputs, push_rows=3).outputs, expected)


@pytest.mark.parametrize(
    ("graph", "what"),
    [
        (one_operator("RELU", [image((1, 640))], [image((1, 640))], {}), r"shape \[1, 640\], not \[1, rows, ...\]"),
        (one_operator("RELU", [image((2, 8, 8, 3))], [image((2, 8, 8, 3))], {}), r"shape \[2, 8, 8, 3\]"),
        (one_operator("ADD", [image((1, 8, 8, 3))] * 2, [image((1, 8, 8, 3))], {}), "2 inputs, not one"),
    ],
)
def test_what_has_no_rows_is_refused(graph: bytes, what: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=what):
        made(tmp_path / "net.tflite", graph)


def test_an_image_out_needs_the_workspace(tmp_path: Path) -> None:
    content = one_operator("RELU", [image((1, 40, 8, 3))], [image((1, 40, 8, 3))], {})
    with pytest.raises(CompileError, match="made while rows of the input still come"):
        made(tmp_path / "net.tflite", content)
    bundle, inputs, expected = made(tmp_path / "net.tflite", content, io="workspace")
    same(run_bundle(bundle, inputs, push_rows=7).outputs, expected)


def test_a_library_needs_the_whole_image(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="--stream-input is for --kernels native"):
        made(tmp_path / "net.tflite", network(0), target="cortex-m4", kernels="library")


def test_boards_do_not_push(tmp_path: Path) -> None:
    bundle, inputs, _ = made(tmp_path / "net.tflite", network(0), target="cortex-m4")
    with pytest.raises(CompileError, match="can't be pushed on qemu"):
        run_bundle(bundle, inputs, "qemu")


def test_a_return_code_ends_a_run_in_unicorn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row more than there are."""
    from aot.run import memory

    bundle, inputs, _ = made(tmp_path / "net.tflite", network(0), target="cortex-m4")
    arguments = memory.arguments

    def more(*given):
        regions, calls = arguments(*given)
        return regions, (*calls[:-1], calls[-2], calls[-1])

    monkeypatch.setattr(memory, "arguments", more)
    with pytest.raises(InternalError, match=f"net_push_rows returned {TOO_MANY_OR_FEW}"):
        run_bundle(bundle, inputs)


LIMITS = {"IC": 13_800, "VWW": 12_500, "PD": 11_000}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS if os.environ.get("AOT_SWEEP") else ("IC",))
def test_real_models(name: str) -> None:
    """The workspace holds everything but the rows that are pushed, and the results are the golden ones."""
    bundle = compile(model(name), options=Options(target="cortex-m4", stream_input=True, optimize="ram", io="workspace"))
    path = golden(name)
    with np.load(path) as arrays:
        _, samples = golden_samples(bundle.main, dict(arrays), str(path))
    for push_rows in (1, 3, ALL):
        same(run_bundle(bundle, samples[0].inputs, push_rows=push_rows).outputs, samples[0].outputs)
    assert bundle.workspace_nbytes <= LIMITS[name]
