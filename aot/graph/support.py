"""What an operator takes, as data: types, and the implementation whose results ours equal.

Enters: type names. Leaves: `Support`s, for an operator's line. The table docs/operators.md and `aot ops` are made of them.
Invariant: names are those that `tests/differential/types.py` gives a model; a test compares the two, both ways.

A name is that of the value an operator is about ("int8"). Where weights, or the second operand, have another type, both are named
("int8 x int4"; "int16x8" is int16 with int8 weights); "(hybrid)": float32 is quantised at run time. "float32 to int8": the output's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Oracle = Literal["TFLite Micro", "LiteRT", "numpy"]
"""numpy: no other implementation has the type; `compute` says the meaning."""
ORACLES: tuple[Oracle, ...] = get_args(Oracle)


@dataclass(frozen=True)
class Support:
    """Some types, and who decides on their results. note: what there is to say about these types alone."""

    types: tuple[str, ...]
    oracle: Oracle
    note: str = ""


def micro(types: str, note: str = "") -> Support:
    """Types, with commas between them, that TFLite Micro has."""
    return Support(_names(types), "TFLite Micro", note)


def litert(types: str, note: str = "") -> Support:
    """Types that LiteRT's reference kernels have and TFLite Micro lacks (or computes with numbers that it never sets)."""
    return Support(_names(types), "LiteRT", note)


def alone(types: str, note: str = "") -> Support:
    """Types that neither has."""
    return Support(_names(types), "numpy", note)


def _names(types: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in types.split(","))


ANY = (
    micro("bool, int8, uint8, int16, int32, uint32, int64, uint64, float16, float32, float64"),
    litert("int4, uint16"),
)
"""What is done to bytes whatever they mean."""
