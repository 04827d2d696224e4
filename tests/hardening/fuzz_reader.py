"""Fuzzing of the reader alone: many mutated files by number, in chunks, and atheris for as long as is wished.

    python -m tests.hardening.fuzz_reader [--cases N] [--first CASE] [--seconds S] [--jobs J]

Each case is read, or refused by a CompileError of one line (`tests/graph/hostile.py`), in 1.5 GiB of memory. A chunk runs in a process of its
own; one that dies without a word is halved until a single case is to blame. Exit code 1 if a case broke the rule.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.hardening import reader_target
from tests.shared import ROOT

CHUNK = 10_000
Run = Callable[[int, int], tuple[int, str]]


def in_process(first: int, count: int) -> tuple[int, str]:
    """(exit code, output) of a chunk in a process of its own."""
    command = [sys.executable, "-m", "tests.graph.hostile", str(count), str(first)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def chunk(first: int, count: int, run: Run = in_process) -> tuple[Counter[str], list[str]]:
    """(how many were `read`, `refused` and `broken`, a line for each that is broken)."""
    code, output = run(first, count)
    found = re.search(r"^[0-9]+ cases from [0-9]+ models: \{(.*?)\}", output, re.MULTILINE)
    if found:
        counts = {name: int(number) for name, number in re.findall(r"'(\w+)': ([0-9]+)", found[1])}
        return Counter(counts), re.findall(r"^case .*", output, re.MULTILINE)
    if count == 1:
        return Counter(broken=1), [f"case {first}: the process ended with {code}"]
    half = count // 2
    (one, lines), (other, more) = chunk(first, half, run), chunk(first + half, count - half, run)
    return one + other, lines + more


def fuzz(first: int, cases: int, jobs: int) -> Iterator[tuple[Counter[str], list[str]]]:
    """The chunks, in order, as they are done."""
    starts = range(first, first + cases, CHUNK)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda start: chunk(start, min(CHUNK, first + cases - start)), starts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="mutated files by number")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seconds", type=int, default=30, help="of atheris, which looks for new paths; 0: none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    begin = time.monotonic()
    for counts, lines in fuzz(arguments.first, arguments.cases, arguments.jobs):
        total += counts
        for line in lines:
            print(line, flush=True)
        print(f"{total.total()} mutated files, {time.monotonic() - begin:.0f} s: {dict(sorted(total.items()))}", flush=True)
    good = not total["broken"]
    if arguments.seconds:
        code, text = reader_target.fuzz("-max_total_time", arguments.seconds)
        print(text, flush=True)
        good = good and code == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
