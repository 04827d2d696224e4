"""Makes every intermediate buffer an output, so that compiled code can be compared with the reference layer by layer.

Enters: a Program. Leaves: the same Program with its temporaries as further outputs. Invariant: the arithmetic is untouched, and
every output is written in every run: what only branches, or loops that may not turn, write stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aot.graph.primitive import Control, Primitive, writes
from aot.lower.blocks import ends
from aot.lower.program import Program


def expose(program: Program) -> Program:
    """Temporaries -> outputs, in the order in which they are first written, after the model's own outputs."""
    written = dict.fromkeys(program.storage(name) for instruction in _certain(program) for name in writes(instruction))
    added = tuple(name for name in written if program[name].role == "temporary")
    buffers = tuple(
        replace(buffer, role="output", label=buffer.name) if program.storage(buffer.name) in added else buffer
        for buffer in program.buffers
    )
    return replace(program, buffers=buffers, outputs=(*program.outputs, *added))


def _certain(program: Program) -> Iterator[Primitive]:
    """The instructions that run in every run."""
    pairs, stop = ends(program.instructions), 0
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Control) and position in pairs and not instruction.count:
            stop = max(stop, pairs[position][1])
        if position >= stop:
            yield instruction
