"""Damaged files of samples and labels: each is taken, or refused in one line."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from aot.arrays import load_npy
from aot.dataset import load_dataset, load_labels
from aot.errors import CompileError
from tests.cli.test_verify import ONE, PICTURES, TWO

CASES = 20_000 if os.environ.get("AOT_SWEEP") else 600
TEXTS = (b"99999999999", b",", b"\n", b'"', b"1e999", b"\0", b"nan", b"-", b"_", b"'O'", b"(9,9)", b"x" * 5)
HEADER = b"0123456789(),:{}'ifuObSV<>|"


def archive(save: Callable[..., None], **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


def array(content: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, content)
    return stream.getvalue()


SEEDS = {
    ".npz": (
        archive(np.savez, in0=PICTURES),
        archive(np.savez_compressed, in0=PICTURES, in1=np.zeros((2, 2))),
        archive(np.savez, in0_0=PICTURES[0], labels=np.array([1, 2])),
    ),
    ".csv": (b"1,2,3,4,5,6\n1,2,3,4,5,6.5\n", b"a,b\n1,2,3,4,5,6\n"),
    ".npy": (array(PICTURES[0]), array(np.array([1, 2]))),
}


def damaged(case: int) -> tuple[str, bytes]:
    """(suffix, content) of a file, by number."""
    random = Random(case)
    suffix = random.choice(list(SEEDS))
    data = bytearray(random.choice(SEEDS[suffix]))
    for _ in range(random.choice((1, 1, 2, 5))):
        kind, at = random.randrange(5), random.randrange(len(data))
        if kind == 0:
            data = data[: at + 1]
        elif kind == 1:
            data[at] = random.randrange(256)
        elif kind == 2:
            data[at : at + 1] = random.choice(TEXTS)
        elif kind == 3:
            data[at] ^= 1 << random.randrange(8)
        else:
            data[min(at, random.randrange(130))] = random.choice(HEADER)
    return suffix, bytes(data)


def outcome(path: Path) -> set[str]:
    found = set()
    attempts: list[Callable[[], object]] = [lambda: load_labels(str(path), 2), lambda: load_dataset(ONE, str(path.parent))]
    if path.suffix != ".npy":
        attempts += [lambda: load_dataset(ONE, str(path)), lambda: load_dataset(TWO, str(path))]
    for attempt in attempts:
        try:
            attempt()
            found.add("taken")
        except CompileError as error:
            assert str(error).isprintable()
            found.add("refused")
    return found


def test_damaged_files(tmp_path: Path) -> None:
    found: set[str] = set()
    for case in range(CASES):
        suffix, content = damaged(case)
        path = tmp_path / f"data{suffix}"
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found |= outcome(path)
        path.unlink()
    assert found == {"taken", "refused"}


@pytest.mark.parametrize(
    "header", ["{'descr': '|i1', 'fortran_order': False, 'shape': (9999999999999,), }", "{'descr': (", "{'a': 1}"]
)
def test_headers_that_no_array_has(header: str, tmp_path: Path) -> None:
    """More elements than there is memory for; text that ends too early; another dictionary."""
    path = tmp_path / "data.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header.encode() + b"\n" + bytes(16))
    with pytest.raises(CompileError, match=r"is no \.npy file, or a damaged one"):
        load_npy(str(path))
