"""What Unicorn calls at each block and each memory access, as machine code: a Python callback would take most of a run's time.

Enters: an image, the layers' symbols. Leaves: `Watch`, whose `state` the hooks fill in.
Invariant: a block's instructions are counted from a table that the decoder made; a block that does not begin at one of the table's
instructions is noticed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from llvmlite import binding

from aot.errors import InternalError
from aot.run.image import Image
from aot.run.trace import entered_owners

# Unicorn's hooks: block(engine, address, size, user) and access(engine, kind, address, size, value, user). `user` is State below.
# Before it calls a hook of accesses, Unicorn 2.1 restores the core's IT bits to what they are at that instruction, and forgets to clear them
# when the IT block ends: later instructions would be skipped. So `settle` clears them; the block at hand does not read them.
# `enter` of a halfword: 0 keep the current owner (a routine that a layer calls), else 1 + the owner whose function this is.
SETTLE = """
%State = type { i64, i64, i64, i32, i32, i64, i32, i32, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i32, i32 }

define internal void @settle(ptr %engine, ptr %state) {
entry:
  %read_at = getelementptr %State, ptr %state, i32 0, i32 13
  %read = load ptr, ptr %read_at
  %register_at = getelementptr %State, ptr %state, i32 0, i32 16
  %register = load i32, ptr %register_at
  %cell = getelementptr %State, ptr %state, i32 0, i32 17
  %ignored0 = call i32 %read(ptr %engine, i32 %register, ptr %cell)
  %xpsr = load i32, ptr %cell
  %stale = and i32 %xpsr, 100727808
  %clean = icmp eq i32 %stale, 0
  br i1 %clean, label %leave, label %clear
clear:
  %settled = xor i32 %xpsr, %stale
  store i32 %settled, ptr %cell
  %write_at = getelementptr %State, ptr %state, i32 0, i32 15
  %write = load ptr, ptr %write_at
  %ignored1 = call i32 %write(ptr %engine, i32 %register, ptr %cell)
  br label %leave
leave:
  ret void
}
"""
_SOURCE = """

define void @block(ptr %engine, i64 %address, i32 %size, ptr %state) {
entry:
  %base_at = getelementptr %State, ptr %state, i32 0, i32 0
  %base = load i64, ptr %base_at
  %bytes_at = getelementptr %State, ptr %state, i32 0, i32 1
  %bytes = load i64, ptr %bytes_at
  %offset = sub i64 %address, %base
  %size64 = zext i32 %size to i64
  %end = add i64 %offset, %size64
  %below = icmp ult i64 %offset, %bytes
  %within = icmp ule i64 %end, %bytes
  %inside = and i1 %below, %within
  br i1 %inside, label %count, label %leave
count:
  %first = lshr i64 %offset, 1
  %last = lshr i64 %end, 1
  %before_at = getelementptr %State, ptr %state, i32 0, i32 8
  %before = load ptr, ptr %before_at
  %from_at = getelementptr i32, ptr %before, i64 %first
  %from = load i32, ptr %from_at
  %to_at = getelementptr i32, ptr %before, i64 %last
  %to = load i32, ptr %to_at
  %n32 = sub i32 %to, %from
  %n = zext i32 %n32 to i64
  %visited_at = getelementptr %State, ptr %state, i32 0, i32 9
  %visited = load ptr, ptr %visited_at
  %seen_first = getelementptr i8, ptr %visited, i64 %first
  store i8 1, ptr %seen_first
  %enter_at = getelementptr %State, ptr %state, i32 0, i32 10
  %enter = load ptr, ptr %enter_at
  %owner_at = getelementptr i32, ptr %enter, i64 %first
  %owner = load i32, ptr %owner_at
  %current_at = getelementptr %State, ptr %state, i32 0, i32 3
  %old = load i32, ptr %current_at
  %keep = icmp eq i32 %owner, 0
  %current = select i1 %keep, i32 %old, i32 %owner
  store i32 %current, ptr %current_at
  %counts_at = getelementptr %State, ptr %state, i32 0, i32 11
  %counts = load ptr, ptr %counts_at
  %current64 = zext i32 %current to i64
  %own_at = getelementptr i64, ptr %counts, i64 %current64
  %own = load i64, ptr %own_at
  %own_now = add i64 %own, %n
  store i64 %own_now, ptr %own_at
  %left_at = getelementptr %State, ptr %state, i32 0, i32 2
  %left = load i64, ptr %left_at
  %left_now = sub i64 %left, %n
  store i64 %left_now, ptr %left_at
  %over = icmp slt i64 %left_now, 0
  br i1 %over, label %stop, label %leave
stop:
  %stop_at = getelementptr %State, ptr %state, i32 0, i32 12
  %stop_engine = load ptr, ptr %stop_at
  %ignored = call i32 %stop_engine(ptr %engine)
  br label %leave
leave:
  ret void
}

define void @access(ptr %engine, i32 %kind, i64 %address, i32 %size, i64 %value, ptr %state) {
entry:
  call void @settle(ptr %engine, ptr %state)
  %read_at = getelementptr %State, ptr %state, i32 0, i32 13
  %read = load ptr, ptr %read_at
  %size64 = zext i32 %size to i64
  %mask = sub i64 %size64, 1
  %low = and i64 %address, %mask
  %low2 = and i64 %low, 3
  %aligned = icmp eq i64 %low2, 0
  br i1 %aligned, label %leave, label %unaligned
unaligned:
  %fault_at = getelementptr %State, ptr %state, i32 0, i32 5
  %fault = load i64, ptr %fault_at
  %first = icmp eq i64 %fault, 0
  br i1 %first, label %where, label %leave
where:
  %pc_cell = getelementptr %State, ptr %state, i32 0, i32 6
  store i32 0, ptr %pc_cell
  %register_at = getelementptr %State, ptr %state, i32 0, i32 4
  %register = load i32, ptr %register_at
  %ignored = call i32 %read(ptr %engine, i32 %register, ptr %pc_cell)
  %pc = load i32, ptr %pc_cell
  %pc64 = zext i32 %pc to i64
  %base_at = getelementptr %State, ptr %state, i32 0, i32 0
  %base = load i64, ptr %base_at
  %bytes_at = getelementptr %State, ptr %state, i32 0, i32 1
  %bytes = load i64, ptr %bytes_at
  %offset = sub i64 %pc64, %base
  %inside = icmp ult i64 %offset, %bytes
  br i1 %inside, label %judge, label %leave
judge:
  %half = lshr i64 %offset, 1
  %strict_at = getelementptr %State, ptr %state, i32 0, i32 14
  %strict = load ptr, ptr %strict_at
  %flag_at = getelementptr i8, ptr %strict, i64 %half
  %flag = load i8, ptr %flag_at
  %faults = icmp ne i8 %flag, 0
  br i1 %faults, label %report, label %leave
report:
  store i64 %address, ptr %fault_at
  %nbytes_at = getelementptr %State, ptr %state, i32 0, i32 7
  store i32 %size, ptr %nbytes_at
  %stop_at = getelementptr %State, ptr %state, i32 0, i32 12
  %stop_engine = load ptr, ptr %stop_at
  %ignored2 = call i32 %stop_engine(ptr %engine)
  br label %leave
leave:
  ret void
}
"""


class State(ctypes.Structure):
    """%State of the source above. `left`: instructions still allowed. `fault`: the first address refused as unaligned."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("code_nbytes", ctypes.c_uint64),
        ("left", ctypes.c_int64),
        ("current", ctypes.c_uint32),
        ("pc_register", ctypes.c_uint32),
        ("fault", ctypes.c_uint64),
        ("fault_pc", ctypes.c_uint32),
        ("fault_nbytes", ctypes.c_uint32),
        ("before", ctypes.c_void_p),
        ("visited", ctypes.c_void_p),
        ("enter", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("strict", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("xpsr_register", ctypes.c_uint32),
        ("xpsr", ctypes.c_uint32),
    )


class Watch:
    """Tables and state of one run. `owners`: symbols of the functions that are counted by themselves (the layers, the entry)."""

    def __init__(self, image: Image, owners: Sequence[str], limit: int, unaligned: bool) -> None:
        starts, multiple = decode(image)
        self._starts = starts
        self._before = np.concatenate(([0], np.cumsum(starts))).astype(np.uint32)
        self._visited = np.zeros(len(starts), np.uint8)
        self._enter = entered_owners(image, owners, len(starts))
        self._strict = (multiple if unaligned else np.ones(len(starts))).astype(np.uint8)
        self.counts = np.zeros(len(owners) + 1, np.uint64)
        self.state = State(image.code_address, 2 * len(starts), limit)
        for name, table in (("before", self._before), ("visited", self._visited), ("enter", self._enter), ("counts", self.counts)):
            setattr(self.state, name, table.ctypes.data)
        self.state.strict = self._strict.ctypes.data

    def check(self) -> None:
        """InternalError if a block began where the decoder saw no instruction."""
        if np.any(self._visited.astype(bool) & ~self._starts):
            raise InternalError("the instruction counter decoded the code differently from the emulator")


@lru_cache(maxsize=4)
def decode(image: Image) -> tuple[np.ndarray, np.ndarray]:
    """For each halfword of the code: does an instruction start here? does it access several words (and so wants them aligned)?"""
    halves = np.frombuffer(image.code + bytes(-len(image.code) % 2), "<u2").astype(int).tolist()
    starts, multiple = np.zeros(len(halves), bool), np.zeros(len(halves), bool)
    boundaries = _boundaries(image, len(halves))
    position, code = 0, True
    while position < len(halves):
        code = boundaries.get(position, code)
        first = halves[position]
        length = 2 if first >= 0xE800 else 1
        if code:
            second = halves[position + 1] if length == 2 and position + 1 < len(halves) else 0
            starts[position], multiple[position] = True, _accesses_several(first, second)
        step = range(position + 1, position + length)
        position = next((at for at in step if at in boundaries), position + length) if code else position + 1
    starts.flags.writeable = multiple.flags.writeable = False  # every run of the image gets these
    return starts, multiple


def _boundaries(image: Image, count: int) -> dict[int, bool]:
    """Halfwords where code (True) or data (False) begins: mapping symbols, and the functions' starts."""
    found = {(symbol.address - image.code_address) // 2: True for symbol in image.functions if symbol.nbytes}
    found.update({(address - image.code_address) // 2: kind == "t" for address, kind in image.marks})
    return {position: code for position, code in found.items() if 0 <= position < count}


def _accesses_several(first: int, second: int) -> bool:
    """LDM, STM (also of 16 bits), LDRD, STRD, VLDR, VSTR, VLDM, VSTM: these fault on an address that is no multiple of 4."""
    if first < 0xE800:
        return first >> 12 == 0xC
    if first >> 9 == 0xE800 >> 9:
        return not (first & 0xFFF0 == 0xE8D0 and second & 0xFFE0 == 0xF000)  # TBB, TBH read a byte or a halfword
    return first >> 9 == 0xEC00 >> 9 and second & 0x0E00 == 0x0A00 and first & 0xFFE0 != 0xEC40  # but VMOV of two registers


class Hooks:
    """Compiled hooks, whose addresses are valid as long as this lives. source: LLVM assembly; `settle` is there to be called."""

    def __init__(self, source: str) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        module = binding.parse_assembly(SETTLE + source)
        machine = binding.Target.from_default_triple().create_target_machine(opt=2)
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def __getitem__(self, name: str) -> int:
        return self._engine.get_function_address(name)


@cache
def compiled_hooks() -> Hooks:
    """`block` and `access`, compiled once."""
    return Hooks(_SOURCE)
