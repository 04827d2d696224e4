"""The samples' instrumented firmware under QEMU: counters are filled, dumps are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aot
from aot import cli
from aot.artefacts.layers import layer_names
from bundles import emulate, qemu
from tests.bundles.test_firmware import any_toolchain
from tests.shared import ROOT

TIMER_2 = "0x40000024"
MODEL = ROOT / "bundles" / "digits" / "digits.tflite"


def printed(instrument: str, out: Path, capfd: pytest.CaptureFixture[str], counter: str = "") -> list[str]:
    """What the firmware prints."""
    elf = emulate.build("digits", "stm32f405", any_toolchain(), out, instrument, counter)
    assert capfd.readouterr().err == "", "the compilers should have nothing to warn of"
    return list(qemu.printed_lines(elf, "stm32f405", 60))


def test_cycles(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """QEMU's timer counts instructions: every layer has taken some, and the convolutions most."""
    lines = printed("cycles", tmp_path, capfd, TIMER_2)
    counted = [int(found[1]) for line in lines if (found := re.match(r"cycles (-?[0-9]+): ", line))]
    assert len(counted) == 9 and lines[-2:] == ["digits: 1 of 1 recognised", "digits: end"]
    assert min(counted) > 10 and max(counted) < 20_000 and 5000 < counted[0] < counted[1] < counted[2]


def test_dump(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "dump.txt"
    dump.write_text("\n".join(printed("dump", tmp_path, capfd)))
    arguments = ["diff-dump", str(MODEL), str(dump), "--cpu", "cortex-m4", "--inputs", str(ROOT / "bundles/digits/golden.npz")]
    assert cli.run(arguments) == 0
    said = capfd.readouterr().out
    assert "PASS: 18 tensors, all the same" in said and "not dumped" not in said


def test_hooks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = printed("hooks", tmp_path, capfd)
    ticks = [int(found[1]) for line in lines if (found := re.match(r"# ([0-9]+) SysTick ticks", line))]
    assert len(ticks) == 9 and ticks[2] > ticks[3] > 0 and lines[-1] == "digits: end"


def test_renode_is_asked_for_what_the_firmware_prints() -> None:
    """renode/cycles.robot waits for lines of cycles.c, of layers that are there."""
    text = (ROOT / "renode" / "cycles.robot").read_text()
    names = re.findall(r"\^cycles \[1-9\]\[0-9\]\+: (\w+),", text)
    made = aot.compile(MODEL, "cortex-m4", options=aot.Options(instrument="cycles"))
    assert len(names) == 4 and set(names) <= set(layer_names(made.main))
    assert "digits-stm32f405-${TOOLCHAIN}-cycles/digits.elf" in text
