"""`aot verify`: check that the compiled bundle computes what TFLite Micro does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from aot.bundle import Bundle
from aot.commands.common import load_npz, print_json
from aot.commands.options import WholeNumber, compile_options, link_option, model_option, push_option
from aot.commands.request import Request, stoppable
from aot.commands.run import check_where, figures
from aot.commands.tables import counted, say
from aot.driver import read_main_graph
from aot.oracles import INTERPRETER, best_oracle
from aot.run import place_of, require_functions
from aot.run.linking import link
from aot.samples import Sample, golden_samples, random_inputs
from aot.verify import Verdict, first_difference, verify

EXAMPLES = """
\b
Examples:
  aot verify model.tflite                                       on this machine, against the best oracle installed
  aot verify model.tflite --cpu cortex-m4 --golden golden.npz   in Unicorn, against a golden file
  aot verify model.tflite --cpu cortex-m55 --on qemu --samples 20
"""


@click.command("verify", epilog=EXAMPLES)
@compile_options
@click.option("--on", "where", metavar="WHERE", help="host, unicorn, qemu or renode (default: what suits the CPU).")
@click.option("--golden", "golden_path", metavar="FILE.npz", help="Compare with this file (in{i}_{k}, out{i}_{k}).")
@click.option("--samples", type=WholeNumber(1), default=5, show_default=True, help="Random inputs, where there is no golden file.")
@click.option("--seed", type=WholeNumber(0), default=0, help="Seed of the random inputs.")
@push_option
@link_option
@model_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def verify_command(
    where: str | None,
    golden_path: str | None,
    samples: int,
    seed: int,
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
    check_where(where, request)
    golden = None if golden_path is None else load_npz(golden_path)
    with stoppable():
        path, bundle = request.model(request.bundle(), model_name)
        bundle = link(bundle, objects) if objects else bundle
        require_functions(bundle, place_of(bundle, where or "auto"))
        with request.progress:
            oracle, expected = _expected(request, path, bundle, golden_path, golden, samples, seed)
            verdict = verify(bundle, oracle, expected, where or "auto", request.progress.stage, push_rows)
            culprit = (
                ""
                if verdict.passed or objects
                else _culprit(request, path, bundle, expected[: verdict.mismatches[0][0] + 1], where or "auto")
            )
        _report(bundle, verdict, culprit, as_json)
        return 0 if verdict.passed else 1
    return 0


def _expected(
    request: Request, path: str, bundle: Bundle, golden_path: str | None, golden: dict[str, Any] | None, count: int, seed: int
) -> tuple[str, list[Sample]]:
    if golden_path is not None and golden is not None:
        oracle, samples = golden_samples(bundle.main, golden, golden_path)
        return f"{Path(golden_path).name} ({oracle})", samples
    name, oracle_run = best_oracle(Path(path).read_bytes(), read_main_graph(path, request.options_of(bundle)))
    inputs = [random_inputs(bundle.main, seed + number) for number in range(count)]
    return name, [Sample(tuple(arrays), tuple(oracle_run(arrays))) for arrays in inputs]


def _culprit(request: Request, path: str, bundle: Bundle, samples: list[Sample], where: str) -> str:
    request.progress.stage("looking for the first layer that differs")
    return first_difference(path, request.options_of(bundle), samples, where)


def _report(bundle: Bundle, verdict: Verdict, culprit: str, as_json: bool) -> None:
    if as_json:
        wrong = [{"sample": number, **asdict(difference)} for number, difference in verdict.mismatches]
        print_json(
            {
                "passed": verdict.passed,
                "oracle": verdict.oracle,
                "samples": verdict.samples,
                "mismatches": wrong,
                "culprit": culprit,
                **figures(bundle, verdict.last),
            }
        )
        return
    place = f"{bundle.target.name} on {verdict.last.where}, back end {bundle.backend}"
    say(f"{bundle.name}: {counted(verdict.samples, 'run')} for {place}, compared with {verdict.oracle}")
    for number, difference in verdict.mismatches[:10]:
        say(f"  run {number}, {difference}")
    if culprit:
        say(f"  {culprit}")
    if verdict.oracle == INTERPRETER:
        say("  to compare with TFLite Micro itself: pip install tflite-micro, or give a --golden file")
    say("PASS: all outputs are the same" if verdict.passed else "FAIL")
