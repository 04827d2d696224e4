"""Layers that run whole with their output on their input, as low below it as they state and lower: right to the byte.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

import numpy as np
import pytest

from aot.backends.cmsis_nn import dsp, thumb1
from aot.backends.cmsis_nn.swar import m3
from aot.backends.move import move
from aot.graph.expr import Load, cast
from aot.graph.ir import DType
from aot.graph.primitive import Map, identity
from aot.llvm.emission import distinct_names, parameter_names
from aot.lower.implementation import Implementation, Skew
from aot.lower.program import Buffer, Program
from aot.lower.rows import row_count
from aot.target import Target, load_target
from tests.backends import emulator
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import CHANNELS, EXPANDED, FILTERS, M4, numbers, windowed
from tests.backends.test_row_steps import IMAGES, fused
from tests.backends.test_variants import variants
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

M0, M3 = load_target("cortex-m0"), load_target("cortex-m3")
KERNELS = {"cortex-m4": dsp.KERNELS, "cortex-m0": thumb1.KERNELS, "cortex-m3": m3.KERNELS}
_GUARD = 40


def distances(skew: Skew, old_nbytes: int, new_nbytes: int, rng: np.random.Generator) -> list[int]:
    """How far below the input the output starts: as little as allowed, and some more where the two still meet. In words."""
    high = max(new_nbytes, skew.first_nbytes + 1)
    allowed = [each for each in range(max(skew.first_nbytes, -old_nbytes), high) if skew.allows(each) and each % 4 == 0]
    return sorted({allowed[0], *rng.choice(allowed, 2).tolist()}) if allowed else []


def run(
    program: Program, chosen: Implementation, inputs: dict[str, np.ndarray], source: str, below: int, seed: int, target: Target = M4
) -> np.ndarray:
    """The output, where it starts so many bytes below the input `source`. Nothing but it and scratch may change."""
    rng, out = np.random.default_rng(seed), chosen.writes[0]
    distinct = distinct_names(chosen, program) - {source, out}
    core = emulator.Core(emulator.assemble(program, chosen, target, distinct=distinct), target)
    content, places = bytearray(), {}

    def place(data: bytes, align: int, before: int = 0) -> int:
        start = -(-(len(content) + _GUARD + before) // align) * align
        content.extend(rng.bytes(start - len(content)) + data)
        return start

    for name in chosen.reads:
        if name != source:
            places[name] = place(np.ascontiguousarray(inputs[name]).tobytes(), 4)
    places[source] = place(np.ascontiguousarray(inputs[source]).tobytes(), 4, max(below, 0))
    places[out] = places[source] - below
    content.extend(rng.bytes(_GUARD + program[out].nbytes + abs(below)))
    for buffer in chosen.constants:
        places[buffer.name] = place(np.ascontiguousarray(buffer.data).tobytes(), max(4, buffer.align))
    scratch = place(bytes(chosen.scratch_nbytes), chosen.scratch_align)
    content.extend(rng.bytes(_GUARD))
    arguments = [emulator._DATA + places[name] for name in parameter_names(chosen)]
    arguments += [emulator._DATA + scratch] if chosen.scratch_nbytes else []
    core.machine.mem_write(emulator._DATA, bytes(content))
    core.call([*arguments, 0, chosen.rows.count])
    after = np.frombuffer(bytes(core.machine.mem_read(emulator._DATA, len(content))), np.uint8)
    made = after[places[out] : places[out] + program[out].nbytes]
    kept = np.frombuffer(bytes(content), np.uint8).copy()
    for start, nbytes in ((places[out], program[out].nbytes), (scratch, chosen.scratch_nbytes)):
        kept[start : start + nbytes] = after[start : start + nbytes]
    assert (kept == after).all(), f"bytes outside of the output and scratch changed, the first at {int(np.argmax(kept != after))}"
    return made.view(program[out].dtype.np).reshape(program[out].shape)


def check(program: Program, seed: int, target: Target = M4) -> int:
    """All implementations at several distances; how many were run with memory in common."""
    inputs, rng, count = inputs_of(program, seed), np.random.default_rng(seed), 0
    wanted = expected(program, inputs)
    answers = [kernel.claim(program, program.instructions[0], target) for kernel in KERNELS[target.name]]
    found = [answer for answer in answers if not isinstance(answer, str)]
    for one in [each for answer in found for each in (answer if isinstance(answer, tuple) else (answer,))]:
        for source, skew in one.skew:
            for below in distances(skew, program[source].nbytes, program[one.writes[0]].nbytes, rng):
                made = run(program, one, inputs, source, below, seed, target)
                assert (made == wanted).all(), (one.kernel, one.variant, below, skew, one.notes)
                count += 1
    return count


@pytest.mark.parametrize("target", [M0, M3], ids=["m0", "m3"])
def test_small_cores(target: Target) -> None:
    """Kernels that read a window again while its outputs are stored, and such that read it where it lies."""
    convolutions = {**IMAGES, "batch": (1, 1, 2), "kernel": ((1, 1), (3, 3), (2, 5)), "depth": CHANNELS, "channels": CHANNELS}
    depthwise = {**IMAGES, "batch": (1, 1, 1, 2), "kernel": FILTERS, "depth": CHANNELS}
    counts = [0, 0]
    for number, choice in enumerate(sweep(20, 150, **convolutions)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        counts[0] += check(fused(case) if number % 3 == 2 else program_of(case), number, target)
    for number, choice in enumerate(sweep(20, 151, **depthwise)):
        case = windowed(number, choice, kind="depthwise", multiplier=1, **numbers(choice, choice["depth"]))
        counts[1] += check(fused(case) if number % 3 == 2 else program_of(case), number, target)
    for rows in (1, 3):
        counts[0] += check(program_of(Case("dense", (rows, 1, 1, 40), 33, seed=rows)), rows, target)
    assert min(counts) > 10


@pytest.mark.parametrize("part", range(3))
def test_convolutions(part: int) -> None:
    kernels = ((1, 1), (1, 1), (3, 3), (2, 2), (5, 5), (3, 1), (2, 5))
    choices = {**IMAGES, "batch": (1, 1, 2), "kernel": kernels, "depth": CHANNELS, "channels": CHANNELS}
    count = 0
    for number, choice in enumerate(sweep(8, 160 + part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        count += check(fused(case) if number % 3 == 2 else program_of(case), number)
    assert count > 20


@pytest.mark.parametrize("part", range(2))
def test_convolutions_over_expanded_rows(part: int) -> None:
    choices = {**IMAGES, **EXPANDED, "channels": CHANNELS}
    count = 0
    for number, choice in enumerate(sweep(8, 165 + part, **choices)):
        case = windowed(number, choice, channels=choice["channels"], **numbers(choice, choice["channels"]))
        count += check(fused(case) if number % 3 == 2 else program_of(case), number)
    assert count > 20


@pytest.mark.parametrize("part", range(2))
def test_depthwise(part: int) -> None:
    """Of any kernel, and of three rows in long rows, which slide."""
    sliding = {
        "kernel": ((3, 3), (3, 2), (3, 1)),
        "height": (1, 2, 3, 4, 7),
        "width": (5, 8, 9, 13, 24),
        "padding": ((1, 1, 1, 1), (0, 0, 0, 0), (0, 1, 0, 1), (2, 2, 2, 2), (1, 0, 1, 2)),
    }
    count = 0
    for more in ({"kernel": FILTERS}, sliding):
        choices = {**IMAGES, "batch": (1, 1, 1, 2), "depth": CHANNELS, **more}
        for number, choice in enumerate(sweep(10, 180 + part, **choices)):
            case = windowed(number, choice, kind="depthwise", multiplier=1, **numbers(choice, choice["depth"]))
            count += check(fused(case) if number % 3 == 2 else program_of(case), number)
    assert count > 20


@pytest.mark.parametrize("kind", ["conv", "depthwise"])
def test_int16(kind: str) -> None:
    choices = {**IMAGES, "kernel": ((1, 1), (3, 3), (3, 1)), "depth": CHANNELS, "channels": CHANNELS}
    count = 0
    for number, choice in enumerate(sweep(10, 190, **choices)):
        channels = choice["depth"] if kind == "depthwise" else choice["channels"]
        more = {} if kind == "depthwise" else {"channels": channels}
        count += check(program_of(windowed(number, choice, kind=kind, sums="double", **more)), number)
    assert count > 10


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT16])
def test_elements_of_other_sizes(dtype: DType) -> None:
    """Outputs of more bytes than inputs: nothing is stated that would hold for equal ones only."""

    def widened(result, index):
        return cast(cast(result, DType.INT32), dtype)

    for seed, kernel in enumerate(((1, 1), (3, 3))):
        case = Case("conv", (1, 5, 5, 8), 8, kernel, padding=(kernel[0] // 2,) * 4, seed=seed)
        check(program_of(case, widened), seed)
    check(program_of(Case("depthwise", (1, 5, 5, 8), kernel=(3, 3), padding=(1, 1, 1, 1)), widened), 3)


def test_rows_are_copied_away_of_one_image_only() -> None:
    """Of several images in one step, the first one's output is stored before the second is read."""
    stated = []
    for images in (1, 2):
        program = program_of(Case("conv", (images, 3, 24, 16), 64, (3, 3)))
        inputs = inputs_of(program, images)
        wanted = expected(program, inputs)
        for one in variants(program):
            for source, rule in one.overlap:
                stated.append((images, rule))
                for below in (400, 0, -400):
                    assert (run(program, one, inputs, source, below, images) == wanted).all(), (
                        one.kernel,
                        one.variant,
                        rule,
                        below,
                    )
    assert (1, "anywhere") in stated


@pytest.mark.parametrize("nbytes", [1, 3, 4, 31, 32, 33, 100, 259])
def test_moves(nbytes: int) -> None:
    """Up and down, by less and by more than a block."""
    buffers = (Buffer("x", INT8, (nbytes,), "input"), Buffer("y", INT8, (nbytes,), "output"))
    copy = Map("y", (nbytes,), Load("x", identity(1), INT8))
    program = Program("toy", buffers, (copy,), ("x",), ("y",))
    inputs = {"x": np.random.default_rng(nbytes).integers(-128, 128, nbytes).astype(np.int8)}
    assert row_count(program["y"]) == 1
    for below in (-260, -100, -32, -28, -4, 0, 4, 28, 32, 100, 260):
        assert (run(program, move(program, copy, "x"), inputs, "x", below, 1) == inputs["x"]).all(), below
