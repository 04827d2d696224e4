"""Copies that move words: of every length and place, in rows; where words can't be, by elements."""

from __future__ import annotations

import numpy as np
import pytest

from aot.graph.expr import Affine, Load, axis
from aot.graph.ir import DType
from aot.graph.primitive import Map
from aot.run import run_bundle
from aot.target import Target, host_target, load_target
from tests.llvm.compiled import bundle_of, check, program_of

CPUS = ["host", "cortex-m4", "cortex-m0plus"]
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16)
PLACES = ((0, 0), (4, 8), (1, 0), (0, 1), (3, 3), (2, 4))


def target_of(cpu: str) -> Target:
    return host_target() if cpu == "host" else load_target(cpu)


def numbers(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return np.random.default_rng(0).integers(*dtype.limits, shape, dtype.np)


def copy(out: str, source: str, length: int, dtype: DType, begin: int = 0, to: int = 0) -> Map:
    return Map(out, (length,), Load(source, (axis(0, 1, begin),), dtype), (axis(0, 1, to),))


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
@pytest.mark.parametrize("cpu", CPUS)
def test_every_length_and_place(cpu: str, dtype: DType) -> None:
    """An output with something in front is made of two copies, the second part first: neither an element too few nor one too many goes unseen."""
    maps, outputs = [], {}
    for number, length in enumerate(LENGTHS):
        for begin, to in PLACES[number % 2 :: 2]:
            name = f"out{number}_{begin}_{to}"
            outputs[name] = (dtype, (to + length,))
            maps.append(copy(name, "x", length, dtype, begin, to))
            maps += [copy(name, "y", to, dtype)] if to else []
    arrays = {"x": numbers((32,), dtype), "y": numbers((32,), dtype)}
    check(program_of(maps, arrays, outputs), arrays, target_of(cpu), io="workspace")


@pytest.mark.parametrize("cpu", CPUS)
def test_rows_of_every_width(cpu: str) -> None:
    """Rows inside wider ones, on either side or on both; the last elements of a row are followed by those of another."""
    maps, outputs, arrays = [], {}, {}
    for width in (1, 3, 4, 6, 8):
        for source, out in ((width + 4, width), (width + 3, width), (width, width + 4), (width, width + 1)):
            name = f"{width}_{source}_{out}"
            arrays[f"x{name}"], outputs[f"out{name}"] = numbers((3, source), DType.INT8), (DType.INT8, (3, out))
            more = out - width
            beside = Map(f"out{name}", (3, more), Load("more", (axis(0), axis(1)), DType.INT8), (axis(0), axis(1, 1, width)))
            maps += [beside] if more else []
            maps.append(Map(f"out{name}", (3, width), Load(f"x{name}", (axis(0), axis(1)), DType.INT8)))
    arrays["more"] = numbers((3, 4), DType.INT8)
    check(program_of(maps, arrays, outputs), arrays, target_of(cpu), io="workspace")


@pytest.mark.parametrize("cpu", CPUS)
def test_to_a_mirrored_or_strided_place(cpu: str) -> None:
    """Neither is a run of bytes."""
    arrays = {"x": numbers((16,), DType.INT8)}
    backwards = Load("x", (Affine(((0, -1),), 15),), DType.INT8)
    maps = [
        Map("mirrored", (16,), backwards),
        Map("apart", (8,), Load("x", (axis(0, 2, 0),), DType.INT8)),
        Map("spread", (8,), Load("x", (axis(0),), DType.INT8), (axis(0, 2, 1),)),
        Map("spread", (8,), Load("x", (axis(0, 1, 8),), DType.INT8), (axis(0, 2),)),
    ]
    outputs = {"mirrored": (DType.INT8, (16,)), "apart": (DType.INT8, (8,)), "spread": (DType.INT8, (16,))}
    check(program_of(maps, arrays, outputs), arrays, target_of(cpu), io="workspace")


def instructions(length: int, dtype: DType, cpu: str, begin: int = 0) -> int:
    array = numbers((length + begin,), dtype)
    program = program_of([copy("out", "x", length, dtype, begin)], {"x": array}, {"out": (dtype, (length,))})
    result = run_bundle(bundle_of(program, load_target(cpu), "workspace"), [array])
    np.testing.assert_array_equal(result.outputs[0], array[begin:])
    assert result.instructions is not None
    return result.instructions


@pytest.mark.parametrize(
    ("cpu", "begin", "words"), [("cortex-m0plus", 0, True), ("cortex-m0plus", 1, False), ("cortex-m4", 1, True)]
)
def test_words_are_used_where_the_core_allows(cpu: str, begin: int, words: bool) -> None:
    """Armv6-M has no unaligned access."""
    assert (instructions(256, DType.INT8, cpu, begin) < 0.5 * instructions(255, DType.INT8, cpu, begin)) == words
