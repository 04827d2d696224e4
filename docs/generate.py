"""Writes what `PAGES` names: operators.md from the tables of operators and kernels and from measured figures; other pages; pictures.

    python docs/generate.py [--kept]

Enters: `OPERATORS`, the back ends' kernels, docs/measured.json, what reference.py, api.py and pictures.py find. Leaves: those of `PAGES`.
Where the real models are beside the repository and TFLite Micro is installed, measured.json is made again first (about a minute); not with --kept.
Invariant: the same tables and figures give the same text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import aot
from aot.backends import BACKENDS
from aot.driver import Options, entry_graphs, lower, prepare, resolve_target, shapes_of
from aot.errors import CompileError
from aot.graph.ops import OPERATORS
from aot.graph.primitive import Primitive
from aot.graph.support import ORACLES
from aot.graph.tflite import read_model
from aot.lower.implementation import Backend, kind_of
from aot.lower.program import Program
from aot.target import ABILITIES, Target
from bench.arena import arena
from docs.api import python_page
from docs.pictures import PICTURES
from docs.reference import cli_page, target_rows
from tests.differential.byhand import BY_HAND
from tests.differential.net import Net
from tests.differential.types import WEIGHTED, retyped, types
from tests.shared import MODELS

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "measured.json"
BACKEND, CPU = "cmsis-nn", "cortex-m4"
WAKE_WORDS = (
    *(f"esphome_mww/{name}" for name in ("alexa", "hey_mycroft", "okay_computer", "v2-alexa", "vad")),
    "pymicro_wakeword/okay_nabu",
)


@dataclass(frozen=True)
class Row:
    """A line of the table: types by oracle, and the kernels of the back end that claim some of them."""

    name: str
    types: tuple[str, ...]
    kernels: tuple[str, ...]
    notes: str


def rows() -> tuple[Row, ...]:
    return tuple(_row(name) for name in sorted(OPERATORS, key=str.lower))


def _row(name: str) -> Row:
    operator = OPERATORS[name]
    found = [
        ", ".join(kind for support in operator.support if support.oracle == oracle for kind in support.types) for oracle in ORACLES
    ]
    more = [f"{', '.join(support.types)}: {support.note}." for support in operator.support if support.note]
    kernels = [f"{kernel} ({', '.join(kinds)})" for kernel, kinds in sorted(claims(name).items())]
    return Row(name, tuple(found), tuple(kernels), " ".join([*more, operator.notes]))


def claims(op: str) -> Mapping[str, tuple[str, ...]]:
    """The back end's own kernels that claim an instruction of the operator's cases by hand, each with the types it claims them in."""
    found: dict[str, list[str]] = {}
    for case in BY_HAND.get(op, ()):
        for net in (case, *(retyped(case) if op in WEIGHTED else ())):
            for kernel in kernels_of(net):
                kinds = found.setdefault(kernel, [])
                kinds += sorted(types(net) - set(kinds))
    return {kernel: tuple(kinds) for kernel, kinds in found.items()}


def kernels_of(net: Net) -> tuple[str, ...]:
    """The back end's own kernels that claim instructions of a net; none where it is refused."""
    options = Options(target=CPU, backend=BACKEND)
    target, backend = resolve_target(options)
    try:
        model = read_model(net.build(), "case.tflite", OPERATORS)
        program = lower(prepare(model.main, {}, _silent), options, _silent)
    except (CompileError, OverflowError, ValueError):
        return ()
    return tuple(dict.fromkeys(name for each in program.instructions if (name := claiming(program, each, target, backend))))


def claiming(program: Program, instruction: Primitive, target: Target, backend: Backend) -> str:
    """The first of the back end's own kernels that claims an instruction, as selection asks them; "" if none does."""
    kernels = (each for each in backend.kernels if not each.kinds or kind_of(instruction) in each.kinds)
    return next((each.name for each in kernels if not isinstance(each.claim(program, instruction, target), str)), "")


def _silent(stage: str, result: object) -> None:
    """An observer that does not look."""


def measure() -> Mapping[str, list]:
    """What the models say: memory of the wake words, and the sentences of those that are refused."""
    names = sorted(str(path.relative_to(MODELS).with_suffix("")) for path in MODELS.rglob("*.tflite"))
    refused = [(name, refusal(name)) for name in names]
    return {
        "wake_words": [memory(name) for name in WAKE_WORDS],
        "refused": [{"model": name, "sentence": sentence.replace("|", "/")} for name, sentence in refused if sentence],
    }


def memory(name: str) -> dict[str, object]:
    """Bytes of state and workspace on the CPU, and what TFLite Micro's arena takes."""
    path = MODELS / f"{name}.tflite"
    bundle = aot.compile(path, CPU)
    return {"model": name, "state": bundle.state_nbytes, "workspace": bundle.workspace_nbytes, "arena": arena(path).total_nbytes}


def refusal(name: str) -> str:
    """Why a model is refused; "" if it is not."""
    options = Options()
    try:
        model = read_model((MODELS / f"{name}.tflite").read_bytes(), name, OPERATORS)
        graphs = entry_graphs(model, "model")
        for _, graph in graphs:
            lower(prepare(graph, shapes_of(graph, model.graphs, options), _silent, len(graphs) > 1), options, _silent)
    except CompileError as error:
        return error.what
    return ""


def operators_page() -> str:
    """The text of docs/operators.md."""
    figures = json.loads(MEASURED.read_text())
    kernels = BACKENDS[BACKEND].kernels
    return _render("operators.md.j2", rows=rows(), cpu=CPU, backend=BACKEND, kernels=kernels, **figures)


def targets_page() -> str:
    """The text of docs/targets.md."""
    example = (HERE.parent / "aot" / "targets" / f"{CPU}.yaml").read_text().strip()
    return _render("targets.md.j2", backends=target_rows(), example=example, abilities=sorted(ABILITIES))


def _render(template: str, **content: object) -> str:
    environment = Environment(loader=FileSystemLoader(HERE), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template(template).render(**content) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "operators.md": operators_page,
    "targets.md": targets_page,
    "cli.md": cli_page,
    "python.md": python_page,
    **PICTURES,
}
"""The generated pages and pictures, by their name in docs/."""


def main() -> int:
    if "--kept" not in sys.argv[1:] and MODELS.is_dir() and find_spec("tflite_micro"):
        MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
