"""Fuzzing: mutated hostile model files, differential cases against other engines, random nets whose layers run by rows.

    python tests/fuzz.py [--cases N] [--seed S] [--mutated-only | --differential-only | --divided-only]

Of twenty cases, thirteen are mutated files: each must give a bundle or one CompileError line, in bounded time and memory (code is generated for
every 8th). Five are models made by tests/differential: what our code computes must be what TFLite Micro or LiteRT does. Two are nets of
image layers in as little memory as they need, or within a limit (tests/divided.py): exact, and in no larger a workspace than layer by layer.
Batches run in processes of their own, so that a crash is seen. The same seed gives the same cases. Exit code 1 if any case broke the rule.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

MUTATED_BATCH, DIFFERENTIAL_BATCH, DIVIDED_BATCH = 250, 60, 50
SHARES = {"mutated": 0.65, "differential": 0.25, "divided": 0.1}


def mutated_batch(first: int, count: int, generate_every: int) -> None:
    """Run these cases here; print `[case, outcome, seconds]` for each, as a line of JSON."""
    from tests.mutated import run_case

    for case in range(first, first + count):
        print(json.dumps(run_case(case, case % generate_every == 0)), flush=True)


def differential_batch(seed: int, batch: int, count: int) -> None:
    """Run a batch here; print its tally as a line of JSON."""
    from tests.differential.hunt import hunt

    tally = hunt(seed, batch, count)
    print(json.dumps([tally.kinds, tally.oracles, tally.refusals, tally.failures]), flush=True)


def divided_batch(first: int, count: int) -> None:
    """Run these cases here; print their tally as a line of JSON."""
    from tests.divided import Judge

    judge = Judge()
    try:
        tally = judge.hunt(range(first, first + count))
    finally:
        judge.close()
    print(json.dumps([tally.counts, tally.failures]), flush=True)


BATCHES = {"mutated": mutated_batch, "differential": differential_batch, "divided": divided_batch}


def in_process(kind: str, *numbers: int) -> tuple[list, str]:
    """(lines of JSON, what went wrong with the process) of a batch run by a process of its own."""
    command = [sys.executable, __file__, "--batch", kind, *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return lines, f"the process ended with {done.returncode}: {done.stderr[-300:]!r}" if done.returncode else ""


class Summary:
    """What came of all batches."""

    def __init__(self) -> None:
        self.mutated: Counter[str] = Counter()
        self.slowest = 0.0
        self.divided: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.oracles: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.failures: dict[tuple[str, str], tuple[str, str, str]] = {}

    def add_mutated(self, first: int, lines: list, died: str) -> None:
        """A batch of mutated files. If its process died, the case after the last answered one is to blame."""
        if died:
            lines = [*lines, (first + len(lines), died, 0.0)]
        for case, outcome, seconds in lines:
            good = outcome in ("bundle", "planned", "refused")
            self.mutated[outcome if good else "broken"] += 1
            self.slowest = max(self.slowest, seconds)
            if not good:
                print(f"mutated case {case}: {outcome}", flush=True)

    def add_differential(self, batch: int, lines: list, died: str) -> None:
        """A batch of differential cases. Of failures of the same operators in the same way, the shortest is kept."""
        if died:
            lines = [*lines, ({"crash": 1}, {}, {}, [["?", f"batch {batch}: {died}", ""]])]
        for kinds, oracles, refusals, failures in lines:
            self.kinds.update(kinds)
            self.oracles.update(oracles)
            self.refusals.update(refusals)
            for ops, what, text in failures:
                key = ("+".join(sorted(set(ops.split("+")))), what.split(":")[0])
                if key not in self.failures:
                    print(f"{ops}: {what}\n    {text}", flush=True)
                if key not in self.failures or len(text) < len(self.failures[key][2]):
                    self.failures[key] = (ops, what, text)

    def add_divided(self, first: int, lines: list, died: str) -> None:
        """A batch of nets run by rows. Failures of the same operators are kept once, the shortest."""
        if died:
            lines = [*lines, ({"broke": 1}, [[first, died, ""]])]
        for counts, failures in lines:
            self.divided.update(counts)
            for seed, what, text in failures:
                print(f"divided case {seed}: {what}\n    {text}", flush=True)
                key = (re.sub(r"[^A-Z_]", "", text), what.split(":")[0])
                if key not in self.failures or len(text) < len(self.failures[key][2]):
                    self.failures[key] = (f"divided case {seed}", what, text)

    @property
    def failed(self) -> bool:
        return bool(self.mutated["broken"] or self.failures)

    def print(self) -> None:
        """The lines at the end."""
        if self.mutated:
            print(f"{sum(self.mutated.values())} mutated files: {_counts(self.mutated)}; slowest {self.slowest:.1f} s")
        if self.kinds:
            print(f"{sum(self.kinds.values())} differential cases: {_counts(self.kinds)}; equal to {_counts(self.oracles)}")
            print(f"refused by us, though an oracle runs it ({len(self.refusals)} kinds):")
            for text, count in sorted(self.refusals.items(), key=lambda item: (-item[1], item[0]))[:60]:
                print(f"{count:6} {text}")
        if self.divided:
            print(f"{sum(self.divided.values())} nets with as little memory as may be: {_counts(self.divided)}")
        if self.failures:
            print(
                f"{len(self.failures)} kinds of failures; run again: python -m tests.differential 'TEXT' [CPU], python -m tests.divided CASE"
            )
            for ops, what, text in self.failures.values():
                print(f"- {ops}: {what}\n    {text}")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))


def jobs(cases: int, seed: int, generate_every: int, shares: Mapping[str, float]) -> list[tuple[str, ...]]:
    """(kind, its numbers) of every batch, as many cases of each kind as its share says, all kinds mixed evenly."""
    counts = {kind: int(cases * share) for kind, share in shares.items()}
    counts[next(iter(shares))] += cases - sum(counts.values())
    base = seed * 1_000_000
    held = [
        [("mutated", base + at, size, generate_every) for at, size in _batches(counts.get("mutated", 0), MUTATED_BATCH)],
        [
            ("differential", seed, at // DIFFERENTIAL_BATCH, size)
            for at, size in _batches(counts.get("differential", 0), DIFFERENTIAL_BATCH)
        ],
        [("divided", base + at, size) for at, size in _batches(counts.get("divided", 0), DIVIDED_BATCH)],
    ]
    places = [(n / len(batches), job) for batches in held for n, job in enumerate(batches)]
    return [job for _, job in sorted(places, key=lambda pair: pair[0])]


def _batches(count: int, size: int) -> Iterator[tuple[int, int]]:
    """(first case, cases) of each."""
    return ((at, min(size, count - at)) for at in range(0, count, size))


def fuzz(work: Sequence[tuple], workers: int | None = None) -> Summary:
    """Run all batches, as many at once as there are cores."""
    summary = Summary()
    with concurrent.futures.ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for (kind, first, *rest), (lines, died) in zip(work, pool.map(lambda job: in_process(*job), work)):
            if kind == "differential":
                summary.add_differential(rest[0], lines, died)
            else:
                (summary.add_mutated if kind == "mutated" else summary.add_divided)(first, lines, died)
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--generate-every", type=int, default=8)
    only = parser.add_mutually_exclusive_group()
    for kind in SHARES:
        only.add_argument(f"--{kind}-only", dest="shares", action="store_const", const={kind: 1.0}, default=SHARES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="batches at a time")
    parser.add_argument("--batch", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        kind, *numbers = arguments.batch
        BATCHES[kind](*map(int, numbers))
        return 0
    summary = fuzz(jobs(arguments.cases, arguments.seed, arguments.generate_every, arguments.shares), arguments.jobs)
    summary.print()
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
