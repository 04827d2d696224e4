"""The samples' firmware: builds with both compilers, runs on QEMU's boards (and under Renode), prints what it should."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from bundles import emulate, qemu
from tests.shared import ROOT

EVERYTHING = [(sample, board, "gcc") for sample in emulate.SAMPLES for board in emulate.BOARDS]
EVERYTHING += [(sample, board, "zig") for sample in emulate.SAMPLES for board in emulate.BOARDS]
QUICK = [case for number, case in enumerate(EVERYTHING) if case[0] == "digits" or (case[2] == "gcc" and number % 2)]
"""One sample on every board with both compilers, the others on some with one."""
CASES = EVERYTHING if os.environ.get("AOT_SWEEP") else QUICK


def need(toolchain: str) -> None:
    """Skip the test where a tool is missing."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    if toolchain == "gcc" and shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("needs arm-none-eabi-gcc (Debian: gcc-arm-none-eabi)")
    if toolchain == "zig" and importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs ziglang: pip install ziglang")
    if shutil.which(qemu.QEMU) is None:
        pytest.skip(f"needs {qemu.QEMU} (Debian: qemu-system-arm)")


def any_toolchain() -> str:
    toolchain = emulate.default_toolchain()
    need(toolchain)
    return toolchain


@pytest.mark.parametrize(("sample", "board", "toolchain"), CASES)
def test_firmware_prints_the_expected_lines_on_qemu(
    sample: str, board: str, toolchain: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    need(toolchain)
    elf = emulate.build(sample, board, toolchain, tmp_path)
    assert capfd.readouterr().err == "", "the compilers should have nothing to warn of"
    lines: list[str] = []
    differences = qemu.run(elf, board, ROOT / "bundles" / sample / "expected.txt", show=lines.append)
    assert not differences, "\n".join(differences)
    assert any("SysTick ticks, about" in line for line in lines), "the firmware should also print how long it took"


def test_make_renode_reports(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    toolchain = any_toolchain()
    arguments = ["--sample", "sine", "--board", "stm32f405", "--toolchain", toolchain, "--out", str(tmp_path)]
    assert emulate.main(arguments) == 0
    printed = capfd.readouterr().out
    assert "sine         stm32f405  passed" in printed
    if shutil.which("renode-test") is None:
        assert "Renode: skipped, renode-test is not installed" in printed


def test_wrong_lines_are_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    elf = emulate.build("sine", "stm32f405", any_toolchain(), tmp_path)
    wrong = tmp_path / "expected.txt"
    wrong.write_text((ROOT / "bundles" / "sine" / "expected.txt").read_text().replace("0.30  ", "0.30  9"))
    differences = qemu.run(elf, "stm32f405", wrong, show=lambda line: None)
    assert [line[:1] for line in differences if not line.startswith(("---", "+++", "@@", " "))] == ["-", "+"]


def test_a_program_that_never_ends_is_stopped(tmp_path: Path) -> None:
    """Firmware of another board prints nothing here."""
    elf = emulate.build("sine", "mps3_an547", any_toolchain(), tmp_path)
    differences = qemu.run(elf, "stm32f746", ROOT / "bundles" / "sine" / "expected.txt", 2, show=lambda line: None)
    assert "-sine: end" in differences


def test_a_build_that_fails_says_why(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = any_toolchain()
    monkeypatch.setattr(emulate, "ROOT", tmp_path)  # where there is no bundles/Makefile
    assert emulate.main(["--sample", "sine", "--board", "stm32f405", "--toolchain", toolchain, "--out", str(tmp_path)]) == 1
    assert "the firmware could not be built" in capfd.readouterr().err


def test_unknown_board_is_answered_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match="unknown board 'mega'; known: stm32f405 stm32f746 mps3_an547"):
        qemu.board_settings("mega")


def test_under_renode(tmp_path: Path) -> None:
    if shutil.which("renode-test") is None:
        pytest.skip("needs renode-test (https://renode.io)")
    assert emulate.main(["--on", "renode", "--toolchain", any_toolchain(), "--out", str(tmp_path)]) == 0
