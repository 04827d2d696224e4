"""Dense layers that take in an image row by row, on an emulated Cortex-M4: the same sums as of the whole image, guards around every row.

Sweeps are sampled; AOT_SWEEP=1 makes them thirty times as long.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.dense_rows import claim_dense_rows
from aot.graph.expr import Acc
from aot.graph.ir import DType
from aot.graph.primitive import Contract
from aot.lower.accumulate import over_rows
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from tests.backends import emulator, scattered
from tests.backends.contracts import INT8, Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import M4
from tests.backends.test_row_steps import check
from tests.graph.lowered import sweep

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")


def flattened(image: tuple[int, ...], case: Case) -> Program:
    """A dense layer behind a reshape of an image."""
    program = program_of(replace(case, image=(1, 1, 1, int(np.prod(image)))))
    layer, x = program.instructions[0], program["x"]
    assert isinstance(layer, Contract)
    buffers = (replace(x, shape=image), replace(x, name="flat", role="temporary", base="x"), *program.buffers[1:])
    return replace(program, buffers=buffers, instructions=(replace(layer, left=replace(layer.left, buffer="flat")),))


def sums_of(image: tuple[int, ...], case: Case) -> Program:
    """What remains of it without its ending: an output of sums."""
    whole = flattened(image, case)
    layer = over_rows(whole, whole.instructions[0])  # type: ignore[arg-type]
    assert layer is not None
    program = program_of(replace(case, image=(1, 1, 1, int(np.prod(image)))))
    kept = [one for one in program.buffers if one.name in ("w", "bias")]
    buffers = (Buffer("x", INT8, image, "input"), *kept, Buffer("y", DType.INT32, layer.space, "output"))
    layer = replace(layer, result=Acc(DType.INT32), store=())
    return Program("test", buffers, (layer,), ("x",), ("y",))


def claimed(program: Program) -> tuple[Implementation, ...]:
    found = claim_dense_rows(program, program.instructions[0], M4)
    assert isinstance(found, tuple), found
    return found


@pytest.mark.parametrize("part", range(4))
def test_sums(part: int) -> None:
    choices = {
        "image": ((1, 2, 1, 4), (1, 5, 3, 3), (1, 7, 4, 8), (1, 1, 9, 6), (1, 3, 20, 5), (1, 6, 64), (4, 36), (1, 25, 20, 8)),
        "channels": (1, 2, 3, 4, 5, 8, 10, 13),
        "zero_point": (-128, -1, 0, 127),
        "bias": ("some", "none", "large"),
        "saturated": (False, False, True),
        "nine_bits": (None, None, None, 60, 128, 255),
        "few": (0, 2),
    }
    for number, choice in enumerate(sweep(8, 230 + part, **choices)):
        bias = {"bias": choice["bias"] != "none", "large_bias": choice["bias"] == "large", "saturated": choice["saturated"]}
        weights = {"nine_bits": choice["nine_bits"], "few": choice["few"]}
        case = Case("dense", channels=choice["channels"], zero_point=choice["zero_point"], seed=number, **bias, **weights)
        program = sums_of(choice["image"], case)
        inputs = inputs_of(program, number)
        for one in claimed(program):
            check(program, number, [one])
            assert (emulator.run(program, one, M4, inputs).out == expected(program, inputs)).all(), (case, one.variant)


def test_sums_beyond_int32_wrap() -> None:
    """As the sums of a whole image do: from a bias at the end of the range, over several rows."""
    program = sums_of((1, 4, 8, 16), Case("dense", channels=6, saturated=True))
    bias = np.array([2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 2**30, -(2**30)], np.int32)
    program = replace(program, buffers=tuple(replace(one, data=bias) if one.name == "bias" else one for one in program.buffers))
    for value in (-128, 127):
        inputs = {"x": np.full((1, 4, 8, 16), value, np.int8)}
        for one in claimed(program):
            assert (scattered.run(program, one, M4, inputs).out == expected(program, inputs)).all()


def test_costs() -> None:
    for image, channels in (((1, 25, 20, 8), 4), ((1, 8, 8, 16), 10), ((1, 7, 7, 12), 33)):
        program = sums_of(image, Case("dense", channels=channels))
        for one in claimed(program):
            taken = emulator.run(program, one, M4, inputs_of(program)).instructions
            assert one.cost is not None and abs(one.cost.instructions / taken - 1) < 0.07, (image, one.variant)
            rows = scattered.run(program, one, M4, inputs_of(program)).instructions
            said = one.cost.instructions + (one.rows.count - 1) * one.cost.step_instructions
            assert abs(said / rows - 1) < 0.1, (image, one.variant)


def test_scratch_is_for_sums_where_rows_are_whole_words() -> None:
    first, *others = claimed(sums_of((1, 25, 20, 8), Case("dense", channels=4)))
    assert first.scratch_nbytes == 16 and all(one.scratch_nbytes == 16 + 4 * 80 for one in others)


@pytest.mark.parametrize(
    ("image", "sentence"), [((1, 1, 1, 8), "not the sums"), ((1, 8), "not the sums"), ((2, 2, 3, 4), "not the sums")]
)
def test_what_is_declined(image: tuple[int, ...], sentence: str) -> None:
    """An image of one row, and several images."""
    program = program_of(Case("dense", image=(image[0], 1, 1, int(np.prod(image[1:])))))
    layer = program.instructions[0]
    assert isinstance(layer, Contract)
    program = replace(program, instructions=(replace(layer, result=Acc(DType.INT32)),))
    program = replace(
        program, buffers=tuple(replace(one, dtype=DType.INT32) if one.name == "y" else one for one in program.buffers)
    )
    assert sentence in str(claim_dense_rows(program, program.instructions[0], M4))
