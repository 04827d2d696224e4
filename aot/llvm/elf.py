"""Reads what LLVM emitted, and finishes the ELF file.

Enters: the bytes of a relocatable ELF file. Leaves: facts about it (symbols, sizes, who calls what is missing); the finished bytes.
Invariant: code and data stay as LLVM emitted them; only build attributes and sections that say how to unwind or run are changed.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from aot.errors import CompileError, InternalError
from aot.llvm.elf_rewrite import rewrite

_WRITE, _ALLOC, _EXECUTE = 0x1, 0x2, 0x4
RELOCATED = ".data.rel.ro"
"""The section of constants that hold addresses, where code is position-independent: read-only once a loader has filled them in."""
_VFP_ARGS, _COMPATIBLE = 28, 3
"""Tag_ABI_VFP_args = 3: fits callers that pass floats in VFP registers and those that do not, as no entry takes a float.

Source: Addenda to, and Errata in, the ABI for the Arm Architecture (ARM IHI 0045), section 3.3.
"""


@lru_cache(maxsize=2)
def opened(code: bytes) -> ELFFile:
    """The file, read once for the several questions that are asked about it."""
    return ELFFile(io.BytesIO(code))


def undefined(code: bytes) -> tuple[str, ...]:
    """Names of the symbols that the file needs from elsewhere, sorted."""
    symbols = _symbols(opened(code))
    return tuple(sorted({symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name}))


def exported(code: bytes) -> tuple[str, ...]:
    """Names of the global symbols that the file defines, in its order."""
    found = (symbol for symbol in _symbols(opened(code)) if symbol["st_info"]["bind"] == "STB_GLOBAL")
    return tuple(symbol.name for symbol in found if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name)


def callers(code: bytes) -> dict[str, set[str]]:
    """For each function, the undefined symbols and the global functions that its code refers to."""
    file = opened(code)
    table = file.get_section_by_name(".symtab")
    found: dict[str, set[str]] = {}
    for section in file.iter_sections():
        if isinstance(section, RelocationSection) and isinstance(table, SymbolTableSection):
            starts = _functions(file, section["sh_info"])
            for relocation in section.iter_relocations():
                symbol = table.get_symbol(relocation["r_info_sym"])
                callable = symbol["st_shndx"] == "SHN_UNDEF" or symbol["st_info"]["type"] == "STT_FUNC"
                if callable and symbol.name and starts:
                    position = bisect_right(starts, (relocation["r_offset"], "\uffff")) - 1
                    found.setdefault(starts[max(position, 0)][1], set()).add(symbol.name)
    return found


def functions(code: bytes) -> dict[str, int]:
    """Size in bytes of each function that has a symbol."""
    symbols = _symbols(opened(code))
    return {symbol.name: symbol["st_size"] for symbol in symbols if symbol["st_info"]["type"] == "STT_FUNC"}


def sizes(code: bytes, relocated: bool = False) -> tuple[int, int]:
    """(bytes of code with its literals, bytes of read-only data) that the file puts into flash. CompileError for writable data.

    relocated: there are constants that hold addresses, which only a loader writes."""
    text = data = 0
    for section in opened(code).iter_sections():
        if section["sh_flags"] & _ALLOC and section["sh_size"]:
            if section["sh_flags"] & _WRITE and not (relocated and section.name.startswith(RELOCATED)):
                what = f"LLVM puts constants into writable memory ({section.name}) for this target"
                raise CompileError(what, hint="choose another target")
            if section["sh_flags"] & _EXECUTE:
                text += section["sh_size"]
            else:
                data += section["sh_size"]
    return text, data


def finish(code: bytes, bare_metal: bool) -> bytes:
    """The finished file.

    On Arm: marked as fit for hard- and soft-float firmware (LLVM's attributes leave that out), without exception tables (every
    function is `nounwind`; they would cost flash), and with functions given as machine code marked as code. On bare metal: without
    the note on an executable stack, because GNU ld would warn of every other object that has none.
    """
    file = opened(code)
    sections = list(file.iter_sections())
    dropped = {number for number, section in enumerate(sections) if section["sh_type"] == "SHT_ARM_EXIDX"}
    if bare_metal:
        dropped |= {number for number, section in enumerate(sections) if section.name == ".note.GNU-stack"}
    replaced = {}
    if file["e_machine"] == "EM_ARM":
        attributes = [number for number, section in enumerate(sections) if section["sh_type"] == "SHT_ARM_ATTRIBUTES"]
        if len(attributes) != 1:
            raise InternalError("the object has no Arm build attributes")
        replaced = {attributes[0]: set_attribute(sections[attributes[0]].data(), _VFP_ARGS, _COMPATIBLE)}
        replaced |= {number: _marked(section) for number, section in enumerate(sections) if section.name == ".symtab"}
    return rewrite(code, dropped, replaced)


def _marked(table: Any) -> bytes:
    """The symbol table with code where functions start: LLVM marks prologue data ("$d"), which is machine code here, as data.

    Where such data stands behind a literal pool, LLVM has no mark at all: then that of the code behind it, "$t", moves to the start.
    Source: ELF for the Arm Architecture (ARM IHI 0044), section 4.5.5, mapping symbols.
    """
    symbols = list(table.iter_symbols())
    starts = {_place(one) for one in symbols if one["st_info"]["type"] == "STT_FUNC" and one["st_size"]}
    names = {one.name: one.entry["st_name"] for one in symbols}
    marks = sorted((_place(one), one.name, number) for number, one in enumerate(symbols) if one.name in ("$d", "$t"))
    content, size = bytearray(table.data()), table["sh_entsize"]
    for (_, name, number), following in zip(marks, (*marks[1:], None)):
        if name == "$t":
            continue
        if _place(symbols[number]) in starts:
            struct.pack_into("<I", content, number * size, names["$t"])
        elif following and (within := [one for one in starts if _place(symbols[number]) < one < following[0]]):
            struct.pack_into("<I", content, following[2] * size + 4, min(within)[1])
    return bytes(content)


def _place(symbol: Any) -> tuple[int | str, int]:
    """Section, and address without the Thumb bit."""
    return symbol["st_shndx"], symbol["st_value"] & ~1


def set_attribute(section: bytes, tag: int, value: int) -> bytes:
    """The content of .ARM.attributes with a numeric file attribute set (one vendor, one sub-section: what LLVM writes)."""
    vendor_end = section.index(b"\0", 5) + 1
    if section[:1] != b"A" or section[5:vendor_end] != b"aeabi\0" or section[vendor_end] != 1:
        raise InternalError("unexpected Arm build attributes")
    kept = [piece for number, piece in _attributes(section[vendor_end + 5 :]) if number != tag]
    body = b"".join([*kept, bytes([tag, value])])
    inner = bytes([1]) + struct.pack("<I", len(body) + 5) + body
    return b"A" + struct.pack("<I", 4 + len(b"aeabi\0") + len(inner)) + b"aeabi\0" + inner


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, bytes of tag and value) of each attribute."""
    position = 0
    while position < len(body):
        start = position
        tag, position = _uleb(body, position)
        if tag == 32:
            _, position = _uleb(body, position)
        if tag in (4, 5, 32) or (tag > 32 and tag % 2):
            position = body.index(b"\0", position) + 1
        else:
            _, position = _uleb(body, position)
        yield tag, body[start:position]


def _uleb(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


@lru_cache(maxsize=2)
def _symbols(file: ELFFile) -> tuple[Any, ...]:
    table = file.get_section_by_name(".symtab")
    return tuple(table.iter_symbols()) if isinstance(table, SymbolTableSection) else ()


def _functions(file: ELFFile, section: int) -> list[tuple[int, str]]:
    """(address, name) of the functions in a section, in order."""
    thumb = 1 if file["e_machine"] == "EM_ARM" else 0
    found = [symbol for symbol in _symbols(file) if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] == section]
    return sorted((symbol["st_value"] & ~thumb, symbol.name) for symbol in found)
