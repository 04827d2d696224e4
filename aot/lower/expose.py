"""Makes every intermediate buffer an output, so that compiled code can be compared with the reference layer by layer.

Enters: a Program. Leaves: the same Program with its temporaries as further outputs. Invariant: the arithmetic is untouched.
"""

from __future__ import annotations

from dataclasses import replace

from aot.graph.primitive import writes
from aot.lower.program import Program


def expose(program: Program) -> Program:
    """Temporaries -> outputs, in the order in which they are first written, after the model's own outputs."""
    written = dict.fromkeys(program.storage(name) for instruction in program.instructions for name in writes(instruction))
    added = tuple(name for name in written if program[name].role == "temporary")
    buffers = tuple(
        replace(buffer, role="output", label=buffer.name) if program[program.storage(buffer.name)].role == "temporary" else buffer
        for buffer in program.buffers
    )
    return replace(program, buffers=buffers, outputs=(*program.outputs, *added))
