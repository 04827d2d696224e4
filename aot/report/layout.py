# pyright: basic
"""A layered layout for a graph: each node below those that it reads.

Enters: the nodes' widths, and edges from earlier nodes to later ones. Leaves: a place for each node, and the points of each edge.
Invariant: nodes of one rank do not overlap; the same graph always gets the same layout.

Ranks are longest paths; an edge over several ranks gets a place of its own in each of them, so that it passes no node's. The order in a rank
follows the mean of the neighbours' (Sugiyama, Tagawa, Toda 1981); so do places, as far as widths allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 6
_SPACE, _LANE = 18, 10
"""Between two nodes, and the width of an edge that passes a rank, in pixels."""


@dataclass(frozen=True)
class Layout:
    """Centres of nodes by number, points of edges in their order; rows of nodes are `rank`s. In pixels; ranks are to be multiplied."""

    centres: tuple[float, ...]
    ranks: tuple[int, ...]
    edges: tuple[tuple[tuple[float, int], ...], ...]
    width: float
    depth: int


def lay_out(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Places for a graph's nodes and edges."""
    ranks = _ranks(len(widths), edges)
    places, rank_of, chains = list(widths), list(ranks), list[list[int]]()
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for start, end in edges:
        chain = [start]
        for rank in range(ranks[start] + 1, ranks[end]):
            chain.append(len(places))
            places.append(_LANE)
            rank_of.append(rank)
        chain.append(end)
        chains.append(chain)
        for one, other in pairwise(chain):
            below.setdefault(one, []).append(other)
            above.setdefault(other, []).append(one)
    rows: list[list[int]] = [[] for _ in range(max(rank_of, default=-1) + 1)]
    for node, rank in enumerate(rank_of):
        rows[rank].append(node)
    _order(rows, above, below)
    centres = _centres(rows, places, above, below)
    left = min((centres[node] - places[node] / 2 for node in range(len(places))), default=0.0)
    right = max((centres[node] + places[node] / 2 for node in range(len(places))), default=0.0)
    points = tuple(tuple((centres[node] - left, rank_of[node]) for node in chain) for chain in chains)
    mine = tuple(centres[node] - left for node in range(len(widths)))
    return Layout(mine, tuple(ranks), points, right - left, len(rows))


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Longest path from a source; sources themselves as near to their readers as can be."""
    ranks, nearest, has_makers = [0] * count, [count] * count, [False] * count
    for start, end in sorted(edges):
        ranks[end] = max(ranks[end], ranks[start] + 1)
        has_makers[end] = True
    for start, end in edges:
        nearest[start] = min(nearest[start], ranks[end] - 1)
    return [rank if has_makers[node] or nearest[node] == count else nearest[node] for node, rank in enumerate(ranks)]


def _order(rows: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]]) -> None:
    """Sort each row by the mean place of its neighbours, downwards and upwards in turn."""
    at = {node: float(place) for row in rows for place, node in enumerate(row)}
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for row in rows if downwards else reversed(rows):
            means = {node: _mean([at[one] for one in neighbours.get(node, ())], at[node]) for node in row}
            row.sort(key=lambda node: (means[node], node))
            at.update((node, float(place)) for place, node in enumerate(row))


def _centres(
    rows: list[list[int]], widths: Sequence[float], above: dict[int, list[int]], below: dict[int, list[int]]
) -> dict[int, float]:
    """Where nodes are centred: as near to the mean of their neighbours as the order and the widths in their row allow."""
    centres: dict[int, float] = {}
    for row in rows:
        edge = 0.0
        for node in row:
            centres[node] = edge + widths[node] / 2
            edge += widths[node] + _SPACE
        for node in row:
            centres[node] -= (edge - _SPACE) / 2
    for sweep in range(_SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean([centres[one] for one in neighbours.get(node, ())], centres[node]) for node in row]
            for node, centre in zip(row, _apart(wanted, [widths[node] for node in row]), strict=True):
                centres[node] = centre
    return centres


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Places in this order, none nearer to the next than widths allow, with the least sum of squares from those wanted (pool adjacent
    violators: neighbours that would overlap move as one)."""
    offsets, total = [], 0.0
    for number, width in enumerate(widths):
        total += width / 2 + (widths[number - 1] / 2 + _SPACE if number else 0.0)
        offsets.append(total)
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, many = blocks.pop()
            mean, count = (mean * count + other * many) / (count + many), count + many
        blocks.append((mean, count))
    starts = [mean for mean, count in blocks for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
