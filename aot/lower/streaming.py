"""Row streaming: layers that run row by row, each as soon as the rows that it reads exist.

Enters: a Program, its implementations and an order of them. Leaves: what each layer's steps touch (`Layers`), and for a segment of
neighbouring layers the order of their steps with the bytes alive at the worst of them (`Walk`).
Invariant: a row is counted from the step that first writes it to the last one that reads it, whatever its address will be.

A segment runs depth first: a step of its last layer asks for the rows it reads, whose layers ask for theirs. Between two layers so many
rows stay alive as the reading one needs at once, and as a branch of the graph delays them.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aot.graph.primitive import Call, Control
from aot.lower.implementation import Skew
from aot.lower.lifetime import in_workspace
from aot.lower.pages import page_nbytes
from aot.lower.rows import instruction_rows, row_count, row_nbytes, step_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aot.lower.implementation import Implementation, Rule
    from aot.lower.lifetime import Io
    from aot.lower.program import Program

Span = tuple[int, int, int]
"""(storage, first row, end of rows)."""


@dataclass(frozen=True)
class Touches:
    """What one step of a layer touches: rows it reads, rows it writes, and rows that the layer reads for the last time."""

    y0: int
    y1: int
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    last: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Layer:
    """An implementation, divided in steps. whole: what its only step touches if it is not divided. overlaps: rule by storage."""

    implementation: Implementation
    steps: tuple[Touches, ...]
    whole: Touches
    overlaps: Mapping[int, Rule]

    @property
    def splits(self) -> bool:
        return len(self.steps) > 1


@dataclass
class Storage:
    """A storage with changing content. nbytes: of a row (0: not in the workspace). first: the layer that first writes it (-1: it holds an
    input); last: the last layer that touches it (the number of layers for an output). pinned: one of the caller's."""

    name: str
    rows: int
    nbytes: int
    first: int
    last: int
    pinned: bool
    writers: list[int] = field(default_factory=list[int])
    readers: list[int] = field(default_factory=list[int])

    @property
    def all_nbytes(self) -> int:
        """Bytes of all its rows."""
        return self.rows * self.nbytes


@dataclass(frozen=True)
class Walk:
    """How a segment runs. peak_nbytes: of the workspace, at its worst step. steps: (layer, number of its step), in order."""

    peak_nbytes: int
    steps: tuple[tuple[int, int], ...]


class Layers:
    """The layers of a straight-line Program in an order, and the storages between them. window_nbytes: of the pages that their constants
    come in, if they do."""

    def __init__(
        self,
        program: Program,
        chosen: Sequence[Implementation],
        order: Sequence[int],
        io: Io,
        inplace: bool = True,
        window_nbytes: int | None = None,
    ) -> None:
        self.program, self.order, self.inplace, self.window_nbytes = program, tuple(order), inplace, window_nbytes
        self.skewed = True
        self.storages: list[Storage] = []
        self.number: dict[str, int] = {}
        for buffer in program.buffers:
            if buffer.base is None and buffer.role not in ("constant", "state"):
                placed = in_workspace(buffer, io)
                first = -1 if buffer.role == "input" else len(order)
                pinned = buffer.role in ("input", "output")
                self.number[buffer.name] = len(self.storages)
                nbytes = row_nbytes(buffer) if placed else 0
                self.storages.append(Storage(buffer.name, row_count(buffer), nbytes, first, -1, pinned))
        self.layers = [self._layer(chosen[position]) for position in order]
        for number, layer in enumerate(self.layers):
            self._connect(number, layer)
        for name in program.outputs:
            if (owner := program.storage(name)) in self.number:
                self.storages[self.number[owner]].last = len(order)

    def with_implementation(self, number: int, one: Implementation) -> Layers:
        """The same layers, but for one of them. It touches the same storages."""
        changed = copy.copy(self)
        changed.layers = list(self.layers)
        changed.layers[number] = self._layer(one)
        return changed

    def without_skews(self) -> Layers:
        """The same layers, but none that runs whole shares bytes with its input, unless they take the same place."""
        changed = copy.copy(self)
        changed.skewed = False
        return changed

    def _layer(self, one: Implementation) -> Layer:
        rows = one.rows
        whole = self._touches(one, 0, rows.count)
        found = [whole]
        if self._divides(one):
            steps = range(0, rows.count, rows.per_step)
            found = [self._touches(one, y, min(y + rows.per_step, rows.count)) for y in steps]
            found = found if rows.accumulates or _rises(found) else [whole]
        shared = one.sharing(rows.per_step).items() if self.inplace else ()
        rules: Mapping[int, Rule] = {self.number[self.program.storage(name)]: rule for name, rule in shared if self._moves(name)}
        return Layer(one, _with_last(found), _with_last([whole])[0], rules)

    def _divides(self, one: Implementation) -> bool:
        """Whether an implementation has rows, which are those of the instruction."""
        if one.rows.count == 1 or one.rows.images > 1 or len(one.writes) != 1 or isinstance(one.instruction, Call | Control):
            return False
        return instruction_rows(one.instruction, one.rows.accumulates) == one.rows.count

    def _moves(self, name: str) -> bool:
        return self.program.storage(name) in self.number

    def _touches(self, one: Implementation, y0: int, y1: int) -> Touches:
        def spans(names: Sequence[str]) -> tuple[Span, ...]:
            found: list[tuple[int, int, int]] = []
            for owner in dict.fromkeys(self.program.storage(name) for name in names if self._moves(name)):
                rows = step_rows(self.program, one, owner, y0, y1)
                found.append((self.number[owner], rows.start, rows.stop))
            return tuple(found)

        return Touches(y0, y1, spans(one.reads), spans(one.writes), ())

    def _connect(self, number: int, layer: Layer) -> None:
        for storage, _, _ in layer.whole.reads:
            self.storages[storage].readers.append(number)
            self.storages[storage].last = number
        for storage, _, _ in layer.whole.writes:
            self.storages[storage].writers.append(number)
            self.storages[storage].first = min(self.storages[storage].first, number)
            self.storages[storage].last = number

    def may_scatter(self, number: int, layers: Sequence[int]) -> bool:
        """Whether each of these layers, run by rows, can take a storage's rows one by one."""
        one = self.storages[number]
        if one.rows < 2 or not one.nbytes or one.pinned or self._is_output(number):
            return False
        for at in layers:
            layer = self.layers[at]
            names = {self.program.storage(name) for name in layer.implementation.scatters}
            single = all(high - low <= 1 for step in layer.steps for s, low, high in (*step.reads, *step.writes) if s == number)
            if not layer.splits or not (single or one.name in names):
                return False
        return True

    def alive_nbytes(self, number: int) -> int:
        """Bytes of storages that exist before a layer and that it, or a later one, touches (or the caller reads)."""
        return sum(one.rows * one.nbytes for one in self.storages if one.first < number <= one.last)

    def whole_peak(self, number: int) -> int:
        """Bytes alive while a layer runs undivided."""
        layer, storages = self.layers[number], self.storages
        new = sum(storages[s].rows * storages[s].nbytes for s, _, _ in layer.whole.writes if storages[s].first == number)
        pages = self.pages_nbytes(number, number + 1)
        return self.alive_nbytes(number) + new - self._saved_whole(number) + layer.implementation.scratch_nbytes + pages

    def pages_nbytes(self, first: int, end: int) -> int:
        """Bytes of the pages that layers [first, end) need while they run together."""
        if self.window_nbytes is None:
            return 0
        return sum(page_nbytes(layer.implementation) for layer in self.layers[first:end])

    def _saved_whole(self, number: int) -> int:
        """Bytes that the output shares with an input on which it may lie as a whole."""
        layer, storages = self.layers[number], self.storages
        if not self.inplace or len(layer.whole.writes) != 1 or storages[layer.whole.writes[0][0]].first != number:
            return 0
        nbytes, found = storages[layer.whole.writes[0][0]].all_nbytes, 0
        for name, rule in layer.implementation.sharing(layer.implementation.rows.count).items():
            if not self._moves(name) or (old := storages[self.number[self.program.storage(name)]]).last != number:
                continue
            if isinstance(rule, Skew) and self.skewed:
                found = max(found, old.all_nbytes + nbytes - rule.span_nbytes(old.all_nbytes, nbytes))
            elif rule == "forward" or old.all_nbytes == nbytes:
                found = max(found, min(old.all_nbytes, nbytes))
        return found

    def _is_output(self, storage: int) -> bool:
        return self.storages[storage].last == len(self.layers)

    def walk(self, first: int, end: int, limit: int = 1 << 60) -> tuple[Walk | None, int]:
        """Layers [first, end) as one segment, row by row, and the steps that were looked at for it; None once more than `limit` bytes are
        alive, where a layer can't be divided, or where the window is too small for their pages.

        A single layer is divided in its steps, too.
        """
        if any(not self.layers[number].splits for number in range(first, end - 1)):
            return None, 1
        pages = self.pages_nbytes(first, end)
        if self.window_nbytes is not None and pages > self.window_nbytes:
            return None, 1
        if self.alive_nbytes(first) > limit - pages:
            return None, 1
        walker = _Walker(self, first, end, limit - pages)
        walk = walker.walk()
        looked_at = len(walker.order) + sum(len(layer.steps) for layer in self.layers[first:end])
        return walk and replace(walk, peak_nbytes=walk.peak_nbytes + pages), looked_at


def _rises(steps: Sequence[Touches]) -> bool:
    """Whether each step writes rows behind those of the steps before it."""
    spans = [{storage: (low, high) for storage, low, high in step.writes} for step in steps]
    return all(after[s][0] >= before[s][1] for before, after in itertools.pairwise(spans) for s in before)


def _with_last(steps: list[Touches]) -> tuple[Touches, ...]:
    """Each step with the rows that it is the last to read."""
    last: dict[tuple[int, int], int] = {}
    for number, step in enumerate(steps):
        for storage, low, high in step.reads:
            last.update(((storage, row), number) for row in range(low, high))
    ending: list[list[tuple[int, int]]] = [[] for _ in steps]
    for row, number in last.items():
        ending[number].append(row)
    return tuple(Touches(step.y0, step.y1, step.reads, step.writes, tuple(rows)) for step, rows in zip(steps, ending, strict=True))


class _Walker:
    """One segment while its steps are put in order."""

    def __init__(self, layers: Layers, first: int, end: int, limit: int) -> None:
        self.layers, self.first, self.end, self.limit = layers, first, end, limit
        self.storages = layers.storages
        self.done = [0] * (end - first)
        self.order: list[tuple[int, int]] = []
        self.live = layers.alive_nbytes(first)
        self.peak = self.live
        self.born: set[tuple[int, int]] = set()
        self.begun: set[int] = set()
        self.solid = self._solid()
        self.pending: dict[tuple[int, int], int] = {}
        self.inside = {
            s: [n for n in self.storages[s].writers if first <= n < end]
            for n in range(first, end)
            for s, _, _ in layers.layers[n].whole.writes
        }

    def walk(self) -> Walk | None:
        steps = [self.layers.layers[number].steps for number in range(self.first, self.end)]
        self._count_readers()
        consumed = {s for n in range(self.first, self.end) for s, _, _ in self.layers.layers[n].whole.reads}
        sinks = [
            n - self.first
            for n in range(self.first, self.end)
            if not any(s in consumed for s, _, _ in self.layers.layers[n].whole.writes)
        ] or [self.end - self.first - 1]
        every = range(self.end - self.first)
        while (open_ := [n for n in sinks if self.done[n] < len(steps[n])]) or (
            open_ := [n for n in every if self.done[n] < len(steps[n])]
        ):
            number = min(open_, key=lambda n: (self.done[n] / len(steps[n]), n))
            if not self._run(number):
                return None
        return Walk(self.peak, tuple(self.order))

    def _solid(self) -> dict[int, int]:
        """Storages between the segment's layers that can't lie scattered: bytes of each, needed from its first row to its last."""
        inner = {s for n in range(self.first, self.end) for s, _, _ in self.layers.layers[n].whole.writes}
        found: dict[int, int] = {}
        for number in inner:
            one = self.storages[number]
            touchers = (*one.writers, *one.readers)
            if one.rows > 1 and all(self.first <= n < self.end for n in touchers) and not self.layers.may_scatter(number, touchers):
                found[number] = one.rows * one.nbytes
        return found

    def _count_readers(self) -> None:
        """How many layers of the segment still read each row; rows that a later segment needs have one more."""
        for number in range(self.first, self.end):
            for step in self.layers.layers[number].steps:
                for row in step.last:
                    self.pending[row] = self.pending.get(row, 0) + 1

    def _outlives(self, storage: int) -> bool:
        return self.storages[storage].last >= self.end

    def _run(self, number: int) -> bool:
        """The next step of a layer, after those that it waits for."""
        layer = self.layers.layers[self.first + number]
        step = layer.steps[self.done[number]]
        for storage, _, high in step.reads:
            for writer in self.inside.get(storage, ()):
                if writer - self.first >= number:
                    continue
                while self._written(writer, storage) < high:
                    if not self._run(writer - self.first):
                        return False
        self.order.append((self.first + number, self.done[number]))
        self.done[number] += 1
        new = self._newborn(step)
        dying = list(self._dying(step))
        freed = sum(self.storages[s].nbytes for s, _ in dying if s not in self.solid) + self._emptied(dying)
        loose = [] if any(s in self.solid for s, _, _ in step.writes) else [row for row in dying if row[0] not in self.solid]
        during = self.live + new - shared_nbytes(self.layers, layer, step, new, loose) + layer.implementation.scratch_nbytes
        self.peak = max(self.peak, during)
        self.live += new - freed - self._unread(step)
        return self.peak <= self.limit

    def _written(self, writer: int, storage: int) -> int:
        """Rows of a storage that a layer has written: from the first on."""
        done = self.done[writer - self.first]
        if not done:
            return 0
        steps = self.layers.layers[writer].steps
        if done == len(steps):
            return self.storages[storage].rows
        step = steps[done - 1]
        if self.layers.layers[writer].implementation.rows.accumulates:
            return 0
        return next(high for s, _, high in step.writes if s == storage)

    def _newborn(self, step: Touches) -> int:
        new = 0
        for storage, low, high in step.writes:
            if self.storages[storage].first < self.first:
                continue
            for row in range(low, high):
                if (storage, row) not in self.born:
                    self.born.add((storage, row))
                    new += self.storages[storage].nbytes if storage not in self.solid else 0
            if storage in self.solid and storage not in self.begun:
                self.begun.add(storage)
                new += self.solid[storage]
        return new

    def _emptied(self, dying: Sequence[tuple[int, int]]) -> int:
        """Bytes of storages in one piece whose last row dies."""
        return sum(nbytes for s, nbytes in self.solid.items() if s in {d for d, _ in dying} and self._is_done(s))

    def _is_done(self, storage: int) -> bool:
        return all(self.done[n - self.first] == len(self.layers.layers[n].steps) for n in self.storages[storage].readers)

    def _dying(self, step: Touches) -> Iterator[tuple[int, int]]:
        """Rows that nothing reads after this step."""
        for row in step.last:
            self.pending[row] -= 1
            if not self.pending[row] and not self._outlives(row[0]):
                yield row

    def _unread(self, step: Touches) -> int:
        """Bytes of rows that were written, but that nothing ever reads."""
        return sum(
            self.storages[storage].nbytes
            for storage, low, high in step.writes
            for row in range(low, high)
            if storage not in self.solid
            and (storage, row) not in self.pending
            and not self._outlives(storage)
            and self.storages[storage].writers[-1] == self.order[-1][0]
        )


def shared_nbytes(layers: Layers, layer: Layer, step: Touches, new: int, dying: Sequence[tuple[int, int]]) -> int:
    """Bytes that rows written in a step can share with rows that die in it, as the implementation allows."""
    if not layer.overlaps or len(step.writes) != 1 or not new:
        return 0
    out = layers.storages[step.writes[0][0]].nbytes
    best, anywhere = 0, 0
    for storage, _ in dying:
        nbytes = layers.storages[storage].nbytes
        match layer.overlaps.get(storage):
            case "anywhere":
                anywhere += nbytes
            case "forward":
                best = max(best, min(nbytes, out))
            case "same" | "element" if nbytes == out:
                best = max(best, out)
            case _:
                pass
    return max(best, min(anywhere, new))
