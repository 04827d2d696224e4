"""Limits on the workspace: where the fastest divisions that should fit do not once they are placed, slower ones are looked at."""

from __future__ import annotations

import pytest

from aot.lower import division
from aot.lower.build import build_program
from aot.lower.check import check_plan
from aot.lower.division import Wish, divide, points
from aot.lower.fuse import fuse
from aot.lower.place import plan
from aot.lower.schedule import schedule
from tests.lower.test_streaming import divided_choices
from tests.lower.toy import TOYS, GraphBuilder


def network():
    """Five convolutions, run whole."""
    builder = GraphBuilder()
    value = builder.input(1, 24, 6, 4)
    for channels in (4, 8, 6, 4, 2):
        value = builder.conv(value, channels, 3, 1, 1, 3)
    program = fuse(build_program(builder.graph(value), TOYS))
    return plan(schedule(program, divided_choices(program, 1, 12, True), "workspace"), "workspace")


@pytest.mark.parametrize("tried", [0, division.MOST_PLACED])
def test_every_limit_that_a_plan_is_known_for_is_met(tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the fastest ones are not tried."""
    whole = network()
    sizes = [each.workspace_nbytes for each in points(whole, "workspace", True)]
    assert len(sizes) > 2
    monkeypatch.setattr(division, "MOST_PLACED", tried)
    for limit in sizes:
        found = divide(whole, Wish(limit), "workspace", True)
        check_plan(found)
        assert found.workspace_nbytes <= limit


def test_the_smallest_is_a_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    """No division that is allowed by its bound fits, as if it took more once it is placed."""
    whole = network()
    least = divide(whole, Wish(), "workspace", True)
    candidates = division.Ways.candidates
    monkeypatch.setattr(division.Ways, "candidates", lambda ways, wish: candidates(ways, wish) if wish == Wish() else [])
    assert divide(whole, Wish(least.workspace_nbytes), "workspace", True).workspace_nbytes == least.workspace_nbytes
