"""Makes the sample `digits`: trains, quantises, and writes digits.tflite, golden.npz, inputs.h and expected.txt.

Run it with: python -m bundles.digits.make
Leaves the same model, byte for byte, on every machine (see bundles/training.py), given the same digits in scikit-learn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bundles import handwriting
from bundles.convert import Scale, convert
from bundles.reference import interpret, write_golden

HERE = Path(__file__).parent
INPUT = Scale(1 / 256, -128)
DESCRIPTION = "Handwritten digits, 8x8 grey pixels, int8. Made by the aot project from scikit-learn's digits. Apache-2.0."


def quantised(inputs: np.ndarray) -> np.ndarray:
    """0..1 -> int8, as the bundle's header does it; full ink saturates at 127."""
    return np.clip(np.rint(inputs * 256) - 128, -128, 127).astype(np.int8)


def percents(scores: np.ndarray) -> np.ndarray:
    """Scores of scale 1/256 in whole percent, rounded down, as the firmware prints them."""
    return (scores.astype(np.int32) + 128) * 100 // 256


def model() -> bytes:
    training, _ = handwriting.load()
    return convert(handwriting.trained(), training.inputs, ("image", "scores"), DESCRIPTION, INPUT, softmax=True)


def main() -> None:
    _, held_out = handwriting.load()
    path = HERE / "digits.tflite"
    path.write_bytes(model())
    scores = interpret(path, quantised(held_out.inputs))
    accuracy = (scores.argmax(axis=-1) == held_out.labels).mean()
    shown = held_out.one_of_each()
    inputs = quantised(shown.inputs)
    outputs = interpret(path, inputs)
    write_golden(HERE / "golden.npz", inputs, outputs, labels=shown.labels.astype(np.uint8))
    lines = handwriting.expected_lines("digits", shown, list(percents(outputs)))
    (HERE / "inputs.h").write_text(handwriting.header("DIGITS_INPUTS_H", shown))
    (HERE / "expected.txt").write_text("\n".join(lines) + "\n")
    print(f"digits.tflite: {path.stat().st_size} bytes, {accuracy:.1%} of {len(held_out.labels)} held-out pictures right")


if __name__ == "__main__":
    main()
