"""Moving a tensor: a copy to a place that may overlap the one where it lies.

Enters: a Program, and a Map that copies one whole buffer to another. Leaves: an `Implementation`.
Invariant: whichever of the two lies higher, each byte is read before anything is written over it: the copy begins at the end that the
other place does not reach.
"""

from __future__ import annotations

from aot.graph.primitive import Map
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I8, I32, Value
from aot.lower.implementation import Cost, Implementation, Skew
from aot.lower.program import Program

_WORDS = 8  # of a turn
_CODE_NBYTES = 160


def move(program: Program, copy: Map, source: str) -> Implementation:
    """`copy`, word by word. source: the buffer that it reads."""
    nbytes = program[copy.out].nbytes
    turns, rest = divmod(nbytes // 4, _WORDS)
    return Implementation(
        kernel="move",
        instruction=copy,
        reads=(source,),
        writes=(copy.out,),
        constants=(),
        emit=lambda function: _emit(function, source, nbytes),
        skew=((source, Skew(-nbytes)),),
        style="ordered",
        cost=Cost(int(turns * (2 * _WORDS + 4) + 4 * (rest + nbytes % 4) + 20), _CODE_NBYTES),
    )


def _emit(function: KernelFunction, source: str, nbytes: int) -> None:
    builder = function.builder
    start, target = function.pointer(source), function.pointer(function.implementation.writes[0])
    with builder.if_else(builder.icmp_unsigned("<", target, start)) as (then, otherwise):
        with then:
            _copy(function, start, target, nbytes, upwards=True)
        with otherwise:
            _copy(function, start, target, nbytes, upwards=False)


def _copy(function: KernelFunction, start: Value, target: Value, nbytes: int, upwards: bool) -> None:
    """Blocks of words, then single words and bytes; or all of them the other way round. A block is read before it is written."""
    blocks, words, tail = nbytes // (4 * _WORDS), nbytes // 4 % _WORDS, nbytes % 4
    parts = [(0, blocks, 4, _WORDS), (4 * _WORDS * blocks, words, 4, 1), (nbytes - tail, tail, 1, 1)]
    for first, turns, size, count in parts if upwards else reversed(parts):
        if not turns:
            continue
        step = size * count
        begin, forward = (first, step) if upwards else (first + step * (turns - 1), -step)
        with function.carried_loop(0, turns, [_at(function, start, begin), _at(function, target, begin)]) as carried:
            here, there = carried.values
            _block(function, here, there, size, count)
            carried.next = (_at(function, here, forward), _at(function, there, forward))


def _block(function: KernelFunction, here: Value, there: Value, size: int, count: int) -> None:
    builder, element = function.builder, I32 if size == 4 else I8
    values = [builder.load(_at(function, here, size * number), align=size, typ=element) for number in range(count)]
    for number, value in enumerate(values):
        builder.store(value, _at(function, there, size * number), align=size)


def _at(function: KernelFunction, pointer: Value, nbytes: int) -> Value:
    return function.builder.gep(pointer, [I32(nbytes)], source_etype=I8) if nbytes else pointer
