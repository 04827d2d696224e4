"""Fusion of consumers into what they read: copies into their producers' stores, Maps into reductions as epilogues.

Enters: a Program. Leaves: a Program that computes the same elements with fewer instructions.
Invariant: only a temporary that a single instruction reads disappears; no element is computed twice, no arithmetic changes.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from aot.graph.expr import Expr, Load, rewrite
from aot.graph.primitive import Contract, Map, Reduce, reads, store_of
from aot.lower.draft import (
    Draft,
    is_loop_nest,
    loads_from,
    looks_up,
    merged_nodes,
    moderate,
    normal_store,
    reads_at_position,
)
from aot.lower.indexing import Index, compose_all, rebase, reindex

if TYPE_CHECKING:
    from aot.lower.program import Program


def forward_copies(program: Program) -> Program:
    """b = ...; out[at(i)] = b[i]  ->  out[at(i)] = ...   (each writer of b stores into `out` itself).

    Only where b is a temporary that the copy alone reads, whole and in order.
    """
    draft = Draft(program)
    for position in range(len(draft.slots)):
        copy = draft.slots[position]
        if isinstance(copy, Map) and isinstance(copy.value, Load) and is_loop_nest(copy):
            _forward(draft, position, copy, copy.value)
    return draft.finish()


def _forward(draft: Draft, position: int, copy: Map, value: Load) -> None:
    program = draft.program
    source = program.storage(value.buffer)
    if not draft.private(source, position) or not draft.writes_apart(position) or not reads_at_position(value, copy.space, program):
        return
    moved: dict[int, Map | Reduce | Contract] = {}
    for slot in draft.writers.get(source, ()):
        writer = draft.slots[slot]
        if (
            not isinstance(writer, Map | Reduce | Contract)
            or not is_loop_nest(writer)
            or value.dtype is not program[writer.out].dtype
        ):
            return
        by = _consumer_axes(writer, copy, program)
        composed = None if by is None else compose_all(store_of(copy), by, writer.space)
        store = None if composed is None else normal_store(composed, writer.space, program[copy.out].shape)
        if store is None:
            return
        moved[slot] = replace(
            writer,
            out=copy.out,
            store=store,
            nodes=merged_nodes(writer, copy),
        )
    draft.put(position, None)
    for slot, writer in moved.items():
        draft.put(slot, writer)


def _consumer_axes(producer: Map | Reduce | Contract, consumer: Map, program: Program) -> Index | None:
    """For each axis of an element-by-element consumer, its index in the producer's axes."""
    return reindex(store_of(producer), program[producer.out].shape, consumer.space, producer.space)


def fuse_epilogues(program: Program) -> Program:
    """b[i] = reduction(i); out[at(i)] = f(b[i], c[i])  ->  out[at(i)] = f(reduction(i), c[i]).

    Only where b is a temporary that the Map alone reads, at its own element. Of two reductions that a Map reads, the one that runs
    last takes it in. The group runs where the reduction did if all else that the Map reads is complete by then; if not, where the
    Map did, provided that this keeps no more bytes alive.
    """
    draft = Draft(program)
    for position in range(len(draft.slots)):
        consumer = draft.slots[position]
        if isinstance(consumer, Map) and is_loop_nest(consumer):
            _fuse_into_last(draft, position, consumer)
    return draft.finish()


def _fuse_into_last(draft: Draft, position: int, consumer: Map) -> None:
    program = draft.program
    read = draft.storages(reads(consumer))
    if not all(map(draft.settled, read)) or not draft.writes_apart(position):
        return
    producers = [
        draft.writers[storage][0] for storage in read if draft.private(storage, position) and len(draft.writers[storage]) == 1
    ]
    for slot in sorted(producers, reverse=True):
        producer = draft.slots[slot]
        if isinstance(producer, Reduce | Contract) and is_loop_nest(producer):
            storage = program.storage(producer.out)
            early = all(draft.written_by(other, slot) for other in read if other != storage) and draft.may_hurry(slot, position)
            fused = _with_epilogue(producer, consumer, program) if early or draft.may_wait(slot, position) else None
            if fused is not None:
                draft.put(position, None)
                draft.put(slot, None)
                draft.put(slot if early else position, fused)
                return


def _with_epilogue(producer: Reduce | Contract, consumer: Map, program: Program) -> Reduce | Contract | None:
    """The producer with the consumer as its epilogue; None where its indices can't be said in the producer's axes."""
    storage = program.storage(producer.out)
    replaced = loads_from(storage, program, consumer.value)
    if looks_up(consumer, storage, program) or prod(producer.space) != prod(consumer.space):
        return None
    if not all(reads_at_position(load, consumer.space, program) and load.dtype is producer.result.dtype for load in replaced):
        return None
    by = _consumer_axes(producer, consumer, program)
    if by is None:
        return None
    composed = compose_all(store_of(consumer), by, producer.space)
    store = None if composed is None else normal_store(composed, producer.space, program[consumer.out].shape)
    result = _substituted(consumer.value, replaced, producer.result, by, producer)
    if store is None or result is None or not moderate(result):
        return None
    return replace(
        producer,
        out=consumer.out,
        result=result,
        store=store,
        nodes=merged_nodes(producer, consumer),
    )


def _substituted(value: Expr, replaced: tuple[Load, ...], result: Expr, by: Index, producer: Reduce | Contract) -> Expr | None:
    """`value` over the producer's axes, with its loads of the producer's buffer replaced by what the producer would have stored."""
    marked = {load: Load(_RESULT, (), load.dtype) for load in replaced}
    moved = rebase(rewrite(value, lambda node: marked.get(node) if isinstance(node, Load) else None), by, producer.space)
    if moved is None:
        return None
    return rewrite(moved, lambda node: result if isinstance(node, Load) and node.buffer == _RESULT else None)


_RESULT = "<result>"
