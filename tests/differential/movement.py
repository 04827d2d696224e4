"""Cases of operators that move elements within one operand: padding, permuting, resizing, repeating, blocks."""

from __future__ import annotations

from math import prod

from tests.differential.case import SUM, cases
from tests.differential.grower import MOST, Grower
from tests.differential.net import Tensor

MOVED = ("int8", "float32", "int16", "int32", "uint8", "bool", "int64")


def paddings(g: Grower, shape: tuple[int, ...], most: int = 3) -> list[tuple[int, int]]:
    """Amounts before and after each axis; mostly few, as the result must stay small."""
    return [(g.whole(0, most), g.whole(0, most)) if g.coin() else (0, 0) for _ in shape]


def padded(shape: tuple[int, ...], amounts: list[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(before + size + after for size, (before, after) in zip(shape, amounts))


def pad(g: Grower, op: str) -> None:
    x = g.value(MOVED, most=100)
    amounts = paddings(g, g[x].shape)
    given = g.integers([list(pair) for pair in amounts], g.pick("int32", "int32", "int64"))
    numbers = {"int8": g.pick(0, -128, 7), "uint8": 3, "float32": 1.5}.get(g[x].dtype, 1)
    value = [g.add(Tensor((1,), g[x].dtype, g[x].scale, g[x].zero_point, data=(numbers,)))] if op == "PADV2" else []
    g.node(op, [x, given, *value], g.like(x, padded(g[x].shape, amounts)), {})


def mirror_pad(g: Grower, op: str) -> None:
    mode = g.pick("REFLECT", "SYMMETRIC")
    x = g.value(MOVED, most=100)
    most = [size - (mode == "REFLECT") for size in g[x].shape]
    amounts = [(g.whole(0, min(end, 3)), g.whole(0, min(end, 3))) for end in most]
    given = g.integers([list(pair) for pair in amounts])
    g.node(op, [x, given], g.like(x, padded(g[x].shape, amounts)), {"mode": mode})


def transpose(g: Grower, op: str) -> None:
    x = g.value(MOVED, rank=(1, 5))
    order = g.permutation(len(g[x].shape))
    g.node(op, [x, g.integers(order)], g.like(x, [g[x].shape[axis] for axis in order]), {})


def resize(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "int16", "uint8"), rank=4, most=60)
    height, width = g.whole(1, 9), g.whole(1, 9)
    align, half = g.pick((False, False), (True, False), (False, True))
    shape = (g[x].shape[0], height, width, g[x].shape[3])
    g.node(op, [x, g.integers((height, width))], g.like(x, shape), {"align_corners": align, "half_pixel_centers": half})


def reverse(g: Grower, op: str) -> None:
    x = g.value(MOVED)
    g.node(op, [x, g.integers((g.whole(-len(g[x].shape), len(g[x].shape) - 1),))], g.like(x), {})


def tile(g: Grower, op: str) -> None:
    x = g.value(MOVED, most=60)
    times = [g.pick(1, 1, 2, 3) for _ in g[x].shape]
    if prod(times) > 6:
        times = [1] * len(times)
    given = g.integers(times, g.pick("int32", "int32", "int64"))
    g.node(op, [x, given], g.like(x, [size * count for size, count in zip(g[x].shape, times)]), {})


def broadcast_to(g: Grower, op: str) -> None:
    x = g.value(MOVED, most=60)
    shape = [g.pick(2, 3) if size == 1 else size for size in g[x].shape]
    shape = (*(g.pick(1, 2) for _ in range(g.whole(0, max(0, 4 - len(shape))))), *shape)
    g.node(op, [x, g.integers(shape)], g.like(x, shape), {})


def space_to_depth(g: Grower, op: str) -> None:
    block = g.pick(2, 1, 3)
    n, h, w, c = g.pick(1, 2), g.whole(1, 3), g.whole(1, 3), g.whole(1, 4)
    large, deep = (n, h * block, w * block, c), (n, h, w, c * block * block)
    before, after = (large, deep) if op == "SPACE_TO_DEPTH" else (deep, large)
    x = g.value(("int8", "float32", "int32", "uint8", "int64"), shape=before)
    g.node(op, [x], g.like(x, after), {"block_size": block})


def space_to_batch(g: Grower, op: str) -> None:
    """SPACE_TO_BATCH_ND and its inverse, of rank 3 or 4; some padding or cropping."""
    rank = g.pick(4, 3)
    blocks = [g.pick(2, 1, 3) for _ in range(rank - 2)]
    small = [g.whole(1, 3) for _ in blocks]
    amounts = [(g.whole(0, min(block * size - 1, 2)), 0) for block, size in zip(blocks, small)]
    batch, depth = g.pick(1, 2), g.whole(1, 3)
    plain = (batch, *(block * size - before - after for block, size, (before, after) in zip(blocks, small, amounts)), depth)
    blocked = (batch * prod(blocks), *small, depth)
    before, after = (plain, blocked) if op == "SPACE_TO_BATCH_ND" else (blocked, plain)
    x = g.value(("int8", "float32", "uint8", "int32"), shape=before)
    given = [g.integers(blocks), g.integers([list(pair) for pair in amounts])]
    g.node(op, [x, *given], g.like(x, after), {})


def fill(g: Grower, op: str) -> None:
    """FILL: a constant shape, a value computed or not."""
    value = g.value(("int8", "float32", "int32", "int64", "bool", "int16"), shape=())
    shape = g.shape(most=MOST)
    g.node(op, [g.integers(shape), value], g.like(value, shape), {})


CASES = (
    *cases(pad, "PAD", "PADV2"),
    *cases(mirror_pad, "MIRROR_PAD"),
    *cases(transpose, "TRANSPOSE"),
    *cases(resize, "RESIZE_NEAREST_NEIGHBOR"),
    *cases(resize, "RESIZE_BILINEAR", bound=SUM),
    *cases(reverse, "REVERSE_V2"),
    *cases(tile, "TILE"),
    *cases(broadcast_to, "BROADCAST_TO"),
    *cases(space_to_depth, "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
    *cases(space_to_batch, "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"),
    *cases(fill, "FILL"),
)
