"""Grouped convolutions on emulated cores against the interpreter: every group has a kernel, and every byte is right."""

from __future__ import annotations

import pytest

from tests.backends.test_unsigned import CPUS, check
from tests.one_operator import conv2d

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

MODELS = {
    "two groups": conv2d((1, 7, 6, 8), 10, groups=2),
    "three groups, two images": conv2d((2, 5, 9, 9), 15, (2, 3), groups=3, stride=(2, 1), activation="RELU6"),
    "one channel each": conv2d((1, 6, 7, 5), 5, groups=5),
    "one channel for two": conv2d((2, 6, 7, 3), 6, groups=3, padding="VALID"),
    "uint8": conv2d((1, 6, 6, 8), 8, groups=2, dtype="uint8", weight_scale=0.01, weight_zero_point=128, input_q=(0.05, 9)),
}


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", MODELS)
def test_every_group_has_a_kernel(name: str, cpu: str) -> None:
    layers = check(MODELS[name], cpu).main.layers
    assert not [layer.kernel for layer in layers if layer.macs and layer.kernel.startswith("generic")]
