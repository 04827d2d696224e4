"""`aot profile`: what it prints, and what it says of the cycles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from aot import cli
from tests import one_operator
from tests.run.objects import needs_qemu

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")


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


def test_table(capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    code, out, _ = run(capsys, "profile", model, "--cpu", "cortex-m4")
    assert code == 0
    for text in ("small for cortex-m4, on unicorn", "CONV_2D", "cycles/MAC", "the entry itself", "100.0 %"):
        assert text in out
    assert "cycles are modelled, not measured: Cortex-M4, memory without wait states" in out


def test_json(capsys: pytest.CaptureFixture[str], model: str) -> None:
    found = {}
    for states in (0, 2):
        code, out, _ = run(capsys, "profile", model, "--cpu", "cortex-m0plus", "--wait-states", str(states), "--json")
        found[states] = json.loads(out)
        assert code == 0
        for total in ("instructions", "modelled_cycles", "macs"):
            assert sum(layer[total] for layer in found[states]["layers"]) == found[states][total] > 0
    assert found[0]["instructions"] == found[2]["instructions"]
    assert found[0]["instructions"] < found[0]["modelled_cycles"] < found[2]["modelled_cycles"]
    assert "2 wait states without a cache" in found[2]["cycle_model"] and found[0]["layers"][0]["operators"] == ["CONV_2D"]


def test_a_cpu_without_a_model(capsys: pytest.CaptureFixture[str], model: str) -> None:
    needs_qemu()
    code, out, _ = run(capsys, "profile", model, "--cpu", "cortex-m55", "--json")
    found = json.loads(out)
    assert code == 0 and found["modelled_cycles"] is None and found["cycle_model"] == "no cycles: there is no model of cortex-m55"
    assert abs(sum(layer["instructions"] for layer in found["layers"]) - found["instructions"]) <= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "instructions are counted in an emulator, and this is code for the host (name a CPU with --cpu)"),
        (("--cpu", "cortex-m4", "--wait-states", "-1"), "Invalid value for '--wait-states'"),
        (("--cpu", "riscv32"), "no emulator runs code of target 'riscv32'"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], model: str, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(capsys, "profile", model, *arguments)
    assert code == 1 and out == "" and message in err


def test_a_core_that_runs_in_a_process(capsys: pytest.CaptureFixture[str], model: str) -> None:
    """Every instruction is some layer's, or the entry's own."""
    if shutil.which("qemu-riscv32") is None:
        pytest.skip("qemu-riscv32 is not installed")
    code, out, _ = run(capsys, "profile", model, "--cpu", "rv32imac", "--json")
    found = json.loads(out)
    assert code == 0 and found["cycle_model"] == "no cycles: there is no model of rv32imac"
    assert sum(layer["instructions"] for layer in found["layers"]) == found["instructions"] > found["macs"]
