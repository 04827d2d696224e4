"""What the DSP kernels cost on Cortex-M4: instructions per multiply-accumulate, code, scratch, stack. Counts repeat exactly.

`pytest -s` prints the table. The ceilings are a little above what was measured when the kernels were written: a regression fails.
"""

from __future__ import annotations

import pytest

from tests.backends import emulator
from tests.backends.contracts import Case, expected, inputs_of, program_of
from tests.backends.test_dsp_kernels import M4, claim

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

SAME, NONE = (1, 1, 1, 1), (0, 0, 0, 0)

LAYERS = [
    # name, layer, instructions per MAC, bytes of code, bytes of scratch
    ("conv 1x1 64->64, 25x5", Case("conv", (1, 25, 5, 64), 64, (1, 1)), 0.88, 2400, 512),
    ("conv 1x1 8->16, 24x24", Case("conv", (1, 24, 24, 8), 16, (1, 1)), 1.55, 800, 64),
    ("conv 1x1 32->64, 12x12", Case("conv", (1, 12, 12, 32), 64, (1, 1)), 1.02, 1400, 256),
    ("conv 1x1 128->128, 6x6", Case("conv", (1, 6, 6, 128), 128, (1, 1)), 0.86, 2400, 1024),
    ("conv 1x1 256->256, 3x3", Case("conv", (1, 3, 3, 256), 256, (1, 1)), 0.92, 3000, 2048),
    ("conv 1x1 16->32 stride 2, 32x32", Case("conv", (1, 32, 32, 16), 32, (1, 1), (2, 2)), 1.20, 1200, 128),
    ("conv 3x3 3->16, 32x32", Case("conv", (1, 32, 32, 3), 16, padding=SAME), 1.40, 1400, 300),
    ("conv 3x3 16->16, 32x32", Case("conv", (1, 32, 32, 16), 16, padding=SAME), 0.88, 2000, 3264),
    ("conv 3x3 32->32, 16x16", Case("conv", (1, 16, 16, 32), 32, padding=SAME), 0.86, 2000, 3456),
    ("conv 3x3 64->64, 8x8", Case("conv", (1, 8, 8, 64), 64, padding=SAME), 0.83, 2000, 3840),
    ("conv 10x4 1->64 stride 2, 49x10", Case("conv", (1, 49, 10, 1), 64, (10, 4), (2, 2), padding=(4, 5, 1, 1)), 1.10, 2600, 400),
    ("depthwise 3x3 64, 25x5", Case("depthwise", (1, 25, 5, 64), padding=SAME), 2.05, 1500, 56),
    ("depthwise 3x3 8, 48x48", Case("depthwise", (1, 48, 48, 8), padding=SAME), 1.90, 1300, 400),
    ("depthwise 3x3 64, 12x12", Case("depthwise", (1, 12, 12, 64), padding=SAME), 2.02, 1300, 112),
    ("depthwise 3x3 128, 6x6", Case("depthwise", (1, 6, 6, 128), padding=SAME), 2.25, 1200, 64),
    ("depthwise 3x3 256, 3x3", Case("depthwise", (1, 3, 3, 256), padding=SAME), 2.90, 1000, 40),
    ("depthwise 3x3 16 stride 2, 48x48", Case("depthwise", (1, 48, 48, 16), stride=(2, 2), padding=(0, 1, 0, 1)), 3.00, 900, 420),
    ("dense 640->128", Case("dense", (1, 1, 1, 640), 128), 1.00, 1700, 1280),
    ("dense 128->128", Case("dense", (1, 1, 1, 128), 128), 1.10, 1500, 256),
]


@pytest.mark.parametrize(("name", "case", "ceiling", "code", "scratch"), LAYERS, ids=[layer[0] for layer in LAYERS])
def test_cost(name: str, case: Case, ceiling: float, code: int, scratch: int) -> None:
    program = program_of(case)
    implementation = claim(program)
    inputs = inputs_of(program)
    outcome = emulator.run(program, implementation, M4, inputs)
    assert (outcome.out == expected(program, inputs)).all()
    cost = outcome.instructions / program.instructions[0].geometry.macs
    sizes = f"{outcome.code_nbytes:5d} code {implementation.scratch_nbytes:5d} scratch {outcome.stack_nbytes:4d} stack"
    print(f"{name:32s} {cost:6.3f} instructions/MAC {sizes}")
    assert cost <= ceiling
    assert outcome.code_nbytes <= code
    assert implementation.scratch_nbytes <= scratch
    assert outcome.stack_nbytes <= 256
