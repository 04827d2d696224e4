"""Products of int8 tensors on an emulated Cortex-M4, at every pair of bytes, in place too."""

from __future__ import annotations

import numpy as np
import pytest

from aot.backends.cmsis_nn.dsp.elementwise import claim_product
from aot.graph.expr import Load, Requantise, add, axis, cast, clamp, integer, mul, sub
from aot.graph.ir import DType
from aot.graph.primitive import Map
from aot.lower.implementation import Implementation
from aot.lower.program import Buffer, Program
from aot.target import load_target
from tests.backends import emulator
from tests.backends.contracts import INT8, expected, quantised_multiplier

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

M4 = load_target("cortex-m4")


def program_of(shape: tuple[int, int], zeros: tuple[int, int, int], scale: float, low: int = -128, high: int = 127) -> Program:
    a, b = (sub(cast(Load(name, (axis(0), axis(1)), INT8), DType.INT32), integer(z)) for name, z in zip("xr", zeros))
    multiplier, shift = quantised_multiplier(scale)
    scaled = add(Requantise(mul(a, b), integer(multiplier), integer(shift)), integer(zeros[2]))
    value = cast(clamp(scaled, low, high), INT8)
    buffers = (Buffer("x", INT8, shape, "input"), Buffer("r", INT8, shape, "input"), Buffer("y", INT8, shape, "output"))
    return Program("test", buffers, (Map("y", shape, value),), ("x", "r"), ("y",))


def pairs(rows: int) -> dict[str, np.ndarray]:
    """Every pair of bytes; the last rows left out."""
    values = np.arange(-128, 128).astype(np.int8)
    x, r = np.meshgrid(values, values, indexing="ij")
    return {"x": np.ascontiguousarray(x[:rows]), "r": np.ascontiguousarray(r[:rows])}


@pytest.mark.parametrize("zeros", [(0, 0, 0), (3, -4, 1), (-128, 127, -128)])
@pytest.mark.parametrize("scale", [0.0286, 0.0031, 0.00071])
def test_every_pair(zeros: tuple[int, int, int], scale: float) -> None:
    program = program_of((256, 256), zeros, scale)
    implementation = claim_product(program, program.instructions[0], M4)
    assert isinstance(implementation, Implementation), implementation
    outcome = emulator.run(program, implementation, M4, pairs(256), align=1)
    np.testing.assert_array_equal(outcome.out, expected(program, pairs(256)))
    assert outcome.instructions / 65536 < 12


def test_clamps_and_odd_counts() -> None:
    program = program_of((5, 7), (3, -4, 1), 0.0286, -20, 60)
    implementation = claim_product(program, program.instructions[0], M4)
    assert isinstance(implementation, Implementation), implementation
    rng = np.random.default_rng(1)
    inputs = {name: rng.integers(-128, 128, (5, 7)).astype(np.int8) for name in "xr"}
    np.testing.assert_array_equal(emulator.run(program, implementation, M4, inputs).out, expected(program, inputs))


def test_what_is_declined() -> None:
    program = program_of((4, 4), (0, 0, 0), 3e6)
    assert "no short requantisation" in str(claim_product(program, program.instructions[0], M4))
    assert "no DSP extension" in str(claim_product(program, program.instructions[0], load_target("cortex-m3")))
