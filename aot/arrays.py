"""Arrays from .npy and .npz files.

Enters: paths. Leaves: numpy arrays, or a CompileError in one line. Invariant: nothing in a file is executed (no pickles).
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from aot.errors import CompileError


@contextmanager
def _readable(path: str, kind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CompileError(f"can't be read: {error.strerror or error}", where=path) from error
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise CompileError(f"is no {kind} file, or a damaged one, or holds Python objects", where=path) from error


def load_npz(path: str) -> dict[str, Any]:
    """The arrays of an .npz file."""
    with _readable(path, ".npz"), np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def load_npy(path: str) -> np.ndarray:
    """The array of an .npy file."""
    with _readable(path, ".npy"), open(path, "rb") as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)
