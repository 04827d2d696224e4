"""What a fused expression reads: activations and constants, for an implementation's lists.

Enters: an instruction and the expression behind its requantisation. Leaves: buffer names and constants.
Invariant: the lists hold everything that the expression's emission will load, and nothing that only the contraction itself needed.
"""

from __future__ import annotations

from math import prod

from aot.backends.generic import activations, generic_constants
from aot.backends.layers.operands import Layer
from aot.graph.expr import Expr, loads
from aot.graph.primitive import Contract, Map
from aot.lower.implementation import Overlap, Skew
from aot.lower.program import Buffer, Program


def operands_of(program: Program, instruction: Contract, rest: Expr | None) -> tuple[tuple[str, ...], tuple[Buffer, ...]]:
    """Activations (the contraction's input first) and constants."""
    source = instruction.left.buffer
    if rest is None:
        return (source,), ()
    fused = Map(instruction.out, instruction.space, rest, instruction.store)
    return tuple(dict.fromkeys((source, *activations(program, fused)))), generic_constants(program, fused)


def overlaps(program: Program, layer: Layer, source: Overlap | None) -> tuple[tuple[str, Overlap], ...]:
    """How rows of a layer's output may lie on those of its input: as `source` says, unless the input is an operand beside the output, too,
    which is read to the end. (Operands beside the output are what `overwrites` names.)"""
    return () if source is None or is_beside(program, layer) else ((layer.instruction.left.buffer, source),)


def skews(program: Program, layer: Layer, skew: Skew | None) -> tuple[tuple[str, Skew], ...]:
    """How the whole output may lie on the whole input, as `skew` says: if both are storages of their own, of elements of the same bytes."""
    source, out = program[layer.instruction.left.buffer], program[layer.instruction.out]
    whole = prod(layer.instruction.space) == out.size and not source.is_window and not out.is_window
    whole &= source.dtype.nbytes == out.dtype.nbytes == layer.dtype.nbytes
    whole &= layer.out.offset == 0 and min(layer.out.image, layer.out.row, layer.out.pixel) >= 0
    whole &= all(one.nbytes == program[program.storage(one.name)].nbytes for one in (source, out))
    whole &= len(program.writers[program.storage(out.name)]) == 1 and prod(layer.geometry.input) == source.size
    return () if skew is None or not whole or is_beside(program, layer) else ((source.name, skew),)


def scatterable(program: Program, layer: Layer) -> tuple[str, ...]:
    """The layer's input, where it is one image of several rows: kernels find each of them through a table. An operand beside the output is
    found by its distance from it, so the input must not be one, too."""
    images, height, *_ = layer.geometry.input
    rows = layer.geometry.kind != "dense" and images == 1 and height > 1
    return (layer.instruction.left.buffer,) if rows and not is_beside(program, layer) else ()


def is_beside(program: Program, layer: Layer) -> bool:
    """Whether the layer's input is an operand of what is fused behind the sums, as in x + convolution(x)."""
    source = program.storage(layer.instruction.left.buffer)
    return layer.split.rest is not None and any(program.storage(load.buffer) == source for load in loads(layer.split.rest))


def scatterable_output(program: Program, layer: Layer) -> tuple[str, ...]:
    """The layer's output, where its rows are those of the whole buffer and no operand is found by its distance from them."""
    images, height, *_ = layer.geometry.output
    whole = prod(layer.instruction.space) == program[layer.instruction.out].size
    return (layer.instruction.out,) if images == 1 and height > 1 and whole and layer.split.rest is None else ()
