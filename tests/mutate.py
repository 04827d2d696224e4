"""Mutated model files, by seed: what a broken disk, a broken converter or an attacker may hand in.

Enters: a model's bytes and a case number. Leaves: other bytes. Invariant: the same case always gives the same bytes.
"""

from __future__ import annotations

import random
import struct

_EXTREMES = (0, 1, 2, 4, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0)


def mutate(model: bytes, case: int) -> bytes:
    """Case number `case` of a model: truncated, random, spliced, or with a few bytes or words changed."""
    rng = random.Random(case)
    kind = rng.randrange(10)
    data = bytearray(model)
    if kind == 0:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 1:
        head = bytes(data[:8]) if rng.random() < 0.8 else b""
        return head + rng.randbytes(rng.randrange(4000))
    if kind == 2:
        a, b, n = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 200)
        data[a : a + n] = data[b : b + n]
        return bytes(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        _change(data, rng, kind)
    return bytes(data)


def _change(data: bytearray, rng: random.Random, kind: int) -> None:
    """One change, mostly in the graph's tables: at the ends of the file, where converters put them."""
    window = 6000
    at = (
        rng.randrange(len(data))
        if rng.random() < 0.2
        else rng.choice((rng.randrange(min(window, len(data))), len(data) - 1 - rng.randrange(min(window, len(data)))))
    )
    if kind < 6:
        data[at] = rng.randrange(256)
    elif kind < 8:
        data[at] ^= 1 << rng.randrange(8)
    else:
        at &= ~3
        word = rng.choice(_EXTREMES) if rng.random() < 0.7 else rng.randrange(1 << 32)
        if at + 4 <= len(data):
            struct.pack_into("<I", data, at, word)
