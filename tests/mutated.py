"""Mutated model files, by number: what a broken disk, a broken converter or an attacker may hand in, and what we make of it.

Enters: a case number. Leaves: a model's bytes with changes; what compiling them came to. Invariant: the same case always gives the same bytes.
"""

from __future__ import annotations

import random
import resource
import signal
import struct
import tempfile
import time
from functools import cache

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

_EXTREMES = (0, 1, 2, 4, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0)


def mutate(model: bytes, case: int) -> bytes:
    """Case number `case` of a model: truncated, random, spliced, or with a few bytes or words changed."""
    rng = random.Random(case)
    kind = rng.randrange(10)
    data = bytearray(model)
    if kind == 0:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 1:
        head = bytes(data[:8]) if rng.random() < 0.8 else b""
        return head + rng.randbytes(rng.randrange(4000))
    if kind == 2:
        a, b, n = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 200)
        data[a : a + n] = data[b : b + n]
        return bytes(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        _change(data, rng, kind)
    return bytes(data)


def _change(data: bytearray, rng: random.Random, kind: int) -> None:
    """One change, mostly in the graph's tables: at the ends of the file, where converters put them."""
    window = 6000
    at = (
        rng.randrange(len(data))
        if rng.random() < 0.2
        else rng.choice((rng.randrange(min(window, len(data))), len(data) - 1 - rng.randrange(min(window, len(data)))))
    )
    if kind < 6:
        data[at] = rng.randrange(256)
    elif kind < 8:
        data[at] ^= 1 << rng.randrange(8)
    else:
        at &= ~3
        word = rng.choice(_EXTREMES) if rng.random() < 0.7 else rng.randrange(1 << 32)
        if at + 4 <= len(data):
            struct.pack_into("<I", data, at, word)


class _Planned(Exception):
    """Planning is done: code generation is not wanted for this case."""


class _TooLong(Exception):
    """The case took over SECONDS of processor time."""


@cache
def bases() -> tuple[bytes, ...]:
    """The models that are mutated: our own samples, and real ones where they are at hand."""
    paths = sorted(ROOT.glob("bundles/*/*.tflite")) + [MODELS / f"{name}.tflite" for name in REAL]
    return tuple(path.read_bytes() for path in paths if path.is_file())


def run_case(case: int, generate: bool) -> tuple[int, str, float]:
    """(case, what happened, seconds). What happened: `bundle`, `planned`, `refused`, or what went wrong."""
    import aot

    data = mutate(bases()[case % len(bases())], case)

    def observe(stage: str, result: object) -> None:
        if stage == "plan" and not generate:
            raise _Planned

    def too_long(*_: object) -> None:
        raise _TooLong

    signal.signal(signal.SIGPROF, too_long)
    begin = time.process_time()
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(data)
        file.flush()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            aot.compile(file.name, "cortex-m4", observer=observe)
            outcome = "bundle"
        except _Planned:
            outcome = "planned"
        except aot.CompileError as error:
            outcome = "refused" if "\n" not in str(error) and str(error).isprintable() else f"message of several lines: {error!r}"
        except _TooLong:
            outcome = "too long"
        except BaseException as error:  # the very thing this looks for
            outcome = f"{type(error).__name__}: {error}"[:200]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MEBIBYTES * 1024:
        outcome = f"over {MEBIBYTES} MiB of memory (or an earlier case of the same process)"
    return case, outcome, time.process_time() - begin
