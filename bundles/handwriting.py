"""Handwritten digits: the data, the network and the training that the samples `digits` and `digits_float` share.

Enters: scikit-learn's digits (1,797 pictures of 8x8 pixels, 17 grey levels). Leaves: trained layers, pictures for the firmware.
Invariant: the pictures shown by the firmware and the accuracies in the READMEs are of the held-out part, which training never sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.datasets import load_digits

from bundles.training import AveragePool, Conv, Dense, Depthwise, Flatten, Layer, Relu, Schedule, cross_entropy_delta, train

HELD_OUT = 360
RAMP = " .:-=+*#%@"


@dataclass(frozen=True)
class Pictures:
    """pixels: uint8 (N, 8, 8), 0 (paper) to 16 (ink). labels: (N,)."""

    pixels: np.ndarray
    labels: np.ndarray

    @property
    def inputs(self) -> np.ndarray:
        """What the network is fed: (N, 8, 8, 1), 0 to 1."""
        return self.pixels[..., None] / 16.0

    def one_of_each(self) -> Pictures:
        """The first picture of each digit."""
        first = [int(np.argmax(self.labels == digit)) for digit in range(10)]
        return Pictures(self.pixels[first], self.labels[first])


@cache
def load() -> tuple[Pictures, Pictures]:
    """(for training, held out), shuffled by a fixed seed."""
    flat, target = load_digits(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(target))
    pixels, labels = np.asarray(flat, np.uint8).reshape(-1, 8, 8)[order], np.asarray(target)[order]
    return Pictures(pixels[HELD_OUT:], labels[HELD_OUT:]), Pictures(pixels[:HELD_OUT], labels[:HELD_OUT])


@cache
def trained() -> tuple[Layer, ...]:
    """conv 3x3, depthwise 3x3, conv 1x1, pool 2x2, dense; about 3,000 weights. A few seconds."""
    pictures, _ = load()
    rng = np.random.default_rng(1)
    layers: list[Layer] = [
        Conv(3, 1, 8, rng),
        Relu(),
        Depthwise(3, 8, rng),
        Relu(),
        Conv(1, 8, 16, rng),
        Relu(),
        AveragePool(),
        Flatten(),
        Dense(256, 10, rng),
    ]
    schedule = Schedule(rates=[0.005] * 20 + [0.001] * 10, seed=1, weight_decay=1e-4)
    train(layers, pictures.inputs, pictures.labels, cross_entropy_delta, schedule)
    return tuple(layers)


def drawing(pixels: np.ndarray) -> list[str]:
    """The picture as text: two characters a pixel, in a frame."""
    return ["  |" + "".join(RAMP[level * 9 // 16] * 2 for level in row.tolist()) + "|" for row in pixels]


def expected_lines(name: str, pictures: Pictures, percents: Sequence[np.ndarray]) -> list[str]:
    """What the firmware prints, from the scores in whole percent that the reference gives for each picture."""
    lines = [f"{name}: handwritten digits, 8x8 pixels"]
    right = 0
    for index, (pixels, label, scores) in enumerate(zip(pictures.pixels, pictures.labels, percents, strict=True)):
        found = int(np.argmax(scores))
        right += found == label
        lines += [f"picture {index}, a {label}", *drawing(pixels), f"recognised {found}, score {scores[found]} %"]
    return [*lines, f"{name}: {right} of {len(pictures.labels)} recognised", f"{name}: end"]


def header(guard: str, pictures: Pictures) -> str:
    """`inputs.h` of the firmware: the pictures' pixels and labels."""
    rows = [
        "    {" + ", ".join(f"{level:2d}" for level in pixels.reshape(-1).tolist()) + f"}}, /* {label} */"
        for pixels, label in zip(pictures.pixels, pictures.labels, strict=True)
    ]
    return "\n".join(
        [
            "/* Made by make.py: pictures of scikit-learn's digits that training did not see, 0 (paper) to 16 (ink). */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdint.h>",
            "",
            f"#define PICTURE_COUNT ({len(rows)})",
            "#define PICTURE_SIDE (8)",
            "",
            "static const uint8_t pictures[PICTURE_COUNT][PICTURE_SIDE * PICTURE_SIDE] = {",
            *rows,
            "};",
            "",
            f"static const uint8_t picture_labels[PICTURE_COUNT] = {{{', '.join(map(str, pictures.labels))}}};",
            "",
            f"#endif /* {guard} */",
            "",
        ]
    )
