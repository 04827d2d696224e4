"""Addresses for everything that an emulated run needs: code, read-only data, stack, and the regions behind the entry's pointers.

Enters: a bundle, an entry, its regions, where memory is. Leaves: `Layout`.
Invariant: each of them is alone on its pages, with a gap to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aot.bundle import Bundle, Entry
from aot.errors import CompileError, InternalError
from aot.run.image import Image, linked, object_file
from aot.run.memory import NO_FUNCTIONS, PAGES, WEIGHTS, Placed, Region, place, relation

SAVED = {f"r{number}": 0x5AFE0000 + number for number in range(4, 12)}
"""What the registers that a function must preserve hold before the call (AAPCS32, section 6.1)."""

_STACK_MARGIN = 4096
NO_OTHERS: Mapping[str, int | str] = {}


@dataclass(frozen=True)
class Grid:
    """Where memory is: `code` and `ram` are page-aligned (first address, address after the last); `gap` is a multiple of `page`."""

    code: tuple[int, int]
    ram: tuple[int, int]
    page: int
    gap: int


@dataclass(frozen=True)
class Layout:
    """What lies where. `stack_pointer`: at the call; arguments that are passed on the stack lie there. values: what is passed, in order."""

    image: Image
    code: Placed
    rodata: Placed
    stack: Placed
    stack_pointer: int
    arguments: tuple[Placed, ...]
    values: tuple[int, ...]

    @property
    def all(self) -> tuple[Placed, ...]:
        return (self.code, self.rodata, self.stack, *self.arguments)

    def stack_peak(self, pages: bytes) -> int:
        """Bytes from the caller's stack pointer down to the lowest one that the run changed. `pages`: of the stack, now."""
        free = np.frombuffer(pages, np.uint8)[self.stack.address - self.stack.start : self.stack_pointer - self.stack.start]
        touched = np.flatnonzero(free != self.stack.guard)
        return len(free) - int(touched[0]) if touched.size else 0

    def nearest(self, address: int) -> str:
        """Where `address` lies relative to the region nearest to it."""

        def away(placed: Placed) -> int:
            return max(placed.address - address, address - (placed.address + placed.region.nbytes - 1), 0)

        region = min(self.all, key=away).region
        readonly = "" if region.writable else "read-only, "
        return f"{relation(address - min(self.all, key=away).address, region)} ({readonly}{region.nbytes} bytes)"

    def describe_pc(self, pc: int, layer: str) -> str:
        """Where the program counter is. `layer`: the function that the message names already."""
        offset = pc - self.image.code_address
        if not 0 <= offset < len(self.image.code):
            return f"program counter {pc:#x}, outside the code"
        function = self.image.function_at(pc)
        return f"at {offset:#x} of the code" + (f", in {function}" if function not in ("", layer) else "")


def lay_out(
    bundle: Bundle,
    entry: Entry,
    regions: Sequence[Region],
    grid: Grid,
    *,
    at_end: bool,
    guard: int,
    astray: bool = False,
    passed: Sequence[str | int] | None = None,
    others: Mapping[str, int | str] = NO_OTHERS,
) -> Layout:
    """Place everything; CompileError if memory is too small. astray: what is passed to the entry is aligned no better than asked.
    passed: the arguments of the call that has most, regions by their names, and numbers (default: all regions). others: what else names stand
    for, a number or a region."""
    unlinked = object_file(bundle.object)

    def alone(region: Region, base: int) -> Placed:
        return place([region], base, page=grid.page, gap=grid.gap, at_end=at_end, guard=guard)[0]

    code = alone(Region("the code", unlinked.align, False, bytes(unlinked.code_nbytes)), grid.code[0])
    rodata = alone(Region("the object's read-only data", unlinked.align, False, bytes(unlinked.rodata_nbytes)), code.end)
    image = linked(bundle.object, code.address, rodata.address)
    flash = [region for region in regions if region.name in (WEIGHTS, PAGES)]
    in_ram = [region for region in regions if region.name not in (WEIGHTS, PAGES)]
    weights = place(flash, rodata.end, page=grid.page, gap=grid.gap, at_end=at_end, guard=guard, astray=astray)
    held = place(in_ram, grid.ram[0], page=grid.page, gap=grid.gap, at_end=at_end, guard=guard, astray=astray)
    where = {one.region.name: one for one in (*held, *weights)}
    placed = tuple(where[region.name] for region in regions)
    addresses = {name: one.address for name, one in where.items()}
    known = NO_FUNCTIONS | addresses | {name: addresses[one] if isinstance(one, str) else one for name, one in others.items()}
    arguments = [region.name for region in regions] if passed is None else passed
    values = tuple(known[one] if isinstance(one, str) else one for one in arguments)
    pushed = b"".join(value.to_bytes(4, "little") for value in values[4:])
    pushed += bytes(-len(pushed) % 8)
    free = -(-((entry.stack_nbytes or 0) + _STACK_MARGIN) // 8) * 8
    stack = alone(Region("the stack", 8, True, bytes([guard]) * free + pushed), held[-1].end)
    last = weights[-1] if weights else rodata
    for name, used, (first, limit) in (("code memory", last.end, grid.code), ("RAM", stack.end, grid.ram)):
        if used + grid.gap > limit:
            raise CompileError(
                f"the emulated board has too little {name}: {limit - first} bytes, and {used + grid.gap - first} needed"
            )
    return Layout(image, code.holding(image.code), rodata.holding(image.rodata), stack, stack.address + free, placed, values)


def check_return(symbol: str, code: int, saved: dict[str, int], now: dict[str, int]) -> None:
    """InternalError if a function returned an error (`code`), or did not preserve a register. `saved`, `now`: before and after."""
    for name, value in saved.items():
        if name == "sp" and now[name] != value:
            raise InternalError(f"{symbol} returned with a stack pointer {now[name] - value} bytes off")
        if now[name] != value:
            raise InternalError(f"{symbol} did not preserve {name}: {value:#x} became {now[name]:#x}")
    if code:
        raise InternalError(f"{symbol} returned {code - (1 << 32) if code >> 31 else code}")


def check_stack(entry: Entry, used: int) -> None:
    """InternalError if the run used more stack than the bundle states."""
    if entry.stack_nbytes and used > entry.stack_nbytes:
        raise InternalError(f"{entry.symbol} used {used} bytes of stack, more than the {entry.stack_nbytes} that the bundle states")


def owners_of(entry: Entry) -> tuple[str, ...]:
    """The functions whose instructions are counted by themselves: the layers', then the entry's."""
    own = (*entry.functions, entry.stream.local) if entry.stream else entry.functions
    return tuple(dict.fromkeys((*(layer.symbol for layer in entry.layers), *own)))


def describe_layer(entry: Entry, symbol: str) -> str:
    """How messages call the layer whose function this is, or the entry itself."""
    layer = next((layer for layer in entry.layers if layer.symbol == symbol), None)
    if layer is None:
        return symbol
    nodes = ", ".join(map(str, layer.nodes))
    return f"layer {symbol} ({layer.kernel}, node {nodes} {'+'.join(layer.operators)})"
