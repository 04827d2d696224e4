"""The boards as linker scripts, C, boards.mk and Renode platforms describe them: they must agree. No tool is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bundles import emulate
from tests.shared import ROOT

BOARDS = ROOT / "bundles" / "firmware" / "boards"
UARTS = {"stm32f405": ("usart2", "USART2_SR"), "stm32f746": ("usart1", "USART1_CR1"), "mps3_an547": ("uart0", "UART0")}
UNITS = {"": 1, "K": 1024, "M": 1024 * 1024}


def linker_regions(board: str) -> dict[str, tuple[int, int]]:
    """(first, one past the last) address of each region of a board's linker script."""
    text = (BOARDS / f"{board}.ld").read_text()
    found = re.findall(r"(\w+) \(\w+\) : ORIGIN = (0x[0-9A-F]+), LENGTH = (\d+)([KM]?)", text)
    return {name: (int(origin, 16), int(origin, 16) + int(length) * UNITS[unit]) for name, origin, length, unit in found}


def platform(board: str) -> dict[str, tuple[str, int, int]]:
    """name -> (type, address, size or 0) of each peripheral of a board's Renode platform."""
    text = (ROOT / "renode" / f"{board}.repl").read_text()
    found = {}
    for block in re.split(r"\n\s*\n", text):
        entry = re.search(r"^(\w+): ([\w.]+) @ sysbus <?(0x[0-9A-F]+)?", block, re.MULTILINE)
        size = re.search(r"size: (0x[0-9A-F]+)", block)
        if entry:
            found[entry[1]] = (entry[2], int(entry[3] or "0", 16), int(size[1], 16) if size else 0)
    return found


@pytest.mark.parametrize("board", emulate.BOARDS)
def test_renode_has_memory_wherever_the_linker_puts_something(board: str) -> None:
    memories = [(address, address + size) for kind, address, size in platform(board).values() if kind == "Memory.MappedMemory"]
    regions = linker_regions(board)
    assert {"FLASH", "RAM"} <= set(regions)
    for name, (first, last) in regions.items():
        assert any(low <= first and last <= high for low, high in memories), f"{name} is not within a memory of {board}.repl"


@pytest.mark.parametrize("board", emulate.BOARDS)
def test_renode_has_the_uart_where_the_firmware_writes(board: str) -> None:
    name, macro = UARTS[board]
    address = re.search(rf"#define {macro} \((0x[0-9A-F]+)u\)", (BOARDS / f"{board}.c").read_text())
    assert address is not None
    kind, at, _ = platform(board)[name]
    assert kind.startswith("UART.") and at == int(address[1], 16)
    assert f"showAnalyzer sysbus.{name}" in (ROOT / "renode" / f"{board}.resc").read_text()


@pytest.mark.parametrize("board", emulate.BOARDS)
def test_renode_has_the_core_that_the_bundle_is_compiled_for(board: str) -> None:
    settings = (ROOT / "bundles" / "firmware" / "boards.mk").read_text()
    cpu = re.search(rf"^{board}_CPU := (\S+)$", settings, re.MULTILINE)
    renode = re.search(r'cpuType: "([\w-]+)"', (ROOT / "renode" / f"{board}.repl").read_text())
    assert cpu is not None and renode is not None
    assert renode[1].removesuffix("f") == cpu[1]


@pytest.mark.parametrize("path", sorted((ROOT / "renode").glob("*.repl")), ids=lambda path: path.stem)
def test_platform_files_are_well_formed(path: Path) -> None:
    """Indents of four spaces, entries apart, nothing fetched from the network."""
    text = path.read_text()
    assert "http" not in text and "\t" not in text
    previous = ""
    for line in text.splitlines():
        assert re.fullmatch(r"(//.*|\w+: [\w.]+ @ sysbus.*|    \S.*|)", line), line
        if re.match(r"\w+:", line):
            assert previous == "" or previous.startswith("//"), f"an empty line is missing before {line}"
        previous = line


def test_robot_tests_every_sample_on_every_board() -> None:
    text = (ROOT / "renode" / "samples.robot").read_text()
    found = re.findall(r"^(.+) On (Cortex-\w+)\n    Sample Should Print Its Lines +(\w+) +(\w+) +(\w+)$", text, re.MULTILINE)
    titles = {sample: title for title, _, sample, _, _ in found}
    cores = {board: core for _, core, _, board, _ in found}
    assert titles == emulate.TITLES and cores == emulate.CORES
    assert len({(sample, board) for _, _, sample, board, _ in found}) == len(emulate.SAMPLES) * len(emulate.BOARDS) == len(found)
    assert all(uart == UARTS[board][0] for _, _, _, board, uart in found)


def test_the_last_line_is_the_one_that_ends_a_run() -> None:
    for sample in emulate.SAMPLES:
        lines = (ROOT / "bundles" / sample / "expected.txt").read_text().splitlines()
        assert [line for line in lines if line.endswith(": end")] == [lines[-1]]
        assert not any(line.startswith("#") or re.match(r"\w+=", line) for line in lines), "Robot or the comparison would drop it"
