"""What `aot verify` says: for people, as JSON, and as JUnit XML.

Enters: a `Finding`. Leaves: text on standard output, one JSON object, a file. Invariant: all three say the same of the same comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from rich.bar import Bar
from rich.table import Table

from aot.accuracy import Accuracy
from aot.bundle import Bundle
from aot.commands.run import figures
from aot.commands.tables import console, counted, say, table
from aot.errors import CompileError, InternalError
from aot.histogram import Bin, Histogram
from aot.junit import junit, junit_error
from aot.oracles import INTERPRETER
from aot.samples import FLOAT_TOLERANCE
from aot.verify import LayerDifference, Places, Verdict
from aot.version import VERSION

_SHOWN = 10


@dataclass(frozen=True)
class Finding:
    """All that a verification found. samples: their names. quantised: numbers of inputs whose real data was quantised. accuracies: of the
    bundle and of what it was compared with, if there are labels."""

    bundle: Bundle
    places: Places
    samples: tuple[str, ...]
    histograms: tuple[Histogram, ...]
    quantised: tuple[int, ...] = ()
    layers: tuple[LayerDifference, ...] = ()
    accuracies: tuple[Accuracy, Accuracy] | None = None
    culprit: str = ""

    @property
    def first(self) -> Verdict:
        return self.places.verdicts[0]

    @property
    def passed(self) -> bool:
        return self.places.passed and not any(each.differing for each in self.layers)


def print_finding(finding: Finding) -> None:
    """For people."""
    bundle, first = finding.bundle, finding.first
    for number in finding.quantised:
        port = bundle.main.inputs[number]
        assert port.quantisation is not None
        scale = f"scale {port.quantisation.scale:g}, zero point {port.quantisation.zero_point}"
        say(f"input {number} '{port.name}': the data are real numbers, quantised to {port.dtype} with {scale}")
    for verdict in finding.places.verdicts:
        place = f"{bundle.target.name} on {verdict.last.where}, back end {bundle.backend}"
        say(f"{bundle.name}: {counted(verdict.samples, 'run')} for {place}, compared with {verdict.oracle}")
        for number, difference in verdict.mismatches[:_SHOWN]:
            say(f"  run {number}, {difference}")
        if len(verdict.mismatches) > _SHOWN:
            say(f"  and {len(verdict.mismatches) - _SHOWN} more")
    for place, sample, output in finding.places.apart:
        say(f"  on {place}, output {output} of run {sample} has other bytes than on {first.last.where}")
    for place, reason in finding.places.missing:
        say(f"  not run on {place}: {reason}")
    if finding.culprit:
        say(f"  {finding.culprit}")
    for each in finding.histograms:
        _print_histogram(each)
    if finding.layers:
        columns = ("symbol", "kernel", "node", "operators", "count", "differ", "largest difference")
        console().print(table("each layer beside the reference meaning of the same program", columns, [*map(_row, finding.layers)]))
    if finding.accuracies:
        own, theirs = finding.accuracies
        say(f"  accuracy: {own}; {first.oracle}: {theirs}")
    if first.oracle == INTERPRETER:
        say("  to compare with TFLite Micro itself: pip install tflite-micro, or give a --golden file")
    same = all(each.equal == each.elements for each in finding.histograms)
    passed = "PASS: all outputs are the same" if same else f"PASS: all outputs are within {FLOAT_TOLERANCE:g} of their largest"
    say(passed if finding.passed else "FAIL")


def _row(each: LayerDifference) -> tuple[object, ...]:
    layer = each.layer
    nodes = ", ".join(map(str, layer.nodes))
    return layer.symbol, layer.kernel, nodes, "+".join(layer.operators), each.elements, each.differing, f"{each.largest:g}"


def _print_histogram(found: Histogram) -> None:
    """A line where all elements are equal, else a bar for each bin."""
    if found.equal == found.elements:
        say(f"  output {found.output}: {counted(found.elements, 'element')}, all equal")
        return
    unit = "relative to the largest magnitude" if found.relative else "in steps of the output"
    made = Table(title=f"output {found.output}: differences, {unit}", title_justify="left")
    made.add_column("difference")
    made.add_column("count", justify="right")
    made.add_column("")
    most = max(each.count for each in found.bins)
    for each in found.bins:
        made.add_row(_range(each, found.relative), str(each.count), Bar(most, 0, each.count, width=40))
    console().print(made)


def _range(each: Bin, relative: bool) -> str:
    if each.high is None:
        return f"more than {each.low:g}"
    if each.high == 0:
        return "none"
    if relative:
        return f"up to {each.high:g}"
    low, high = int(each.low) + 1, int(each.high)
    return str(high) if low == high else f"{low} to {high}"


def described(finding: Finding) -> dict[str, Any]:
    """As one JSON object. Numbers that are not finite are null."""
    first = finding.first
    content = {
        "passed": finding.passed,
        "oracle": first.oracle,
        "samples": first.samples,
        "mismatches": _mismatches(first),
        "culprit": finding.culprit,
        "places": [
            {"on": each.last.where, "passed": each.passed, "mismatches": _mismatches(each)} for each in finding.places.verdicts
        ],
        "missing": [{"on": place, "reason": reason} for place, reason in finding.places.missing],
        "apart": [{"on": place, "sample": sample, "output": output} for place, sample, output in finding.places.apart],
        "quantised_inputs": list(finding.quantised),
        "histogram": [{**asdict(each), "elements": each.elements} for each in finding.histograms],
        "layer_differences": [
            {
                "symbol": each.layer.symbol,
                "kernel": each.layer.kernel,
                "nodes": list(each.layer.nodes),
                "operators": list(each.layer.operators),
                "elements": each.elements,
                "differing": each.differing,
                "largest": each.largest,
            }
            for each in finding.layers
        ],
        "accuracy": _accuracy(finding),
        **figures(finding.bundle, first.last),
    }
    return _finite(content)


def _mismatches(verdict: Verdict) -> list[dict[str, Any]]:
    return [{"sample": number, **asdict(difference)} for number, difference in verdict.mismatches]


def _accuracy(finding: Finding) -> dict[str, Any] | None:
    if finding.accuracies is None:
        return None
    own, theirs = finding.accuracies
    return {
        "samples": own.samples,
        **{f"top_{k}": right / own.samples for k, right in own.right},
        "oracle": {f"top_{k}": right / theirs.samples for k, right in theirs.right},
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_junit(finding: Finding, path: str) -> None:
    """The JUnit XML; CompileError where it can't be written."""
    bundle = finding.bundle
    properties = _properties(bundle, finding.first.oracle)
    if finding.accuracies:
        properties |= {"accuracy": str(finding.accuracies[0]), "accuracy of the oracle": str(finding.accuracies[1])}
    _write(path, junit(bundle.name, finding.places, finding.samples, finding.layers, properties, finding.culprit))


def write_junit_error(bundle: Bundle, oracle: str, path: str, error: InternalError) -> None:
    """The JUnit XML of a verification that ended with a fault of ours."""
    _write(path, junit_error(bundle.name, _properties(bundle, oracle), str(error)))


def _properties(bundle: Bundle, oracle: str) -> dict[str, str]:
    return {
        "aot": VERSION,
        "model_sha256": bundle.model_sha256,
        "target": bundle.target.name,
        "backend": bundle.backend,
        "oracle": oracle,
    }


def _write(path: str, content: bytes) -> None:
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise CompileError(f"can't write the report: {error.strerror}", where=path) from error
