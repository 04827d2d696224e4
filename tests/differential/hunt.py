"""Runs many cases by a seed and tells what came of them; failures come shrunk, as text.

Enters: a seed, a batch number, how many cases. Leaves: a `Tally`. Invariant: the same seed, batch and code give the same cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed

from tests.differential.engines import quiet
from tests.differential.net import Net
from tests.differential.outcome import Outcome, Referee, sentence
from tests.differential.reduce import reduced
from tests.differential.strategies import graphs, single
from tests.differential.table import CASES

A_RUN = 10
"""Cases of one Hypothesis run, where no failure ends it sooner. After the tenth it mostly varies earlier ones, which finds less."""

SHRINKS = 120
"""Runs that shrinking a failure may take: each compiles. Then whatever is new counts as good, and Hypothesis ends."""

UNCHECKED = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example)


class Failed(Exception):
    """A case failed: Hypothesis shrinks it by calling again."""


@dataclass
class Tally:
    """Outcomes by kind, refusals by operator and sentence, failures with their shrunk text."""

    kinds: Counter[str] = field(default_factory=Counter)
    oracles: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    """(operators, what, text), the shrunk case."""

    def count(self, net: Net, outcome: Outcome) -> None:
        self.kinds[outcome.kind] += 1
        if outcome.kind == "equal":
            self.oracles[outcome.oracle] += 1
        if outcome.kind == "refused":
            ops = "+".join(sorted(set(net.ops())))
            self.refusals[f"{ops}: {sentence(outcome.what)}"] += 1


class Hunter:
    """Runs Hypothesis over strategies of cases and counts."""

    def __init__(self) -> None:
        quiet()
        self.tally, self.referee = Tally(), Referee()

    def run(self, strategy, seed: int, count: int, shrink: bool = True) -> None:
        """`count` cases of one strategy; the first failure ends it."""
        found: list[tuple[Net, str, Outcome]] = []
        tried: list[tuple[Net, str]] = []

        def test(case: tuple[Net, str]) -> None:
            net, target = case
            if len(tried) > SHRINKS and case not in [(smaller, where) for smaller, where, _ in found]:
                return
            outcome = self.referee.judge(net, target)
            if found:
                tried.append(case)
            else:
                self.tally.count(net, outcome)
            if outcome.failed:
                found.append((net, target, outcome))
                raise Failed(outcome.kind)

        phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
        limits = settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=phases,
            suppress_health_check=UNCHECKED,
            report_multiple_bugs=False,
        )
        try:
            with_seed(seed)(limits(given(strategy)(test)))()
        except Failed:
            self.keep(found[-1])
        except Exception as error:  # a case that does not fail every time: Hypothesis says so
            self.keep(found[-1] if found else None, f"{type(error).__name__} ")

    def keep(self, failure: tuple[Net, str, Outcome] | None, remark: str = "") -> None:
        """Note a failure."""
        if failure is None:
            self.tally.failures.append(("?", remark, ""))
            return
        net, target, outcome = failure

        def fails(smaller: Net) -> bool:
            return self.referee.judge(smaller, target).kind == outcome.kind

        net = net if remark else reduced(net, fails)
        outcome = self.referee.judge(net, target) if not remark else outcome
        self.tally.failures.append(("+".join(net.ops()), f"{remark}{outcome.kind} on {target}: {outcome.what}", repr(net)))


def plan(seed: int, batch: int, count: int) -> Iterator[tuple[str, int, int]]:
    """(operator or "" for graphs, seed, cases) of a batch: half single operators, each in its turn, half graphs."""
    ops = tuple(CASES)
    runs = -(-count // A_RUN)
    for number in range(runs):
        cases = min(A_RUN, count - number * A_RUN)
        place = batch * runs + number
        yield ops[place // 2 % len(ops)] if place % 2 == 0 else "", hash((seed, place)), cases


def hunt(seed: int, batch: int, count: int) -> Tally:
    """Run a batch."""
    hunter = Hunter()
    try:
        for op, run_seed, cases in plan(seed, batch, count):
            hunter.run(single(CASES[op]) if op else graphs(), run_seed, cases)
    finally:
        hunter.referee.close()
    return hunter.tally
