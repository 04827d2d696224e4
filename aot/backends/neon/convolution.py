"""Convolutions and dense layers of int8: blocks of pixels times channels, read where the windows lie.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: a block's pixels are computed from the input only, so that the last block of a line may repeat pixels of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from aot.backends.layers.fused import operands_of
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.neon.dot_product import Block, Product
from aot.backends.neon.ending import Ending
from aot.backends.neon.matrix_product import MatrixBlock
from aot.backends.neon.pair_product import PairBlock
from aot.backends.neon.rest import Rest, instructions
from aot.backends.neon.simd import Simd
from aot.backends.neon.windows import Line, Windows
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_BODY, _RING, _REST = 40, 90, 60
"""Instructions that are written out around the product: loops, the ring's copies, what is fused."""
_L1_NBYTES = 32 * 1024  # where a target does not say
_REUSED = 4  # blocks of pixels, from which weights are worth keeping in a cache
_SHAPES = (
    (1, 4),
    (2, 4),
    (3, 4),
    (4, 4),
    (5, 4),
    (4, 3),
    (5, 3),
    (6, 3),
    (1, 2),
    (2, 2),
    (4, 2),
    (6, 2),
    (8, 2),
    (4, 1),
    (8, 1),
    (12, 1),
)
"""Pixels and vectors of four channels of a block: what 32 registers hold beside pixels and weights."""

_MATRIX_SHAPES = ((2, 4), (4, 4), (2, 3), (4, 3), (6, 3), (2, 2), (4, 2), (6, 2), (8, 2), (2, 1), (4, 1), (8, 1))
_PAIR_SHAPES = ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (2, 2), (1, 3))
_PAIR_SHAPES_16 = ((1, 1), (2, 1), (1, 2))
"""The same where a sum takes a vector; for 32 registers, and for 16."""


def claim_convolution(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Convolutions of any kernel, stride, dilation and padding."""
    layer = read_layer(program, instruction, target, "conv", "neon", sums=True)
    if isinstance(layer, str):
        return layer
    return _implementation(program, layer, target, f"conv {layer.geometry.kernel[0]}x{layer.geometry.kernel[1]}")


def claim_dense(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """Fully connected layers on any number of rows: a 1x1 convolution whose pixels are the rows."""
    layer = read_layer(program, instruction, target, "dense", "neon", sums=True)
    return layer if isinstance(layer, str) else _implementation(program, layer, target, "dense")


def _implementation(program: Program, layer: Layer, target: Target, kernel: str) -> Implementation | str:
    plan = _Plan(layer, target)
    instruction = layer.instruction
    data = plan.product.table(layer.weights)
    table = Buffer(f"{instruction.out}.packed", DType.INT32, data.shape, "constant", data=data, align=4)
    reads, constants = operands_of(program, instruction, layer.split.rest)
    product = plan.product
    by = product.blocks[0][0].by
    how = "in a ring of padded rows" if plan.windows.padded else "as one line" if plan.windows.flat else "in place"
    return Implementation(
        kernel=kernel,
        instruction=instruction,
        reads=reads,
        writes=(instruction.out,),
        constants=(table, *constants),
        emit=lambda function: _emit(function, plan, table.name),
        scratch_nbytes=-(-(plan.windows.scratch_nbytes + plan.line_nbytes) // 4) * 4,
        overwrites=elementwise_overwrites(program, instruction) if plan.has_rest else (),
        rows=Rows(layer.geometry.output[1], 1, images=layer.geometry.output[0]),
        style="ordered",
        notes=(product.ending.note(), f"{product.pixels} pixels x {4 * product.vectors} channels by {by}, pixels are read {how}"),
        cost=plan.cost,
    )


def _blocks(target: Target) -> Iterator[tuple[tuple[tuple[int, int], ...], Callable[..., Block]]]:
    """The shapes of blocks for a core, with their class."""
    if "i8mm" in target.has:
        yield _MATRIX_SHAPES, MatrixBlock
    if "dotprod" in target.has:
        yield _SHAPES, Block
    else:
        wide = target.pointer_bits == 64
        yield _PAIR_SHAPES if wide else _PAIR_SHAPES_16, partial(PairBlock, registers=32 if wide else 16)


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer: the block is that of the fewest instructions."""

    layer: Layer
    target: Target
    windows: Windows = field(init=False)
    product: Product = field(init=False)

    def __post_init__(self) -> None:
        layer = self.layer
        windows, ending = Windows.of(layer, not self.has_rest), Ending.of(layer)
        object.__setattr__(self, "windows", windows)
        channels = len(layer.bias)
        step = channels if self.has_rest else layer.out.pixel
        found = [
            Product(ending, windows.runs, windows.step, channels, pixels, vectors, step, block)
            for shapes, block in _blocks(self.target)
            for pixels, vectors in sorted({(min(pixels, windows.least), vectors) for pixels, vectors in shapes})
            if 4 * vectors < channels + 4 and (block is not MatrixBlock or pixels % 2 == 0)
        ]
        alike = {tuple(block.is_looped for block, _ in one.blocks): one for one in found}  # pairs are the same in all shapes
        if not all(one.fits_halves(layer.weights) for one in alike.values()):
            found = [replace(one, block=partial(one.block, pairs=False)) for one in found]
        object.__setattr__(self, "product", min(found, key=self._instructions))

    def _instructions(self, product: Product) -> float:
        images, rows, columns, _ = self.layer.geometry.output
        lines, length = (images, rows * columns) if self.windows.flat else (images * rows, columns)
        return lines * (8 + -(-length // product.pixels) * product.instructions)

    @property
    def cached_nbytes(self) -> int:
        """Of weights, what is kept in the first cache beside pixels."""
        return (self.target.l1d_nbytes or _L1_NBYTES) // 2

    @property
    def has_panels(self) -> bool:
        """Whether the weights are too many for the cache, and serve a line more than a few times."""
        _, rows, columns, _ = self.layer.geometry.output
        blocks = (rows * columns if self.windows.flat else columns) // self.product.pixels
        return blocks >= _REUSED and self.product.table_nbytes > self.cached_nbytes

    @property
    def has_rest(self) -> bool:
        return self.layer.split.rest is not None

    @property
    def line_nbytes(self) -> int:
        """Of scratch, behind that of the windows: a line of results that something fused takes."""
        return self.layer.geometry.output[2] * self.layer.geometry.output[3] if self.has_rest else 0

    @property
    def cost(self) -> Cost:
        """Counted on the code."""
        rest = instructions(self.layer) * prod(self.layer.geometry.output)
        code = self.product.code + _BODY + (_RING if self.windows.padded else 0) + (_REST if self.has_rest else 0)
        return Cost(round(20 + self.windows.instructions + self._instructions(self.product) + rest), 4 * round(code))


def _emit(function: KernelFunction, plan: _Plan, table_name: str) -> None:
    layer, simd, builder = plan.layer, Simd(function), function.builder
    source, target = function.pointer(layer.instruction.left.buffer), function.pointer(layer.instruction.out)
    table = function.pointer(table_name)
    nbytes = function.buffer(layer.instruction.out).dtype.nbytes

    def line(one: Line) -> None:
        image, row = builder.mul(one.image, I32(layer.out.image * nbytes)), builder.mul(one.row, I32(layer.out.row * nbytes))
        out = simd.at(target, builder.add(builder.add(image, row), I32(layer.out.offset * nbytes)))
        if not plan.has_rest:
            _pixels(simd, plan, one, out, table)
            return
        assert isinstance(one.count, int) and function.scratch is not None
        results = simd.at(function.scratch, plan.windows.scratch_nbytes)
        _pixels(simd, plan, one, results, table)
        Rest(simd, layer).emit(results, out, one.count, (one.image, one.row, 0))

    plan.windows.emit(simd, source, function.scratch, (function.y0, function.y1), line)


def _pixels(simd: Simd, plan: _Plan, line: Line, out: Value, table: Value) -> None:
    """All pixels of a line, their outputs from `out` on: those channels first whose weights the cache holds, then the next ones."""
    for part, turns in plan.product.panels(plan.cached_nbytes) if plan.has_panels else ((plan.product, 1),):
        if turns == 1:
            _part(simd, part, line, out, table)
            out, table = _behind(simd, part, out, table)
            continue
        with simd.function.carried_loop(0, turns, [out, table]) as carried:
            _part(simd, part, line, *carried.values)
            carried.next = _behind(simd, part, *carried.values)
        out, table = carried.results


def _behind(simd: Simd, product: Product, out: Value, table: Value) -> tuple[Value, Value]:
    """Where the outputs and the table of the channels behind these begin."""
    return simd.at(out, product.channels * product.ending.nbytes), simd.at(table, product.table_nbytes)


def _part(simd: Simd, product: Product, line: Line, out: Value, table: Value) -> None:
    """All pixels of a line, and the channels that the product has."""
    builder, pixels = simd.builder, product.pixels

    def block(x: Value) -> None:
        rows = [simd.at(each, builder.mul(x, I32(product.step))) for each in line.rows]
        product.emit(simd, rows, simd.at(out, builder.mul(x, I32(product.out_step * product.ending.nbytes))), table)

    if isinstance(line.count, int) and line.count == pixels:
        product.emit(simd, line.rows, out, table)
    elif isinstance(line.count, int) and line.count % pixels == 0:
        with simd.function.loop(0, line.count, pixels) as x:
            block(x)
    else:
        _overlapping(simd, line.count, pixels, block)


def _overlapping(simd: Simd, count: int | Value, pixels: int, block: Callable[[Value], None]) -> None:
    """`block(x)` for blocks of pixels that cover `count`, at least one block; the last one is moved back so that it ends with them."""
    builder, function = simd.builder, simd.function
    if isinstance(count, int):
        turns, last = I32(-(-count // pixels)), I32(count - pixels)
    else:
        turns, last = builder.udiv(builder.add(count, I32(pixels - 1)), I32(pixels)), builder.sub(count, I32(pixels))
    with function.carried_loop(0, turns, [I32(0)]) as carried:
        x = carried.values[0]
        block(x)
        further = builder.add(x, I32(pixels))
        carried.next = (builder.select(builder.icmp_signed("<", further, last), further, last),)
