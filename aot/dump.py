"""Dumps of a run's tensors, made by firmware, beside what the same program must compute.

Enters: the text of a dump (`docs/instrument.md`), an entry compiled for `--instrument dump`, the inputs of its runs. Leaves: what each tensor
differs by, in the order in which the dump has them.
Invariant: only bytes that are in the dump are compared; lines that are no records of it are left alone.

A dump is lines `@dump ENTRY FINGERPRINT`, then for each tensor `@tensor NUMBER BYTES` and its bytes in lines `@ HEX`, then `@end`; numbers are
hexadecimal. It may hold several runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.bundle import Entry, Layer
from aot.errors import CompileError
from aot.instrument import Tensor, fingerprint, writers_of
from aot.lower.execute import execute_all
from aot.samples import differences, distances

_DIGITS = 16
_HEXADECIMAL = re.compile(rf"(0[xX])?[0-9a-fA-F]{{1,{_DIGITS}}}")


@dataclass(frozen=True)
class Record:
    """A tensor's bytes at one moment. line: where in the text it begins."""

    tensor: int
    content: bytes
    line: int


@dataclass(frozen=True)
class Run:
    """What was dumped of one run of an entry."""

    entry: str
    fingerprint: int
    records: tuple[Record, ...]


@dataclass(frozen=True)
class TensorDifference:
    """A dumped tensor beside the reference: elements compared, how many differ (floats: by more than TFLite's tolerance), by how much at
    most; the first of them."""

    tensor: Tensor
    layer: Layer
    elements: int
    differing: int
    largest: float
    first: str = ""


def read_dump(text: str) -> tuple[Run, ...]:
    """The runs in a dump. CompileError for one that is damaged or has no end."""
    runs, records = list[Run](), list[Record]()
    head: tuple[str, int] | None = None
    missing, lines = 0, list[bytes]()
    for number, raw in enumerate(text.splitlines(), 1):
        word, *rest = raw.split() or [""]
        if word not in ("@dump", "@tensor", "@", "@end"):
            continue
        where = f"line {number}"
        if (word == "@dump") != (head is None) or (word == "@") != (missing > 0):
            wanted = f"{missing} more bytes of tensor {records[-1].tensor}" if missing else "@dump" if head is None else "@end"
            raise CompileError(f"`{word}` is out of place: {wanted} should have come", where=where)
        if word == "@dump":
            entry, told = _fields(rest, 2, where)
            head, records = (entry, _number(told, where)), []
        elif word == "@tensor":
            tensor, missing = (_number(each, where) for each in _fields(rest, 2, where))
            records.append(Record(tensor, b"", number))
            lines = []
        elif word == "@":
            content = _content(_fields(rest, 1, where)[0], where)
            missing -= len(content)
            if missing < 0:
                raise CompileError(f"tensor {records[-1].tensor} has {-missing} bytes too many", where=where)
            lines.append(content)
            if not missing:
                records[-1] = replace(records[-1], content=b"".join(lines))
        elif head is not None:
            runs.append(Run(*head, tuple(records)))
            head = None
    if head is not None or not runs:
        raise CompileError("the dump has no end" if head else "there is no dump in it: no line begins with @dump")
    return tuple(runs)


def _fields(rest: Sequence[str], count: int, where: str) -> Sequence[str]:
    if len(rest) != count:
        raise CompileError(f"a record has {len(rest)} fields instead of {count}", where=where)
    return rest


def _number(text: str, where: str) -> int:
    """Without signs, and other things that Python's numbers may have."""
    if not _HEXADECIMAL.fullmatch(text):
        raise CompileError(f"'{text[:20]}' is no hexadecimal number of at most {_DIGITS} digits", where=where)
    return int(text, 16)


def _content(text: str, where: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise CompileError("the bytes of a tensor are not pairs of hexadecimal digits", where=where) from error


def compare(entry: Entry, run: Run, inputs: Sequence[np.ndarray], state: dict[str, np.ndarray]) -> tuple[TensorDifference, ...]:
    """What each record of a run differs by. state: as for `execute_program`, changed to what the run leaves.

    CompileError for a dump of other tensors than the entry's.
    """
    if run.fingerprint != fingerprint(entry.tensors):
        raise CompileError(
            f"the dump is of another bundle's {run.entry}: its tables differ",
            hint="pass the model and the options that the firmware's bundle was made with",
        )
    wanted = reference(entry, inputs, state)
    turns = dict.fromkeys(wanted, 0)
    return tuple(_compared(entry, record, wanted, turns) for record in run.records)


def _compared(entry: Entry, record: Record, wanted: Mapping[int, Sequence[np.ndarray]], turns: dict[int, int]) -> TensorDifference:
    where = f"line {record.line}"
    if record.tensor >= len(entry.tensors):
        raise CompileError(f"there is no tensor {record.tensor}: {entry.symbol} has {len(entry.tensors)}", where=where)
    tensor, turn = entry.tensors[record.tensor], turns[record.tensor]
    if len(record.content) != tensor.nbytes:
        raise CompileError(f"tensor {record.tensor} has {len(record.content)} bytes instead of {tensor.nbytes}", where=where)
    if turn >= len(wanted[record.tensor]):
        raise CompileError(f"tensor {record.tensor} comes more than {turn} times, as the reference has it", where=where)
    turns[record.tensor] += 1
    want = wanted[record.tensor][turn]
    got = np.frombuffer(record.content, want.dtype).reshape(want.shape)
    found = differences([want], [got])
    largest = float(np.max(np.nan_to_num(distances(want, got), nan=np.inf), initial=0.0))
    count, first = (found[0].count, str(found[0]).rpartition(", ")[2]) if found else (0, "")
    return TensorDifference(tensor, entry.layers[tensor.layer], want.size, count, largest, first)


def reference(entry: Entry, inputs: Sequence[np.ndarray], state: dict[str, np.ndarray]) -> dict[int, list[np.ndarray]]:
    """For each tensor by its number what it holds each time its layer has made it."""
    if entry.plan is None:
        raise ValueError("the entry has no plan")
    schedule, program = entry.plan.schedule, entry.plan.schedule.program
    found: dict[int, list[np.ndarray]] = {number: [] for number in range(len(entry.tensors))}
    whole = dict[int, list[int]]()
    for number, tensor in enumerate(entry.tensors):
        whole.setdefault(max(writers_of(schedule, tensor.name)), []).append(number)

    def after(position: int, arrays: Mapping[str, np.ndarray]) -> None:
        for number in whole.get(position, ()):
            found[number].append(arrays[entry.tensors[number].name].copy())

    execute_all(program, dict(zip(program.inputs, inputs, strict=True)), state, after)
    return found


def missing_tensors(entry: Entry, runs: Sequence[Run]) -> tuple[int, ...]:
    """Numbers of the tensors that no run has."""
    dumped = {record.tensor for run in runs for record in run.records}
    return tuple(number for number in range(len(entry.tensors)) if number not in dumped)
