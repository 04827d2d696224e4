"""Rewrites a relocatable ELF file: drops sections, replaces the content of others.

Enters: bytes of a little-endian relocatable file. Leaves: the file without the dropped sections, the rest in its order.
Invariant: kept sections keep name, type, flags, alignment and (unless replaced) content; indices between them are renumbered.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aot.errors import InternalError

_SYMTAB, _RELA, _NOBITS, _REL = 2, 4, 8, 9
_RESERVED = 0xFF00  # section indices from here on are not sections (absolute, common)


@dataclass(frozen=True)
class _Class:
    """The layouts of one ELF class. `index`: where a symbol's section index stands among its fields."""

    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    index: int


_CLASSES = {
    1: _Class(struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<10I"), struct.Struct("<IIIBBH"), 5),
    2: _Class(struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), 3),
}


@dataclass(frozen=True)
class _Section:
    """A section header's fields in order, and its content."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    nbytes: int
    link: int
    info: int
    align: int
    entry: int
    content: bytes


def rewrite(code: bytes, dropped: Collection[int], replaced: Mapping[int, bytes]) -> bytes:
    """`dropped`: numbers of sections to leave out, with the relocations that apply to them. `replaced`: new content by number."""
    form = _CLASSES.get(code[4])
    if code[:4] != b"\x7fELF" or form is None or code[5] != 1:
        raise InternalError("not a little-endian ELF file")
    header = form.header.unpack_from(code)
    sections = [_read(code, form, header[6] + number * form.section.size) for number in range(header[12])]
    gone = set(dropped)
    gone |= {number for number, section in enumerate(sections) if section.type in (_REL, _RELA) and section.info in gone}
    number_of = {old: new for new, old in enumerate(number for number in range(len(sections)) if number not in gone)}
    kept: list[_Section] = []
    for number in number_of:
        section = replace(sections[number], content=replaced.get(number, sections[number].content))
        kept.append(_renumbered(section, form, number_of))
    return _written(form, header, kept, number_of[header[13]])


def _read(code: bytes, form: _Class, at: int) -> _Section:
    name, type, flags, address, offset, nbytes, link, info, align, entry = form.section.unpack_from(code, at)
    content = b"" if type == _NOBITS else code[offset : offset + nbytes]
    return _Section(name, type, flags, address, offset, nbytes, link, info, align, entry, content)


def _renumbered(section: _Section, form: _Class, number_of: Mapping[int, int]) -> _Section:
    link = number_of[section.link]
    if section.type in (_REL, _RELA):
        return replace(section, link=link, info=number_of[section.info])
    if section.type != _SYMTAB:
        return replace(section, link=link)
    symbols: list[bytes] = []
    for fields in form.symbol.iter_unpack(section.content):
        index = fields[form.index]
        if index < _RESERVED and index not in number_of:
            raise InternalError("a symbol lies in a section that is dropped")
        new = number_of.get(index, index)
        symbols.append(form.symbol.pack(*fields[: form.index], new, *fields[form.index + 1 :]))
    return replace(section, link=link, content=b"".join(symbols))


def _written(form: _Class, header: tuple[Any, ...], sections: list[_Section], names: int) -> bytes:
    body = bytearray(form.header.size)
    table: list[bytes] = []
    for section in sections:
        if section.type:
            body += bytes(-len(body) % max(section.align, 1))
        nbytes = section.nbytes if section.type == _NOBITS else len(section.content)
        offset = len(body) if section.type else 0
        fields = (section.name, section.type, section.flags, section.address, offset, nbytes, section.link, section.info)
        table.append(form.section.pack(*fields, section.align, section.entry))
        body += section.content
    body += bytes(-len(body) % 8)
    form.header.pack_into(body, 0, *header[:6], len(body), *header[7:12], len(sections), names)
    return bytes(body) + b"".join(table)
