"""SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND, SPACE_TO_DEPTH, DEPTH_TO_SPACE: blocks of pixels, of any type, move into batch or channels, or back.

Each is Maps of one load with affine indices over (block, position in the block).
Sources: tflite-micro, tensorflow/lite/kernels/internal/reference/batch_to_space_nd.h, space_to_batch_nd.h, depth_to_space.h,
space_to_depth.h. SPACE_TO_BATCH_ND fills with real 0, the output's zero point, as LiteRT does; TFLite Micro fills with a number that
it never sets (mostly 0).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.graph.expr import Affine, Const, affine, axis
from aot.graph.ir import Shape, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.ops import checks
from aot.graph.ops.movement import check_movable, constant_integers, real_zero
from aot.graph.primitive import Map
from aot.graph.support import alone, litert, micro

# SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: (N, height[, width], C)

Borders = tuple[tuple[int, int], ...]
"""Elements before and after, for each spatial axis."""


def _no_options(options: Any) -> None:
    return None


def block_shape(site: Site) -> Shape:
    """The block's size along each spatial axis."""
    checks.require_counts(site, (3,))
    rank = len(site.input(0).shape)
    if rank not in (3, 4):
        raise site.error(f"{checks.describe(site.input(0))} has {rank} dimensions, not 3 or 4")
    data = constant_integers(site, 1, "block shape").reshape(-1)
    if data.size != rank - 2 or (data < 1).any():
        raise site.error(f"the block shape {data[:4].tolist()} is not {rank - 2} sizes of at least 1")
    return tuple(data.tolist())


def borders(site: Site) -> Borders:
    """Paddings or crops."""
    data, count = constant_integers(site, 2, "border").reshape(-1), len(site.input(0).shape) - 2
    if data.size != 2 * count or (data < 0).any():
        raise site.error(f"the borders {data[:8].tolist()} are not {2 * count} sizes of at least 0")
    return tuple((before, after) for before, after in data.reshape(-1, 2).tolist())


def _infer_space_to_batch(site: Site) -> tuple[Shape, ...]:
    block, (batches, *sizes, channels) = block_shape(site), site.input(0).shape
    padded = [size + before + after for size, (before, after) in zip(sizes, borders(site))]
    for size, step in zip(padded, block):
        if size % step:
            raise site.error(f"a padded axis of {size} does not divide into blocks of {step}")
    return ((batches * math.prod(block), *(size // step for size, step in zip(padded, block)), channels),)


def _compute_space_to_batch(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    block, count = block_shape(site), x.ndim - 2
    padded = np.pad(x, ((0, 0), *borders(site), (0, 0)), constant_values=real_zero(site))
    split = [part for size, step in zip(padded.shape[1:-1], block) for part in (size // step, step)]
    blocks = padded.reshape(x.shape[0], *split, x.shape[-1])
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count + 1, 2), 2 * count + 1]
    return (np.ascontiguousarray(blocks.transpose(order)).reshape(site.output.shape),)


def _lower_space_to_batch(site: Site, lowering: Lowering) -> None:
    """Space: block position (one axis each), batch, output position (one axis each), channel."""
    value, out, block, amounts = site.input(0), site.output, block_shape(site), borders(site)
    count = len(block)
    space = (*block, value.shape[0], *out.shape[1:])
    inner = (affine({count + 1 + k: step, k: 1}, -amounts[k][0]) for k, step in enumerate(block))
    fill = Const(real_zero(site), value.dtype) if any(map(any, amounts)) else None
    read = load(value, (axis(count), *inner, axis(2 * count + 1)), fill)
    store = (_batch(block, value.shape[0]), *(axis(count + 1 + k) for k in range(count)), axis(2 * count + 1))
    lowering.append(Map(out.name, space, read, store, (site.node.index,)))


def _batch(block: Shape, batches: int, first: Shape = (0, 0)) -> Affine:
    """The batch that holds a block position, counted from `first`: axes 0.. of the space, then the original batch's."""
    strides = [batches * math.prod(block[k + 1 :]) for k in range(len(block))]
    offset = sum(stride * start for stride, start in zip(strides, first))
    return affine({**dict(enumerate(strides)), len(block): 1}, offset)


def _infer_batch_to_space(site: Site) -> tuple[Shape, ...]:
    block, (batches, *sizes, channels) = block_shape(site), site.input(0).shape
    if batches % math.prod(block):
        raise site.error(f"{batches} batches do not divide into blocks of {checks.shape_text(block)}")
    whole = [size * step for size, step in zip(sizes, block)]
    kept = [size - before - after for size, (before, after) in zip(whole, borders(site))]
    if min(kept) < 0:
        raise site.error(f"the borders crop more than the {checks.shape_text(tuple(whole))} elements that there are")
    return ((batches // math.prod(block), *kept, channels),)


def _compute_batch_to_space(site: Site, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
    block = block_shape(site)
    count, batches = len(block), site.output.shape[0]
    blocks = x.reshape(*block, batches, *x.shape[1:])
    order = [count, *itertools.chain(*((count + 1 + k, k) for k in range(count))), 2 * count + 1]
    whole = blocks.transpose(order).reshape(batches, *(size * step for size, step in zip(x.shape[1:-1], block)), x.shape[-1])
    cropped = (slice(before, size - after) for size, (before, after) in zip(whole.shape[1:-1], borders(site)))
    return (np.ascontiguousarray(whole[(slice(None), *cropped)]),)


@dataclass(frozen=True)
class Piece:
    """Part of an axis: `blocks` blocks from `block` on, of each the `count` positions from `position` on."""

    block: int
    blocks: int
    position: int
    count: int


NOTHING = Piece(0, 0, 0, 0)


def pieces(step: int, start: int, stop: int) -> tuple[Piece, ...]:
    """The positions [start, stop) of an axis of blocks of `step`: whole blocks, and what is left of the first and the last one."""
    if stop <= start:
        return ()
    first, last = -(-start // step), stop // step
    if last < first:
        return (Piece(last, 1, start - last * step, stop - start),)
    head = (Piece(first - 1, 1, start % step, -start % step),) if start % step else ()
    whole = (Piece(first, last - first, 0, step),) if last > first else ()
    tail = (Piece(last, 1, 0, stop % step),) if stop % step else ()
    return (*head, *whole, *tail)


def _lower_batch_to_space(site: Site, lowering: Lowering) -> None:
    """One Map for each combination of pieces (one without crops, or if nothing is left; at most nine); space as in `_lower_space_to_batch`."""
    block, amounts, out = block_shape(site), borders(site), site.output
    parts = [pieces(step, before, before + size) or (NOTHING,) for step, (before, _), size in zip(block, amounts, out.shape[1:])]
    for chosen in itertools.product(*parts):
        _append_pieces(site, lowering, block, chosen)


def _append_pieces(site: Site, lowering: Lowering, block: Shape, chosen: tuple[Piece, ...]) -> None:
    value, out, amounts = site.input(0), site.output, borders(site)
    count, batches = len(block), out.shape[0]
    space = (*(piece.count for piece in chosen), batches, *(piece.blocks for piece in chosen), value.shape[-1])
    batch = _batch(block, batches, tuple(piece.position for piece in chosen))
    inner = (axis(count + 1 + k, 1, piece.block) for k, piece in enumerate(chosen))
    store = (
        affine({count + 1 + k: block[k], k: 1}, piece.block * block[k] + piece.position - amounts[k][0])
        for k, piece in enumerate(chosen)
    )
    read = load(value, (batch, *inner, axis(2 * count + 1)))
    lowering.append(Map(out.name, space, read, (axis(count), *store, axis(2 * count + 1)), (site.node.index,)))


# SPACE_TO_DEPTH and DEPTH_TO_SPACE


@dataclass(frozen=True)
class Block:
    """The side of a square block."""

    size: int = 0


def _read_block(options: Any) -> Block:
    return Block() if options is None else Block(options.BlockSize())


def _side(site: Site) -> int:
    checks.require_counts(site, (1,))
    checks.require_rank(site, site.input(0), 4)
    assert isinstance(site.node.attributes, Block)
    if site.node.attributes.size < 1:
        raise site.error(f"the block size is {site.node.attributes.size}, not at least 1")
    return site.node.attributes.size


def _infer_space_to_depth(site: Site) -> tuple[Shape, ...]:
    side, (batches, height, width, channels) = _side(site), site.input(0).shape
    if height % side or width % side:
        raise site.error(f"{height}x{width} pixels do not divide into blocks of {side}x{side}")
    return ((batches, height // side, width // side, channels * side * side),)


def _compute_space_to_depth(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
    side, (batches, rows, columns, _) = _side(site), site.output.shape
    blocks = x.reshape(batches, rows, side, columns, side, x.shape[3]).transpose(0, 1, 3, 2, 4, 5)
    return (np.ascontiguousarray(blocks).reshape(site.output.shape),)


def _lower_space_to_depth(site: Site, lowering: Lowering) -> None:
    _append_blocks(site, lowering, site.output.shape, site.input(0).shape[3], to_depth=True)


def _infer_depth_to_space(site: Site) -> tuple[Shape, ...]:
    side, (batches, height, width, channels) = _side(site), site.input(0).shape
    if channels % (side * side):
        raise site.error(f"{channels} channels do not divide into blocks of {side}x{side}")
    return ((batches, height * side, width * side, channels // (side * side)),)


def _compute_depth_to_space(site: Site, x: np.ndarray) -> tuple[np.ndarray]:
    side, (batches, rows, columns, _) = _side(site), x.shape
    blocks = x.reshape(batches, rows, columns, side, side, site.output.shape[3]).transpose(0, 1, 3, 2, 4, 5)
    return (np.ascontiguousarray(blocks).reshape(site.output.shape),)


def _lower_depth_to_space(site: Site, lowering: Lowering) -> None:
    _append_blocks(site, lowering, site.input(0).shape, site.output.shape[3], to_depth=False)


def _append_blocks(site: Site, lowering: Lowering, deep: Shape, channels: int, to_depth: bool) -> None:
    """Space: batch, block row, row in the block, block column, column in the block, channel. `deep`: the shape with blocks as
    channels."""
    side = _side(site)
    space = (deep[0], deep[1], side, deep[2], side, channels)
    pixel = (axis(0), affine({1: side, 2: 1}), affine({3: side, 4: 1}), axis(5))
    depth = (axis(0), axis(1), axis(3), affine({2: side * channels, 4: channels, 5: 1}))
    read, store = (pixel, depth) if to_depth else (depth, pixel)
    lowering.append(Map(site.output.name, space, load(site.input(0), read), store, (site.node.index,)))


OPERATORS = (
    Operator(
        "SPACE_TO_BATCH_ND",
        None,
        _no_options,
        _infer_space_to_batch,
        check_movable,
        _compute_space_to_batch,
        _lower_space_to_batch,
    ).supports(
        litert("bool, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float32"),
        notes="Fills with real 0, as LiteRT does; TFLite Micro fills with a number that it never sets (mostly 0).",
    ),
    Operator(
        "BATCH_TO_SPACE_ND",
        None,
        _no_options,
        _infer_batch_to_space,
        check_movable,
        _compute_batch_to_space,
        _lower_batch_to_space,
    ).supports(
        micro("int8, float32"),
        litert("bool, uint8, int16, uint16, int32, uint32, int64, uint64"),
        notes="Blocks and cropping are constant.",
    ),
    Operator(
        "SPACE_TO_DEPTH",
        "SpaceToDepthOptions",
        _read_block,
        _infer_space_to_depth,
        check_movable,
        _compute_space_to_depth,
        _lower_space_to_depth,
    ).supports(micro("int8, float32"), litert("uint8, int32, int64"), alone("bool, int16, uint16, uint32, uint64"), notes="Exact."),
    Operator(
        "DEPTH_TO_SPACE",
        "DepthToSpaceOptions",
        _read_block,
        _infer_depth_to_space,
        check_movable,
        _compute_depth_to_space,
        _lower_depth_to_space,
    ).supports(micro("int8, float32"), litert("uint8, int32, int64"), alone("bool, int16, uint16, uint32, uint64"), notes="Exact."),
)
