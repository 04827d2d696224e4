"""Buffers whose rows lie anywhere in the workspace: how a kernel's function finds them.

Enters: an implementation, offsets of rows. Leaves: the implementation with one more constant for each such buffer.
Invariant: the buffer's own parameter points to what the offsets count from; only rows of the buffer have an offset.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from aot.graph.ir import DType
from aot.lower.program import Buffer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aot.lower.implementation import Implementation


def table_of_rows(name: str) -> str:
    """The name of the constant that holds the offsets of a buffer's rows."""
    return f"rows.{name}"


def with_tables(implementation: Implementation, offsets: Mapping[str, Sequence[int]]) -> Implementation:
    """The implementation as it is emitted where some of its buffers lie scattered: `offsets`, in bytes, of each row of those."""
    tables = tuple(_table(name, offsets[name]) for name in sorted(offsets))
    return replace(implementation, constants=(*implementation.constants, *tables))


def _table(name: str, offsets: Sequence[int]) -> Buffer:
    dtype = DType.UINT16 if max(offsets) < 1 << 16 else DType.INT32
    return Buffer(table_of_rows(name), dtype, (len(offsets),), "constant", data=np.asarray(offsets, dtype.np))
