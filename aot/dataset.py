"""The user's own data: inputs of many samples from a folder, an .npz or a .csv file, and class labels.

Enters: an entry and a path. Leaves: for each sample, arrays in the entry's order, of its dtypes and shapes; labels as integers.
Invariant: nothing is guessed: numbers are taken as they are where they are of the input's type, real ones are quantised by the input's own
scale where it is an integer (`Dataset.quantised` says which inputs), and whatever else does not fit is refused in one line.

A folder holds a file for each sample, taken in the order of their names: .npy (one input), .npz (`in0`, `in1`, ...), .csv (all inputs' numbers one
after the other), or .bin (all inputs' bytes). An .npz file holds `in0`, `in1`, ... whose first axis counts samples, or is a golden file. A
.csv file has a row for each sample, with all inputs' numbers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aot.arrays import load_npy, load_npz
from aot.bundle import Entry, Port
from aot.errors import CompileError
from aot.graph.ops.rounding import nearest_array
from aot.names import listed

SUFFIXES = (".npy", ".npz", ".csv", ".bin")
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")


@dataclass(frozen=True)
class Dataset:
    """inputs: of each sample. names: what each is called. quantised: numbers of the inputs whose real numbers were quantised."""

    inputs: tuple[tuple[np.ndarray, ...], ...]
    names: tuple[str, ...]
    quantised: tuple[int, ...]


def load_dataset(entry: Entry, path: str) -> Dataset:
    """All samples at this path. CompileError, with file and place in it, if one does not fit the entry, or if there is none."""
    if not entry.inputs:
        raise CompileError("the model has no inputs, so that no data is for it", where=path)
    if Path(path).is_dir():
        arrays, names = _from_folder(entry, Path(path))
    elif path.lower().endswith(".npz"):
        arrays, names = _from_archive(entry, load_npz(path), path)
    elif path.lower().endswith(".csv"):
        arrays, names = _from_rows(entry, path)
    elif Path(path).exists():
        raise CompileError("data is a folder, an .npz or a .csv file", where=path)
    else:
        raise CompileError("No such file or folder", where=path)
    if not arrays:
        raise CompileError("there is no sample in it", where=path)
    quantised: set[int] = set()
    inputs: list[tuple[np.ndarray, ...]] = []
    for name, sample in zip(names, arrays, strict=True):
        where = path if name == path else f"{path}: {name}"
        inputs.append(tuple(_fitted(port, each, where) for port, each in zip(entry.inputs, sample, strict=True)))
        quantised |= {i for i, (port, each) in enumerate(zip(entry.inputs, sample)) if _is_quantised(port, each)}
    return Dataset(tuple(inputs), tuple(names), tuple(sorted(quantised)))


def _from_folder(entry: Entry, folder: Path) -> tuple[list[Sequence[np.ndarray]], list[str]]:
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise CompileError(f"the folder holds no {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file", where=str(folder))
    return [_from_file(entry, path) for path in paths], [path.name for path in paths]


def _from_file(entry: Entry, path: Path) -> Sequence[np.ndarray]:
    """The inputs of the one sample of a file."""
    kind, where = path.suffix.lower(), str(path)
    if kind == ".npz":
        return _named(entry, load_npz(where), "", where)
    if kind == ".npy":
        if len(entry.inputs) > 1:
            raise CompileError(
                f"an .npy file holds one array, and the model has {len(entry.inputs)} inputs", where=where, hint="use .npz"
            )
        return [load_npy(where)]
    if kind == ".csv":
        return _divided(entry, [number for row in _rows(where) for number in row], where)
    content, wanted = path.read_bytes(), sum(port.nbytes for port in entry.inputs)
    if len(content) != wanted:
        raise CompileError(f"the file has {len(content)} bytes; the model's inputs take {wanted}", where=where)
    return _split(
        np.frombuffer(content, np.uint8), [port.nbytes for port in entry.inputs], [port.dtype.np for port in entry.inputs]
    )


def _split(data: np.ndarray, sizes: Sequence[int], dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
    """One flat array for each input, of its type."""
    parts = np.split(data, np.cumsum(sizes)[:-1])
    return [part.copy().view(dtype) for part, dtype in zip(parts, dtypes, strict=True)]


def _named(entry: Entry, arrays: Mapping[str, np.ndarray], suffix: str, where: str) -> list[np.ndarray]:
    names = [f"in{i}{suffix}" for i in range(len(entry.inputs))]
    if missing := [name for name in names if name not in arrays]:
        raise CompileError(f"array `{missing[0]}` is missing", where=where, hint=f"it holds {listed(sorted(arrays))}")
    return [arrays[name] for name in names]


def _from_archive(entry: Entry, arrays: Mapping[str, np.ndarray], path: str) -> tuple[list[Sequence[np.ndarray]], list[str]]:
    """A golden file's runs, or the slices of each array's first axis."""
    if "in0_0" in arrays:
        runs = sum(1 for name in arrays if re.fullmatch(r"in0_[0-9]+", name))
        return [_named(entry, arrays, f"_{k}", path) for k in range(runs)], [f"run {k}" for k in range(runs)]
    whole = _named(entry, arrays, "", path)
    counts = [array.shape[0] if array.ndim else 0 for array in whole]
    if len(set(counts)) > 1:
        raise CompileError(
            f"the inputs have {', '.join(map(str, counts))} samples: their first axes must be equally long", where=path
        )
    for i, (port, array) in enumerate(zip(entry.inputs, whole, strict=True)):
        if _squeezed(array.shape[1:]) != _squeezed(port.shape):
            wanted = ["samples", *port.shape]
            text = f"array `in{i}` is {array.dtype}{list(array.shape)}; with an axis of samples first it would be [{', '.join(map(str, wanted))}]"
            raise CompileError(text, where=path)
    return [[array[k] for array in whole] for k in range(counts[0])], [f"sample {k}" for k in range(counts[0])]


def _from_rows(entry: Entry, path: str) -> tuple[list[Sequence[np.ndarray]], list[str]]:
    rows = _rows(path)
    names = [f"row {number}" for number in range(1, len(rows) + 1)]
    return [_divided(entry, row, f"{path}: {name}") for row, name in zip(rows, names, strict=True)], names


Number = int | float


def _rows(path: str) -> list[list[Number]]:
    """The numbers of each row that has some; a first row without any is a heading."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            rows = [(number, row) for number, row in enumerate(csv.reader(stream), 1) if any(field.strip() for field in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CompileError(f"can't be read: {getattr(error, 'strerror', None) or error}", where=path) from error
    if rows and not any(_number(field) is not None for field in rows[0][1]):
        rows = rows[1:]
    return [
        [_required(field, f"{path}: line {line}, column {column}") for column, field in enumerate(row, 1)] for line, row in rows
    ]


def _number(text: str) -> Number | None:
    try:
        return int(text) if _WHOLE.fullmatch(text) else None if "_" in text else float(text)
    except ValueError:
        return None


def _required(text: str, where: str) -> Number:
    number = _number(text)
    if number is None:
        raise CompileError(f"'{text}' is not a number", where=where)
    return number


def _divided(entry: Entry, numbers: Sequence[Number], where: str) -> list[np.ndarray]:
    """All inputs' numbers one after the other: those of an input that are all written as whole ones are taken as they are."""
    sizes = [port.nbytes // port.dtype.nbytes for port in entry.inputs]
    if len(numbers) != sum(sizes):
        raise CompileError(f"there are {len(numbers)} numbers; the model's inputs take {sum(sizes)}", where=where)
    parts, at = list[np.ndarray](), 0
    for port, size in zip(entry.inputs, sizes, strict=True):
        part, at = numbers[at : at + size], at + size
        whole = all(isinstance(number, int) for number in part) and not port.dtype.is_float
        parts.append(_whole(port, part, where) if whole else np.array(part, np.float64))
    return parts


def _whole(port: Port, numbers: Sequence[Number], where: str) -> np.ndarray:
    low, high = (0, 1) if port.dtype.np == np.bool_ else port.dtype.limits
    if outside := [number for number in numbers if not low <= number <= high]:
        raise CompileError(
            f"{outside[0]} is no {port.dtype}, which input '{port.name}' takes ({low} to {high})",
            where=where,
            hint=f"real numbers, which the input's scale quantises, have a point: {outside[0]}.0",
        )
    return np.array(numbers, port.dtype.np)


def _squeezed(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape without the dimensions that move no byte."""
    return tuple(dim for dim in shape if dim != 1)


def _is_quantised(port: Port, array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and port.dtype.is_integer


def _fitted(port: Port, array: np.ndarray, where: str) -> np.ndarray:
    """The array as the port takes it: its dtype, or real numbers; its shape, but for dimensions of 1, or flat."""
    if (
        array.shape != (array.size,) and _squeezed(array.shape) != _squeezed(port.shape)
    ) or array.nbytes // array.itemsize != port.nbytes // port.dtype.nbytes:
        raise CompileError(
            f"the data is {array.dtype}{list(array.shape)}; input '{port.name}' takes {port.dtype}{list(port.shape)}", where=where
        )
    if array.dtype.kind == "f" and port.dtype.is_float:
        fitted = array.astype(port.dtype.np)
    elif _is_quantised(port, array):
        fitted = quantised(port, array, where)
    elif array.dtype == port.dtype.np:
        fitted = array
    else:
        hint = "real numbers are quantised by the input's scale" if port.dtype.is_integer else ""
        raise CompileError(f"the data is {array.dtype}; input '{port.name}' takes {port.dtype}", where=where, hint=hint)
    return np.ascontiguousarray(fitted).reshape(port.shape)


def quantised(port: Port, real: np.ndarray, where: str) -> np.ndarray:
    """What TFLite's QUANTIZE makes of real numbers: divided by the scale in float32, rounded half away from zero, plus zero point, saturated."""
    if port.quantisation is None or port.quantisation.per_axis or not port.quantisation.scale or port.dtype.bits > 16:
        raise CompileError(
            f"the data are real numbers; input '{port.name}' takes {port.dtype}, and has no scale for them", where=where
        )
    if not np.isfinite(real).all():
        raise CompileError(f"the data has numbers that are not finite; input '{port.name}' takes {port.dtype}", where=where)
    low, high = port.dtype.limits
    with np.errstate(over="ignore"):
        scaled = real.astype(np.float32) / np.float32(port.quantisation.scale)
    zero_point = port.quantisation.zero_point
    whole = nearest_array(scaled.astype(np.float64), low - zero_point, high - zero_point)
    return (whole + zero_point).astype(port.dtype.np)


def load_labels(path: str, samples: int) -> np.ndarray:
    """A class number for each sample, of a .csv or .txt file (numbers in any rows), an .npy file, or an .npz file's `labels`."""
    kind = Path(path).suffix.lower()
    if kind == ".npz":
        arrays = load_npz(path)
        if "labels" not in arrays:
            raise CompileError("array `labels` is missing", where=path, hint=f"it holds {listed(sorted(arrays))}")
        labels = arrays["labels"]
    elif kind == ".npy":
        labels = load_npy(path)
    elif kind in (".csv", ".txt"):
        labels = np.array([number for row in _rows(path) for number in row])
    else:
        raise CompileError("labels are a .csv, .txt, .npy or .npz file", where=path)
    if labels.dtype.kind not in "iu" or _squeezed(labels.shape) != _squeezed((labels.size,)):
        raise CompileError(
            f"labels are class numbers, one for each sample; these are {labels.dtype}{list(labels.shape)}", where=path
        )
    if labels.size != samples:
        raise CompileError(f"there are {labels.size} labels, and {samples} samples", where=path)
    return labels.reshape(-1).astype(np.int64)
