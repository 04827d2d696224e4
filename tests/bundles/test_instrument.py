"""The samples' instrumented firmware under QEMU: counters are filled, dumps are right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aot import cli
from bundles import qemu
from tests.bundles.test_firmware import any_toolchain
from tests.shared import ROOT

TIMER_2 = "0x40000024"
MODEL = ROOT / "bundles" / "digits" / "digits.tflite"


def printed(instrument: str, out: Path, counter: str = "") -> list[str]:
    """What the firmware prints."""
    toolchain = any_toolchain()
    variables = [f"INSTRUMENT={instrument}", f"COUNTER={counter}", f"TOOLCHAIN={toolchain}", f"OUT={out}"]
    command = ["make", "--silent", "-C", str(ROOT / "bundles"), "firmware", "SAMPLE=digits", *variables, f"PYTHON={sys.executable}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stdout + done.stderr, done.stderr
    name = "-".join(filter(None, ("digits", "stm32f405", toolchain, instrument, counter)))
    return list(qemu.printed_lines(out / name / "digits.elf", "stm32f405", 60))


def test_cycles(tmp_path: Path) -> None:
    """QEMU's timer counts instructions: each layer takes at least one for four of its multiply-accumulates, and they can be told apart."""
    lines = printed("cycles", tmp_path, TIMER_2)
    counted = [int(found[1]) for line in lines if (found := re.match(r"cycles (-?[0-9]+): ", line))]
    assert len(counted) == 9 and lines[-2:] == ["digits: 1 of 1 recognised", "digits: end"]
    assert min(counted) > 10 and max(counted) < 20_000 and 5000 < counted[0] < counted[1] < counted[2]


def test_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "dump.txt"
    dump.write_text("\n".join(printed("dump", tmp_path)))
    arguments = ["diff-dump", str(MODEL), str(dump), "--cpu", "cortex-m4", "--inputs", str(ROOT / "bundles/digits/golden.npz")]
    assert cli.run(arguments) == 0
    said = capsys.readouterr().out
    assert "PASS: 18 tensors, all the same" in said and "not dumped" not in said


def test_hooks(tmp_path: Path) -> None:
    lines = printed("hooks", tmp_path)
    ticks = [int(found[1]) for line in lines if (found := re.match(r"# ([0-9]+) SysTick ticks", line))]
    assert len(ticks) == 9 and ticks[2] > ticks[3] > 0 and lines[-1] == "digits: end"
