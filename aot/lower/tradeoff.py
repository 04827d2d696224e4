"""The trade between instructions and flash: one variant for each layer, such that the whole model is best.

Enters: for each layer the figures of its variants; a `Goal`. Leaves: the number of the variant for each layer.
Invariant: deterministic; the limits hold, or what is returned takes as few bytes of flash as was found.

A multiple-choice knapsack in which variants may share code. With a price on each byte, layers can be treated one by one (shared code
is free to the second layer that uses it): what is cheapest at a price is best for the bytes that it takes. The price is what is looked
for: none for `speed`, one that nothing is worth for `size`, and for `balanced` the one at which a byte is worth as large a share of all
instructions as it is of all bytes. A limit that is passed raises it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Optimize = Literal["speed", "balanced", "size", "ram"]
OPTIMIZE: tuple[Optimize, ...] = ("speed", "balanced", "size", "ram")
_NOTHING_IS_WORTH = 1e9  # instructions for a byte
_LEAST_PRICE = 1e-6
_STEPS = 40  # of bisection
_ROUNDS = 30


@dataclass(frozen=True)
class Goal:
    """What is best, and what may not be passed: bytes of code and constants together, and of constants alone.

    `ram` is about memory, which is not decided here: it trades as `balanced` does.
    """

    optimize: Optimize = "balanced"
    max_flash_nbytes: int | None = None
    max_constants_nbytes: int | None = None


@dataclass(frozen=True)
class Figures:
    """What a variant takes. shared: (name, bytes) of code that variants of other layers may have too."""

    instructions: int
    code_nbytes: int
    constants_nbytes: int
    shared: tuple[tuple[str, int], ...] = ()


Layers = Sequence[Sequence[Figures]]
Picks = tuple[int, ...]


@dataclass(frozen=True)
class Total:
    """What the variants of all layers take together."""

    instructions: int
    code_nbytes: int
    constants_nbytes: int

    @property
    def flash_nbytes(self) -> int:
        return self.code_nbytes + self.constants_nbytes


@dataclass(frozen=True)
class _Prices:
    """Instructions that a byte must save."""

    code: float
    constants: float

    def of(self, total: Total | Figures) -> float:
        return total.instructions + self.code * total.code_nbytes + self.constants * total.constants_nbytes


def total(layers: Layers, picks: Picks) -> Total:
    """Sums; shared code counts once."""
    chosen = [layer[pick] for layer, pick in zip(layers, picks, strict=True)]
    shared = sum({name: nbytes for one in chosen for name, nbytes in one.shared}.values())
    return Total(
        sum(one.instructions for one in chosen),
        sum(one.code_nbytes for one in chosen) + shared,
        sum(one.constants_nbytes for one in chosen),
    )


def choose(layers: Layers, goal: Goal) -> Picks:
    """The number of the variant for each layer."""
    smallest = _least(
        layers, (_cheapest(layers, _Prices(_NOTHING_IS_WORTH, _NOTHING_IS_WORTH), start) for start in _starts(layers))
    )
    if goal.optimize == "size":
        return smallest
    if not _holds(layers, smallest, goal):
        # The fewest bytes of all need not be the fewest of constants.
        leanest = tuple(min(range(len(layer)), key=lambda n, layer=layer: _leanness(layer[n])) for layer in layers)
        if not _holds(layers, leanest, goal):
            return smallest
        smallest = leanest
    price, picks = _without_limits(layers, goal, smallest)
    worth = _Prices(0, 0) if goal.optimize == "speed" else price  # not the raised one: what a limit leaves is free
    if not _holds(layers, picks, replace(goal, max_flash_nbytes=None)):
        price, picks = _raised(layers, goal, smallest, lambda more: _Prices(price.code, price.constants + more))
    if not _holds(layers, picks, goal):
        base = price
        price, picks = _raised(layers, goal, smallest, lambda more: _Prices(base.code + more, base.constants + more))
    return _filled(layers, picks, goal, worth)


def _leanness(one: Figures) -> tuple[int, int]:
    """What orders variants where only constants count."""
    return one.constants_nbytes, one.instructions


def _starts(layers: Layers) -> tuple[Picks, Picks]:
    """Where descents start: the fastest of each layer, and the one with the fewest bytes of its own."""
    fastest = tuple(min(range(len(layer)), key=lambda n, layer=layer: layer[n].instructions) for layer in layers)
    smallest = tuple(
        min(range(len(layer)), key=lambda n, layer=layer: layer[n].code_nbytes + layer[n].constants_nbytes) for layer in layers
    )
    return fastest, smallest


def _least(layers: Layers, found: Iterable[Picks]) -> Picks:
    """The fewest bytes; instructions break ties."""

    def key(picks: Picks) -> tuple[int, int]:
        sums = total(layers, picks)
        return sums.flash_nbytes, sums.instructions

    return min(found, key=key)


def _without_limits(layers: Layers, goal: Goal, smallest: Picks) -> tuple[_Prices, Picks]:
    """The goal's price, and what is cheapest at it."""
    least = _Prices(_LEAST_PRICE, _LEAST_PRICE)  # of equally fast variants, the smallest
    fastest = _best(layers, least, smallest)
    if goal.optimize == "speed":
        return least, fastest
    best, price = fastest, least
    for start in (fastest, smallest):
        picks = start
        for _ in range(_ROUNDS):
            sums = total(layers, picks)
            rate = sums.instructions / max(sums.flash_nbytes, 1)
            found = _best(layers, _Prices(rate, rate), picks)
            if _product(layers, found) < _product(layers, best):
                best, price = found, _Prices(rate, rate)
            if found == picks:
                break
            picks = found
    return price, best


def _product(layers: Layers, picks: Picks) -> int:
    sums = total(layers, picks)
    return sums.instructions * sums.flash_nbytes


def _raised(layers: Layers, goal: Goal, smallest: Picks, prices: Callable[[float], _Prices]) -> tuple[_Prices, Picks]:
    """The lowest prices at which the limits hold, by bisection; the smallest at none. Where prices rise only on constants, a limit on
    all bytes is left for later."""
    only_constants = prices(1).code == prices(0).code
    limit = replace(goal, max_flash_nbytes=None) if only_constants else goal
    low, high = _LEAST_PRICE, _NOTHING_IS_WORTH
    best = prices(high), smallest
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        found = _best(layers, prices(middle), smallest)
        if _holds(layers, found, limit):
            best, high = (prices(middle), found), middle
        else:
            low = middle
    return best


def _holds(layers: Layers, picks: Picks, goal: Goal) -> bool:
    sums = total(layers, picks)
    return (goal.max_flash_nbytes is None or sums.flash_nbytes <= goal.max_flash_nbytes) and (
        goal.max_constants_nbytes is None or sums.constants_nbytes <= goal.max_constants_nbytes
    )


def _best(layers: Layers, prices: _Prices, other: Picks) -> Picks:
    """The cheapest of descents from several starts."""
    found = [_cheapest(layers, prices, start) for start in (*_starts(layers), other)]
    return min(found, key=lambda picks: prices.of(total(layers, picks)))


def _cheapest(layers: Layers, prices: _Prices, picks: Picks) -> Picks:
    """Descent: layer by layer, and together for layers that could share a part of a variant's code or all of it, until nothing gets
    cheaper."""
    parts = _common_parts(layers)
    for _ in range(_ROUNDS):
        before = picks
        picks = _one_by_one(layers, prices, picks)
        for names in parts:
            together = _one_by_one(layers, prices, _sharing(layers, prices, picks, names))
            if prices.of(total(layers, together)) < prices.of(total(layers, picks)):
                picks = together
        if picks == before:
            break
    return picks


def _common_parts(layers: Layers) -> list[frozenset[str]]:
    """Code, a part of a variant's or all of it, that several layers can have: only there one layer's choice can pay for another's."""
    own = [[frozenset(name for name, _ in one.shared) for one in layer] for layer in layers]
    parts = [frozenset([name]) for layer in layers for one in layer for name, _ in one.shared] + [
        whole for layer in own for whole in layer
    ]
    return [part for part in dict.fromkeys(parts) if part and sum(any(part <= whole for whole in layer) for layer in own) > 1]


def _sharing(layers: Layers, prices: _Prices, picks: Picks, names: frozenset[str]) -> Picks:
    """The picks, but every layer that can have all of the named code does."""
    found: list[int] = []
    for layer, pick in zip(layers, picks, strict=True):
        able = [n for n, one in enumerate(layer) if names <= {name for name, _ in one.shared}]
        found.append(min(able, key=lambda n, layer=layer: prices.of(layer[n])) if names and able else pick)
    return tuple(found)


def _one_by_one(layers: Layers, prices: _Prices, picks: Picks) -> Picks:
    """Each layer in turn takes what is cheapest for it; code that another layer has anyway costs nothing."""
    found = list(picks)
    users: dict[str, int] = {}
    for layer, pick in zip(layers, found):
        for name, _ in layer[pick].shared:
            users[name] = users.get(name, 0) + 1
    for number, layer in enumerate(layers):
        if len(layer) == 1:
            continue
        for name, _ in layer[found[number]].shared:
            users[name] -= 1

        def price(n: int, layer: Sequence[Figures] = layer) -> float:
            fresh = sum(nbytes for name, nbytes in layer[n].shared if not users.get(name))
            return prices.of(layer[n]) + prices.code * fresh

        found[number] = min(range(len(layer)), key=price)
        for name, _ in layer[found[number]].shared:
            users[name] = users.get(name, 0) + 1
    return tuple(found)


def _filled(layers: Layers, picks: Picks, goal: Goal, worth: _Prices) -> Picks:
    """Single layers change to a faster variant, the most instructions for a byte first, while limits hold and it is worth it."""
    while True:
        now, best = total(layers, picks), None
        for number, layer in enumerate(layers):
            for n in range(len(layer)):
                if layer[n].instructions >= layer[picks[number]].instructions:
                    continue
                trial = (*picks[:number], n, *picks[number + 1 :])
                sums = total(layers, trial)
                if not _holds(layers, trial, goal) or worth.of(sums) >= worth.of(now):
                    continue
                more = max(sums.flash_nbytes - now.flash_nbytes, 0)
                rate = (now.instructions - sums.instructions) / (more + 1e-3)
                if best is None or rate > best[0]:
                    best = rate, trial
        if best is None:
            return picks
        picks = best[1]
