"""Static libraries: what `ar rcsD` writes, so that linkers take an object where only a library can be named.

Enters: objects by file name, and the functions that each defines. Leaves: the bytes of a GNU archive with its symbol table.
Invariant: no times, owners or paths: equal objects give equal archives.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

MAGIC = b"!<arch>\n"
_LONGEST = 15
"""The most characters of a member's name that its header has room for, before the closing slash."""


def archive(objects: Mapping[str, bytes], functions: Mapping[str, Sequence[str]]) -> bytes:
    """A library of these objects. functions: by object, the global functions that the linker finds it by.

    Source: System V's archive format as GNU binutils writes it (binutils/doc, include/aout/ar.h): the symbol table is the first member,
    `/`, numbers big-endian; names over 15 characters are in the member `//`.
    """
    names = [name for name in objects if len(name) > _LONGEST]
    table = "".join(f"{name}/\n" for name in names)
    starts = {name: table.index(f"{name}/\n") for name in names}
    long_names = _member("//", (table + "\n" * (len(table) % 2)).encode(), plain=True) if names else b""
    symbols = [(name, function) for name in objects for function in functions[name]]
    texts = b"".join(function.encode() + b"\0" for _, function in symbols)
    texts += bytes(len(texts) % 2)
    position = len(MAGIC) + _HEADER + 4 + 4 * len(symbols) + len(texts) + len(long_names)
    members: list[bytes] = []
    offsets: dict[str, int] = {}
    for name, content in objects.items():
        offsets[name] = position
        members.append(_member(f"/{starts[name]}" if name in starts else f"{name}/", content))
        position += len(members[-1])
    index = struct.pack(f">{1 + len(symbols)}I", len(symbols), *(offsets[name] for name, _ in symbols)) + texts
    return b"".join([MAGIC, _member("/", index, mode=0), long_names, *members])


_HEADER = 60


def _member(name: str, content: bytes, mode: int = 0o644, plain: bool = False) -> bytes:
    """A member: its header (name, time, owner, group, mode, size) and its content, to an even length. plain: a header of a name and a size."""
    fields = ("", "", "", "") if plain else (0, 0, 0, f"{mode:o}")
    time, owner, group, permissions = fields
    header = f"{name:<16}{time:<12}{owner:<6}{group:<6}{permissions:<8}{len(content):<10}`\n"
    return header.encode() + content + b"\n" * (len(content) % 2)
