"""Odd sizes on cores with the DSP extension: no slow path that nobody noticed. Prints instructions for each MAC (pytest -s).

A size costs at most half as much again, for each MAC, as the next larger even one, or no more in all than that one: it could have been
padded. By default some sizes of each series; AOT_SWEEP=1 takes all.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from aot.target import load_target
from tests.backends import emulator
from tests.backends.contracts import Case, inputs_of, program_of
from tests.backends.test_dsp_kernels import offers

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

M4 = load_target("cortex-m4")
SAME = (1, 1, 1, 1)
CHANNELS = (1, 3, 5, 7, 9, 11, 13, 15, 17, 33) if "AOT_SWEEP" in os.environ else (1, 3, 7, 17)
PIXELS = (1, 3, 5, 7, 9, 11, 13) if "AOT_SWEEP" in os.environ else (1, 3, 7)

Series = Callable[[int], Case]
SERIES: dict[str, tuple[Series, tuple[int, ...]]] = {
    "1x1, input channels": (lambda n: Case("conv", (1, 8, 8, n), 16, (1, 1)), CHANNELS),
    "1x1, output channels": (lambda n: Case("conv", (1, 8, 8, 16), n, (1, 1)), CHANNELS),
    "1x1, pixels": (lambda n: Case("conv", (1, 1, n, 16), 16, (1, 1)), PIXELS),
    "3x3, input channels": (lambda n: Case("conv", (1, 8, 8, n), 16, padding=SAME), CHANNELS),
    "3x3, output channels": (lambda n: Case("conv", (1, 8, 8, 16), n, padding=SAME), CHANNELS),
    "3x3, width": (lambda n: Case("conv", (1, 8, n, 16), 16, padding=SAME), PIXELS),
    "3x3 stride 2, width": (lambda n: Case("conv", (1, 8, 2 * n, 8), 16, stride=(2, 2), padding=(0, 1, 0, 1)), PIXELS),
    "3x3 dilation 2, input channels": (
        lambda n: Case("conv", (1, 8, 8, n), 16, dilation=(2, 2), padding=(2, 2, 2, 2)),
        CHANNELS,
    ),
    "3x3 of one channel, output channels": (lambda n: Case("conv", (1, 8, 8, 1), n, padding=SAME), CHANNELS),
    "5x5 of one channel, output channels": (lambda n: Case("conv", (1, 8, 8, 1), n, (5, 5), padding=(2, 2, 2, 2)), CHANNELS),
    "depthwise, channels": (lambda n: Case("depthwise", (1, 8, 8, n), padding=SAME), CHANNELS),
    "depthwise, width": (lambda n: Case("depthwise", (1, 8, n, 8), padding=SAME), PIXELS),
    "depthwise, height": (lambda n: Case("depthwise", (1, n, 8, 8), padding=SAME), PIXELS),
    "depthwise, multiplier": (lambda n: Case("depthwise", (1, 8, 8, 4), padding=SAME, multiplier=n), (1, 3)),
    "dense, inputs": (lambda n: Case("dense", (1, 1, 1, n), 16), CHANNELS),
    "dense, outputs": (lambda n: Case("dense", (1, 1, 1, 64), n), CHANNELS[1:]),
    "dense, rows": (lambda n: Case("dense", (n, 1, 1, 64), 16), PIXELS),
    "3x3, batch": (lambda n: Case("conv", (n, 5, 5, 8), 8, padding=SAME), (1, 3)),
}


def measured(case: Case, fastest: bool = False) -> tuple[int, int]:
    """Instructions and MACs; of the preferred variant, or the one that is said to be the fastest."""
    program = program_of(case)
    variants = offers(program)
    chosen = min(variants, key=lambda one: one.cost.instructions if one.cost else 0) if fastest else variants[0]
    outcome = emulator.run(program, chosen, M4, inputs_of(program))
    geometry = program.instructions[0].geometry  # type: ignore[union-attr]
    assert geometry is not None
    return outcome.instructions, geometry.macs


@pytest.mark.parametrize("fastest", [False, True], ids=["preferred", "fastest"])
@pytest.mark.parametrize("name", SERIES)
def test_odd_sizes(name: str, fastest: bool) -> None:
    case, sizes = SERIES[name]
    for size in sizes:
        (odd, odd_macs), (even, even_macs) = measured(case(size), fastest), measured(case(size + 1), fastest)
        print(f"{name:40s} {size:3d}: {odd / odd_macs:6.2f} {size + 1:3d}: {even / even_macs:6.2f} instructions/MAC")
        assert odd / odd_macs <= 1.5 * even / even_macs or odd <= even, f"{size}: {odd} instructions, {size + 1}: {even}"


KERNELS = ((1, 1), (3, 3), (5, 5), (7, 7), (1, 3), (3, 1), (1, 7), (7, 1), (9, 9))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels_of_any_shape(kernel: tuple[int, int]) -> None:
    """Of eight channels, and larger than the image: nothing takes more than a 1x1 kernel does."""
    rows, columns = kernel[0] // 2, kernel[1] // 2
    instructions, macs = measured(Case("conv", (1, 7, 7, 8), 8, kernel, padding=(rows, rows, columns, columns)))
    print(f"{kernel[0]}x{kernel[1]}, 8 channels to 8: {instructions / macs:6.2f} instructions/MAC")
    assert instructions / macs <= 1.7
