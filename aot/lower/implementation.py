"""Implementations: how one instruction is computed on a target, and what that costs in memory.

Enters: a Program's instruction and a target. Leaves: `Implementation` (from the kernel that claimed it) and `Kernel`, a back end's table row.
Invariant: an implementation's scratch, packed constants and row contract come from the same function that decided to claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from aot.graph.primitive import Call, Contract, Control, Primitive
from aot.lower.fuse import LOWER_PASSES, LowerPass, LowerPasses

if TYPE_CHECKING:
    from aot.lower.program import Buffer, Program
    from aot.target import Target

Style = Literal["generic", "ordered"]
"""generic: LLVM's passes run on it. ordered: the instruction order is the author's; no passes, no machine scheduler."""


@dataclass(frozen=True)
class Rows:
    """The row contract. `count` output rows; each step makes a multiple of `per_step` of them (or the last ones). Which rows of its
    operands it reads follows from the instruction (`aot/lower/rows.py`).

    accumulates: rows are those of a Reduce's window instead; the step with y0 == 0 sets the output, each later one adds to it.
    in_order: a call for many rows touches them in the order in which steps of `per_step` rows would. images: of each of so many images;
    where there are several, these are not the rows of the instruction, and it runs whole.
    """

    count: int = 1
    per_step: int = 1
    accumulates: bool = False
    in_order: bool = True
    images: int = 1


Overlap = Literal["element", "same", "forward", "anywhere"]
"""How the rows that a step writes may share bytes with rows that it reads, and that nothing reads later.

element: only row on the same row, and byte on byte: element i is read before element i is written. same: byte on byte, but row on any row of
equal size: all of a channel is read before any of it is written. forward: pixels run upwards, and a block of them is read before it is
written: the output may start at or below the input, by as much as its row is larger. anywhere: all that a step of `per_step` rows reads is
copied away before its first store.
"""


@dataclass(frozen=True)
class Skew:
    """Where the output of a layer that runs as a whole may lie on its input, which nothing reads later: it may start `least_nbytes` below
    the input (above it, if that is negative), or further below, by a multiple of `unit_nbytes` in all. Each byte is then written after it
    was read for the last time. Both are whole storages."""

    least_nbytes: int
    unit_nbytes: int = 1

    def allows(self, below_nbytes: int) -> bool:
        """Whether the output may start so many bytes below the input."""
        return below_nbytes >= self.least_nbytes and below_nbytes % self.unit_nbytes == 0

    @property
    def first_nbytes(self) -> int:
        """The least distance that is allowed."""
        return -(-self.least_nbytes // self.unit_nbytes) * self.unit_nbytes

    def span_nbytes(self, old_nbytes: int, new_nbytes: int) -> int:
        """The least bytes that input and output take together."""
        return max(max(self.first_nbytes, 0) + old_nbytes, new_nbytes)


Rule = Overlap | Skew


@dataclass(frozen=True)
class Cost:
    """What an implementation is expected to take: instructions for one inference, and bytes of flash for code of its own (constants are
    counted apart, from `constants`). shared: (name, bytes) of code that layers alike have in common: it is there once for all of them.
    step_instructions: how many more it takes for each further step (of `rows.per_step` rows) that the inference is divided in; None: not
    known, so it counts as many."""

    instructions: int
    code_nbytes: int = 0
    shared: tuple[tuple[str, int], ...] = ()
    step_instructions: int | None = None


@dataclass(frozen=True)
class Request:
    """What a Call asks the caller of the entry for (`pages.py`): the constants of the implementation at this position; or (None) for
    nothing but that those which were asked for last be there."""

    position: int | None = None


def request_of(instruction: Primitive) -> Request | None:
    """What an instruction asks for; None for one that asks for nothing."""
    return instruction.attributes if isinstance(instruction, Call) and isinstance(instruction.attributes, Request) else None


@dataclass(frozen=True)
class Implementation:
    """One instruction's code-to-be.

    kernel: name for reports. reads, writes: activation buffers (their names in the Program), in the order of the function's arguments.
    constants: what it reads of read-only data, packed for it (weights, bias, tables); they replace the instruction's own constants.
    scratch_nbytes: planned memory alive only during a step (4-byte aligned; 8 with `scratch_align`).
    overwrites: of `reads`, those whose storage `writes[0]` may take over at the same address (element i is read before i is written).
    overlap: for `reads` how `writes[0]`'s rows may lie on rows that a step reads last. skew: how all of it may, where the layer is one step.
    scatters: of `reads` and `writes`, those of which a step may touch several rows that do not follow each other in memory: it then gets a
    table of their addresses.
    cost: what the kernel's author expects of it, for choosing among several; None: nothing is known. variant: what tells it from
    the kernel's other implementations of the instruction. is_frugal: it gives up speed for flash, and is there only where flash is short.
    page: the buffer, one of `reads`, that holds the constants while it runs (empty: they can be addressed where they are kept).
    parts: how many calls make its rows, which may run at once (`parts.py`); `scratch_nbytes` is then for all of them, an equal share each.
    emit(function): fills the function's body; `function` is `aot.llvm.emission.KernelFunction`.
    """

    kernel: str
    instruction: Primitive
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    constants: tuple[Buffer, ...]
    emit: Callable[[Any], None]
    scratch_nbytes: int = 0
    scratch_align: int = 4
    overwrites: tuple[str, ...] = ()
    overlap: tuple[tuple[str, Overlap], ...] = ()
    skew: tuple[tuple[str, Skew], ...] = ()
    scatters: tuple[str, ...] = ()
    rows: Rows = Rows()
    style: Style = "generic"
    notes: tuple[str, ...] = ()
    cost: Cost | None = None
    variant: str = ""
    is_frugal: bool = False
    page: str = ""
    parts: int = 1

    @property
    def computes(self) -> bool:
        """Whether it has code of its own: all but control flow and requests for pages."""
        return not isinstance(self.instruction, Control) and request_of(self.instruction) is None

    @property
    def constants_nbytes(self) -> int:
        return sum(constant.nbytes for constant in self.constants)

    def sharing(self, rows: int) -> dict[str, Rule]:
        """For buffers that are read, how the rows that a step of this many rows writes may lie on rows that it is the last to read."""
        found: dict[str, Rule] = dict.fromkeys(self.overwrites, "element")
        single = rows <= self.rows.per_step
        found.update((name, rule) for name, rule in self.overlap if single or (rule == "forward" and self.rows.in_order))
        if rows == self.rows.count:
            found.update(self.skew)
        return found


Answer = Implementation | tuple[Implementation, ...] | str
"""What a kernel says to an instruction: how it would compute it, in one way or several (the first is the one to take where costs say
nothing), or the sentence why it can't."""


@dataclass(frozen=True)
class Kernel:
    """A row of a back end's table. `claim` answers with implementations, or with the sentence why it can't take the instruction.

    kinds: the kinds of instruction (see `kind_of`) that it is asked about; empty: all.
    """

    name: str
    claim: Callable[[Program, Primitive, Target], Answer]
    summary: str = ""
    kinds: tuple[str, ...] = ()


def kind_of(instruction: Primitive) -> str:
    """conv, depthwise or dense for a convolution-like Contract; else contract, map, reduce or call."""
    if isinstance(instruction, Contract) and instruction.geometry is not None:
        return instruction.geometry.kind
    return type(instruction).__name__.lower()


@dataclass(frozen=True)
class Choice:
    """What selection decided for one instruction, for `--explain` with the sentences of the kernels that declined, and the variants
    that there were, each with the reason why it was not taken ("" for the one that was)."""

    implementation: Implementation
    declined: tuple[tuple[str, str], ...] = ()
    variants: tuple[tuple[Implementation, str], ...] = ()

    def instead(self, other: Implementation) -> Choice:
        """The choice of another variant, because of the memory that layers need which run by rows."""
        if other is self.implementation:
            return self
        if other.cost is None:
            return Choice(other, self.declined)  # variants are known by what they cost
        rest = [(one, why or "another is better by rows") for one, why in self.variants if one is not other]
        return Choice(other, self.declined, ((other, ""), *rest))


@dataclass(frozen=True)
class Backend:
    """A back end is a value: its kernels in order of preference; what none claims falls to the generic emitter.

    passes: what becomes of a Program before kernels are asked, each with the reason for its place. unneeded: the one that is for other
    targets. portable: its kernels use no instructions of one architecture, so that they can be C.
    """

    name: str
    kernels: tuple[Kernel, ...]
    default_cpu: str | None = None
    summary: str = ""
    passes: LowerPasses = LOWER_PASSES
    unneeded: Callable[[Target], LowerPass] | None = None
    portable: bool = False

    def on(self, target: Target) -> Backend:
        """The back end for a target: without the pass that is not for it."""
        if self.unneeded is None:
            return self
        without = self.unneeded(target)
        return replace(self, passes=tuple(entry for entry in self.passes if entry[0] is not without))
