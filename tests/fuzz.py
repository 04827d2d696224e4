"""Fuzzing: mutated hostile model files, and differential cases against other engines.

    python tests/fuzz.py [--cases N] [--seed S] [--mutated-only | --differential-only]

Three cases in four are mutated files: each must give a bundle or one CompileError line, in bounded time and memory (code is generated for
every 8th). The others are models made by tests/differential: what our code computes must be what TFLite Micro or LiteRT does. Batches run
in processes of their own, so that a crash is seen. The same seed gives the same cases. Exit code 1 if any case broke the rule.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

MUTATED_BATCH, DIFFERENTIAL_BATCH = 250, 60


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
        if self.failures:
            print(f"{len(self.failures)} kinds of failures; run one again with: python -m tests.differential 'TEXT' [CPU]")
            for ops, what, text in self.failures.values():
                print(f"- {ops}: {what}\n    {text}")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))


def jobs(cases: int, seed: int, generate_every: int, share: float) -> list[tuple[str, int, int, int]]:
    """(kind, its three numbers) of every batch: `share` of the cases are differential, the two kinds mixed evenly."""
    different = int(cases * share)
    first, end = seed * 1_000_000, seed * 1_000_000 + cases - different
    mutated = [("mutated", at, min(MUTATED_BATCH, end - at), generate_every) for at in range(first, end, MUTATED_BATCH)]
    starts = range(0, different, DIFFERENTIAL_BATCH)
    others = [("differential", seed, at // DIFFERENTIAL_BATCH, min(DIFFERENTIAL_BATCH, different - at)) for at in starts]
    places = [(n / len(held), job) for held in (others, mutated) for n, job in enumerate(held)]
    return [job for _, job in sorted(places, key=lambda pair: pair[0])]


def fuzz(work: Sequence[tuple[str, int, int, int]]) -> Summary:
    """Run all batches, as many at once as there are cores."""
    summary = Summary()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (kind, first, second, _), (lines, died) in zip(work, pool.map(lambda job: in_process(*job), work)):
            if kind == "mutated":
                summary.add_mutated(first, lines, died)
            else:
                summary.add_differential(second, lines, died)
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="of both kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--generate-every", type=int, default=8)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--mutated-only", dest="share", action="store_const", const=0.0, default=0.25)
    only.add_argument("--differential-only", dest="share", action="store_const", const=1.0)
    parser.add_argument("--batch", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        kind, *numbers = arguments.batch
        (mutated_batch if kind == "mutated" else differential_batch)(*map(int, numbers))
        return 0
    summary = fuzz(jobs(arguments.cases, arguments.seed, arguments.generate_every, arguments.share))
    summary.print()
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
