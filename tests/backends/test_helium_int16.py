"""The Helium kernels on int16 activations, as `test_helium_kernels.py` has them on int8: every byte, on an emulated board."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.graph.expr import Binary, Load, Requantise, add, affine, axis, cast, clamp, integer, mul, real
from aot.graph.ir import DType
from aot.lower.program import Buffer
from tests.backends.board import count, run_in_place
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, FILTERS, FUSABLE, KERNELS, NUMBERS, WINDOWS, numbers, windowed
from tests.backends.test_helium_kernels import LOOPED, M55, check, geometry_of, helium_of
from tests.graph.lowered import sweep

INT16 = DType.INT16
NUMBERS16 = {
    **{name: some for name, some in NUMBERS.items() if "zero_point" not in name},
    "zero_point": (0,),
    "out_zero_point": (0,),
    "scale": ("fitting", "fitting", "fitting", 2**-20, 0.3, 1.0, 1.7, 100.0, "wide", "dead"),
    "sums": ("wide", "wide", "double"),
}


def numbers16(choice: dict, channels: int) -> dict:
    return {**numbers(choice, channels), "sums": choice["sums"]}


@pytest.mark.parametrize("part", range(2))
def test_convolutions(part: int) -> None:
    choices = {**NUMBERS16, **WINDOWS, "kernel": KERNELS, "depth": (*CHANNELS, 64), "channels": CHANNELS}
    cases = [
        windowed(number, choice, channels=choice["channels"], **numbers16(choice, choice["channels"]))
        for number, choice in enumerate(sweep(20, part, **choices))
    ]
    check([program_of(case) for case in cases], splits=part == 1)


def test_depthwise_in_place() -> None:
    """Rows that are read in the image: no padding, whole vectors."""
    cases = [
        Case("depthwise", (2, 6, 7, depth), kernel=kernel, stride=stride, dilation=dilation, sums="wide", seed=number)
        for number, (depth, kernel, stride, dilation) in enumerate(
            [(8, (3, 3), (1, 1), (1, 1)), (64, (1, 1), (2, 2), (1, 1)), (16, (3, 2), (2, 1), (1, 2)), (24, (2, 3), (1, 2), (2, 1))]
        )
    ]
    found = check([program_of(case) for case in cases], splits=True)
    assert all("in place" in one.notes[1] for one in found)


def test_dense() -> None:
    choices = {**NUMBERS16, "rows": (1, 1, 2, 3, 5, 8), "depth": (*CHANNELS, 64, 100, 640, 1500), "channels": CHANNELS}
    cases = [
        Case(
            "dense",
            (choice["rows"], 1, 1, choice["depth"]),
            choice["channels"],
            seed=number,
            **numbers16(choice, choice["channels"]),
        )
        for number, choice in enumerate(sweep(20, 9, **choices))
    ]
    check([program_of(case) for case in cases])


@pytest.mark.parametrize("part", range(2))
def test_depthwise(part: int) -> None:
    more = {"depth": (*CHANNELS, 32, 64), "multiplier": (1, 1, 1, 2, 3), "bias": ("some", "some", "none")}
    choices = {**NUMBERS16, **WINDOWS, "kernel": FILTERS, **more, "scale": ("fitting", "fitting", 2**-20, 0.2)}
    cases = [
        windowed(number, choice, kind="depthwise", multiplier=choice["multiplier"], **fields)
        for number, choice in enumerate(sweep(20, part, **choices))
        for fields in (numbers16(choice, choice["depth"] * choice["multiplier"]),)
    ]
    check([program_of(case) for case in cases], splits=part == 1)


def residual16(result, index):
    """A sum with another tensor, rescaled twice: what a fused ADD looks like."""
    other = Binary("shl", cast(Load("r", index, INT16), DType.INT32), integer(14))
    total = add(Requantise(Binary("shl", cast(result, DType.INT32), integer(15)), integer(1533916908), integer(-1)), other)
    return cast(clamp(Requantise(total, integer(1252698828), integer(-14)), -32768, 32767), INT16)


FUSABLE16 = [replace(case, sums="double" if number % 3 == 2 else "wide", seed=number) for number, case in enumerate(FUSABLE)]


def test_fused_operand() -> None:
    programs = [
        program_of(case, residual16, extra=[Buffer("r", INT16, program_of(case)["y"].shape, "input")]) for case in FUSABLE16
    ]
    check(programs)
    in_place = programs[0]
    inputs = inputs_of(in_place)
    assert np.array_equal(run_in_place(in_place, M55, inputs, "r"), expected(in_place, inputs))


def test_fused_conversions() -> None:
    """To another integer type, to a type of another size, and to float32."""

    def quantise(result, index):
        return cast(clamp(add(Requantise(cast(result, DType.INT32), integer(1 << 30), integer(-7)), integer(3)), -128, 127), INT8)

    def dequantise(result, index):
        return mul(cast(cast(result, DType.INT32), DType.FLOAT32), real(0.125))

    for rest in (quantise, dequantise):
        check([program_of(case, rest) for case in FUSABLE16])


def test_parts_of_larger_outputs() -> None:
    case, channels = FUSABLE16[0], replace(FUSABLE16[3], image=(1, 6, 7, 7))
    extra = [Buffer("r", INT16, (1, 6, 7, 7), "input")]
    programs = []
    for shape, offsets in [((1, 6, 7, 20), (0, 0, 0, 7)), ((1, 9, 7, 7), (0, 3, 0, 0)), ((3, 8, 9, 15), (1, 2, 2, 4))]:
        store = tuple(axis(number, 1, offset) for number, offset in enumerate(offsets))
        inner = (*store[:3], affine({3: 1, 4: 1}, offsets[3]))
        programs.append(program_of(case, store=store, out_shape=shape))
        programs.append(program_of(case, residual16, store, shape, extra))
        programs.append(program_of(channels, store=inner, out_shape=shape))
    check(programs)


def test_long_windows() -> None:
    check([program_of(replace(case, sums="wide", seed=number)) for number, case in enumerate(LOOPED)])
    check([program_of(replace(case, sums="wide", saturated=True, large_bias=True, seed=1)) for case in LOOPED])


def test_endings() -> None:
    """Every form of requantisation: one shift, own shifts, both roundings, 64 bits; with clamps."""
    far = tuple(0.2 * 2.0**-number for number in range(0, 24, 2))
    scales = [(), far, (0.9,), (120.0,), (0.0,) * 3 + (2.0**-6,) * 9, (2.0**-28,), (2.0**-9, 2.0**-2, 0.0, 100.0) * 3]
    cases = [
        Case(kind, (3, 1, 1, 12) if kind == "dense" else (1, 5, 4, 12), 12, scales=some, low=low, high=high, sums=sums)
        for some in scales
        for kind in ("conv", "depthwise", "dense")
        for sums, low, high in (("wide", -128, 127), ("wide", 0, 127), ("double", -60, 70))
        if kind != "depthwise" or sums == "double" or (max(some, default=0.0) < 0.25 and min(some, default=1.0) > 1e-6)
    ]
    found = check([program_of(case) for case in cases], seeds=[3 * (number % 2) for number in range(len(cases))])
    notes = {one.notes[0].split(" #")[0] for one in found}
    assert len(notes) == 4, notes


LAYERS = [
    # layer, instructions per MAC
    (Case("conv", (1, 25, 5, 64), 64, (1, 1)), 0.27),
    (Case("conv", (1, 24, 24, 7), 15, (1, 1)), 0.65),
    (Case("conv", (1, 16, 16, 16), 16, padding=(1, 1, 1, 1)), 0.27),
    (Case("conv", (1, 49, 10, 1), 64, (10, 4), (2, 2), padding=(4, 5, 1, 1)), 0.36),
    (Case("dense", (1, 1, 1, 640), 128), 0.32),
    (Case("dense", (1, 1, 1, 1500), 64, saturated=True), 0.32),
    (Case("depthwise", (1, 25, 5, 64), padding=(1, 1, 1, 1)), 1.2),
    (Case("depthwise", (1, 24, 24, 7), padding=(1, 1, 1, 1)), 1.45),
    (Case("depthwise", (1, 24, 24, 33), stride=(2, 2), padding=(0, 1, 0, 1)), 1.65),
]


@pytest.mark.parametrize(("case", "ceiling"), LAYERS, ids=[f"{case.kind} {case.image}" for case, _ in LAYERS])
def test_cost(case: Case, ceiling: float) -> None:
    """The estimate is not far from what is counted."""
    program = program_of(replace(case, sums="wide"))
    counted = count(program, M55, inputs_of(program))
    answer = helium_of(program)
    assert answer is not None and answer.cost is not None
    per_mac = counted / geometry_of(program).macs
    print(f"{per_mac:6.3f} instructions/MAC, {answer.cost.instructions / counted:.3f} expected")
    assert per_mac <= ceiling
    assert 0.9 < answer.cost.instructions / counted < 1.1
