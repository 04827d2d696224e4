"""Runs a sample's firmware on a QEMU board, shows what it prints, and compares it with what it should print.

Enters: an ELF, a board of firmware/boards.mk, a file of expected lines. Leaves: the lines, and how they differ from the expected
ones. Lines that begin with # (times) are shown with their meaning in instructions, but not compared.
Needs nothing but Python and QEMU.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

BOARDS_FILE = Path(__file__).parent / "firmware" / "boards.mk"
QEMU = "qemu-system-arm"
END = ": end"


def board_settings(board: str) -> tuple[list[str], float]:
    """(QEMU's arguments, with the word ELF for the file; instructions a SysTick tick) of a board in boards.mk."""
    settings = dict(re.findall(r"^(\w+) := (.*)$", BOARDS_FILE.read_text(), re.MULTILINE))
    if board not in settings["BOARDS"].split():
        raise SystemExit(f"unknown board '{board}'; known: {settings['BOARDS']}")
    return settings[f"{board}_QEMU"].split(), float(settings[f"{board}_QEMU_NS_PER_TICK"])


def printed_lines(elf: Path, board: str, timeout_seconds: float) -> Iterator[str]:
    """What the firmware prints, line by line, up to its last line (`NAME: end`), a fault, or the time limit."""
    arguments, _ = board_settings(board)
    command = [QEMU, "-display", "none", "-monitor", "none", "-icount", "shift=0"]
    command += [argument.replace("ELF", str(elf)) for argument in arguments]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **output)
    clock = threading.Timer(timeout_seconds, process.kill)
    clock.start()
    try:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.rstrip("\r\n")
            yield line
            if line.endswith(END) or line == "fault":
                return
    finally:
        clock.cancel()
        process.kill()
        process.wait()


def explained(line: str, board: str) -> str:
    """A `# N SysTick ticks` line with the number of instructions that it stands for under -icount shift=0."""
    ticks = re.fullmatch(r"# (\d+) SysTick ticks", line)
    if not ticks:
        return line
    return f"{line}, about {round(int(ticks[1]) * board_settings(board)[1]):,} instructions"


def run(elf: Path, board: str, expected: Path | None, timeout: float = 60, show: Callable[[str], None] = print) -> list[str]:
    """Run, handing each line to `show`; returns the differences from the expected lines as a unified diff (empty: none)."""
    compared = []
    for line in printed_lines(elf, board, timeout):
        show(explained(line, board))
        if not line.startswith("#"):
            compared.append(line)
    if expected is None:
        return []
    return list(difflib.unified_diff(expected.read_text().splitlines(), compared, expected.name, "printed", lineterm=""))


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a sample's firmware on a QEMU board and compare what it prints.")
    parser.add_argument("elf", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--expect", type=Path, help="file of the lines that must be printed")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS")
    options = parser.parse_args()
    if shutil.which(QEMU) is None:
        print(f"{QEMU} is not installed (Debian: apt install qemu-system-arm)", file=sys.stderr)
        return 2
    differences = run(options.elf, options.board, options.expect, options.timeout)
    print("\n".join(differences) or "as expected", file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
