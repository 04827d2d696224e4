"""`aot verify`: check that the compiled bundle computes what TFLite Micro does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from aot.accuracy import Accuracy, accuracy
from aot.arrays import load_npz
from aot.bundle import Bundle
from aot.commands.common import print_json
from aot.commands.options import WholeNumber, compile_options, link_option, model_option, push_option
from aot.commands.request import Request, stoppable
from aot.commands.run import check_where
from aot.commands.verdict import Finding, described, print_finding, write_junit, write_junit_error
from aot.dataset import load_dataset, load_labels
from aot.driver import read_main_graph
from aot.errors import CompileError, InternalError
from aot.histogram import histograms
from aot.oracles import best_oracle
from aot.run import place_of, require_functions, where_names
from aot.run.linking import link
from aot.samples import Sample, golden_samples, random_inputs
from aot.verify import all_layers, first_difference, require_reference, verify_places

EXAMPLES = """
\b
Examples:
  aot verify model.tflite                                       on this machine, against the best oracle installed
  aot verify model.tflite --cpu cortex-m4 --golden golden.npz   in Unicorn, against a golden file
  aot verify model.tflite --cpu cortex-m55 --on qemu --samples 20
  aot verify model.tflite --cpu cortex-m4 --data images/ --labels labels.txt --top 5
  aot verify model.tflite --cpu cortex-m4 --on all --layers --junit report.xml
"""


@dataclass(frozen=True)
class Given:
    """Where samples come from: a golden file, data of the user's own, or random numbers."""

    golden: str | None
    data: str | None
    samples: int
    seed: int
    labels: str | None
    top: int

    def require_sense(self) -> None:
        """CompileError for options that exclude each other."""
        if self.golden is not None and self.data is not None:
            raise CompileError("--golden and --data exclude each other", hint="a golden file's inputs alone can be --data")
        if self.labels is not None and self.golden is None and self.data is None:
            raise CompileError("--labels needs --data or --golden: random inputs have no class")
        if self.top > 1 and self.labels is None:
            raise CompileError("--top needs --labels")


@dataclass(frozen=True)
class Expected:
    """Samples with the outputs they must give, according to `oracle`; the samples' names, and the inputs whose data was quantised."""

    oracle: str
    samples: list[Sample]
    names: tuple[str, ...]
    quantised: tuple[int, ...] = ()


@click.command("verify", epilog=EXAMPLES)
@compile_options
@click.option("--on", "where", metavar="WHERE", help="host, unicorn, qemu, renode or all (default: what suits the CPU).")
@click.option("--golden", "golden", metavar="FILE.npz", help="Compare with this file (in{i}_{k}, out{i}_{k}).")
@click.option(
    "--data",
    "data",
    metavar="DIR|FILE",
    help="Inputs of your own: a folder of .npy, .npz, .csv or .bin files, one for each sample, sorted by name; an .npz file"
    " (in0, ... with an axis of samples first, or a golden file); a .csv file with a row for each sample.",
)
@click.option("--labels", "labels", metavar="FILE", help="Class numbers of the samples (.csv, .txt, .npy, .npz): says accuracy.")
@click.option(
    "--top",
    metavar="K",
    type=WholeNumber(1),
    default=1,
    help="With --labels: also how often the class is among so many best scores.",
)
@click.option("--samples", type=WholeNumber(1), default=5, show_default=True, help="Random inputs, where no file gives any.")
@click.option("--seed", type=WholeNumber(0), default=0, help="Seed of the random inputs.")
@click.option(
    "--layers", "by_layer", is_flag=True, help="Compare each layer's result with the reference meaning of the program, too."
)
@click.option("--junit", "junit_path", metavar="FILE.xml", help="Write a JUnit report: a test case for each sample at each place.")
@push_option
@link_option
@model_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def verify_command(
    where: str | None,
    golden: str | None,
    data: str | None,
    labels: str | None,
    top: int,
    samples: int,
    seed: int,
    by_layer: bool,
    junit_path: str | None,
    push_rows: int,
    objects: tuple[str, ...],
    model_name: str | None,
    as_json: bool,
    **arguments: Any,
) -> int | None:
    """Run MODEL's compiled bundle and compare every output.

    Integers must be equal, floats within 1e-5 of the largest. Compares with the golden file if one is given, else with TFLite Micro or
    LiteRT if installed, else with aot's own interpreter. With state, each run goes on from the one before.
    """
    request = Request(**arguments, as_json=as_json)
    given = Given(golden, data, samples, seed, labels, top)
    given.require_sense()
    if by_layer and objects:
        raise CompileError("--layers compiles the model once more, without what --link links: they exclude each other")
    if where != "all":
        check_where(where, request)
    arrays = None if golden is None else load_npz(golden)
    with stoppable():
        path, bundle = request.model(request.bundle(), model_name)
        bundle = link(bundle, objects) if objects else bundle
        if by_layer:
            require_reference(bundle)
        places = where_names() if where == "all" else (where or "auto",)
        if where != "all":
            require_functions(bundle, place_of(bundle, places[0]))
        with request.progress:
            expected = _expected(request, path, bundle, given, arrays)
            try:
                finding = _find(request, path, bundle, expected, places, given, by_layer, push_rows, bool(objects))
            except InternalError as error:
                if junit_path is not None:
                    write_junit_error(bundle, expected.oracle, junit_path, error)
                raise
        if junit_path is not None:
            write_junit(finding, junit_path)
        if as_json:
            print_json(described(finding))
        else:
            print_finding(finding)
        return 0 if finding.passed else 1
    return 0


def _expected(request: Request, path: str, bundle: Bundle, given: Given, golden: dict[str, Any] | None) -> Expected:
    if given.golden is not None and golden is not None:
        oracle, samples = golden_samples(bundle.main, golden, given.golden)
        names = tuple(f"run {number}" for number in range(len(samples)))
        return Expected(f"{Path(given.golden).name} ({oracle})", samples, names)
    quantised: tuple[int, ...] = ()
    if given.data is not None:
        dataset = load_dataset(bundle.main, given.data)
        inputs, names, quantised = [list(one) for one in dataset.inputs], dataset.names, dataset.quantised
    else:
        inputs = [random_inputs(bundle.main, given.seed + number) for number in range(given.samples)]
        names = tuple(f"seed {given.seed + number}" for number in range(given.samples))
    oracle, run = best_oracle(Path(path).read_bytes(), read_main_graph(path, request.options_of(bundle)))
    return Expected(oracle, [Sample(tuple(arrays), tuple(run(arrays))) for arrays in inputs], names, quantised)


def _find(
    request: Request,
    path: str,
    bundle: Bundle,
    expected: Expected,
    places: tuple[str, ...],
    given: Given,
    by_layer: bool,
    push_rows: int,
    linked: bool,
) -> Finding:
    """Run, compare, and look for what is to blame."""
    labels = None if given.labels is None else load_labels(given.labels, len(expected.samples))
    found = verify_places(bundle, expected.oracle, expected.samples, places, request.progress.stage, push_rows)
    first = found.verdicts[0]
    wanted = [sample.outputs for sample in expected.samples]
    accuracies = None if labels is None else (_accuracy(first.outputs, labels, given.top), _accuracy(wanted, labels, given.top))
    failed = next((verdict for verdict in found.verdicts if not verdict.passed), None)
    culprit = ""
    if failed is not None and not linked and not bundle.library:
        request.progress.stage("looking for the first layer that differs")
        samples = expected.samples[: failed.mismatches[0][0] + 1]
        culprit = first_difference(path, request.options_of(bundle), samples, failed.last.where)
    layers = ()
    if by_layer:
        request.progress.stage("comparing layers")
        layers = all_layers(path, request.options_of(bundle), expected.samples, first.last.where)
    return Finding(
        bundle, found, expected.names, histograms(wanted, first.outputs), expected.quantised, layers, accuracies, culprit
    )


def _accuracy(outputs: Sequence[Sequence[np.ndarray]], labels: np.ndarray, top: int) -> Accuracy:
    if not outputs[0]:
        raise CompileError("labels need an output with a score for each class, and the model has none")
    return accuracy([one[0] for one in outputs], labels, sorted({1, top}))
