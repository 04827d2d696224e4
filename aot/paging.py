"""Which layers fit into a window of weights: what kernels offer within it, and layers in parts where nothing else fits.

Enters: a Program with what kernels offer for each instruction, the bytes of the window. Leaves: a Program and what is offered for it, each
page of at most half the window (so that the next one fits beside it), or else at most all of it.
Invariant: CompileError names the layer that fits in no way, and the least window that it would take.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aot.backends.generic import GENERIC
from aot.errors import CompileError
from aot.graph.primitive import Contract, Control
from aot.lower.channels import channel_axis, split_channels
from aot.lower.pages import page_nbytes
from aot.lower.select import survey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aot.driver import Options
    from aot.graph.primitive import Primitive
    from aot.lower.channels import Parts
    from aot.lower.implementation import Backend
    from aot.lower.program import Buffer, Program
    from aot.lower.select import Field
    from aot.target import Target

_UNIT = 4
"""Channels that a part has a multiple of, if it can: kernels make several at a time."""
_MORE_PARTS = 1.6
"""So many times as many parts as there have to be, if all are then equal: they share code, and take each other's place in the window."""

Divided = tuple["Program", tuple["Field", ...]]
Fitted = tuple[tuple["Buffer", ...], tuple["Primitive", ...], tuple["Field", ...]]


def require_pages(options: Options) -> None:
    """CompileError for what can't be combined with --page-weights."""
    if options.page_weights_nbytes is None:
        return
    what = "--page-weights brings the weights into the workspace, "
    if options.weights == "separate":
        raise CompileError(f"{what}--weights separate reads them where they are", hint="leave out one of the two")
    if options.weights_in is not None:
        raise CompileError(f"{what}so that --weights-in has nothing to copy", hint="leave out one of the two")
    if options.kernels == "library":
        raise CompileError(f"{what}which is for --kernels native: functions of a library need all weights of a layer at once")


def fit_window(program: Program, fields: Sequence[Field], backend: Backend, target: Target, window_nbytes: int) -> Divided:
    """The Program and its fields, with layers in parts where their constants do not fit."""
    if any(isinstance(one, Control) for one in program.instructions):
        raise CompileError(
            "--page-weights: the model has loops or branches (WHILE, IF, recurrent layers), which can't be combined yet"
        )
    instructions: list[Primitive] = []
    found: list[Field] = []
    for instruction, field in zip(program.instructions, fields, strict=True):
        fitted = _fitted(program, instruction, field, backend, target, window_nbytes)
        if fitted is None:
            raise _too_small(program, fields, backend, target, window_nbytes)
        buffers, parts, offered = fitted
        program = replace(program, buffers=(*program.buffers, *buffers)) if buffers else program
        instructions += parts
        found += offered
    return replace(program, instructions=tuple(instructions)), tuple(found)


def _fitted(
    program: Program, instruction: Primitive, field: Field, backend: Backend, target: Target, window_nbytes: int
) -> Fitted | None:
    """New buffers, and what stands in the instruction's place; None if nothing fits."""
    half = window_nbytes // 2
    small = _within(field, half)
    if small is not None and not all(one.is_frugal for one in small.candidates):
        return (), (instruction,), (small,)
    splitter = _Splitter(program, instruction, backend, target) if isinstance(instruction, Contract) else None
    if splitter is not None and splitter.keeps_kernels and (divided := splitter.divided(field, half)) is not None:
        return divided
    if (large := small or _within(field, window_nbytes)) is not None:
        return (), (instruction,), (large,)
    return None if splitter is None else splitter.divided(field, half) or splitter.divided(field, window_nbytes)


def _too_small(program: Program, fields: Sequence[Field], backend: Backend, target: Target, window_nbytes: int) -> CompileError:
    """The refusal, for the layer that needs the largest window."""
    needed: list[tuple[int, Primitive, Field]] = []
    for instruction, field in zip(program.instructions, fields, strict=True):
        if (least := _least(field)) > window_nbytes:
            if isinstance(instruction, Contract):
                least = min(least, _Splitter(program, instruction, backend, target).least_nbytes)
            needed.append((least, instruction, field))
    least, instruction, field = max(needed, key=lambda each: each[0])
    nodes = ", ".join(map(str, instruction.nodes))
    label = program[field.candidates[0].writes[0]].label
    name = f"the layer of '{label}'" if label else "a layer"
    return CompileError(
        f"{name} (node {nodes}) needs {least} bytes of weights and tables at once, more than --page-weights {window_nbytes}",
        hint=f"--page-weights {least} is the least that will do",
    )


def _within(field: Field, nbytes: int) -> Field | None:
    """The field without candidates whose page is larger; None if none is left."""
    kept = tuple(one for one in field.candidates if page_nbytes(one) <= nbytes)
    out = tuple((one, "its weights do not fit --page-weights") for one in field.candidates if page_nbytes(one) > nbytes)
    return replace(field, candidates=kept, excluded=(*field.excluded, *out)) if kept else None


def _least(field: Field) -> int:
    return min(map(page_nbytes, field.candidates))


class _Splitter:
    """Ways to divide a contraction by its output's channels."""

    def __init__(self, program: Program, layer: Contract, backend: Backend, target: Target) -> None:
        self.program, self.layer, self.backend, self.target = program, layer, backend, target
        axis = channel_axis(layer)
        self.channels = 1 if axis is None else layer.space[axis]

    @property
    def keeps_kernels(self) -> bool:
        """Whether its parts are layers of the same kind."""
        geometry = self.layer.geometry
        return geometry is not None and geometry.kind != "depthwise" and geometry.groups == 1

    def divided(self, field: Field, limit: int) -> Fitted | None:
        """The layer in about as few parts as there can be whose pages have at most `limit` bytes; None if there are none."""
        each = self._rounded(min(max(self.channels * limit // _least(field), 1), self.channels - 1))
        while each > 0:
            parts = split_channels(self.program, self.layer, self._ends(each))
            if parts is None:
                return None
            offered = [_within(one, limit) for one in self._survey(parts)]
            if all(one is not None for one in offered):
                return parts[0], parts[1], tuple(one for one in offered if one is not None)
            each = self._rounded(each - 1)
        return None

    @property
    def least_nbytes(self) -> int:
        """The least window that parts of a single channel fit into."""
        parts = split_channels(self.program, self.layer, range(1, self.channels + 1)) if self.channels > 1 else None
        if parts is None:
            return 1 << 62
        return max(map(_least, self._survey((parts[0], parts[1]))))

    @staticmethod
    def _rounded(channels: int) -> int:
        return channels // _UNIT * _UNIT if channels > _UNIT else channels

    def _ends(self, each: int) -> list[int]:
        """Where parts of at most so many channels end, all as large, or about so."""
        unit = _UNIT if each % _UNIT == 0 else 1
        least, units = -(-self.channels // each), -(-self.channels // unit)
        count = next((count for count in range(least, int(least * _MORE_PARTS) + 1) if units % count == 0), least)
        return [min(units * (number + 1) // count * unit, self.channels) for number in range(count)]

    def _survey(self, parts: Parts) -> tuple[Field, ...]:
        """What kernels offer for the parts."""
        inside = replace(self.program, buffers=(*self.program.buffers, *parts[0]), instructions=parts[1])
        return survey(inside, self.backend, GENERIC, self.target)
