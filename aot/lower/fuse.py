"""Fusion: the passes that turn a Program of single primitives into one of groups, before anything is placed.

Enters: a Program from `build.py`. Leaves: a Program of groups (a prologue, a Map or reduction, an epilogue, each in one primitive).
Invariant: the outputs have the same bytes after each pass.
"""

from __future__ import annotations

from collections.abc import Callable

from aot.graph.primitive import Call, Control, writes
from aot.lower.blocks import blockwise
from aot.lower.draft import Draft
from aot.lower.epilogue import forward_copies, fuse_epilogues
from aot.lower.program import Program
from aot.lower.prologue import inline_maps
from aot.lower.renewal import update_in_place
from aot.lower.sums import separate_sums
from aot.lower.tabulate import tabulate

LowerPass = Callable[[Program], Program]
LowerPasses = tuple[tuple[LowerPass, str], ...]
"""(pass, why it stands there), in order."""


def drop_dead_instructions(program: Program) -> Program:
    """Without the instructions whose results nothing reads, and without the buffers that this leaves unused."""
    draft = Draft(program)
    for position in reversed(range(len(draft.slots))):
        instruction = draft.slots[position]
        if instruction is None or isinstance(instruction, Call | Control):
            continue
        storages = draft.storages(writes(instruction))
        if all(program[storage].role == "temporary" and not draft.readers.get(storage) for storage in storages):
            draft.put(position, None)
    return draft.finish()


LOWER_PASSES: LowerPasses = (
    (drop_dead_instructions, "first, so that a result nobody reads does not count as a reader of what it was computed from"),
    (blockwise(forward_copies), "before the other fusions, while a copy is still a plain load: concatenation then costs nothing"),
    (
        blockwise(fuse_epilogues),
        "before Maps merge with each other, so that an activation joins the reduction before it, not the Map after it",
    ),
    (
        blockwise(inline_maps),
        "after the reductions took their epilogues: what is left of chains of Maps, and data movement in front of reductions",
    ),
    (update_in_place, "after the fusions: then a variable's new content is written by as few instructions as may be"),
    (separate_sums, "before tables of one number: it wants the operands of a sum as they are"),
    (tabulate, "last: the fused expressions show what depends on one 8-bit number alone"),
)


def fuse(program: Program, observe: Callable[[str, Program], None] | None = None, passes: LowerPasses = LOWER_PASSES) -> Program:
    """Run the passes in order, verifying after each; `observe(pass name, program)` sees each result."""
    for run, _ in passes:
        program = run(program)
        program.verify()
        if observe is not None:
            observe(run.__name__, program)
    return program
