"""`make renode`: builds the samples' firmware and runs it under Renode, where that is installed, and the same ELFs on QEMU.

    python -m bundles.emulate [--sample digits] [--board stm32f405] [--toolchain zig] [--on qemu]

Enters: nothing but the repository. Leaves: build/firmware, and exit code 0 if every program printed its expected lines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from bundles import qemu

ROOT = Path(__file__).resolve().parent.parent
TITLES = {"digits": "Digits", "digits_float": "Float Digits", "sine": "Sine"}  # as renode/samples.robot calls them
CORES = {"stm32f405": "Cortex-M4", "stm32f746": "Cortex-M7", "mps3_an547": "Cortex-M55"}
SAMPLES, BOARDS = tuple(TITLES), tuple(CORES)
TOOLCHAINS = ("gcc", "zig")


def default_toolchain() -> str:
    return "gcc" if shutil.which("arm-none-eabi-gcc") else "zig"


def build(sample: str, board: str, toolchain: str, out: Path, instrument: str = "", counter: str = "") -> Path:
    """The ELF of a sample for a board, made with bundles/Makefile; what compilers warn of goes to standard error. instrument, counter: for
    its instrumented program, as bundles/Makefile has them.

    CalledProcessError (its output says why) if it can't be built.
    """
    variables = [f"SAMPLE={sample}", f"BOARD={board}", f"TOOLCHAIN={toolchain}", f"OUT={out}", f"PYTHON={sys.executable}"]
    variables += [f"INSTRUMENT={instrument}", f"COUNTER={counter}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--silent", "-C", str(ROOT / "bundles"), "firmware", *variables]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(*(line for line in done.stdout.splitlines() if "warning" in line), sep="\n", end="", file=sys.stderr)
    return out / "-".join(filter(None, (sample, board, toolchain, instrument, counter))) / f"{sample}.elf"


def run_renode(samples: Sequence[str], boards: Sequence[str], toolchain: str, out: Path) -> bool:
    """Run renode/samples.robot, or the chosen ones of its tests, on firmware that is built; with all of them renode/cycles.robot, too."""
    results = out / "renode"
    results.mkdir(parents=True, exist_ok=True)
    command = ["renode-test", "--results-dir", str(results), "--variable", f"ELFS:{out}", "--variable", f"TOOLCHAIN:{toolchain}"]
    everything = len(samples) == len(SAMPLES) and len(boards) == len(BOARDS)
    chosen = [[]] if everything else [["--fixture", f"{TITLES[s]} On {CORES[b]}"] for s, b in product(samples, boards)]
    robot = str(ROOT / "renode" / "samples.robot")
    runs = [[*fixture, robot] for fixture in chosen]
    if everything:
        build("digits", "stm32f405", toolchain, out, "cycles")
        runs.append([str(ROOT / "renode" / "cycles.robot")])
    codes = [subprocess.run([*command, *run], check=False).returncode for run in runs]
    return not any(codes)


def run_qemu(sample: str, board: str, elf: Path, verbose: bool) -> bool:
    lines: list[str] = []
    differences = qemu.run(elf, board, ROOT / "bundles" / sample / "expected.txt", show=lines.append)
    if verbose:
        print("\n".join(lines))
    times = [line for line in lines if line.startswith("#")]
    print(f"  {sample:12} {board:10} {'FAILED' if differences else 'passed'}  {times[-1] if times else ''}")
    if differences:
        print("\n".join(differences))
    return not differences


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bundles.emulate", description="Build and run the samples' firmware.")
    parser.add_argument("--sample", choices=SAMPLES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--board", choices=BOARDS, action="append", help="only this one (may be repeated)")
    parser.add_argument("--toolchain", choices=TOOLCHAINS, default=default_toolchain())
    parser.add_argument("--on", choices=("renode", "qemu", "both"), default="both")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "firmware", help="folder for what is built")
    parser.add_argument("--verbose", action="store_true", help="show every line that is printed")
    options = parser.parse_args(arguments)
    samples, boards, out = options.sample or SAMPLES, options.board or BOARDS, options.out.resolve()
    try:
        elves = {(s, b): build(s, b, options.toolchain, out) for s, b in product(samples, boards)}
    except subprocess.CalledProcessError as error:
        print(error.stdout, file=sys.stderr)
        print("the firmware could not be built", file=sys.stderr)
        return 1
    passed = True
    if options.on != "qemu":
        if shutil.which("renode-test"):
            passed = run_renode(samples, boards, options.toolchain, out)
        else:
            print("Renode: skipped, renode-test is not installed (https://renode.io)")
            passed = options.on == "both"
    if options.on != "renode":
        if shutil.which(qemu.QEMU):
            print("QEMU:")
            for (sample, board), elf in elves.items():
                passed &= run_qemu(sample, board, elf, options.verbose)
        else:
            print(f"QEMU: skipped, {qemu.QEMU} is not installed (Debian: apt install qemu-system-arm)")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
