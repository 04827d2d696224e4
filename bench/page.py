"""docs/benchmarks.md and its plot, from bench/results.json and bench/baselines.json.

Enters: results, baselines. Leaves: two files in docs. Invariant: the same figures give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench import application
from bench.layers import LAYERS
from bench.measure import CPUS, MODES
from bench.results import CMSIS_NN, Results
from tests.shared import FIVE, ROOT

PAGE, PLOT = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "benchmarks.svg"
MICRO = "TFLite Micro + CMSIS-NN"
_OURS, _THEIRS = "#1f6f8b", "#c9c4b8"
_PLOTTED = ("cortex-m4", "cortex-m7", "cortex-m55")
_INTRODUCTION = """# Benchmarks

Counted in emulators (Unicorn; QEMU for Cortex-M55 and Cortex-A), so that the figures repeat exactly: `make bench` measures them all again and
writes this page. A test counts a part of them again (with AOT_SWEEP=1 all models), and fails where one rises by more than 2 %.
Models: MLPerf Tiny's key word spotting (KWS), image classification (IC), visual wake words (VWW), anomaly
detection (AD), and TFLite Micro's person detection (PD); one inference, on input 0 of the golden file, inputs and outputs in the workspace.

- *instructions*: executed, of the whole inference.
- *per MAC*: by all multiplications of the model. Cores with the DSP extension (M4, M7, M33) leave out channels of 1x1 and other
  convolutions that only ever have one output, whatever the input, as their weights and requantisation prove: three quarters of those of
  VWW's last eight 1x1 layers. That is why VWW takes less there than other models, and less flash than its weights.
- *cycles/MAC*: modelled, not measured (`aot profile`), for memory without wait states; there is no model of the Cortex-M55.
- *best on silicon*: {silicon}.
- *{micro}*: {source}.
- *{cmsis}*: counted here: our bundle in library mode ([library.md](library.md)), where convolutions, dense layers and pools are calls of
  CMSIS-NN, compiled by arm-none-eabi-gcc with -O3. Not for models with ADD, which the sources that are downloaded lack.
- *times fewer*: the lower of the two, by our instructions.
- *object*: the whole `.o`: code, weights, tables. *RAM*: the workspace, with inputs, outputs and scratch, without the stack.

![Instructions for each multiply-accumulate](benchmarks.svg)
"""


def page(results: Results, baselines: Mapping[str, Any]) -> str:
    """The page's text."""
    introduction = _INTRODUCTION.format(
        silicon=baselines["silicon"]["source"],
        micro=MICRO,
        cmsis=CMSIS_NN,
        source=baselines[MICRO]["source"],
    )
    sections = [introduction, "## Models\n"]
    for cpu in CPUS:
        if rows := list(_model_rows(results, baselines, cpu)):
            sections += [f"### {cpu}\n", _table(_MODEL_COLUMNS, rows)]
    sections += [application.INTRODUCTION.format(litert=application.LITERT, source=baselines[application.LITERT]["source"])]
    for cpu in application.CORES:
        if rows := list(application.rows(results, baselines, cpu)):
            sections += [f"### {cpu}\n", _table(application.COLUMNS, rows)]
    sections += [_LAYERS.format(cmsis=CMSIS_NN)]
    for cpu in CPUS:
        if rows := list(_layer_rows(results, cpu)):
            sections += [f"### Layers on {cpu}\n", _table(("layer", *MODES[:2], CMSIS_NN, "CMSIS-NN / balanced"), rows)]
    return "\n".join(sections)


_MODEL_COLUMNS = (
    "model",
    "mode",
    "instructions",
    "per MAC",
    MICRO,
    CMSIS_NN,
    "times fewer",
    "cycles/MAC",
    "best on silicon",
    "object",
    "RAM",
)
_LAYERS = """## Layers

Instructions for each multiply-accumulate (borders counted whole) of a layer alone, with RELU and weights spread like trained ones.
Beside them CMSIS-NN's own functions, called for the same int8 layer and counted in the same emulator: {cmsis}, compiled by
arm-none-eabi-gcc with -O3. Both compute the same bytes, which is checked.
"""


def _model_rows(results: Results, baselines: Mapping[str, Any], cpu: str) -> Iterable[Sequence[str]]:
    for name in FIVE:
        micro = baselines[MICRO].get(cpu, {}).get(name, {}).get("instructions")
        library = results["models"].get(name, {}).get(cpu, {}).get(CMSIS_NN, {}).get("instructions")
        least = min((count for count in (micro, library) if count), default=None)
        silicon = baselines["silicon"].get(cpu, {}).get(name)
        for mode in MODES:
            figures = results["models"].get(name, {}).get(cpu, {}).get(mode)
            if figures is None:
                continue
            instructions, macs = figures["instructions"], figures["macs"]
            yield (
                name,
                mode,
                _millions(instructions),
                f"{instructions / macs:.2f}",
                _millions(micro) if micro else "",
                _millions(library) if library else "",
                f"{least / instructions:.1f}" if least else "",
                f"{figures['cycles'] / macs:.2f}" if "cycles" in figures else "",
                f"{silicon:.2f}" if silicon else "",
                f"{figures['object_bytes'] / 1000:.1f} kB",
                f"{figures['workspace_bytes'] / 1000:.1f} kB",
            )


def _layer_rows(results: Results, cpu: str) -> Iterable[Sequence[str]]:
    for name, layer in _layers(results):
        counts = layer.get(cpu)
        if not counts:
            continue
        ours, theirs = counts.get(MODES[0]), counts.get(CMSIS_NN)
        cells = [f"{count / layer['macs']:.2f}" if count else "" for count in (*map(counts.get, MODES[:2]), theirs)]
        yield name, *cells, f"{theirs / ours:.1f}" if ours and theirs else ""


def _layers(results: Results) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """In the order of the sweep: the file is sorted."""
    return ((layer.name, results["layers"][layer.name]) for layer in LAYERS if layer.name in results["layers"])


def _millions(count: int) -> str:
    return f"{count / 1e6:.3f} M"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    right = ["---" if index == 0 or column == "mode" else "---:" for index, column in enumerate(columns)]
    lines = [columns, right, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def plot(results: Results, baselines: Mapping[str, Any]) -> None:
    """Instructions per MAC, ours and others', as bars: the models on three CPUs, and the layers on Cortex-M4."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "aot", "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 9})
    from matplotlib import pyplot

    figure, (models, layers) = pyplot.subplots(1, 2, figsize=(12, 6.5), width_ratios=(1, 1.15), layout="constrained")
    _bars(models, "models, balanced", MICRO, list(_model_bars(results, baselines)))
    _bars(layers, "layers on cortex-m4, balanced", CMSIS_NN, list(_layer_bars(results)))
    figure.savefig(PLOT, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    PLOT.write_text("".join(line.rstrip() + "\n" for line in PLOT.read_text().splitlines()))


def _bars(axes: Any, title: str, others: str, bars: Sequence[tuple[str, float, float | None]]) -> None:
    """Pairs of bars, from the top down; labelled with their figures."""
    for index, (_, ours, theirs) in enumerate(bars):
        for value, shift, colour in ((theirs, 0.2, _THEIRS), (ours, -0.2, _OURS)):
            if value is not None:
                axes.barh(index - shift, value, 0.38, color=colour)
                axes.annotate(
                    f"{value:.2f}", (value, index - shift), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7
                )
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.invert_yaxis()
    axes.set_title(title)
    axes.set_xlabel("instructions for each multiply-accumulate")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0)
    for name, colour in (("aot", _OURS), (others, _THEIRS)):
        axes.barh(0, 0, color=colour, label=name)
    axes.legend(loc="lower right", frameon=False)


def _model_bars(results: Results, baselines: Mapping[str, Any]) -> Iterable[tuple[str, float, float | None]]:
    for cpu in _PLOTTED:
        for name in FIVE:
            figures = results["models"].get(name, {}).get(cpu, {}).get("balanced")
            if figures:
                theirs = baselines[MICRO].get(cpu, {}).get(name, {}).get("instructions")
                yield (
                    f"{name}, {cpu.removeprefix('cortex-').upper()}",
                    figures["instructions"] / figures["macs"],
                    theirs / figures["macs"],
                )


def _layer_bars(results: Results) -> Iterable[tuple[str, float, float | None]]:
    for name, layer in _layers(results):
        counts = layer.get("cortex-m4", {})
        if "balanced" in counts:
            theirs = counts.get(CMSIS_NN)
            yield name, counts["balanced"] / layer["macs"], theirs / layer["macs"] if theirs else None
