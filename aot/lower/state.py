"""State: where each variable lies in the memory that the caller keeps between runs, and the Program that fills it at first.

Enters: the Programs of all entries. Leaves: a `StateLayout`, and the Program of NAME_init.
Invariant: a variable has one place, whichever entries use it; every byte of the state is written by NAME_init.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from aot.errors import CompileError
from aot.graph.expr import Const, Expr, Load, axis
from aot.graph.ir import DType
from aot.graph.primitive import Map
from aot.lower.program import Buffer, Program

if TYPE_CHECKING:
    from aot.graph.primitive import Primitive

_WORD = 4


@dataclass(frozen=True)
class StateLayout:
    """Offsets in the state by variable, in bytes; what it holds before the first run (`image`: a multiple of `align` bytes)."""

    offsets: Mapping[str, int]
    image: bytes
    align: int

    @property
    def nbytes(self) -> int:
        return len(self.image)


def lay_out_state(programs: Iterable[Program]) -> StateLayout:
    """Place every variable of these Programs, in the order in which they first name them, on multiples of 4 bytes (8 for 8-byte elements).

    CompileError if two entries use a variable with different sizes or initial contents.
    """
    found: dict[str, Buffer] = {}
    for buffer in (buffer for program in programs for buffer in program.buffers if buffer.role == "state"):
        other = found.setdefault(buffer.name, buffer)
        if other.nbytes != buffer.nbytes or _content(other) != _content(buffer):
            raise CompileError(f"two entries use the variable '{buffer.label or buffer.name}' differently")
    align = max((buffer.dtype.nbytes for buffer in found.values()), default=_WORD)
    align = max(align, _WORD)
    image = bytearray()
    offsets: dict[str, int] = {}
    for buffer in found.values():
        image += bytes(-len(image) % max(_WORD, buffer.dtype.nbytes))
        offsets[buffer.name] = len(image)
        image += _content(buffer)
    image += bytes(-len(image) % align)
    return StateLayout(offsets, bytes(image), align)


def _content(buffer: Buffer) -> bytes:
    return bytes(buffer.nbytes) if buffer.initial is None else np.ascontiguousarray(buffer.initial).tobytes()


def initial_program(layout: StateLayout) -> Program:
    """The Program that writes the whole state, as words: a fill for each run of equal ones that is worth it, copies of the others."""
    words = np.frombuffer(layout.image, "<i4").astype(np.int32)
    state = Buffer("state", DType.INT32, words.shape, "state")
    buffers, instructions = [state], list[Map]()
    for start, stop, single in _runs(words):
        value: Expr = Const(int(words[start]), DType.INT32)
        if not single:
            name = f"initial{start}"
            buffers.append(Buffer(name, DType.INT32, (stop - start,), "constant", data=words[start:stop].copy()))
            value = Load(name, (axis(0),), DType.INT32)
        instructions.append(Map("state", (stop - start,), value, (axis(0, 1, start),)))
    program: tuple[Primitive, ...] = tuple(instructions)
    return Program("init", tuple(buffers), program, (), ())


_WORTH_A_FILL = 16
"""Equal words in a row from which on a loop of their own is smaller than their copies."""


def _runs(words: np.ndarray) -> list[tuple[int, int, bool]]:
    """(start, stop, whether all words are equal): stretches that cover the array."""
    found: list[tuple[int, int, bool]] = []
    position = 0
    for _, group in groupby(words.tolist()):
        stop = position + sum(1 for _ in group)
        single = stop - position >= _WORTH_A_FILL or len(words) == stop - position
        if found and not single and not found[-1][2]:
            found[-1] = (found[-1][0], stop, False)
        else:
            found.append((position, stop, single))
        position = stop
    return found
