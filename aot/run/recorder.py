"""Records a run in Unicorn instruction by instruction, with hooks that are machine code.

Enters: what watches the run (`hooks.py`), the flash memory's addresses. Leaves: `Trace`.
Invariant: it counts at the beginning of blocks, after the watch's own hook, which says whose code it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from aot.run.hooks import Hooks, Watch
from aot.run.image import Image
from aot.run.trace import LINE_NBYTES, Trace

# record(engine, address, size, user) and read(engine, kind, address, size, value, user). `user` is State below.
# A block's halfwords are counted as +1 where it begins and -1 where it ends. It follows on the block before, unless that one was another
# owner's or ended elsewhere: then control has jumped.
_SOURCE = """
%Record = type { i64, i64, i64, i64, i64, i64, i64, i64, ptr, ptr, ptr, ptr, ptr }

define void @record(ptr %engine, i64 %address, i32 %size, ptr %record) {
entry:
  %base_at = getelementptr %Record, ptr %record, i32 0, i32 0
  %base = load i64, ptr %base_at
  %bytes_at = getelementptr %Record, ptr %record, i32 0, i32 1
  %bytes = load i64, ptr %bytes_at
  %stride_at = getelementptr %Record, ptr %record, i32 0, i32 2
  %stride = load i64, ptr %stride_at
  %end_at = getelementptr %Record, ptr %record, i32 0, i32 3
  %before = load i64, ptr %end_at
  %watch_at = getelementptr %Record, ptr %record, i32 0, i32 8
  %watch = load ptr, ptr %watch_at
  %owner_at = getelementptr %State, ptr %watch, i32 0, i32 3
  %owner = load i32, ptr %owner_at
  %owner64 = zext i32 %owner to i64
  %row = mul i64 %owner64, %stride
  %offset = sub i64 %address, %base
  %size64 = zext i32 %size to i64
  %after = add i64 %offset, %size64
  %inside = icmp ule i64 %after, %bytes
  %first = lshr i64 %offset, 1
  %start = add i64 %row, %first
  %same = icmp eq i64 %start, %before
  %follows = and i1 %same, %inside
  br i1 %follows, label %count, label %jump
jump:
  %none = icmp slt i64 %before, 0
  br i1 %none, label %arrive, label %leaving
leaving:
  %left_at = getelementptr %Record, ptr %record, i32 0, i32 11
  %left = load ptr, ptr %left_at
  %left_cell = getelementptr i64, ptr %left, i64 %before
  %left_old = load i64, ptr %left_cell
  %left_new = add i64 %left_old, 1
  store i64 %left_new, ptr %left_cell
  br label %arrive
arrive:
  store i64 -1, ptr %end_at
  br i1 %inside, label %enter, label %leave
enter:
  %entered_at = getelementptr %Record, ptr %record, i32 0, i32 10
  %entered = load ptr, ptr %entered_at
  %entered_cell = getelementptr i64, ptr %entered, i64 %start
  %entered_old = load i64, ptr %entered_cell
  %entered_new = add i64 %entered_old, 1
  store i64 %entered_new, ptr %entered_cell
  br label %count
count:
  %halves = lshr i64 %size64, 1
  %end = add i64 %start, %halves
  store i64 %end, ptr %end_at
  %executed_at = getelementptr %Record, ptr %record, i32 0, i32 9
  %executed = load ptr, ptr %executed_at
  %up_cell = getelementptr i64, ptr %executed, i64 %start
  %up_old = load i64, ptr %up_cell
  %up_new = add i64 %up_old, 1
  store i64 %up_new, ptr %up_cell
  %down_cell = getelementptr i64, ptr %executed, i64 %end
  %down_old = load i64, ptr %down_cell
  %down_new = sub i64 %down_old, 1
  store i64 %down_new, ptr %down_cell
  br label %leave
leave:
  ret void
}

define void @read(ptr %engine, i32 %kind, i64 %address, i32 %size, i64 %value, ptr %record) {
entry:
  %watch_at = getelementptr %Record, ptr %record, i32 0, i32 8
  %watch = load ptr, ptr %watch_at
  call void @settle(ptr %engine, ptr %watch)
  %from_at = getelementptr %Record, ptr %record, i32 0, i32 4
  %from = load i64, ptr %from_at
  %nbytes_at = getelementptr %Record, ptr %record, i32 0, i32 5
  %nbytes = load i64, ptr %nbytes_at
  %offset = sub i64 %address, %from
  %inside = icmp ult i64 %offset, %nbytes
  br i1 %inside, label %flash, label %leave
flash:
  %line_nbytes_at = getelementptr %Record, ptr %record, i32 0, i32 6
  %line_nbytes = load i64, ptr %line_nbytes_at
  %line = udiv i64 %address, %line_nbytes
  %line_at = getelementptr %Record, ptr %record, i32 0, i32 7
  %held = load i64, ptr %line_at
  %same = icmp eq i64 %line, %held
  br i1 %same, label %leave, label %fetch
fetch:
  store i64 %line, ptr %line_at
  %owner_at = getelementptr %State, ptr %watch, i32 0, i32 3
  %owner = load i32, ptr %owner_at
  %lines_at = getelementptr %Record, ptr %record, i32 0, i32 12
  %lines = load ptr, ptr %lines_at
  %cell = getelementptr i64, ptr %lines, i32 %owner
  %old = load i64, ptr %cell
  %new = add i64 %old, 1
  store i64 %new, ptr %cell
  br label %leave
leave:
  ret void
}
"""


class _Record(ctypes.Structure):
    """%Record of the source above. `end`: cell after the last block's, -1 for none. `line`: the flash memory's that was read last."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("code_nbytes", ctypes.c_uint64),
        ("stride", ctypes.c_uint64),
        ("end", ctypes.c_int64),
        ("flash", ctypes.c_uint64),
        ("flash_nbytes", ctypes.c_uint64),
        ("line_nbytes", ctypes.c_uint64),
        ("line", ctypes.c_int64),
        ("watch", ctypes.c_void_p),
        ("executed", ctypes.c_void_p),
        ("entered", ctypes.c_void_p),
        ("left", ctypes.c_void_p),
        ("flash_lines", ctypes.c_void_p),
    )


class Recorder:
    """Counters of one run. flash: first address of code and constants, and the address after the last."""

    def __init__(self, watch: Watch, image: Image, owners: Sequence[str], flash: tuple[int, int]) -> None:
        self._image, self._owners, self._watch = image, tuple(owners), watch
        halves = (len(image.code) + 1) // 2
        shape = (len(owners) + 1, halves + 1)  # the first row: before any owner's function
        self._executed, self._entered, self._left = (np.zeros(shape, np.int64) for _ in range(3))
        self._flash_lines = np.zeros(len(owners) + 1, np.int64)
        self.state = _Record(image.code_address, 2 * halves, halves + 1, -1, flash[0], flash[1] - flash[0], LINE_NBYTES, -1)
        self.state.watch = ctypes.addressof(watch.state)
        for name in ("executed", "entered", "left", "flash_lines"):
            setattr(self.state, name, getattr(self, f"_{name}").ctypes.data)

    def trace(self, flash: bool) -> Trace:
        """What was recorded, once the run has ended. flash: whether `read` was among the hooks."""
        left = self._left.copy()
        if self.state.end >= 0:  # the return of the entry
            left.reshape(-1)[self.state.end] += 1
        executed = np.cumsum(self._executed, axis=1)
        lines = self._flash_lines[1:].copy() if flash else None
        return Trace(self._image, self._owners, executed[1:], self._entered[1:].copy(), left[1:], lines)


@cache
def compiled_recorder() -> Hooks:
    """`record` and `read`, compiled once."""
    return Hooks(_SOURCE)
