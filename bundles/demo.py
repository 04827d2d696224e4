"""`make demo`: compiles the digit classifier for a Cortex-M4, runs it in the embedded emulator, and shows what it recognised.

Enters: digits/digits.tflite and the pictures in digits/golden.npz. Leaves: a report on the terminal; exit code 0 if every output
was exactly the expected one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import aot
from aot.run import RunResult, run_bundle

SAMPLE = Path(__file__).resolve().parent / "digits"


def drawing(image: np.ndarray) -> Text:
    """An int8 image (8, 8) as blocks of grey, two characters a pixel."""
    text = Text()
    for row in image.astype(np.int32).tolist():
        for ink in row:
            text.append("  ", style=f"on rgb({127 - ink},{127 - ink},{127 - ink})")
        text.append("\n")
    return text


def plain_drawing(image: np.ndarray) -> Text:
    """The same for terminals without colours: the darker, the denser."""
    ramp = " .:-=+*#%@"
    rows = ["".join(ramp[min((level + 128) * 10 // 256, 9)] * 2 for level in row) for row in image.tolist()]
    return Text("\n".join(rows) + "\n")


def gallery(console: Console, images: Sequence[np.ndarray], labels: Sequence[int], results: Sequence[RunResult]) -> Table:
    """The pictures, and under each what was recognised and how sure that is."""
    draw = drawing if console.color_system in ("truecolor", "256") else plain_drawing
    table = Table.grid(padding=(0, 2))
    cells = []
    for image, label, result in zip(images, labels, results, strict=True):
        scores = result.outputs[0].reshape(-1).astype(np.int32)
        found = int(scores.argmax())
        percent = (int(scores[found]) + 128) * 100 // 256
        verdict = Text(f"{found}, {percent} % sure\n", style="green" if found == label else "red")
        cells.append(draw(image) + verdict)
    across = max(1, min(5, (console.width + 2) // 18))
    for start in range(0, len(cells), across):
        table.add_row(*cells[start : start + across])
    return table


def figures(bundle: aot.Bundle, results: Sequence[RunResult], seconds: float) -> Table:
    """What the firmware must provide, and what a picture costs."""
    entry = bundle.main
    table = Table.grid(padding=(0, 2))
    counts = [result.instructions for result in results if result.instructions is not None]
    stacks = [result.stack_nbytes for result in results if result.stack_nbytes is not None]
    rows = [
        ("compiled for", f"{bundle.target.name}, back end {bundle.backend}, in {seconds:.1f} s"),
        ("flash", f"{bundle.code_nbytes:,} bytes of code, {bundle.weights_nbytes:,} of weights and tables"),
        ("RAM", f"{entry.workspace_nbytes:,} bytes of workspace (no plan can do with less than {entry.lower_bound_nbytes:,})"),
        ("stack", f"{f'{max(stacks):,} bytes used, ' if stacks else ''}at most {entry.stack_nbytes:,} bytes"),
        ("instructions", f"{max(counts):,} for a picture" if counts else "not counted"),
    ]
    macs = sum(layer.macs for layer in entry.layers)
    if counts and macs:
        rows.append(("work", f"{macs:,} multiply-accumulates, {max(counts) / macs:.2f} instructions each"))
    for name, value in rows:
        table.add_row(Text(name, style="bold"), value)
    return table


def layers(bundle: aot.Bundle, result: RunResult) -> Table:
    """The compiled functions, with the instructions of each."""
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for title in ("layer", "kernel", "output"):
        table.add_column(title)
    table.add_column("instructions", justify="right")
    counts = dict(result.per_layer or ())
    for layer in bundle.main.layers:
        count = counts.get(layer.symbol)
        shape = "x".join(map(str, layer.out_shape))
        table.add_row(" + ".join(layer.operators), layer.kernel, shape, "" if count is None else f"{count:,}")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile the sample digit classifier and run it in an emulator.")
    parser.add_argument("--cpu", default="cortex-m4", help="a Cortex-M (default: cortex-m4)")
    parser.add_argument("--on", default="auto", help="where to run: auto, unicorn, qemu")
    options = parser.parse_args(arguments)
    console = Console()
    golden = np.load(SAMPLE / "golden.npz")
    labels = golden["labels"].tolist()
    inputs = [golden[f"in0_{k}"] for k in range(len(labels))]
    expected = [golden[f"out0_{k}"] for k in range(len(labels))]
    try:
        started = time.perf_counter()
        with console.status(f"compiling {SAMPLE.name}.tflite for {options.cpu}"):
            bundle = aot.compile(SAMPLE / "digits.tflite", options.cpu)
        seconds = time.perf_counter() - started
        with console.status("running it in the emulator"):
            results = [run_bundle(bundle, [array], options.on) for array in inputs]
    except aot.CompileError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    console.print(gallery(console, [array[0, :, :, 0] for array in inputs], labels, results))
    console.print(layers(bundle, results[0]))
    console.print()
    console.print(figures(bundle, results, seconds))
    same = sum(np.array_equal(result.outputs[0], wanted) for result, wanted in zip(results, expected, strict=True))
    right = sum(int(result.outputs[0].argmax()) == label for result, label in zip(results, labels, strict=True))
    console.print(f"\n{right} of {len(labels)} digits recognised; {same} of {len(labels)} outputs are exactly TFLite Micro's")
    console.print(
        "\nThe same for your own model:  .venv/bin/aot bundle MODEL.tflite --cpu cortex-m4 -o out/", highlight=False, soft_wrap=True
    )
    return 0 if same == right == len(labels) else 1


if __name__ == "__main__":
    sys.exit(main())
