"""Workspaces of real models beside TFLite Micro's arena: what bench/workspaces.json and docs/workspaces.md hold.

    python -m bench.workspaces [--model MODEL ...] [--jobs N] [--page]

Enters: the real models beside the repository. Leaves: `Row`s, their medians, the page. Invariant: the same models give the same figures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from aot.driver import Options, compile
from aot.errors import CompileError
from aot.graph import tflite
from aot.graph.ir import DType
from aot.graph.ops import OPERATORS
from bench.arena import NoArena, arena
from tests.layerwise import layer_by_layer_nbytes
from tests.shared import MODELS, ROOT

FILE, PAGE = ROOT / "bench" / "workspaces.json", ROOT / "docs" / "workspaces.md"
CPU = "cortex-m4"
STACK_NBYTES = 256
"""Of the stack, that counts for nothing; what is above it counts as workspace."""
LARGE_NBYTES = 4096
"""Layer by layer: from there on a convolutional network counts among the large ones."""
MOST_OF_LARGE, MOST_OF_ALL = 0.45, 0.65
"""What the median of workspace / arena may be."""

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
_WEIGHTED = (*_CONVOLUTIONS, "FULLY_CONNECTED", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM")


@dataclass(frozen=True)
class Row:
    """A model. whole: layer by layer. ram: `--optimize ram`. streamed: with `--stream-input`, too; None where `not_streamed` says why.
    arena: the head of TFLite Micro's; None where `no_arena` says why."""

    convolutional: bool
    input_nbytes: int
    whole_nbytes: int
    ram_nbytes: int
    streamed_nbytes: int | None
    not_streamed: str
    arena_nbytes: int | None
    no_arena: str

    @property
    def ratio(self) -> float | None:
        return None if self.arena_nbytes is None else self.ram_nbytes / self.arena_nbytes

    @property
    def is_large(self) -> bool:
        return self.convolutional and self.whole_nbytes >= LARGE_NBYTES


def names() -> list[str]:
    """The real networks that are there; single operators (`unit/`) are none."""
    paths = sorted(MODELS.glob("*/*.tflite"))
    return [str(path.relative_to(MODELS).with_suffix("")) for path in paths if path.parent.name != "unit"]


def row(name: str) -> Row | None:
    """The figures of a model; None if it is not one whose layers with weights all compute in int8 or uint8."""
    path = MODELS / f"{name}.tflite"
    model = tflite.read_file(path, OPERATORS)
    layers = [(graph, node) for graph in model.graphs for node in graph.nodes if node.op in _WEIGHTED]
    small = (DType.INT8, DType.UINT8)
    if not layers or not all(graph[value].dtype in small for graph, node in layers for value in node.inputs[:2] if value):
        return None
    streamed = head = None
    not_streamed = no_arena = ""
    try:
        streamed = _compiled(path, stream_input=True)
    except CompileError as error:
        not_streamed = error.what
    try:
        head = arena(path).head_nbytes
    except NoArena as why:
        no_arena = str(why)
    return Row(
        convolutional=any(node.op in _CONVOLUTIONS for _, node in layers),
        input_nbytes=sum(model.main[value].nbytes for value in model.main.inputs),
        whole_nbytes=layer_by_layer_nbytes(model, Options(target=CPU, io="workspace")),
        ram_nbytes=_compiled(path),
        streamed_nbytes=streamed,
        not_streamed=not_streamed,
        arena_nbytes=head,
        no_arena=no_arena,
    )


def _compiled(path: Path, stream_input: bool = False) -> int:
    """Bytes of the smallest workspace, inputs and outputs in it, with what the stack takes more than STACK_NBYTES."""
    bundle = compile(path, CPU, options=Options(optimize="ram", io="workspace", stream_input=stream_input))
    return bundle.workspace_nbytes + max(bundle.main.stack_nbytes - STACK_NBYTES, 0)


def ratios(rows: Iterable[Row]) -> list[float]:
    return [each.ratio for each in rows if each.ratio is not None]


def load() -> dict[str, Row]:
    """The committed figures, by the model's name."""
    return {name: Row(**figures) for name, figures in json.loads(FILE.read_text()).items()} if FILE.is_file() else {}


def save(rows: Mapping[str, Row]) -> None:
    FILE.write_text(json.dumps({name: asdict(rows[name]) for name in sorted(rows)}, indent=1) + "\n")


def measure(wanted: Sequence[str], jobs: int) -> None:
    """Measure these models, and write both files again; the others keep their figures."""
    if not wanted:
        print("bench: the real models are not beside the repository: workspaces keep their committed figures", file=sys.stderr)
    rows = load()
    with ProcessPoolExecutor(jobs) as pool:
        for name, found in zip(wanted, pool.map(row, wanted), strict=True):
            before = rows.pop(name, None)
            if found is not None:
                rows[name] = found
            if before is not None and found is not None and before.ram_nbytes != found.ram_nbytes:
                print(f"{name}: {before.ram_nbytes} bytes of workspace in {FILE.name}, {found.ram_nbytes} now")
            save(rows)
    write_page()


def write_page() -> None:
    PAGE.write_text(page(load()))


_INTRODUCTION = """# RAM of real models

Bytes of workspace on a Cortex-M4 with `--io workspace`, with inputs, outputs and scratch, for every int8 and uint8 network at hand;
`make bench` measures them again and writes this page. What an entry's stack may take above {stack} bytes is added.

- *layer by layer*: every layer runs whole, with the kernels of balanced code.
- *ram*: `--optimize ram`, which runs layers by rows ([memory.md](memory.md)).
- *streamed*: `--optimize ram --stream-input`: rows of the input come one by one, and only those that are still needed are kept.
- *TFLite Micro*: the head of its arena, which holds tensors and scratch, as PyPI's tflite-micro reports it. What the arena holds besides (structs,
  quantisation, variables) is left out on both sides; our code keeps nothing of it but variables.
- *ratio*: ram / TFLite Micro. The input is in both; where it is most of what is left (a float image, say), only streaming it helps.
"""


def page(rows: Mapping[str, Row]) -> str:
    """The page's text."""
    large = {name: each for name, each in rows.items() if each.is_large}
    others = {name: each for name, each in rows.items() if not each.is_large}
    return "\n".join(
        (
            _INTRODUCTION.format(stack=STACK_NBYTES),
            f"The median ratio is **{_median(large)}** over the convolutional networks that need {LARGE_NBYTES} bytes or more layer by"
            f" layer, and **{_median(rows)}** over all networks.\n",
            f"## Convolutional networks that need {LARGE_NBYTES} bytes or more\n",
            _table(large),
            "## Other networks\n",
            "Dense and recurrent ones, and small ones.\n",
            _table(others),
            *_remarks(rows),
        )
    )


def _median(rows: Mapping[str, Row]) -> str:
    found = ratios(rows.values())
    return f"{median(found):.2f}" if found else "unknown"


def _table(rows: Mapping[str, Row]) -> str:
    columns = ("model", "input", "layer by layer", "ram", "streamed", "TFLite Micro", "ratio")
    lines = [columns, ("---", *["---:"] * (len(columns) - 1))]
    for name, each in sorted(rows.items(), key=lambda item: (item[1].ratio is None, item[1].ratio, item[0])):
        figures = (each.input_nbytes, each.whole_nbytes, each.ram_nbytes, each.streamed_nbytes, each.arena_nbytes)
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        lines.append((name, *("" if number is None else f"{number:,}" for number in figures), ratio))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _remarks(rows: Mapping[str, Row]) -> Iterable[str]:
    """Why some cells are empty."""
    if absent := [f"{name} ({each.no_arena})" for name, each in sorted(rows.items()) if each.arena_nbytes is None]:
        yield f"TFLite Micro does not run {', '.join(absent)}.\n"
    why = Counter(_kind(each.not_streamed) for each in rows.values() if each.streamed_nbytes is None)
    if why:
        yield "Not streamed:\n"
        yield "".join(f"- {count} {'model' if count == 1 else 'models'}: {text}\n" for text, count in sorted(why.items()))


def _kind(sentence: str) -> str:
    """Why a model can't be streamed, without its names and sizes."""
    return "the input is no image with rows" if "has shape" in sentence else sentence.split(": ", 1)[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.workspaces", description="Measure workspaces; write the page.")
    parser.add_argument("--model", action="append", help="only this one, for example mlperf_tiny/vww_96_int8 (may be repeated)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page again")
    arguments = parser.parse_args()
    if arguments.page:
        write_page()
    else:
        measure(arguments.model or names(), arguments.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
