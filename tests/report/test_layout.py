"""The layered layout: nodes of a rank do not overlap, edges lead downwards, and pass no node."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from aot.report.layout import lay_out


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[float], list[tuple[int, int]]]:
    count = draw(st.integers(0, 24))
    widths = draw(st.lists(st.floats(40, 220), min_size=count, max_size=count))
    pairs = st.tuples(st.integers(0, max(count - 1, 0)), st.integers(0, max(count - 1, 0))).filter(lambda pair: pair[0] < pair[1])
    return widths, sorted(draw(st.sets(pairs, max_size=40))) if count > 1 else []


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_nodes_do_not_overlap(graph: tuple[list[float], list[tuple[int, int]]]) -> None:
    widths, edges = graph
    layout = lay_out(widths, edges)
    assert layout == lay_out(widths, edges)
    spans: dict[int, list[tuple[float, float]]] = {}
    for centre, width, rank in zip(layout.centres, widths, layout.ranks, strict=True):
        assert centre - width / 2 >= -1e-6 and centre + width / 2 <= layout.width + 1e-6 and 0 <= rank < layout.depth
        spans.setdefault(rank, []).append((centre - width / 2, centre + width / 2))
    for row in spans.values():
        for one, other in zip(sorted(row), sorted(row)[1:], strict=False):
            assert one[1] < other[0]
    for (start, end), points in zip(edges, layout.edges, strict=True):
        assert points[0] == (layout.centres[start], layout.ranks[start]) and points[-1] == (layout.centres[end], layout.ranks[end])
        assert [rank for _, rank in points] == list(range(layout.ranks[start], layout.ranks[end] + 1))
        for x, rank in points[1:-1]:
            assert all(not low < x < high for low, high in spans.get(rank, ()))


def test_hundreds_of_nodes_take_no_time() -> None:
    edges = sorted({(n, n + 1) for n in range(599)} | {(n, n + 7) for n in range(0, 590, 5)} | {(0, 599)})
    begin = time.process_time()
    layout = lay_out([100.0] * 600, edges)
    assert time.process_time() - begin < 5 and layout.depth == 600
