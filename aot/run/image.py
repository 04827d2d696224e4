# pyright: basic
"""A small linker for one Arm object: sections to addresses, relocations applied, symbols listed.

Enters: the bytes of an object file and two addresses. Leaves: `ObjectFile`, `Image`.
Invariant: every relocation is applied exactly or refused; nothing is left undefined.
Source: "ELF for the Arm Architecture", IHI 0044.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Symbol as ElfSymbol
from elftools.elf.sections import SymbolTableSection

from aot.errors import InternalError

_UNUSED = ("SHT_ARM_EXIDX",)
_BRANCHES = (10, 30)  # R_ARM_THM_CALL, R_ARM_THM_JUMP24: imm25 in two halfwords
_DIRECT = {2: False, 38: False, 3: True, 42: True}  # R_ARM_ABS32, TARGET1, REL32, PREL31: is it relative to its place?
_WIDE = {47: (0, False), 48: (16, False), 49: (0, True), 50: (16, True)}  # R_ARM_THM_MOVW_ABS_NC, MOVT_ABS, MOVW_PREL_NC, MOVT_PREL
_SHORT = {102: (11, 0x7FF), 103: (8, 0xFF)}  # R_ARM_THM_JUMP11, JUMP8


@dataclass(frozen=True)
class Symbol:
    """A function of the object: its first byte's address (without the Thumb bit) and its size."""

    name: str
    address: int
    nbytes: int


@dataclass(frozen=True)
class Image:
    """Linked code and read-only data. `marks`: addresses at which code ("t") or data ("d") begins in the code, sorted."""

    code_address: int
    code: bytes
    rodata_address: int
    rodata: bytes
    functions: tuple[Symbol, ...]
    marks: tuple[tuple[int, str], ...]

    @cached_property
    def by_name(self) -> Mapping[str, Symbol]:
        return {symbol.name: symbol for symbol in self.functions}

    def function_at(self, address: int) -> str:
        """Name of the function whose code holds `address`; "" if none does."""
        for symbol in self.functions:
            if symbol.address <= address < symbol.address + symbol.nbytes:
                return symbol.name
        return ""


@dataclass(frozen=True)
class _Piece:
    """A section that takes memory: offset within the code or within the read-only data."""

    index: int
    executable: bool
    offset: int
    data: bytes


@lru_cache(maxsize=4)
def linked(data: bytes, code_address: int, rodata_address: int) -> Image:
    """A relocatable object at these addresses: several machines run it, several times."""
    return object_file(data).link(code_address, rodata_address)


@lru_cache(maxsize=2)
def object_file(data: bytes) -> ObjectFile:
    """A relocatable object, read once."""
    return ObjectFile(data)


class ObjectFile:
    """A relocatable Arm object in memory. InternalError if it is no such thing, or holds what a bundle's object never has."""

    def __init__(self, data: bytes) -> None:
        self._elf = ELFFile(io.BytesIO(data))
        if self._elf["e_machine"] != "EM_ARM" or self._elf["e_type"] != "ET_REL":
            raise InternalError(f"the object is {self._elf['e_type']} for {self._elf['e_machine']}, not a relocatable one for Arm")
        self._sections = list(self._elf.iter_sections())
        self._pieces = {piece.index: piece for executable in (True, False) for piece in self._collect(executable)}

    @property
    def code_nbytes(self) -> int:
        return self._nbytes(True)

    @property
    def rodata_nbytes(self) -> int:
        return self._nbytes(False)

    @property
    def align(self) -> int:
        """The strictest alignment of a section, in bytes."""
        return max((self._sections[index]["sh_addralign"] for index in self._pieces), default=4)

    def link(self, code_address: int, rodata_address: int) -> Image:
        """Place code and read-only data (both addresses aligned to `align`) and apply every relocation."""
        bases = {True: code_address, False: rodata_address}
        memory = {True: bytearray(self.code_nbytes), False: bytearray(self.rodata_nbytes)}
        address_of = {piece.index: bases[piece.executable] + piece.offset for piece in self._pieces.values()}
        for piece in self._pieces.values():
            memory[piece.executable][piece.offset : piece.offset + len(piece.data)] = piece.data
        for section in self._sections:
            if isinstance(section, RelocationSection) and (piece := self._pieces.get(section["sh_info"])):
                _relocate(section, self._sections[section["sh_link"]], piece, memory[piece.executable], address_of)
        symbols = [
            symbol for section in self._sections if isinstance(section, SymbolTableSection) for symbol in section.iter_symbols()
        ]
        return Image(
            code_address,
            bytes(memory[True]),
            rodata_address,
            bytes(memory[False]),
            tuple(self._functions(symbols, address_of)),
            tuple(sorted(self._marks(symbols, address_of))),
        )

    def _collect(self, executable: bool) -> Iterator[_Piece]:
        offset = 0
        for index, section in enumerate(self._sections):
            flags, size = section["sh_flags"], section["sh_size"]
            if not flags & SH_FLAGS.SHF_ALLOC or not size or section["sh_type"] in _UNUSED:
                continue
            if flags & SH_FLAGS.SHF_WRITE:
                raise InternalError(f"section {section.name} of the object is writable, so the code would not be re-entrant")
            if bool(flags & SH_FLAGS.SHF_EXECINSTR) == executable:
                align = max(1, section["sh_addralign"])
                offset = -(-offset // align) * align
                yield _Piece(index, executable, offset, section.data())
                offset += size

    def _nbytes(self, executable: bool) -> int:
        return max((piece.offset + len(piece.data) for piece in self._pieces.values() if piece.executable == executable), default=0)

    def _functions(self, symbols: Sequence[ElfSymbol], address_of: Mapping[int, int]) -> Iterator[Symbol]:
        for symbol in symbols:
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] in address_of:
                yield Symbol(symbol.name, address_of[symbol["st_shndx"]] + (symbol["st_value"] & ~1), symbol["st_size"])

    def _marks(self, symbols: Sequence[ElfSymbol], address_of: Mapping[int, int]) -> Iterator[tuple[int, str]]:
        for symbol in symbols:
            index = symbol["st_shndx"]
            if symbol.name[:2] in ("$t", "$d", "$a") and index in address_of and self._pieces[index].executable:
                yield address_of[index] + symbol["st_value"], symbol.name[1]


def _relocate(
    section: RelocationSection, symbols: SymbolTableSection, piece: _Piece, memory: bytearray, address_of: Mapping[int, int]
) -> None:
    """Apply a section's relocations to `memory`, which holds `piece` at its offset."""
    for relocation in section.iter_relocations():
        symbol = symbols.get_symbol(relocation["r_info_sym"])
        kind, at = relocation["r_info_type"], relocation["r_offset"]
        if kind == 0:  # R_ARM_NONE
            continue
        index = symbol["st_shndx"]
        if index == "SHN_UNDEF":
            raise InternalError(f"the object leaves '{symbol.name}' undefined")
        if index not in address_of:
            raise InternalError(f"the object's symbol '{symbol.name}' is in a section that takes no memory")
        value = address_of[index] + (symbol["st_value"] & ~1)
        thumb = symbol["st_info"]["type"] == "STT_FUNC"
        _apply(memory, piece.offset + at, address_of[piece.index] + at, kind, value, thumb)


def _apply(memory: bytearray, offset: int, place: int, kind: int, value: int, thumb: bool) -> None:
    """Apply one relocation at `offset` of `memory`, whose address is `place`, to the symbol's address `value`."""
    if kind in _DIRECT:
        word = int.from_bytes(memory[offset : offset + 4], "little")
        result = ((value + word) | thumb) - (place if _DIRECT[kind] else 0)
        if kind == 42:
            result = (word & 0x80000000) | (result & 0x7FFFFFFF)
        memory[offset : offset + 4] = (result & 0xFFFFFFFF).to_bytes(4, "little")
        return
    first, second = _halfwords(memory, offset)
    if kind in _WIDE:
        shift, relative = _WIDE[kind]
        addend = _signed((first & 0xF) << 12 | (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xFF, 16)
        result = ((value + addend) | (thumb and shift == 0)) - (place if relative else 0)
        part = result >> shift & 0xFFFF
        first = first & 0xFBF0 | part >> 12 | (part >> 11 & 1) << 10
        second = second & 0x8F00 | (part >> 8 & 7) << 12 | part & 0xFF
    elif kind in _BRANCHES:
        first, second = _long_branch(first, second, value - place)
    elif kind == 51:  # R_ARM_THM_JUMP19
        first, second = _conditional_branch(first, second, value - place)
    elif kind in _SHORT:
        width, mask = _SHORT[kind]
        distance = value - place + 2 * _signed(first & mask, width)
        first = first & ~mask | _fits(distance, width + 1) >> 1 & mask
    else:
        raise InternalError(f"the object has a relocation of type {kind} that the loader does not know")
    memory[offset : offset + 2] = first.to_bytes(2, "little")
    if kind not in _SHORT:
        memory[offset + 2 : offset + 4] = second.to_bytes(2, "little")


def _long_branch(first: int, second: int, distance: int) -> tuple[int, int]:
    """BL or B.W (encoding T4): S:I1:I2:imm10:imm11:0, where I = not (J xor S)."""
    sign = first >> 10 & 1
    i1, i2 = 1 ^ (second >> 13 & 1) ^ sign, 1 ^ (second >> 11 & 1) ^ sign
    addend = _signed(sign << 24 | i1 << 23 | i2 << 22 | (first & 0x3FF) << 12 | (second & 0x7FF) << 1, 25)
    result = _fits(distance + addend, 25)
    sign = result >> 24 & 1
    j1, j2 = 1 ^ (result >> 23 & 1) ^ sign, 1 ^ (result >> 22 & 1) ^ sign
    return first & 0xF800 | sign << 10 | result >> 12 & 0x3FF, second & 0xD000 | j1 << 13 | j2 << 11 | result >> 1 & 0x7FF


def _conditional_branch(first: int, second: int, distance: int) -> tuple[int, int]:
    """B<c>.W (encoding T3): S:J2:J1:imm6:imm11:0."""
    addend = (
        (first >> 10 & 1) << 20 | (second >> 11 & 1) << 19 | (second >> 13 & 1) << 18 | (first & 0x3F) << 12 | (second & 0x7FF) << 1
    )
    result = _fits(distance + _signed(addend, 21), 21)
    first = first & 0xFBC0 | (result >> 20 & 1) << 10 | result >> 12 & 0x3F
    return first, second & 0xD000 | (result >> 18 & 1) << 13 | (result >> 19 & 1) << 11 | result >> 1 & 0x7FF


def _halfwords(memory: bytearray, offset: int) -> tuple[int, int]:
    return int.from_bytes(memory[offset : offset + 2], "little"), int.from_bytes(memory[offset + 2 : offset + 4], "little")


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _fits(distance: int, bits: int) -> int:
    """The distance as an unsigned field; InternalError where it does not fit."""
    if not -(1 << (bits - 1)) <= distance < 1 << (bits - 1):
        raise InternalError(f"a branch of {distance} bytes is out of its instruction's reach")
    return distance & ((1 << bits) - 1)
