"""The function that copies constants into a region: NAME_load.

Enters: what is loaded, and the block of all constants, which begins with it. Leaves: the function
`int NAME_load(void *REGION[, const void *weights])`.
Invariant: nothing is read or written before all checks have passed; nothing of the region is touched but the place of the copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from aot.llvm.constants import BLOCK_ALIGN, Pool, offset_pointer
from aot.llvm.entry import check_pointers, name_arguments
from aot.llvm.types import I8, I32, POINTER, Builder

if TYPE_CHECKING:
    from aot.lower.loaded import Loaded

_WORD = 4


def load_function(name: str) -> str:
    """The name of a bundle's function."""
    return f"{name}_load"


def build_load(module: ir.Module, symbol: str, loaded: Loaded, pool: Pool, separate: bool, pointer_bits: int) -> None:
    """Define the function in `module`. separate: the constants are the caller's."""
    wanted = {loaded.region: (BLOCK_ALIGN, loaded.offset + loaded.nbytes)}
    if separate:
        wanted["/weights"] = BLOCK_ALIGN, 1
    function = ir.Function(module, ir.FunctionType(I32, [POINTER] * len(wanted)), symbol)
    function.attributes.add("nounwind")
    values = name_arguments(function, wanted)
    builder: Builder = ir.IRBuilder(function.append_basic_block("entry"))
    check_pointers(builder, pointer_bits, [(values[name], *each) for name, each in wanted.items()])
    if loaded.nbytes:
        source = values["/weights"] if separate else pool.reserve(module)
        target = offset_pointer(builder, values[loaded.region], loaded.offset)
        _copy(builder, source, target, loaded.nbytes)
    builder.ret(I32(0))


def _copy(builder: Builder, source: ir.Value, target: ir.Value, nbytes: int) -> None:
    """Copy a multiple of two words, two a turn."""
    before, again, after = builder.block, builder.append_basic_block("copy"), builder.append_basic_block("copied")
    builder.branch(again)
    builder.position_at_end(again)
    offset = builder.phi(I32)
    offset.add_incoming(I32(0), before)
    places = [
        [offset_pointer(builder, builder.gep(base, [offset], inbounds=True, source_etype=I8), at) for at in (0, _WORD)]
        for base in (source, target)
    ]
    words = [builder.load(place, align=_WORD, typ=I32) for place in places[0]]
    for word, place in zip(words, places[1]):
        builder.store(word, place, align=_WORD)
    following = builder.add(offset, I32(2 * _WORD))
    offset.add_incoming(following, again)
    builder.cbranch(builder.icmp_unsigned("<", following, I32(nbytes)), again, after)
    builder.position_at_end(after)
