"""The DSP kernels on an emulated Cortex-M against the numpy meaning of their instructions, every byte, with guards around every
buffer.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.backends.cmsis_nn import BACKEND, dsp
from aot.backends.cmsis_nn.dsp.gather import Patches
from aot.backends.cmsis_nn.dsp.packing import Packed, Tile, pack
from aot.backends.layers.operands import Layer, read_layer
from aot.graph.expr import Const, Load, Lookup, Unary, add, axis, cast, clamp, integer, mul, real, sub
from aot.graph.ir import DType
from aot.lower.implementation import Implementation, kind_of
from aot.lower.program import Buffer, Program
from aot.target import Target, load_target
from tests.backends import emulator
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

M4 = load_target("cortex-m4")
CHANNELS = (*range(1, 18), 33, 64)
NUMBERS = {
    "zero_point": (-128, -1, 0, 127),
    "out_zero_point": (-128, -128, -1, 0, 127),
    "activation": ("none", "none", "relu", "relu6", "inside"),
    "scale": ("fitting", "fitting", "fitting", 2**-20, 0.3, 1.0, 1.7, "wide", "dead"),
    "bias": ("some", "some", "none", "large"),
    "weights": ("any", "any", "saturated"),
    "batch": (1, 1, 2, 3),
}


def claim(program: Program, target: Target = M4, variant: int = 0) -> Implementation:
    """The first kernel's implementation; `variant` of those that it offers."""
    return offers(program, target)[variant]


def offers(program: Program, target: Target = M4) -> tuple[Implementation, ...]:
    """All implementations of the first kernel that has one."""
    answers = [kernel.claim(program, program.instructions[0], target) for kernel in BACKEND.kernels]
    found = next((answer for answer in answers if not isinstance(answer, str)), None)
    assert found is not None, answers
    return (found,) if isinstance(found, Implementation) else found


def check(program: Program, seed: int = 1, target: Target = M4, split: bool = False, **options) -> Implementation:
    """Run it at once, and in two steps of rows, and compare."""
    implementation = options.pop("implementation", None) or claim(program, target, options.pop("variant", 0))
    inputs = inputs_of(program, seed)
    rows = implementation.rows
    options.setdefault("align", 1 if seed % 16 == 15 else 4)
    middle = rows.count // 2 // rows.per_step * rows.per_step
    ranges = [(0, middle), (middle, rows.count)] if split and middle else None
    background = options.pop("background", 0)
    wanted = expected(program, inputs, background)
    if options.get("in_place"):
        inputs = {**inputs}
    outcome = emulator.run(program, implementation, target, inputs, ranges, background, **options)
    different = np.argwhere(outcome.out != wanted)
    assert not different.size, f"{len(different)} of {wanted.size} differ, the first at {different[0]}; {implementation.notes}"
    return implementation


def numbers(choice: dict, channels: int) -> dict:
    """The fields of a Case for picks from NUMBERS."""
    zero_point = choice["out_zero_point"]
    clamps = {
        "none": (-128, 127),
        "relu": (zero_point, 127),
        "relu6": (zero_point, min(127, zero_point + 100)),
        "inside": (-60, 70),
    }
    scale = choice["scale"]
    scales = {
        "fitting": (),
        "wide": tuple(np.exp(np.linspace(-9, -1, channels))),
        "dead": tuple(0.0 if number % 3 == 0 else 0.002 * (1 + number) for number in range(channels)),
    }.get(scale, (scale,))
    low, high = clamps[choice["activation"]]
    fields = {"zero_point": choice["zero_point"], "out_zero_point": zero_point, "low": low, "high": high, "scales": scales}
    return {
        **fields,
        "bias": choice["bias"] != "none",
        "large_bias": choice["bias"] == "large",
        "saturated": choice["weights"] == "saturated",
    }


def padded(image, kernel, stride, dilation, padding) -> tuple[int, int, int, int]:
    """`padding`, with more behind where the kernel would not fit."""
    spans = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilation)]
    missing = [max(0, spans[k] - image[k] - padding[2 * k] - padding[2 * k + 1]) for k in range(2)]
    return padding[0], padding[1] + missing[0], padding[2], padding[3] + missing[1]


WINDOWS = {
    "height": (1, 2, 3, 5, 8),
    "width": (1, 2, 3, 5, 6, 9),
    "stride": ((1, 1), (1, 1), (2, 2), (1, 2), (3, 1), (3, 3)),
    "dilation": ((1, 1), (1, 1), (1, 1), (2, 2), (1, 2)),
    "padding": ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (2, 0, 1, 2)),
}


def windowed(number: int, choice: dict, **fields) -> Case:
    size = (choice["height"], choice["width"])
    padding = padded(size, choice["kernel"], choice["stride"], choice["dilation"], choice["padding"])
    image = (choice["batch"], *size, choice["depth"])
    return Case(
        image=image,
        kernel=choice["kernel"],
        stride=choice["stride"],
        dilation=choice["dilation"],
        padding=padding,
        seed=number,
        **fields,
    )


KERNELS = ((1, 1), (1, 1), (3, 3), (3, 3), (2, 2), (5, 5), (7, 7), (3, 1), (1, 7), (2, 5))


@pytest.mark.parametrize("part", range(4))
def test_convolutions(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": KERNELS, "depth": CHANNELS, "channels": CHANNELS}
    for number, choice in enumerate(sweep(20, part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        check(program_of(case), number, split=True)


EXPANDED = {
    "height": (3, 4, 6, 9),
    "width": (5, 8, 9, 12, 15),
    "dilation": ((1, 1), (1, 1), (1, 2), (2, 2)),
    "stride": ((1, 1), (1, 1), (2, 2), (1, 3), (3, 1)),
    "kernel": ((3, 3), (5, 5), (2, 3), (7, 1), (3, 4)),
    "depth": (3, 4, 5, 8, 12, 15, 33),
}
"""Convolutions that are often computed over expanded rows."""


@pytest.mark.parametrize("part", range(3))
def test_convolutions_over_expanded_rows(part: int) -> None:
    choices = {
        **NUMBERS,
        **WINDOWS,
        **EXPANDED,
        "channels": CHANNELS,
    }
    expanded = 0
    for number, choice in enumerate(sweep(20, 20 + part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        if part == 2:
            program = program_of(case)
            shape = program["y"].shape
            program = program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")])
        else:
            program = program_of(case)
        expanded += "expanded rows" in str(check(program, number, split=True).notes)
    assert expanded >= 5


FILTERS = ((3, 3), (3, 3), (3, 3), (3, 1), (3, 2), (1, 1), (2, 2), (5, 5), (5, 3), (7, 2), (1, 7), (7, 7), (10, 4))


@pytest.mark.parametrize("part", range(4))
def test_depthwise(part: int) -> None:
    choices = {**NUMBERS, **WINDOWS, "kernel": FILTERS, "depth": CHANNELS, "multiplier": (1, 1, 1, 2, 3)}
    for number, choice in enumerate(sweep(20, part, **choices)):
        channels = choice["depth"] * choice["multiplier"]
        fields = numbers(choice, channels)
        case = windowed(number, choice, kind="depthwise", multiplier=choice["multiplier"], **fields)
        check(program_of(case), number, split=True)


def test_dense() -> None:
    choices = {**NUMBERS, "rows": (1, 1, 2, 3, 5, 8), "depth": (*CHANNELS, 64, 100, 640), "channels": CHANNELS}
    for number, choice in enumerate(sweep(40, 9, **choices)):
        image = (choice["rows"], 1, 1, choice["depth"])
        fields = numbers(choice, choice["channels"])
        if choice["rows"] * choice["channels"] > 1:
            check(program_of(Case("dense", image, choice["channels"], seed=number, **fields)), number)


def test_a_single_output_is_left_to_generic_code() -> None:
    program = program_of(Case("dense", (1, 1, 1, 640), 1))
    assert "a single output: generic code needs as few instruct" in str(dsp.claim_dense(program, program.instructions[0], M4))


@pytest.mark.parametrize("name", ["cortex-m7", "cortex-m33"])
def test_other_cores(name: str) -> None:
    target = load_target(name)
    check(program_of(Case(padding=(1, 1, 1, 1))), target=target)
    check(program_of(Case("depthwise", padding=(1, 1, 1, 1))), target=target)
    check(program_of(Case("dense", (1, 1, 1, 33), 9)), target=target)


UNALIGNED = (
    Case("dense", (1, 1, 1, 16), 4),
    Case("dense", (3, 1, 1, 20), 9),
    Case("conv", (1, 3, 3, 8), 4, (1, 1)),
    Case("conv", (2, 6, 7, 4), 7, padding=(1, 1, 1, 1)),
    Case("conv", (1, 7, 7, 32), 6, (3, 3), (2, 2), padding=(0, 1, 0, 1)),
    Case("depthwise", (2, 5, 7, 4), padding=(1, 1, 1, 1)),
    Case("depthwise", (2, 3, 3, 2), kernel=(7, 1), stride=(7, 7), padding=(3, 3, 0, 0), multiplier=2),
)


@pytest.mark.parametrize("case", UNALIGNED, ids=str)
def test_activations_at_odd_addresses(case: Case) -> None:
    """A caller may pass int8 at any address."""
    check(program_of(case), align=1, split=True)
    shape = program_of(case)["y"].shape
    check(program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")]), align=1, split=True)


# Forms and packings that random layers rarely need.


def packed(program: Program, kind: str) -> Packed:
    """How a kernel of one pixel at a time would pack the weights."""
    layer = read_layer(program, program.instructions[0], M4, kind)
    assert isinstance(layer, Layer), layer
    order = Patches.of(layer).order
    return pack(layer, order, Tile(1, 1, -(-len(order) // 4) * 2, 1))


def test_sums_too_wide_for_two_channels_a_word() -> None:
    for case in (Case("dense", (1, 1, 1, 1300), 6), Case("dense", (3, 1, 1, 1300), 5), Case("conv", (1, 5, 5, 160), 6)):
        program = program_of(replace(case, zero_point=-128))
        check(program)
        assert not packed(program, case.kind).interleaved


@pytest.mark.parametrize("zero_point", [-128, 5])
def test_layers_of_one_scale_keep_one_set_of_constants(zero_point: int) -> None:
    for case in (Case("dense", (1, 1, 1, 40), 16), Case("dense", (3, 1, 1, 33), 9), Case("conv", (1, 5, 5, 6), 14)):
        program = program_of(replace(case, scales=(0.0017,), out_zero_point=zero_point))
        check(program)
        assert packed(program, case.kind).common


@pytest.mark.parametrize("depth", [36, 40, 56])
def test_single_pixels_times_plain_weights(depth: int) -> None:
    """Slots of 20 and 28 words have odd divisors; plain weights come for two words at a time."""
    program = program_of(Case("conv", (1, 1, 5, depth), 2, (1, 1), scales=(1.7,), large_bias=True))
    check(program)
    assert not packed(program, "conv").interleaved


def test_exact_rounding() -> None:
    for kind in ("conv", "depthwise", "dense"):
        image = (2, 1, 1, 9) if kind == "dense" else (1, 5, 4, 9)
        for scale in (3e6, 2.0**29, 70000.0):
            case = Case(kind, image, 7, padding=(1, 1, 1, 1) if kind != "dense" else (0,) * 4, scales=(scale,), out_zero_point=3)
            assert "both roundings" in check(program_of(case)).notes[0]


@pytest.mark.parametrize("zero_point", [3, -128, -7])
@pytest.mark.parametrize("kind", ["conv", "depthwise", "dense"])
def test_exact_rounding_of_ties_below_zero(kind: str, zero_point: int) -> None:
    """Scales far apart in one layer: the exact form with right shifts, where negative ties round away from zero."""
    image = (2, 1, 1, 9) if kind == "dense" else (1, 5, 4, 7)
    for scales in ((3e6,) * 3 + (2.0**-6,) * 4, (2.0**-9, 2.0**-7, 3e6, 2.0**-5, 2.0**-8, 2.0**-6, 3e6)):
        padding = (1, 1, 1, 1) if kind != "dense" else (0,) * 4
        case = Case(kind, image, 7, padding=padding, scales=scales, out_zero_point=zero_point)
        assert "both roundings" in check(program_of(case)).notes[0]


def test_own_shifts() -> None:
    scales = tuple(2.0 ** -(4 + number) * 1.37 for number in range(12))
    for kind in ("conv", "depthwise", "dense"):
        image = (2, 1, 1, 12) if kind == "dense" else (1, 5, 4, 12)
        for zero_point in (-128, 11):
            check(program_of(Case(kind, image, 12, scales=scales, out_zero_point=zero_point)))


def test_weights_of_minus_128() -> None:
    for kind, image in (("conv", (1, 4, 4, 6)), ("dense", (1, 1, 1, 40)), ("depthwise", (1, 4, 4, 6))):
        program = program_of(Case(kind, image, 6))
        program["w"].data.flags.writeable = True
        program["w"].data[...] = np.where(program["w"].data < 0, -128, program["w"].data)
        check(program)


def test_extreme_inputs() -> None:
    for seed in (3, 6, 9):  # inputs_of makes these all -128 or 127
        check(program_of(Case(padding=(1, 1, 1, 1), seed=seed)), seed)
        check(program_of(Case("depthwise", padding=(1, 1, 1, 1), seed=seed)), seed)


# What is fused behind, and where results go.


def residual(result, index):
    """A sum with another tensor, rescaled: what a fused ADD looks like."""
    other = sub(cast(Load("r", index, INT8), DType.INT32), integer(3))
    total = add(mul(cast(result, DType.INT32), integer(3)), mul(other, integer(5)))
    return cast(clamp(total, -128, 127), INT8)


FUSABLE = (
    Case("conv", (1, 6, 7, 8), 7, padding=(1, 1, 1, 1)),
    Case("conv", (2, 6, 8, 8), 8, (1, 1)),
    Case("conv", (1, 7, 7, 5), 6, (3, 3), (2, 2)),
    Case("depthwise", (2, 5, 7, 9), padding=(1, 1, 1, 1)),
    Case("depthwise", (1, 6, 6, 3), kernel=(5, 5), padding=(2, 2, 2, 2), multiplier=2),
    Case("dense", (1, 1, 1, 20), 10),
    Case("dense", (3, 1, 1, 20), 9),
)


@pytest.mark.parametrize("case", FUSABLE, ids=str)
def test_fused_operand(case: Case) -> None:
    shape = program_of(case)["y"].shape
    program = program_of(case, residual, extra=[Buffer("r", INT8, shape, "input")])
    check(program, split=True)
    in_place = replace_role(program, "r", "temporary")
    implementation = claim(in_place)
    assert implementation.overwrites == ("r",)
    inputs = inputs_of(program)
    outcome = emulator.run(in_place, implementation, M4, inputs, in_place="r")
    assert (outcome.out == expected(program, inputs)).all()


def replace_role(program: Program, name: str, role) -> Program:
    return replace(program, buffers=tuple(replace(one, role=role) if one.name == name else one for one in program.buffers))


@pytest.mark.parametrize("case", FUSABLE, ids=str)
def test_fused_table_and_float(case: Case) -> None:
    table = np.random.default_rng(5).integers(-128, 128, 256).astype(np.int8)

    def lookup(result, index):
        return Lookup("table", add(cast(result, DType.INT32), integer(128)), INT8)

    check(program_of(case, lookup, extra=[Buffer("table", INT8, (256,), "constant", data=table)]))

    def dequantise(result, index):
        return mul(cast(sub(cast(result, DType.INT32), integer(7)), DType.FLOAT32), real(0.125))

    check(program_of(case, dequantise))

    def sign(result, index):
        return Unary("neg", cast(result, DType.INT16))

    check(program_of(case, sign))


@pytest.mark.parametrize("kind", ["conv", "depthwise"])
@pytest.mark.parametrize(
    ("shape", "offsets"),
    [((2, 5, 6, 20), (0, 0, 0, 7)), ((2, 9, 6, 8), (0, 3, 0, 0)), ((2, 5, 11, 8), (0, 0, 4, 0)), ((3, 8, 9, 15), (1, 2, 3, 4))],
)
def test_parts_of_larger_outputs(kind: str, shape: tuple, offsets: tuple) -> None:
    case = Case(kind, (2, 5, 6, 8), 8, padding=(1, 1, 1, 1))
    store = tuple(axis(number, 1, offset) for number, offset in enumerate(offsets))
    check(program_of(case, store=store, out_shape=shape), split=True, background=77)
    program = program_of(case, residual, store, shape, [Buffer("r", INT8, (2, 5, 6, 8), "input")])
    check(program, split=True, background=77)


def test_dense_part_of_larger_output() -> None:
    case = Case("dense", (3, 1, 1, 20), 9)
    check(program_of(case, store=(axis(0), axis(1, 1, 4)), out_shape=(3, 17)), background=77)


# Declining.


def refusals(program: Program, target: Target = M4) -> list[str]:
    """What the kernels that are asked about the instruction say, all declining; without those that are for another kind of layer."""
    instruction = program.instructions[0]
    asked = [kernel for kernel in dsp.KERNELS if kind_of(instruction) in kernel.kinds]
    answers = [kernel.claim(program, instruction, target) for kernel in asked]
    assert all(isinstance(answer, str) for answer in answers)
    return [answer for answer in answers if not answer.startswith("not a ")]


@pytest.mark.parametrize("name", ["cortex-m0", "cortex-m0plus", "cortex-m3"])
def test_cores_without_dsp_decline(name: str) -> None:
    program = program_of(Case())
    for kernel in (one for one in dsp.KERNELS if "conv" in one.kinds and one.name != "depthwise"):
        assert kernel.claim(program, program.instructions[0], load_target(name)) == f"{name} has no DSP extension (SMLAD)"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"right_zero_point": 3}, "weights with a zero point"),
        ({"result": Const(0, INT8)}, "does not begin with a requantisation"),
        ({"store": (axis(0), axis(1), axis(3), axis(2))}, "not stored next to each other"),
        ({"initial": Load("x", (axis(0), axis(1), axis(2), axis(3)), INT8)}, "bias is not a constant"),
        ({"left": Load("x", (axis(0), axis(1), axis(2, 1, 1), axis(6)), INT8)}, "index map"),
        ({"geometry": None}, ""),
    ],
)
def test_what_is_declined(change: dict, reason: str) -> None:
    program = program_of(Case(image=(1, 5, 5, 3), channels=3, padding=(1, 1, 1, 1)))
    changed = replace(program, instructions=(replace(program.instructions[0], **change),))
    answers = refusals(changed)
    assert (answers or not reason) and all(reason in answer for answer in answers)


def test_grouped_convolutions_are_declined() -> None:
    program = program_of(Case())
    contract = program.instructions[0]
    grouped = replace(contract, geometry=replace(contract.geometry, groups=2))
    answers = refusals(replace(program, instructions=(grouped,)))
    assert answers and all("groups" in answer for answer in answers)
