"""Makes the sample `sine`: sine.tflite, golden.npz, inputs.h and expected.txt.

Run it with: python -m bundles.sine.make
A network of three dense layers (16, 16, 1) learns sin(x) for 0 <= x < 2 pi and is quantised to int8.
Leaves the same model, byte for byte, on every machine (see bundles/training.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bundles.convert import Scale, convert
from bundles.reference import interpret, output_quantisation, write_golden
from bundles.training import ACTIVATION_BITS, WEIGHT_BITS, Dense, Layer, Relu, Schedule, grid, squared_error_delta, train

HERE = Path(__file__).parent
DESCRIPTION = "sin(x), int8, three dense layers. Made by the aot project. Apache-2.0."
INPUT = Scale(1 / 40, -128)  # 0 to 6.375: 2 pi is 251 steps
SHOWN = np.arange(0, 252, 12) - 128  # int8 values of x
WIDTH = 41  # characters of the plot


def trained() -> tuple[list[Layer], np.ndarray]:
    """The layers and the x that they were trained on."""
    rng = np.random.default_rng(6)
    hinges = Dense(1, 16, rng)
    layers: list[Layer] = [hinges, Relu(), Dense(16, 16, rng), Relu(), Dense(16, 1, rng)]
    # A ReLU of one variable is a hinge. Spread the hinges over the range and turn every second one, else training gets stuck.
    slopes = rng.uniform(0.3, 1, (1, 16)) * np.where(np.arange(16) % 2, 1, -1)
    hinges.weights = [grid(slopes, WEIGHT_BITS), grid(-slopes[0] * rng.uniform(0, 6.3, 16), WEIGHT_BITS)]
    x = grid(rng.uniform(0, 255 / 40, (2000, 1)), ACTIVATION_BITS)
    schedule = Schedule(rates=[0.01] * 40 + [0.003] * 40 + [0.0005] * 40, seed=6)
    train(layers, x, grid(np.sin(x), ACTIVATION_BITS), squared_error_delta, schedule)
    return layers, x


def model() -> bytes:
    layers, x = trained()
    return convert(layers, x, ("x", "sine"), DESCRIPTION, INPUT, softmax=False)


def hundredths(values: np.ndarray, scale: float, zero_point: int) -> list[int]:
    """round(100 * real), ties away from zero, in float32 as the firmware computes it."""
    reals = np.float32(scale) * (values.astype(np.int32) - zero_point).astype(np.float32) * np.float32(100)
    return [int(real + np.float32(0.5 if real >= 0 else -0.5)) for real in reals]


def text(number: int) -> str:
    """-7 -> "-0.07"."""
    return f"{'-' if number < 0 else ' '}{abs(number) // 100}.{abs(number) % 100:02d}"


def line(x: int, y: int) -> str:
    """One row of the plot: x and y in hundredths, and a star between -1 and 1."""
    column = min(max(y + 100, 0) * (WIDTH - 1) // 200, WIDTH - 1)
    return f"{text(x)} {text(y)}  |{' ' * column}*{' ' * (WIDTH - 1 - column)}|"


def header(shown: np.ndarray, x: list[int]) -> str:
    """`inputs.h` of the firmware: x as the model wants it, and in hundredths to print."""
    return "\n".join(
        [
            "/* Made by make.py: values of x from 0 to 2 pi. */",
            "#ifndef SINE_INPUTS_H",
            "#define SINE_INPUTS_H",
            "",
            "#include <stdint.h>",
            "",
            f"#define POINT_COUNT ({len(x)})",
            f"#define PLOT_WIDTH ({WIDTH})",
            "",
            f"static const int8_t points[POINT_COUNT] = {{{', '.join(map(str, shown))}}};",
            f"static const int16_t point_hundredths[POINT_COUNT] = {{{', '.join(map(str, x))}}};",
            "",
            "#endif /* SINE_INPUTS_H */",
            "",
        ]
    )


def main() -> None:
    path = HERE / "sine.tflite"
    path.write_bytes(model())
    every = np.arange(-128, 124, dtype=np.int8)
    output = output_quantisation(path)
    found = output.scale * (interpret(path, every[:, None]).reshape(-1).astype(np.int32) - output.zero_point)
    error = np.abs(found - np.sin(INPUT.scale * (every.astype(np.int32) + 128))).max()
    shown = SHOWN.astype(np.int8)
    x = hundredths(shown, INPUT.scale, INPUT.zero_point)
    outputs = interpret(path, shown[:, None])
    write_golden(HERE / "golden.npz", shown[:, None], outputs)
    y = hundredths(outputs.reshape(-1), output.scale, output.zero_point)
    (HERE / "inputs.h").write_text(header(shown, x))
    lines = ["sine: sin(x) by a network of three layers", *(line(a, b) for a, b in zip(x, y, strict=True)), "sine: end"]
    (HERE / "expected.txt").write_text("\n".join(lines) + "\n")
    print(f"sine.tflite: {path.stat().st_size} bytes, largest error {error:.3f} over 0 to 2 pi")


if __name__ == "__main__":
    main()
