"""Models whose weights come in pages: random networks and real ones, in windows of several sizes; and a read that fails."""

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
from aot.run.reader import C_READ, Reader
from aot.samples import differences, golden_samples, random_inputs
from tests.graph.stateful import Sub, accumulator, initialiser
from tests.graph.stateful import model as model_with_state
from tests.lower.unsigned_networks import small_network
from tests.models.test_several import images
from tests.models.test_stream_input import network, same
from tests.one_operator import conv2d, fully_connected
from tests.run.objects import needs_qemu
from tests.run.poisoned import run_poisoned
from tests.shared import golden, model

SWEEP = bool(os.environ.get("AOT_SWEEP"))
NETWORKS = [(seed, None) for seed in range(3)] + [(seed, "cortex-m4") for seed in range(3)] + [(3, "cortex-m0plus")]
if SWEEP:
    NETWORKS = [(seed, cpu) for seed in range(60) for cpu in (None, "cortex-m4", "cortex-m0plus")]
READ_FAILED = -5


def made(path: Path, content: bytes, window: int, **options: Any) -> tuple[Bundle, list[np.ndarray], Sequence[np.ndarray]]:
    """The bundle of a model, random inputs and what its outputs must be."""
    path.write_bytes(content)
    given = Options(name="net", page_weights_nbytes=window, **options)
    bundle = compile(path, options=given)
    inputs = random_inputs(bundle.main, 5)
    return bundle, inputs, interpret(read_main_graph(path, given), inputs)


def least_window(path: Path, content: bytes, **options: Any) -> int:
    """The least window that the refusal names."""
    with pytest.raises(CompileError) as refusal:
        made(path, content, 4, **options)
    return int(refusal.value.hint.split()[1])


@pytest.mark.parametrize(("seed", "cpu"), NETWORKS)
def test_random_networks(seed: int, cpu: str | None, tmp_path: Path) -> None:
    content = small_network(seed) if seed % 3 == 1 else network(seed)
    options = {"target": cpu, "io": "workspace" if seed % 2 else "caller", "optimize": ("balanced", "ram", "size")[seed % 3]}
    path = tmp_path / "net.tflite"
    least = least_window(path, content, **options)
    windows = (least, 3 * least)
    for window in windows if SWEEP else windows[(seed + bool(cpu)) % 2 :][:1]:
        bundle, inputs, expected = made(path, content, window, **options)
        result, paging = run_bundle(bundle, inputs), bundle.main.paging
        same(result.outputs, expected)
        assert paging is not None and bundle.pages is not None
        assert (result.read_nbytes, paging.window_nbytes) == (paging.read_nbytes, window)
        assert 0 < len(bundle.pages) <= paging.read_nbytes and paging.calls > paging.pages > 2
        if cpu:
            same(run_poisoned(bundle, inputs), expected)


@pytest.mark.parametrize(("seed", "cpu"), [(0, None), (1, None), (1, "cortex-m4"), (2, "cortex-m4")])
def test_rows_that_are_pushed(seed: int, cpu: str | None, tmp_path: Path) -> None:
    """Pages that were asked for in one call may be needed in the next."""
    options = {"target": cpu, "stream_input": True, "io": "workspace" if seed % 2 else "caller"}
    bundle, inputs, expected = made(tmp_path / "net.tflite", network(seed), 4096, **options)
    for push_rows in (1, 3, 1 << 20):
        result = run_bundle(bundle, inputs, push_rows=push_rows)
        same(result.outputs, expected)
        assert bundle.main.paging is not None and result.read_nbytes == bundle.main.paging.read_nbytes
    if cpu:
        same(run_poisoned(bundle, inputs), expected)


@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m55"])
def test_boards_read_pages_as_well(cpu: str, tmp_path: Path) -> None:
    needs_qemu()
    bundle, inputs, expected = made(tmp_path / "net.tflite", network(1), 2048, target=cpu)
    result = run_bundle(bundle, inputs, "qemu")
    same(result.outputs, expected)
    assert bundle.main.paging is not None and result.read_nbytes == bundle.main.paging.read_nbytes
    if cpu == "cortex-m4":
        other = run_bundle(bundle, inputs, "unicorn")
        assert result.instructions is not None and other.instructions is not None
        assert abs(result.instructions - other.instructions) <= 4 and result.stack_nbytes == other.stack_nbytes


CASES = [("VWW", "cortex-m4", {}), ("VWW", "cortex-m4", {"optimize": "ram", "io": "workspace"}), ("AD", "cortex-m4", {})]
CASES += [(name, None, {}) for name in ("KWS", "AD")]
if SWEEP:
    CASES += [(name, None, {}) for name in ("VWW", "PD")]
    CASES += [
        (name, cpu, {"optimize": "ram"}) for name in ("VWW", "KWS", "AD", "PD", "IC") for cpu in ("cortex-m4", "cortex-m0plus")
    ]


@pytest.mark.parametrize(("name", "cpu", "options"), CASES)
def test_real_models_in_a_window_of_16_kib(name: str, cpu: str | None, options: dict[str, Any]) -> None:
    bundle = compile(model(name), options=Options(cpu, page_weights_nbytes=16 << 10, **options))
    with np.load(golden(name), allow_pickle=False) as arrays:
        _, samples = golden_samples(bundle.main, dict(arrays), name)
    for sample in samples[: 1 if cpu else 3]:
        result = run_bundle(bundle, sample.inputs)
        assert differences(sample.outputs, result.outputs) == []
        assert bundle.main.paging is not None and result.read_nbytes == bundle.main.paging.read_nbytes


@pytest.mark.parametrize("cpu", [None, "cortex-m4"])
def test_several_models_read_one_file(cpu: str | None, tmp_path: Path) -> None:
    """Layers that are the same in both have the same pages, which are there once."""
    paths = [tmp_path / "small.tflite", tmp_path / "large.tflite"]
    for path, size in zip(paths, (8, 12), strict=True):
        path.write_bytes(images(size, 4))
    bundle = compile(paths, options=Options(cpu, name="both", share_workspace=True, page_weights_nbytes=2048))
    read = 0
    for path, part in zip(paths, bundle.models, strict=True):
        inputs = random_inputs(part.main, 2)
        result = run_bundle(bundle, inputs, entry=part.main)
        same(result.outputs, interpret(read_main_graph(path, Options(cpu)), inputs))
        read += result.read_nbytes or 0
    assert bundle.pages is not None and 0 < len(bundle.pages) < read


@pytest.mark.parametrize("cpu", [None, "cortex-m4"])
def test_a_model_with_state(cpu: str | None, tmp_path: Path) -> None:
    """NAME_init has what it writes in the object, and reads nothing."""

    def main(s: Sub) -> tuple[list[int], list[int]]:
        s.call_once(1)
        (x,), (total,) = accumulator(s)
        out = s.value((1, 4))
        s.m.operator("FULLY_CONNECTED", [total, s.constant(np.arange(16).reshape(4, 4) / 8), -1], [out], {})
        return [x], [out]

    content = model_with_state(main, initialiser(1, 2, 3, 4))
    bundle, inputs, _ = made(tmp_path / "net.tflite", content, 256, target=cpu)
    paging, weights, total = bundle.main.paging, np.arange(16).reshape(4, 4) / 8, np.array([1, 2, 3, 4], np.float32)
    assert paging is not None and paging.read_nbytes >= 64 and bundle.init is not None and bundle.init.paging is None
    state = None
    for _ in range(3):
        result = run_bundle(bundle, inputs, state=state)
        total, state = total + inputs[0].reshape(-1), result.state
        np.testing.assert_allclose(result.outputs[0].reshape(-1), weights @ total, rtol=1e-5)


def test_what_is_left_in_the_object(tmp_path: Path) -> None:
    """Code alone, where no layer runs by rows; the workspace has room for two pages of half the window."""
    bundle, *_ = made(tmp_path / "net.tflite", fully_connected((1, 64), 64), 2048, target="cortex-m4")
    assert bundle.weights_nbytes == 0 and bundle.pages is not None and len(bundle.pages) > 64 * 64
    assert 1024 < bundle.workspace_nbytes <= 2048 + 256
    plan = bundle.main.plan
    assert plan is not None and len(plan.schedule.pages) == len(bundle.main.layers) > 4
    described = artefacts.describe(bundle)
    assert described["weights"] == "paged" and described["pages_bytes"] == len(bundle.pages)
    assert described["entries"][0]["paging"]["read_bytes"] == len(bundle.pages)
    files = artefacts.files(bundle)
    assert files["net.weights.bin"] == bundle.pages
    assert f"#define NET_READ_SIZE ({len(bundle.pages)}u)" in files["net.h"].decode()


class Caller:
    """Calls an entry on this machine with a read that fails at one of its calls."""

    def __init__(self, bundle: Bundle, inputs: Sequence[np.ndarray], fails_at: int) -> None:
        self.blocks = {
            "input": np.frombuffer(b"\x11" * 64 + inputs[0].tobytes() + b"\x11" * 64, np.uint8).copy(),
            "output": np.full(bundle.main.outputs[0].nbytes + 128, 0x22, np.uint8),
            "workspace": np.full(bundle.workspace_nbytes + 128, 0x33, np.uint8),
        }
        self.bundle, self.fails_at, self.calls = bundle, fails_at, 0
        self.before = {name: block.copy() for name, block in self.blocks.items()}
        self.c_read = C_READ(self.read)

    def read(self, context: int | None, offset: int, nbytes: int, address: int | None) -> int:
        assert context is None and self.bundle.pages is not None
        self.calls += 1
        if self.calls == self.fails_at:
            return 7
        if nbytes:
            ctypes.memmove(address or 0, self.bundle.pages[offset : offset + nbytes], nbytes)
        return 0

    def run(self, *, reads: bool = True) -> int:
        engine = host._load(self.bundle.object, {})
        places = [block.ctypes.data + 64 for block in self.blocks.values()]
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(engine.get_function_address("net_run"))
        return function(*places, ctypes.cast(self.c_read, ctypes.c_void_p) if reads else None, None)

    def guards_are_whole(self) -> bool:
        return all(
            (block[part] == self.before[name][part]).all()
            for name, block in self.blocks.items()
            for part in (slice(None, 64), slice(-64, None))
        )


def test_a_read_that_fails_ends_the_run(tmp_path: Path) -> None:
    bundle, inputs, expected = made(tmp_path / "net.tflite", conv2d((1, 6, 6, 4), 32), 1024)
    paging = bundle.main.paging
    assert paging is not None and paging.pages > 2
    for fails_at in range(1, paging.calls + 1):
        caller = Caller(bundle, inputs, fails_at)
        assert caller.run() == READ_FAILED and caller.calls == fails_at and caller.guards_are_whole()
        assert (caller.blocks["input"] == caller.before["input"]).all()
    caller = Caller(bundle, inputs, 0)
    assert caller.run() == 0 and caller.calls == paging.calls and caller.guards_are_whole()
    assert caller.blocks["output"][64:-64].tobytes() == expected[0].tobytes()


def test_no_function_at_all(tmp_path: Path) -> None:
    """Nothing is touched without a read; the context may be null."""
    bundle, inputs, _ = made(tmp_path / "net.tflite", conv2d((1, 6, 6, 4), 32), 1024)
    caller = Caller(bundle, inputs, 0)
    assert caller.run(reads=False) == -1
    assert all((block == caller.before[name]).all() for name, block in caller.blocks.items())


def test_a_read_that_fails_on_a_cortex_m4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, inputs, _ = made(tmp_path / "net.tflite", conv2d((1, 6, 6, 4), 32), 1024, target="cortex-m4")
    monkeypatch.setattr(Reader, "read", lambda self, *_: 3)
    with pytest.raises(InternalError, match="net_run returned -5"):
        run_bundle(bundle, inputs)


def test_a_run_that_reads_something_else_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, inputs, _ = made(tmp_path / "net.tflite", conv2d((1, 6, 6, 4), 32), 1024, target="cortex-m4")
    read = Reader.read
    monkeypatch.setattr(Reader, "read", lambda self, context, offset, nbytes, at: read(self, context, offset, nbytes // 8 * 4, at))
    with pytest.raises(InternalError, match=r"net_run read \d+ bytes in \d+ calls, not"):
        run_bundle(bundle, inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "separate"}, "--weights separate reads them where they are"),
        ({"kernels": "library", "target": "cortex-m4"}, "which is for --kernels native"),
    ],
)
def test_what_it_can_not_be_combined_with(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=message):
        made(tmp_path / "net.tflite", conv2d(), 4096, **options)


def test_a_window_that_is_too_small(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    content = fully_connected((1, 64), 8)
    with pytest.raises(
        CompileError, match=r"\(node 0\) needs \d+ bytes of weights and tables at once, more than --page-weights 60"
    ) as refusal:
        made(path, content, 60, target="cortex-m4")
    least = int(refusal.value.hint.split()[1])
    assert 64 <= least < 128
    made(path, content, least, target="cortex-m4")
    with pytest.raises(CompileError):
        made(path, content, least - 1, target="cortex-m4")


PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include "net.h"
struct card { FILE *file; unsigned char page[2048]; void *dst; uint32_t size, total, calls; };
/* Starts a transfer, which is done when the next one is asked for: until then dst holds something else. */
static int bring(void *ctx, uint32_t offset, uint32_t size, void *dst) {
    struct card *card = ctx;
    if (card->size) memcpy(card->dst, card->page, card->size);
    card->dst = dst, card->size = size, card->total += size, card->calls += 1;
    if (!size) return 0;
    memset(dst, 0x77, size);
    if (size > sizeof card->page || fseek(card->file, (long)offset, SEEK_SET)) return 1;
    return fread(card->page, 1, size, card->file) == size ? 0 : 2;
}
static int8_t in[NET_INPUT_0_ELEMENTS], out[NET_OUTPUT_0_ELEMENTS];
static uint64_t workspace[(NET_WORKSPACE_SIZE + 7) / 8];
int main(void) {
    static struct card card;
    card.file = fopen("net.weights.bin", "rb");
    if (!card.file || fread(in, 1, sizeof in, stdin) != sizeof in) return 1;
    if (net_run(in, out, workspace, bring, &card) != NET_OK) return 2;
    if (card.total != NET_READ_SIZE || card.calls != NET_READ_CALLS || card.size) return 3;
    return fwrite(out, 1, sizeof out, stdout) == sizeof out ? 0 : 4;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_read_that_only_starts_transfers(tmp_path: Path) -> None:
    """As firmware does it: by the header, from the file."""
    bundle, inputs, expected = made(tmp_path / "net.tflite", conv2d((1, 6, 6, 4), 32), 1024)
    artefacts.write(bundle, tmp_path)
    (tmp_path / "main.c").write_text(PROGRAM)
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.c", "net.o", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "main"], cwd=tmp_path, input=inputs[0].tobytes(), capture_output=True)
    assert (ran.returncode, ran.stdout) == (0, expected[0].tobytes())
