"""Arrays from .npy and .npz files.

Enters: paths. Leaves: numpy arrays, or a CompileError in one line. Invariant: nothing in a file is executed (no pickles).
"""

from __future__ import annotations

import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from aot.errors import CompileError

_DAMAGED = (
    ValueError,
    EOFError,
    AttributeError,
    TypeError,
    KeyError,
    MemoryError,
    OverflowError,
    SyntaxError,
    RuntimeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy, zipfile and Python's tokenizer, which read headers, raise for bytes that they can't make anything of."""


@contextmanager
def _opened(path: str, kind: str) -> Generator[BinaryIO]:
    try:
        with open(path, "rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield stream
    except OSError as error:
        raise CompileError(f"can't be read: {error.strerror or error}", where=path) from error
    except _DAMAGED as error:
        raise CompileError(f"is no {kind} file, or a damaged one, or holds Python objects", where=path) from error


def load_npz(path: str) -> dict[str, Any]:
    """The arrays of an .npz file."""
    with _opened(path, ".npz") as stream, np.load(stream, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def load_npy(path: str) -> np.ndarray:
    """The array of an .npy file."""
    with _opened(path, ".npy") as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)
