"""Products of two activations on an emulated Cortex-M against the numpy meaning of their instructions, every byte.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.matmul import claim_matmul
from aot.graph.expr import Acc, Binary, Const, Expr, Load, Requantise, add, affine, axis, cast, clamp, fixed, integer, mul, sub
from aot.graph.ir import DType
from aot.graph.primitive import Contract
from aot.lower.program import Buffer, Program
from aot.target import load_target
from tests.backends import emulator
from tests.backends.contracts import expected, inputs_of, quantised_multiplier
from tests.backends.test_dsp_kernels import M4, check, replace_role
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

INT8, INT16, INT64 = DType.INT8, DType.INT16, DType.INT64
TYPES = ((INT8, INT8), (INT16, INT16), (INT16, INT8))


@dataclass(frozen=True)
class Product:
    """batches: of the left and of the right matrices, 1 where they are the same for all. transposed: whether an operand lies the other way
    round. heads: whether rows of the output's batches alternate. constant: whether the right operand is one."""

    types: tuple[DType, DType] = (INT8, INT8)
    batches: tuple[tuple[int, int], ...] = ()
    rows: int = 5
    depth: int = 8
    columns: int = 6
    transposed: tuple[bool, bool] = (False, False)
    zeros: tuple[int, int, int] = (0, 0, 0)
    scale: float = 0.0
    heads: bool = False
    constant: bool = False


def program_of(case: Product, rest=None) -> Program:
    left_type, right_type = case.types
    rank = len(case.batches)
    batches = tuple(max(pair) for pair in case.batches)
    space = (*batches, case.rows, case.columns)
    shapes, loads = [], []
    for number, (vectors, vector) in enumerate(((case.rows, rank), (case.columns, rank + 1))):
        own = tuple(pair[number] for pair in case.batches)
        lies_by_depth = case.transposed[number] == (number == 0)
        matrix = (case.depth, vectors) if lies_by_depth else (vectors, case.depth)
        last = (axis(rank + 2), axis(vector)) if lies_by_depth else (axis(vector), axis(rank + 2))
        at = tuple(fixed(0) if size == 1 else axis(place) for place, size in enumerate(own))
        shapes.append((*own, *matrix))
        loads.append(Load("xr"[number], (*at, *last), case.types[number]))
    zeros = case.zeros if left_type is INT8 else (0, 0, 0)
    spread = {INT8: 74.0, INT16: 18918.0}
    scale = case.scale or 0.7 * left_type.limits[1] / (spread[left_type] * spread[right_type] * case.depth**0.5)
    factor, shift = quantised_multiplier(scale)
    if left_type is INT8:
        sums = DType.INT32
        scaled: Expr = add(Requantise(Acc(sums), integer(factor), integer(shift)), integer(zeros[2]))
    else:
        sums = DType.INT32 if case.depth << (22 if right_type is INT8 else 30) < 1 << 31 else INT64
        factor, down = min((factor + (1 << 15)) >> 16, 0x7FFF), integer(15 - shift, INT64)
        half = Binary("shl", integer(1, INT64), Binary("sub", down, integer(1, INT64)))
        scaled = cast(Binary("shr", add(mul(cast(Acc(sums), INT64), integer(factor, INT64)), half), down), DType.INT32)
    result: Expr = cast(clamp(scaled, *left_type.limits), left_type)
    store, out_shape = (), space
    if case.heads:
        store = (*(axis(number) for number in range(rank - 1)), axis(rank), axis(rank - 1), axis(rank + 1))
        out_shape = (*batches[:-1], case.rows, batches[-1], case.columns)
    if rest is not None:
        result = rest(result, store or tuple(axis(number) for number in range(len(space))))
    left, right = loads
    contract = Contract("y", space, (case.depth,), left, right, zeros[0], zeros[1], integer(0, sums), result, store)
    data = (
        np.random.default_rng(5).integers(*right_type.limits, shapes[1], endpoint=True).astype(right_type.np)
        if case.constant
        else None
    )
    buffers = [
        Buffer("x", left_type, shapes[0], "input"),
        Buffer("r", right_type, shapes[1], "constant" if case.constant else "input", data=data),
        *([] if rest is None else [Buffer("b", left_type, out_shape, "input")]),
        Buffer("y", left_type, out_shape, "output"),
    ]
    inputs = tuple(buffer.name for buffer in buffers if buffer.role == "input")
    return Program("test", tuple(buffers), (contract,), inputs, ("y",))


def claimed(program: Program):
    found = claim_matmul(program, program.instructions[0], M4)
    assert not isinstance(found, str), found
    return found


SIZES = (*range(1, 10), 12, 16, 17, 33)


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("part", range(2))
def test_products(types: tuple[DType, DType], part: int) -> None:
    choices = {
        "batches": ((), (), ((2, 2),), ((1, 3),), ((2, 1),), ((2, 2), (3, 1)), ((1, 2), (2, 2))),
        "rows": SIZES,
        "depth": (*SIZES, 64, 130),
        "columns": SIZES,
        "transposed": ((False, False), (False, True), (True, False), (True, True)),
        "zeros": ((0, 0, 0), (-128, 0, 5), (127, -128, -128), (3, 127, 0)),
        "scale": (0.0, 0.0, 0.0, 2**-24, 0.001),
        "constant": (False, False, False, True),
    }
    for number, choice in enumerate(sweep(24, part, **choices)):
        program = program_of(Product(types, **choice))
        if choice["rows"] == 1 and "one row" in str(claim_matmul(program, program.instructions[0], M4)):
            continue
        for seed in (number, 3):
            check(program, seed, implementation=claimed(program), align=2 if types[1] is INT16 or number % 2 else 4)


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_large_products(types: tuple[DType, DType]) -> None:
    """Right matrices that are packed slice by slice, and rows too long for blocks of four."""
    for rows, depth, columns in ((9, 96, 80), (5, 700, 12), (3, 600, 7), (2, 300, 32)):
        for transposed in ((False, False), (False, True)):
            program = program_of(Product(types, (), rows, depth, columns, transposed))
            check(program, implementation=claimed(program))


@pytest.mark.parametrize("types", TYPES[:2], ids=str)
def test_heads_of_attention(types: tuple[DType, DType]) -> None:
    for transposed in ((False, False), (False, True)):
        program = program_of(Product(types, ((3, 3),), 6, 10, 8, transposed, heads=True))
        check(program, implementation=claimed(program))


def test_sums_at_both_ends() -> None:
    """All products as large as can be: sums of 2^30 times the depth."""
    for depth in (1, 2, 3, 64, 257):
        program = program_of(Product((INT16, INT16), (), 4, depth, 4, (False, True), scale=2.0**-22))
        inputs = {name: np.repeat(np.array([[-32768], [32767], [-32768], [1]], np.int16), depth, 1) for name in ("x", "r")}
        assert (emulator.run(program, claimed(program), M4, inputs).out == expected(program, inputs)).all()


def residual(result, index):
    """A sum with another tensor of the output's place."""
    dtype = result.dtype
    other = sub(cast(Load("b", index, dtype), DType.INT32), integer(3))
    return cast(clamp(add(mul(cast(result, DType.INT32), integer(3)), mul(other, integer(5))), *dtype.limits), dtype)


def by_row(result, index):
    """A row that depends on its number."""
    row = Load("b", (*(fixed(0) for _ in index[:-2]), index[-2], fixed(0)), result.dtype)
    return cast(clamp(add(cast(result, DType.INT32), cast(row, DType.INT32)), *result.dtype.limits), result.dtype)


@pytest.mark.parametrize("types", TYPES[:2], ids=str)
@pytest.mark.parametrize("rest", [residual, by_row])
def test_fused(types: tuple[DType, DType], rest) -> None:
    for case in (Product(types), Product(types, ((2, 2), (2, 1)), 6, 9, 7)):
        program = program_of(case, rest)
        check(program, implementation=claimed(program))
    if rest is residual:
        in_place = replace_role(program, "b", "temporary")
        assert claimed(in_place).overwrites == ("b",)
        inputs = inputs_of(program)
        assert (emulator.run(in_place, claimed(in_place), M4, inputs, in_place="b").out == expected(program, inputs)).all()


@pytest.mark.parametrize(("types", "most"), [((INT8, INT8), 0.93), ((INT16, INT16), 1.0), ((INT16, INT8), 0.88)], ids=str)
def test_instructions_for_a_product(types: tuple[DType, DType], most: float) -> None:
    program = program_of(Product(types, (), 64, 64, 64))
    outcome = emulator.run(program, claimed(program), M4, inputs_of(program))
    assert outcome.instructions / 64**3 < most


@pytest.mark.parametrize("name", ["cortex-m7", "cortex-m33"])
def test_other_cores(name: str) -> None:
    target = load_target(name)
    for types in TYPES:
        program = program_of(Product(types, ((2, 2),), 5, 9, 7))
        check(program, target=target, implementation=claimed(program))


def test_refusals() -> None:
    program = program_of(Product())
    (contract,) = program.instructions
    assert isinstance(contract, Contract)
    padded = Load("x", contract.left.index, INT8, Const(0, INT8))
    turned = Load("x", (axis(0), affine({1: 1, 2: 1})), INT8)
    large, row = (program_of(Product((INT16, INT16), scale=0.9)), program_of(Product(rows=1)))
    refused = (
        (program, replace(contract, initial=integer(7)), "sums that begin with a bias"),
        (program, replace(contract, left=padded), "an operand with padding"),
        (program, replace(contract, left=turned), "an index map that the kernel doesn't know"),
        (large, large.instructions[0], "scales too large"),
        (row, row.instructions[0], "one row times columns that lie apart"),
    )
    for one, instruction, why in refused:
        assert why in str(claim_matmul(one, instruction, M4))
