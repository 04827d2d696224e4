"""Makes the sample `digits_float`: digits_float.tflite, golden.npz, inputs.h and expected.txt.

Run it with: python -m bundles.digits_float.make
The network of `digits` before quantisation. Leaves the same model, byte for byte, on every machine (see bundles/training.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bundles import handwriting
from bundles.convert import convert
from bundles.reference import interpret, write_golden

HERE = Path(__file__).parent
DESCRIPTION = "Handwritten digits, 8x8 grey pixels, float32. Made by the aot project from scikit-learn's digits. Apache-2.0."


def percents(scores: np.ndarray) -> np.ndarray:
    """Scores in whole percent, rounded, as the firmware prints them. ValueError where a score's last bits could change that."""
    border = scores.max(axis=-1).astype(np.float64) * 100 % 1 - 0.5
    if np.any(np.abs(border) < 1e-3):
        raise ValueError("a score lies on the border of two whole percents: show another picture")
    return (scores * np.float32(100) + np.float32(0.5)).astype(np.int32)


def model() -> bytes:
    training, _ = handwriting.load()
    return convert(handwriting.trained(), training.inputs, ("image", "scores"), DESCRIPTION, None, softmax=True)


def main() -> None:
    _, held_out = handwriting.load()
    path = HERE / "digits_float.tflite"
    path.write_bytes(model())
    scores = interpret(path, held_out.inputs.astype(np.float32))
    accuracy = (scores.argmax(axis=-1) == held_out.labels).mean()
    shown = held_out.one_of_each()
    inputs = shown.inputs.astype(np.float32)
    outputs = interpret(path, inputs)
    write_golden(HERE / "golden.npz", inputs, outputs, labels=shown.labels.astype(np.uint8))
    lines = handwriting.expected_lines("digits_float", shown, list(percents(outputs)))
    (HERE / "inputs.h").write_text(handwriting.header("DIGITS_FLOAT_INPUTS_H", shown))
    (HERE / "expected.txt").write_text("\n".join(lines) + "\n")
    print(f"digits_float.tflite: {path.stat().st_size} bytes, {accuracy:.1%} of {len(held_out.labels)} held-out pictures right")


if __name__ == "__main__":
    main()
