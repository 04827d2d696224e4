"""10,000 mutated model files: each must give a bundle or one CompileError line, in bounded time and memory.

    python tests/fuzz.py [--cases N] [--first N] [--generate-every N]

Reading and planning for all; code generation for every 8th, of which about a third get that far. Batches run in processes of their own,
so that a crash is seen. Exit code 1 if any case broke the rule; each is printed with its number.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.mutate import mutate
from tests.shared import MODELS, ROOT

SECONDS, MEBIBYTES = 10, 1024
REAL = (
    "tflm/hello_world_int8",
    "tflm/micro_speech_quantized",
    "tflm_arduino/magic_wand",
    "mlperf_tiny/kws_ref_model",
    "tflm/sine_float",
    "tflm/person_detect",
    "mlek/kws_micronet_m",
)


class _Planned(Exception):
    """Planning is done: code generation is not wanted for this case."""


class _TooLong(Exception):
    """The case took over SECONDS."""


def bases() -> list[bytes]:
    """The models that are mutated: our own samples, and real ones where they are at hand."""
    paths = sorted(ROOT.glob("bundles/*/*.tflite")) + [MODELS / f"{name}.tflite" for name in REAL]
    return [path.read_bytes() for path in paths if path.is_file()]


def run_case(job: tuple[int, bool]) -> tuple[int, str, float]:
    """(case, what happened, seconds). What happened: `bundle`, `planned`, `refused`, or what went wrong."""
    import aot

    case, generate = job
    data = mutate(_BASES[case % len(_BASES)], case)

    def observe(stage: str, result: object) -> None:
        if stage == "plan" and not generate:
            raise _Planned

    def too_long(*_: object) -> None:
        raise _TooLong

    signal.signal(signal.SIGALRM, too_long)
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(data)
        file.flush()
        signal.alarm(SECONDS)
        try:
            aot.compile(file.name, "cortex-m4", observer=observe)
            outcome = "bundle"
        except _Planned:
            outcome = "planned"
        except aot.CompileError as error:
            outcome = "refused" if "\n" not in str(error) and str(error).isprintable() else f"message of several lines: {error!r}"
        except _TooLong:
            outcome = "too long"
        except BaseException as error:  # the very thing this script looks for
            outcome = f"{type(error).__name__}: {error}"[:200]
        finally:
            signal.alarm(0)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MEBIBYTES * 1024:
        outcome = f"over {MEBIBYTES} MiB of memory (or an earlier case of the same process)"
    return case, outcome, time.monotonic() - begin


_BASES = bases()
_BATCH = 250


def batch(first: int, count: int, generate_every: int) -> None:
    """Run these cases here; print one line `case outcome seconds` for each, as JSON."""
    for case in range(first, first + count):
        print(json.dumps(run_case((case, case % generate_every == 0))), flush=True)


def run_batch(first: int, count: int, generate_every: int) -> list[tuple[int, str, float]]:
    """Run these cases in a process of their own. If it dies, the case after the last answered one is to blame."""
    numbers = [str(number) for number in (first, count, generate_every)]
    done = subprocess.run([sys.executable, __file__, "--batch", *numbers], capture_output=True, text=True)
    results = [(case, outcome, seconds) for case, outcome, seconds in map(json.loads, done.stdout.splitlines())]
    if done.returncode:
        results.append((first + len(results), f"the process ended with {done.returncode}: {done.stderr[-200:]!r}", 0.0))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--generate-every", type=int, default=8)
    parser.add_argument("--batch", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        batch(*arguments.batch)
        return 0
    end = arguments.first + arguments.cases
    jobs = [(first, min(_BATCH, end - first), arguments.generate_every) for first in range(arguments.first, end, _BATCH)]
    counts: collections.Counter[str] = collections.Counter()
    slowest = 0.0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, outcome, seconds in (result for results in pool.map(lambda job: run_batch(*job), jobs) for result in results):
            good = outcome in ("bundle", "planned", "refused")
            counts[outcome if good else "broken"] += 1
            slowest = max(slowest, seconds)
            if not good:
                print(f"case {case}: {outcome}", flush=True)
    summary = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{sum(counts.values())} cases from {len(_BASES)} models: {summary}; slowest {slowest:.1f} s")
    return 1 if counts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
