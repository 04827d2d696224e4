"""The command line: what it prints, its exit codes, and one line for everything the user can mend."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot import cli
from aot import verify as verification
from aot.bundle import Bundle, Entry, Layer
from aot.commands.tables import explain
from aot.driver import Options
from aot.graph.ir import Node
from aot.graph.ops import OPERATORS
from aot.run import RunResult
from aot.samples import Sample
from tests import one_operator
from tests.graph import stateful
from tests.one_operator import T
from tests.shared import ROOT

FIGURES = {
    "instructions",
    "stack_bytes",
    "workspace_bytes",
    "input_bytes",
    "output_bytes",
    "scratch_bytes",
    "code_bytes",
    "weights_bytes",
    "lower_bound_bytes",
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A small convolution."""
    path = tmp_path / "small.tflite"
    path.write_bytes(one_operator.conv2d())
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a failing command prints."""
    code, out, err = run(capsys, *arguments)
    assert code == 1 and out == ""
    lines = [line for line in err.splitlines() if not line.startswith("aot: error:") and line]
    assert [line for line in lines if not line.startswith("aot: ")] == [], err
    (line,) = [line for line in err.splitlines() if line.startswith("aot: error: ")]
    return line


@pytest.mark.parametrize("command", ["bundle", "run", "verify", "profile", "inspect", "ops", "targets"])
def test_help_has_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0 and f"aot {command}" in out.partition("Examples:")[2]


def test_ops_says_types(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "ops", "pad", "--json")
    (found,) = json.loads(out)["operators"]
    assert code == 0 and found["name"] == "PAD" and found["notes"] == "Constant amounts."
    assert {each["oracle"] for each in found["support"]} == {"TFLite Micro", "LiteRT", "numpy"} and "int8" in found["support"][0][
        "types"
    ]
    code, out, _ = run(capsys, "ops", "gelu")
    assert code == 0 and "int8, uint8, int16, float32" in out and "within 4 ulp" in out


def test_ops_takes_every_name_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    for name in OPERATORS:
        for typed in (name, name.upper(), name.lower()):
            code, out, _ = run(capsys, "ops", typed, "--json")
            assert code == 0 and [each["name"] for each in json.loads(out)["operators"]] == [name]
    assert "1 operator " in run(capsys, "ops", "pad")[1] and f"{len(OPERATORS)} operators" in run(capsys, "ops")[1]


def test_bundle_writes_five_files(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "bundle", model, "--backend", "cmsis-nn", "--cpu", "cortex-m4", "-o", str(tmp_path / "out"))
    assert code == 0 and "workspace" in out
    names = ["CMakeLists.txt", "small.h", "small.json", "small.o", "small.report.html"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    described = json.loads((tmp_path / "out" / "small.json").read_text())
    assert described["entries"][0]["symbol"] == "small_run" and described["target"]["name"] == "cortex-m4"


def test_twice_the_same_bytes(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        assert run(capsys, "bundle", model, "--cpu", "cortex-m4", "-o", str(tmp_path / folder))[0] == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_explain(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "bundle", model, "--cpu", "cortex-m0plus", "--explain", "-o", str(tmp_path / "out"))
    assert code == 0 and "CONV_2D" in out and "lanes" in out
    code, out, _ = run(capsys, "bundle", model, "--cpu", "riscv32", "--explain", "-o", str(tmp_path / "other"))
    assert code == 0 and "CONV_2D" in out and "generic" in out


def test_json_is_alone_on_standard_output(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    for arguments in (
        ["bundle", model, "-o", str(tmp_path)],
        ["run", model],
        ["verify", model],
        ["inspect", model],
        ["ops"],
        ["targets"],
    ):
        code, out, _ = run(capsys, *arguments, "--json")
        assert code == 0 and isinstance(json.loads(out), dict)


def test_run_json_has_the_figures(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    inputs, outputs = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(inputs, in0=np.zeros((1, 6, 6, 4), np.int8))
    code, out, _ = run(
        capsys,
        "run",
        model,
        "--backend",
        "cmsis-nn",
        "--cpu",
        "cortex-m4",
        "--inputs",
        str(inputs),
        "--outputs",
        str(outputs),
        "--json",
    )
    figures = json.loads(out)
    assert code == 0 and figures.keys() >= FIGURES
    assert (
        figures["instructions"] > 1000
        and figures["input_bytes"] == 144
        and 0 < figures["stack_bytes"] <= figures["stack_bound_bytes"]
    )
    assert np.load(outputs)["out0"].shape == (1, 6, 6, 8)


def test_run_accepts_a_golden_file(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz", in0_0=np.zeros((1, 6, 6, 4), np.int8), in0_1=np.ones((1, 6, 6, 4), np.int8))
    assert run(capsys, "run", model, "--inputs", str(tmp_path / "golden.npz"))[0] == 0


def test_rows_are_pushed(capsys: pytest.CaptureFixture[str], model: str) -> None:
    for where in (["--on", "host"], ["--cpu", "cortex-m4", "--io", "workspace"]):
        code, out, _ = run(capsys, "verify", model, "--samples", "1", "--stream-input", "--push-rows", "4", *where)
        assert code == 0 and "PASS" in out
    code, out, _ = run(capsys, "run", model, "--cpu", "cortex-m4", "--stream-input", "--json")
    symbols = [layer["symbol"] for layer in json.loads(out)["layers"]]
    assert {"small_begin", "small_push_rows", "small_end", "small_steps"} <= set(symbols)
    line = fails(capsys, "run", model, "--cpu", "cortex-m4", "--on", "qemu", "--stream-input")
    assert "an input that comes row by row can't be pushed on qemu (use --on host or unicorn)" in line
    assert "'--push-rows': 0 is not in the range" in fails(capsys, "run", model, "--stream-input", "--push-rows", "0")


def test_weights_are_read_page_by_page(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    for where in (["--on", "host"], ["--cpu", "cortex-m4", "--io", "workspace"]):
        code, out, _ = run(capsys, "verify", model, "--samples", "1", "--page-weights", "1K", *where)
        assert code == 0 and "PASS" in out
    code, out, _ = run(capsys, "run", model, "--cpu", "cortex-m4", "--page-weights", "1024", "--json")
    assert code == 0 and json.loads(out)["read_bytes"] > 8 * 3 * 3 * 4
    code, out, _ = run(capsys, "bundle", model, "--cpu", "cortex-m4", "--page-weights", "1M", "-o", str(tmp_path))
    assert code == 0 and "small_run: weights, read through the caller's function in each run" in out
    assert (tmp_path / "small.weights.bin").stat().st_size > 8 * 3 * 3 * 4
    line = fails(capsys, "bundle", model, "--page-weights", "16", "-o", str(tmp_path))
    assert re.search(
        r"needs \d+ bytes of weights and tables at once, more than --page-weights 16 \(--page-weights \d+ is the least", line
    )
    assert "'--page-weights': '16KiB' is not a whole number of bytes" in fails(capsys, "run", model, "--page-weights", "16KiB")


def test_verify_names_what_it_compared_with(capsys: pytest.CaptureFixture[str], model: str) -> None:
    code, out, _ = run(capsys, "verify", model, "--samples", "2", "--cpu", "cortex-m4")
    assert code == 0 and "PASS" in out and "unicorn" in out
    assert any(name in out for name in ("TFLite Micro", "LiteRT", "interpreter"))


def test_verify_fails_on_a_wrong_golden_file(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "wrong.npz", in0_0=np.zeros((1, 6, 6, 4), np.int8), out0_0=np.full((1, 6, 6, 8), 77, np.int8))
    code, out, _ = run(capsys, "verify", model, "--golden", str(tmp_path / "wrong.npz"))
    assert code == 1 and "FAIL" in out and "elements differ" in out and "every layer's compiled code agrees" in out


def test_verify_names_the_first_layer_that_differs(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer whose compiled code is wrong (its result is changed after the run) is the one that is named."""
    genuine = verification.run_bundle

    def wrong(bundle: Bundle, inputs: Sequence[np.ndarray], where: str, state: bytes | None = None) -> RunResult:
        result = genuine(bundle, inputs, where, state=state)
        changed = [output.copy() for output in result.outputs]
        changed[0].reshape(-1)[3] += 1
        return replace(result, outputs=tuple(changed))

    monkeypatch.setattr(verification, "run_bundle", wrong)
    text = verification.first_difference(model, Options(), [Sample((np.zeros((1, 6, 6, 4), np.int8),), ())], "host")
    assert "first layer that differs: layer small_k00" in text and "node 0 CONV_2D" in text and "1 elements, by 1 at most" in text


def test_dump_and_stop(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    code, out, _ = run(capsys, "bundle", model, "--dump-after", "build_program", "--stop-after", "plan", "-o", str(folder))
    assert code == 0 and "# after build_program" in out and "contract" in out and not folder.exists()


def test_unknown_names_are_answered_with_the_closest(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert "did you mean bundle? commands: bundle, init, build, run, verify" in fails(capsys, "bundel", model)
    assert "did you mean cortex-m4?" in fails(capsys, "bundle", model, "--cpu", "cortex-m4f")
    assert "did you mean cmsis-nn? known: cmsis-nn, generic" in fails(capsys, "bundle", model, "--backend", "cmsis_nn")
    assert "did you mean build_program?" in fails(capsys, "bundle", model, "--dump-after", "build_programme")
    assert "did you mean qemu?" in fails(capsys, "run", model, "--cpu", "cortex-m4", "--on", "quemu")
    assert f"did you mean CONV_2D? `aot ops` lists all {len(OPERATORS)})" in fails(capsys, "ops", "CONV2D")
    line = fails(capsys, "ops", "signal")
    assert "did you mean SignalPCAN, SignalRfft, SignalDelay, SignalIrfft or SignalEnergy? `aot ops` lists all" in line
    assert "lists all" in fails(capsys, "bundle", model, "--stop-after", "x") and "separate_sums, tabulate" in " ".join(
        run(capsys, "bundle", "--help")[1].split()
    )
    assert "--dump-aftr" in fails(capsys, "bundle", model, "--dump-aftr", "x")


def test_what_does_not_fit_together(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert "exclude each other" in fails(capsys, "bundle", model, "--cpu", "cortex-m4", "--target", "thumbv7m-none-eabi")
    assert "is for Cortex-M" in fails(capsys, "bundle", model, "--backend", "cmsis-nn", "--target", "riscv32-unknown-none-elf")
    assert "can't run on qemu" in fails(capsys, "run", model, "--on", "qemu")
    assert "can't run on host" in fails(capsys, "run", model, "--cpu", "cortex-m4", "--on", "host")
    assert "is not NAME=" in fails(capsys, "bundle", model, "--shape", "1,2,3")
    assert "over --max-workspace 10" in fails(capsys, "bundle", model, "--io", "workspace", "--max-workspace", "10")
    line = fails(capsys, "bundle", model, "--cpu", "cortex-m4", "--max-flash", "10")
    assert re.search(
        r"would take (\d+) bytes, over --max-flash 10 \(\1 is the least that was found for .*; --backend generic may take less\)",
        line,
    )


def test_bad_files(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    assert "none.tflite" in fails(capsys, "bundle", str(tmp_path / "none.tflite"))
    assert "is not a file" in fails(capsys, "bundle", str(tmp_path))
    (tmp_path / "text.tflite").write_text("hello")
    assert "text.tflite" in fails(capsys, "inspect", str(tmp_path / "text.tflite"))
    data = Path(model).read_bytes()
    (tmp_path / "half.tflite").write_bytes(data[: len(data) // 2])
    assert "half.tflite" in fails(capsys, "verify", str(tmp_path / "half.tflite"))
    (tmp_path / "in.npz").write_text("no archive")
    assert "is no .npz file" in fails(capsys, "run", model, "--inputs", str(tmp_path / "in.npz"))
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    assert "array `in0` is missing (it holds x)" in fails(capsys, "run", model, "--inputs", str(tmp_path / "other.npz"))
    np.savez(tmp_path / "shape.npz", in0=np.zeros((1, 3), np.int8))
    assert "the model has int8[1, 6, 6, 4]" in fails(capsys, "run", model, "--inputs", str(tmp_path / "shape.npz"))


def test_unsupported_operator_names_node_and_tensor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "where.tflite"
    path.write_bytes(one_operator.one_operator("WHERE", [T((1, 4), "float32")], [T((1, 4), "float32")]))
    line = fails(capsys, "bundle", str(path))
    assert "where.tflite: node 0 WHERE 'out0'" in line and "not supported" in line and "aot ops" in line


def process(*arguments: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    """`python -m aot ARGUMENTS`, with its streams redirected as `shell` says."""
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-m", "aot", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("shell", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams(shell: str, model: str) -> None:
    done = process("verify", model, "--samples", "1", shell=shell)
    assert done.returncode == 0
    assert all(line.startswith("aot: ") and line.endswith(" ...") for line in done.stderr.splitlines()), "more than progress"


def test_locale_without_the_letters(model: str) -> None:
    """Bars and crosses of a report are question marks where there are no others."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "aot", "report", model, "--cpu", "cortex-m4"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **plain, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and done.stdout.isascii() and b"???" in done.stdout


@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_full_disk_under_standard_output(json_: list[str]) -> None:
    done = process("ops", *json_, shell=">/dev/full")
    assert done.returncode == 1 and done.stderr.startswith("aot: error: ") and done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


def test_dumps_leave_standard_output_to_json(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    for arguments in (["bundle", model, "-o", str(tmp_path)], ["run", model], ["verify", model]):
        code, out, err = run(capsys, *arguments, "--json", "--dump-after=all")
        assert code == 0 and isinstance(json.loads(out), dict) and "# after plan" in err


def test_numbers_below_zero(capsys: pytest.CaptureFixture[str], model: str) -> None:
    for arguments in (["run", model, "--seed"], ["verify", model, "--seed"], ["bundle", model, "--max-workspace"]):
        assert "-1 is not in the range" in fails(capsys, *arguments, "-1")


def test_numbers_that_are_none(capsys: pytest.CaptureFixture[str], model: str) -> None:
    line = fails(capsys, "bundle", model, "--max-workspace", "16k")
    assert "'--max-workspace': '16k' is not a whole number of bytes." in line
    assert "'--seed': '1.5' is not a whole number." in fails(capsys, "run", model, "--seed", "1.5")
    assert "'--samples': '' is not a whole number." in fails(capsys, "verify", model, "--samples", "")


def test_stack_for_people(capsys: pytest.CaptureFixture[str], model: str) -> None:
    """Measured in an emulator; on this machine there is only the bound."""
    measured, bound = run(capsys, "run", model, "--cpu", "cortex-m4")[1], run(capsys, "run", model)[1]
    assert "stack (measured)" in measured and "stack (bound)" in measured and "stack_b" not in measured
    assert "stack (measured)" not in bound and "stack (bound)" in bound


def test_explain_counts_the_nodes_of_a_loop() -> None:
    node = Node("RELU", (), ("y",), index=1)
    for others, text in (((), ""), ((0,), "in one loop with node 0"), ((0, 2), "in one loop with nodes 0, 2")):
        layer = Layer("k00", "generic loop", (*others, 1), (), (1,), 0, 0, 0)
        entry = Entry("m_run", (), (), 0, 4, 0, 0, 0, (layer,))
        assert explain(node, entry) == (1, "RELU", "generic loop", text)


# State.


def stateful_file(folder: Path) -> str:
    path = folder / "keeps.tflite"
    path.write_bytes(
        stateful.model(
            stateful.accumulator, stateful.adds(1.0), stateful.initialiser(1, 2, 3, 4), signatures=[("main", 0), ("init", 1)]
        )
    )
    return str(path)


def test_the_stack_of_init(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A signature that is called `init` gets another name: its macros would be those of NAME_init."""
    code, out, _ = run(capsys, "bundle", stateful_file(tmp_path), "--cpu", "cortex-m4", "-o", str(tmp_path), "--json")
    described = json.loads(out)
    assert code == 0 and described["init"] == "keeps_init" and described["init_stack_bytes"] > 0
    assert [entry["symbol"] for entry in described["entries"]] == ["keeps_run", "keeps_init_1_run"]
    header = (tmp_path / "keeps.h").read_text()
    assert header.count("KEEPS_INIT_STACK_SIZE") == 1
    assert f"#define KEEPS_INIT_STACK_SIZE ({described['init_stack_bytes']}u) /* of keeps_init" in header


def test_a_bundle_without_state_has_no_init(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    _, out, _ = run(capsys, "bundle", model, "-o", str(tmp_path), "--json")
    assert (json.loads(out)["init"], json.loads(out)["init_stack_bytes"]) == (None, 0)
    assert "INIT" not in (tmp_path / "small.h").read_text()


def test_inspect_says_state(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "inspect", path := stateful_file(tmp_path))
    assert code == 0 and "state: the file keeps 16 bytes in 1 variable between runs" in out
    assert "state" not in run(capsys, "inspect", model)[1]
    described = json.loads(run(capsys, "inspect", path, "--json")[1])
    assert described["variable_bytes"] == 16 and [each["shape"] for each in described["variables"]] == [[1, 4]]
    text = run(capsys, "inspect", path, "--text")[1]
    assert "  %variable0: variable float32[1x4]\n" in text and "  update %variable0 := %" in text


def test_inspect_skips_tables_without_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The initialisation has neither inputs nor outputs, and its nodes only say what a variable holds."""
    code, out, _ = run(capsys, "inspect", stateful_file(tmp_path))
    assert code == 0 and "graph main" in out and "graph subgraph1" in out and "subgraph2" not in out


def test_empty_names_are_not_defaults(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert "unknown CPU ''" in fails(capsys, "bundle", model, "--cpu", "")
    assert "LLVM has no target ''" in fails(capsys, "bundle", model, "--target", "")
    assert "No such file" in fails(capsys, "run", model, "--inputs", "")
    assert "No such file" in fails(capsys, "verify", model, "--golden", "")


def test_no_command_is_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert code == 0 and "Commands:" in out and not err


def test_nothing_is_left_behind_by_a_failure(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    fails(capsys, "bundle", model, "--io", "workspace", "--max-workspace", "1", "-o", str(folder))
    assert not (tmp_path / "deep").exists()


def test_exit_codes_of_the_process(model: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    good = subprocess.run([sys.executable, "-m", "aot", "inspect", model], capture_output=True, text=True, env=environment)
    assert good.returncode == 0 and "CONV_2D" in good.stdout
    bad = subprocess.run([sys.executable, "-m", "aot", "inspect", str(tmp_path)], capture_output=True, text=True, env=environment)
    assert bad.returncode == 1 and bad.stderr.startswith("aot: error: ") and bad.stderr.count("\n") == 1
    broken = "import aot.commands.listing as l, aot.cli; l.ops.callback = lambda **k: 1 / 0; import sys; sys.argv = ['aot', 'ops']; aot.cli.main()"
    ours = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, env=environment)
    assert ours.returncode == 70 and "Traceback" in ours.stderr and "fault of aot" in ours.stderr
