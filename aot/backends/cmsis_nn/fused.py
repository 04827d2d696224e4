"""What a fused expression reads: activations and constants, for an implementation's lists.

Enters: an instruction and the expression behind its requantisation. Leaves: buffer names and constants.
Invariant: the lists hold everything that the expression's emission will load, and nothing that only the contraction itself needed.
"""

from __future__ import annotations

from aot.backends.generic import activations, generic_constants
from aot.graph.expr import Expr
from aot.graph.primitive import Contract, Map
from aot.lower.program import Buffer, Program


def operands_of(program: Program, instruction: Contract, rest: Expr | None) -> tuple[tuple[str, ...], tuple[Buffer, ...]]:
    """Activations (the contraction's input first) and constants."""
    source = instruction.left.buffer
    if rest is None:
        return (source,), ()
    fused = Map(instruction.out, instruction.space, rest, instruction.store)
    return tuple(dict.fromkeys((source, *activations(program, fused)))), generic_constants(program, fused)
