"""Selection: which kernel computes each instruction.

Enters: a Program, a back end's kernels in order of preference, the generic kernel. Leaves: one `Choice` an instruction.
Invariant: an implementation names every buffer with changing content that its instruction reads or writes; planning relies on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aot.errors import CompileError, InternalError
from aot.graph.primitive import describe, reads, writes
from aot.lower.implementation import Choice, kind_of

if TYPE_CHECKING:
    from aot.graph.primitive import Primitive
    from aot.lower.implementation import Backend, Implementation, Kernel
    from aot.lower.program import Program
    from aot.target import Target


def select(program: Program, backend: Backend, generic: Kernel, target: Target) -> tuple[Choice, ...]:
    """For each instruction the first kernel that claims it, with the sentences of those before it that declined.

    CompileError if even the generic kernel declines.
    """
    return tuple(_choose(program, instruction, backend, generic, target) for instruction in program.instructions)


def _choose(program: Program, instruction: Primitive, backend: Backend, generic: Kernel, target: Target) -> Choice:
    kind = kind_of(instruction)
    own = [kernel for kernel in backend.kernels if kernel.name != generic.name]
    kernels = [kernel for kernel in own if not kernel.kinds or kind in kernel.kinds]
    declined = [(backend.name, f"no kernel of its own for a {kind}")] if own and not kernels else []
    for kernel in (*kernels, generic):
        answer = kernel.claim(program, instruction, target)
        if isinstance(answer, str):
            declined.append((kernel.name, answer))
            continue
        _check(program, instruction, answer)
        return Choice(answer, tuple(declined))
    nodes = ", ".join(map(str, instruction.nodes))
    raise CompileError(f"no kernel for target {target.name}: {declined[-1][1]}", where=f"node {nodes}" if nodes else "")


def _check(program: Program, instruction: Primitive, chosen: Implementation) -> None:
    """InternalError if the implementation hides an access from the planner, or would overwrite what it does not read."""
    touched = {program.storage(name) for name in (*reads(instruction), *writes(instruction))}
    moving = {name for name in touched if program[name].role != "constant"}
    named = {program.storage(name) for name in (*chosen.reads, *chosen.writes)}
    if not moving <= named:
        raise InternalError(f"kernel {chosen.kernel} does not name {sorted(moving - named)} of: {describe(instruction)}")
    if not {program.storage(name) for name in writes(instruction)} <= {program.storage(name) for name in chosen.writes}:
        raise InternalError(f"kernel {chosen.kernel} does not name what it writes: {describe(instruction)}")
    if not set(chosen.overwrites) <= set(chosen.reads):
        raise InternalError(f"kernel {chosen.kernel} overwrites what it does not read: {describe(instruction)}")
