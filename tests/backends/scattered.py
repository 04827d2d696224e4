"""Runs one implementation in steps of rows, each row of its buffers at a random address of its own, with guard bytes around it.

Enters: a Program, an Implementation, a target, input arrays, steps. Leaves: `Outcome`: the output and what it cost.
Invariant: at each step rows that it may not touch are not what its table points to, and every byte but those of the output's rows and of
scratch stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from aot.graph.primitive import Call, Control
from aot.llvm.emission import distinct_names, parameter_names
from aot.llvm.scattered import table_of_rows, with_tables
from aot.lower.implementation import Implementation
from aot.lower.program import Program
from aot.lower.rows import instruction_rows, row_count, row_nbytes, touched
from aot.target import Target
from tests.backends.emulator import _DATA, Core, Outcome, assemble

_GUARD = 24
_FAR = 0x7FFF0000  # from the start of memory: nothing is mapped there


@dataclass
class _Memory:
    """Random bytes, and what was placed in them. skip: draws the gap in front of a piece, in multiples of its alignment."""

    rng: np.random.Generator
    content: bytearray = field(default_factory=bytearray)

    def place(self, content: bytes, align: int, margin: int = 0) -> int:
        """Bytes at a new address that is a multiple of `align` and, with luck, of nothing larger; `margin` around it is free."""
        start = len(self.content) + _GUARD + margin
        start = -(-start // align) * align + align * int(self.rng.integers(3))
        self.content += self.rng.bytes(start - len(self.content)) + content + self.rng.bytes(_GUARD + margin)
        return start


def run(
    program: Program,
    implementation: Implementation,
    target: Target,
    inputs: Mapping[str, np.ndarray],
    steps: Sequence[tuple[int, int]] = (),
    seed: int = 0,
    align: int = 4,
    over: str = "",
) -> Outcome:
    """Execute it in these steps (default: of `per_step` rows). over: the read on whose dying rows the output's lie, as far towards what
    `overlap` allows as they can. align: of rows in bytes."""
    rows, rng = implementation.rows, np.random.default_rng(seed)
    steps = steps or [(y, min(y + rows.per_step, rows.count)) for y in range(0, rows.count, rows.per_step)]
    names = [*implementation.reads, *implementation.writes]
    touch = {name: [_touched(program, implementation, name, step) for step in steps] for name in names}
    several = {name for name in names if any(len(one) > 1 for one in touch[name])}
    scattered = {
        name for name in names if row_count(program[name]) > 1 and (name not in several or name in implementation.scatters)
    }
    known = {name: gcd(align, row_nbytes(program[name])) if name in scattered else align for name in names}
    distinct = distinct_names(implementation, program) - ({over, *implementation.writes} if over else set())
    nowhere = (0xFFFF, _FAR)[seed % 2]
    tables = {table_of_rows(name): name for name in several & scattered}
    implementation = with_tables(implementation, {name: [nowhere] * row_count(program[name]) for name in tables.values()})
    core = Core(assemble(program, implementation, target, alignment=known, distinct=distinct), target)
    kind, out = dict(implementation.overlap).get(over), implementation.writes[0]
    background = {name: np.full(program[name].shape, 99, program[name].dtype.np) for name in implementation.writes}
    arrays = {name: np.ascontiguousarray(array) for name, array in {**background, **inputs}.items()}
    contents = {name: _parts(program, name, array, name in scattered) for name, array in arrays.items() if name in names}
    for number, (y0, y1) in enumerate(steps):
        memory, places = _Memory(rng), {}
        later = {row for one in touch.get(over, ())[number + 1 :] for row in one}
        dying = [row for row in touch[over][number] if row not in later] if over in scattered else []
        margin = len(contents[out][0]) + align if dying else 0
        pieces = [(name, row) for name in contents for row in range(len(contents[name]))]
        for at in rng.permutation(len(pieces)):
            name, row = pieces[at]
            if not (dying and name == out and row in touch[out][number]):
                places[name, row] = memory.place(contents[name][row], align, margin if name == over and row in dying else 0)
        if dying:
            (mine,) = touch[out][number]
            victim = dying[int(rng.integers(len(dying)))]
            sizes = len(contents[over][victim]), len(contents[out][mine])
            places[out, mine] = places[over, victim] + _shift(rng, kind, *sizes, align)
        for buffer in implementation.constants:
            data = np.array(buffer.data)
            if name := tables.get(buffer.name):
                data[:] = [places[name, row] if row in touch[name][number] else nowhere for row in range(len(data))]
            places[buffer.name, 0] = memory.place(data.tobytes(), max(4, buffer.align))
        scratch = memory.place(bytes(implementation.scratch_nbytes), implementation.scratch_align)
        arguments = []
        for name in parameter_names(implementation):
            nbytes = 0 if name not in scattered else len(contents[name][0])
            if name in tables.values():
                arguments.append(_DATA)
            elif name in scattered:
                row = touch[name][number][0] if touch[name][number] else 0
                arguments.append(_DATA + places[name, row] - row * nbytes)
            else:
                arguments.append(_DATA + places[name, 0])
        arguments += [_DATA + scratch] if implementation.scratch_nbytes else []
        core.machine.mem_write(_DATA, bytes(memory.content))
        core.call([*arguments, y0, y1])
        after = bytearray(core.machine.mem_read(_DATA, len(memory.content)))
        expected = memory.content
        expected[scratch : scratch + implementation.scratch_nbytes] = after[scratch : scratch + implementation.scratch_nbytes]
        for row in touch[out][number] if out in scattered else (0,):
            start = places[out, row]
            first, last = 0, len(contents[out][row])
            if out not in scattered and row_count(program[out]) > 1:
                each = row_nbytes(program[out])
                first, last = touch[out][number].start * each, touch[out][number].stop * each
            expected[start + first : start + last] = after[start + first : start + last]
            contents[out][row] = bytes(after[start : start + len(contents[out][row])])
        changed = np.flatnonzero(np.frombuffer(bytes(expected), np.uint8) != np.frombuffer(bytes(after), np.uint8))
        assert not changed.size, (
            f"step {y0}..{y1}: {changed.size} bytes outside outputs and scratch changed, at {changed[0]}; {places}"
        )
    made = np.frombuffer(b"".join(contents[out]), program[out].dtype.np).reshape(program[out].shape)
    return Outcome(made, core.instructions, core.code_nbytes, core.stack_nbytes)


def _touched(program: Program, implementation: Implementation, name: str, step: tuple[int, int]) -> range:
    """The rows of a buffer that a step touches: all where the implementation does not count rows as buffers do."""
    instruction, rows = implementation.instruction, implementation.rows
    if isinstance(instruction, Call | Control) or instruction_rows(instruction, rows.accumulates) != rows.count:
        return range(row_count(program[name]))
    return touched(program, instruction, name, *step, rows.accumulates)


def _parts(program: Program, name: str, array: np.ndarray, by_rows: bool) -> list[bytes]:
    content, nbytes = array.tobytes(), row_nbytes(program[name]) if by_rows else array.nbytes
    return [content[start : start + nbytes] for start in range(0, len(content), nbytes)]


def _shift(rng: np.random.Generator, kind: str | None, read: int, written: int, align: int) -> int:
    """How far from the start of a dying row of `read` bytes one of `written` bytes may start: an extreme as often as not."""
    if kind == "anywhere":
        choices = range(-written + 1, read)
    elif kind == "forward":
        choices = range(min(0, read - written) - 3 * align, min(0, read - written) + 1)
    else:
        assert kind == "same" and read == written, (kind, read, written)
        return 0
    choices = [each for each in choices if each % align == 0]
    return choices[-1] if rng.integers(2) else int(rng.choice(choices))
