"""The DSP kernels for int16 activations on an emulated Cortex-M against the numpy meaning of their instructions, every byte.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

import numpy as np
import pytest

from aot.backends.cmsis_nn import dsp
from aot.backends.cmsis_nn.dsp.packing import solution
from aot.backends.layers.operands import Layer, read_layer
from aot.backends.layers.requantise16 import solve16
from aot.graph.expr import Load, add, cast, clamp, integer, mul, sub
from aot.graph.ir import DType
from aot.lower.program import Buffer, Program
from aot.target import load_target
from tests.backends import emulator
from tests.backends.contracts import Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, FILTERS, KERNELS, M4, WINDOWS, check, claim, offers, replace_role, windowed
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

NUMBERS = {
    "activation": ((-128, 127), (-128, 127), (0, 127), (0, 100), (-60, 70)),
    "scale": ("fitting", "fitting", "fitting", 2**-20, 0.01, "far apart", "dead"),
    "bias": ("some", "some", "none", "large"),
    "saturated": (False, False, True),
    "batch": (1, 1, 2, 3),
    "sums": ("wide", "wide", "wide", "double"),
}


def numbers(choice: dict, channels: int) -> dict:
    """The fields of a Case for picks from NUMBERS."""
    scales = {
        "fitting": (),
        "far apart": tuple(np.exp(np.linspace(-14, -2, channels))),
        "dead": tuple(0.0 if number % 3 == 0 else 0.0002 * (1 + number) for number in range(channels)),
    }.get(choice["scale"], (choice["scale"],))
    low, high = choice["activation"]
    fields = {"low": low, "high": high, "scales": scales, "sums": choice["sums"], "saturated": choice["saturated"]}
    return {**fields, "bias": choice["bias"] != "none", "large_bias": choice["bias"] == "large"}


def array_of(program: Program, name: str) -> np.ndarray:
    data = program[name].data
    assert data is not None
    return data


def check_all(program, number: int, **options) -> None:
    """Every variant of the kernel; a bias of 2^40 times a scale may leave 32 bits, and wraps: generic code does that."""
    answers = [kernel.claim(program, program.instructions[0], M4) for kernel in dsp.KERNELS]
    if all(isinstance(answer, str) for answer in answers):
        assert abs(array_of(program, "bias")).max() >= 1 << 40
        assert any(why in str(answer) for answer in answers for why in ("scales too large", "more than 32 bits")), answers
        return
    for one in offers(program):
        check(program, number, implementation=one, align=2 if number % 8 == 7 else 4, **options)


@pytest.mark.parametrize("part", range(4))
def test_convolutions(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": CHANNELS, "channels": CHANNELS}
    for number, choice in enumerate(sweep(10, part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        check_all(program_of(case), number, split=True)


def test_dense() -> None:
    choices = {**NUMBERS, "rows": (1, 1, 2, 3, 5, 8), "depth": (*CHANNELS, 64, 100, 640, 1300), "channels": CHANNELS}
    for number, choice in enumerate(sweep(20, 9, **choices)):
        image = (choice["rows"], 1, 1, choice["depth"])
        check_all(program_of(Case("dense", image, choice["channels"], seed=number, **numbers(choice, choice["channels"]))), number)


@pytest.mark.parametrize("part", range(4))
def test_depthwise(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": FILTERS, "depth": CHANNELS, "multiplier": (1, 1, 1, 2, 3)}
    for number, choice in enumerate(sweep(15, part, **choices)):
        channels = choice["depth"] * choice["multiplier"]
        fields = numbers(choice, channels)
        check_all(
            program_of(windowed(number, choice, kind="depthwise", multiplier=choice["multiplier"], **fields)), number, split=True
        )


FORMS = {
    "SMMLA, SSAT": Case("dense", (2, 1, 1, 40), 6, sums="wide"),
    "SMMLA, SSAT, each channel with its own shift": Case(
        "dense", (2, 1, 1, 40), 6, sums="wide", scales=(1e-1, 1e-7, 1e-2, 1e-3, 1e-5, 1e-6)
    ),
    "UMULL, MLA, ADD, SSAT": Case("dense", (3, 1, 1, 1100), 6, sums="wide", saturated=True),
    "both roundings": Case("conv", (1, 5, 4, 9), 7, sums="double"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    for seed in (1, 2, 3, 6):
        program = program_of(FORMS[form])
        assert form in check(program, seed).notes[0]


def test_sums_at_both_ends() -> None:
    """Inputs and weights all extreme, of the same sign and of different ones: the largest sums that there are."""
    for depth, bias in ((511, 0), (512, 0), (513, 7), (600, 1 << 45), (600, -(1 << 45))):
        program = program_of(Case("dense", (4, 1, 1, depth), 4, (1, 1), sums="wide", saturated=True, scales=(2.0**-16,)))
        array_of(program, "w")[...] = np.array([-128, 127, -128, 127])[:, None]
        array_of(program, "bias")[...] = bias if program["bias"].dtype is DType.INT64 else 0
        inputs = {"x": np.repeat(np.array([[-32768], [32767], [-32768], [0]], np.int16), depth, 1)}
        for one in offers(program):
            assert (emulator.run(program, one, M4, inputs).out == expected(program, inputs)).all()


def test_forms_equal_the_definition_around_every_step() -> None:
    """A form's arithmetic, in Python integers, on sums around the outputs' steps and at the ends of the range."""
    for number, scales in enumerate(((), (0.01,), (2**-20,), tuple(np.exp(np.linspace(-14, -2, 6))))):
        program = program_of(Case("dense", (1, 1, 1, 700), 6, sums="wide", scales=scales, seed=number, saturated=number % 2 == 1))
        layer = read_layer(program, program.instructions[0], M4, "dense", "dsp", (DType.INT16,))
        assert isinstance(layer, Layer)
        form = solve16(layer)
        assert not isinstance(form, str)
        for channel in range(6):
            factor, down = int(layer.multiplier[channel]), -int(layer.shift[channel])
            low, high = (int(end[channel]) for end in layer.reach)
            steps = (((2 * y - 1) << (down - 1)) // max(factor, 1) for y in range(-32770, 32770, 777))
            for acc in {min(max(low, step + near), high) for step in steps for near in (-1, 0, 1)} | {low, high, 0, -1}:
                wanted = (acc * factor + (1 << (down - 1))) >> down
                upper = ((acc * int(form.multiplier[channel])) >> 32) + int(form.offset[channel])
                assert upper >> int(form.right[channel]) == wanted and abs(upper) < 1 << 31


def test_interleaved_channels() -> None:
    """One row's pairs of channels share words, with sums of 64 bits for the first: unless a weight of -128 leaves no room for the second."""
    interleaved = 0
    for depth, channels, seed in ((40, 8, 1), (41, 6, 2), (7, 5, 3), (1500, 4, 4), (513, 4, 5), (64, 9, 6)):
        for saturated in (False, True):
            case = Case("dense", (1, 1, 1, depth), channels, sums="wide", seed=seed, saturated=saturated)
            program = program_of(case)
            check_all(program, seed)
            layer = read_layer(program, program.instructions[0], M4, "dense", "dsp", (DType.INT16,))
            assert isinstance(layer, Layer)
            interleaved += solution(layer, False, True).interleaved
            assert not solution(layer, True, True).interleaved and not (saturated and solution(layer, False, True).interleaved)
    assert interleaved == 6


def residual(result, index):
    """A sum with another tensor, rescaled: what a fused ADD looks like."""
    other = sub(cast(Load("r", index, DType.INT16), DType.INT32), integer(3))
    total = add(mul(cast(result, DType.INT32), integer(3)), mul(other, integer(5)))
    return cast(clamp(total, -32768, 32767), DType.INT16)


FUSABLE = (
    Case("conv", (1, 6, 7, 8), 7, padding=(1, 1, 1, 1), sums="wide"),
    Case("conv", (2, 6, 8, 8), 8, (1, 1), sums="wide"),
    Case("conv", (1, 7, 7, 5), 6, (3, 3), (2, 2), sums="wide"),
    Case("depthwise", (2, 5, 7, 9), padding=(1, 1, 1, 1), sums="wide"),
    Case("depthwise", (1, 6, 6, 3), kernel=(5, 5), padding=(2, 2, 2, 2), multiplier=2, sums="wide"),
    Case("dense", (1, 1, 1, 20), 10, sums="wide"),
    Case("dense", (3, 1, 1, 20), 9, sums="double"),
)


@pytest.mark.parametrize("case", FUSABLE, ids=str)
def test_fused_operand(case: Case) -> None:
    shape = program_of(case)["y"].shape
    program = program_of(case, residual, extra=[Buffer("r", DType.INT16, shape, "input")])
    check(program, split=True)
    check(program, split=True, align=2)
    in_place = replace_role(program, "r", "temporary")
    implementation = claim(in_place)
    assert implementation.overwrites == ("r",)
    inputs = inputs_of(program)
    outcome = emulator.run(in_place, implementation, M4, inputs, in_place="r")
    assert (outcome.out == expected(program, inputs)).all()


@pytest.mark.parametrize("name", ["cortex-m7", "cortex-m33"])
def test_other_cores(name: str) -> None:
    target = load_target(name)
    check(program_of(Case(padding=(1, 1, 1, 1), sums="wide")), target=target)
    check(program_of(Case("depthwise", padding=(1, 1, 1, 1), sums="wide")), target=target)
    check(program_of(Case("dense", (1, 1, 1, 33), 9, sums="wide")), target=target)


def test_refusals() -> None:
    large = program_of(Case("dense", (1, 1, 1, 9), 4, sums="wide", scales=(0.9,)))
    bias = program_of(Case("dense", (1, 1, 1, 1100), 4, sums="wide", saturated=True))
    array_of(bias, "bias")[1] = 1 << 48
    for program, why in ((large, "scales too large"), (bias, "a bias of more than 48 bits")):
        assert why in str(dsp.claim_dense(program, program.instructions[0], M4))


PRODUCTS = (
    (Case("conv", (1, 8, 8, 64), 64, (1, 1), sums="wide"), 0.95, 0.82),
    (Case("conv", (1, 8, 8, 16), 32, padding=(1, 1, 1, 1), sums="wide"), 1.0, 0.88),
    (Case("dense", (1, 1, 1, 256), 64, sums="wide"), 1.03, 0.9),
    (Case("dense", (1, 1, 1, 1200), 32, sums="wide", saturated=True), 1.32, 0.9),
    (Case("dense", (1, 1, 1, 1200), 32, sums="wide"), 1.14, 0.9),
    (Case("conv", (1, 4, 4, 1200), 32, (1, 1), sums="wide", saturated=True), 1.1, 0.84),
    (Case("depthwise", (1, 12, 12, 32), padding=(1, 1, 1, 1), sums="wide"), 2.1, 2.1),
)


@pytest.mark.parametrize(("case", "most", "least"), PRODUCTS, ids=str)
def test_instructions_for_a_product(case: Case, most: float, least: float) -> None:
    """The preferred variant, and the fastest."""
    program = program_of(case)
    macs = program.instructions[0].geometry.macs  # type: ignore[union-attr]
    found = [emulator.run(program, one, M4, inputs_of(program)).instructions / macs for one in offers(program)]
    assert found[0] < most and min(found) < least, found
