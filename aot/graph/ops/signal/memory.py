"""What operators on streams keep of each row of samples from one run to the next.

Enters: options and the shape of the input. Leaves: memories, and their shapes for `infer`.
Invariant: the reader asks for memories before anything has been checked: they are small whatever the options say.
"""

from __future__ import annotations

from math import prod

from aot.graph.expr import Affine, axis
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Memory
from aot.graph.ops import checks

MAX_SAMPLES = 1 << 20
"""The most samples of an option, and of all rows of a memory together."""


def row_axes(rank: int) -> tuple[Affine, ...]:
    """The index of a row."""
    return tuple(axis(number) for number in range(rank))


def history(inputs: tuple[Value | None, ...], samples: int, inner: int = 1) -> tuple[Memory, ...]:
    """Memory for samples of each row (the dimensions before the `inner` last ones), of the input's type.

    None where nothing is kept, or where it would be too much, which `memory_shapes` refuses.
    """
    data = inputs[0] if inputs else None
    if data is None or samples < 1:
        return ()
    return (Memory("history", data.dtype if data.dtype is DType.FLOAT32 else DType.INT16, (*data.shape[:-inner], samples)),)


def memory_shapes(site: Site, memories: tuple[Memory, ...], inputs: int, outputs: int) -> tuple[Shape, ...]:
    """The shapes of the memories of a node that has as many inputs and outputs in the file."""
    count = len(memories)
    if len(site.inputs) - count != inputs or len(site.outputs) - count != outputs:
        found = f"{len(site.inputs) - count} inputs and {len(site.outputs) - count} outputs"
        raise site.error(f"has {found}, not {inputs} and {outputs}")
    for memory, value in zip(memories, site.inputs[inputs:], strict=True):
        if prod(memory.shape) > MAX_SAMPLES:
            raise site.error(f"it would keep {checks.shape_text(memory.shape)} samples, more than {MAX_SAMPLES}")
        if value is None or value.shape != memory.shape:
            raise site.error(f"it keeps {checks.shape_text(memory.shape)} samples, but the file's shapes are for another number")
    return tuple(memory.shape for memory in memories)


def require_rows(site: Site, rank: int) -> Shape:
    """The shape of the input, which has at least so many dimensions, and elements."""
    shape = site.input(0).shape
    if len(shape) < rank or 0 in shape:
        raise site.error(
            f"{checks.describe(site.input(0))} is {checks.shape_text(shape)}, not samples in {rank} or more dimensions"
        )
    return shape
