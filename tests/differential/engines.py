"""The two sides of a comparison, each in a process of its own, since either may die of a case.

Enters: a model's bytes, inputs. Leaves: an `Answer`. Invariant: whatever a case does to its process, the next case finds a fresh one.
"""

from __future__ import annotations

import faulthandler
import math
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkProcess

import numpy as np

SECONDS = 60
"""Processor time one job may take."""
HANGS = 3600
"""Seconds by the clock after which a process is held to wait for something that never comes."""


@dataclass(frozen=True)
class Answer:
    """What came of a case on one side: `outputs`, or None and why in `what` (`refused`, `died`, or an error).

    who: the oracle that answered, or the target.
    """

    who: str
    kind: str
    outputs: tuple[np.ndarray, ...] | None = None
    what: str = ""


class Server:
    """A process that answers jobs with `function`; it is made again after it died or took over SECONDS of processor time."""

    def __init__(self, function: Callable[..., Answer]) -> None:
        self.function = function
        self.process: ForkProcess | None = None

    def ask(self, who: str, *job: object) -> Answer:
        """The answer of `function(who, *job)`; kind `died` if the process ended over it."""
        process = self.process
        if process is None or not process.is_alive():
            process = self._start()
        self.pipe.send((who, *job))
        try:
            if self.pipe.poll(HANGS):
                return self.pipe.recv()
            what = f"no answer within {HANGS} s"
        except (EOFError, ConnectionError):
            process.join(5)
            what = f"the process ended with {process.exitcode}"
            if process.exitcode == -signal.SIGXCPU:
                what = f"no answer within {SECONDS} s of processor time"
        self.close()
        return Answer(who, "died", None, what)

    def _start(self) -> ForkProcess:
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        process = self.process = context.Process(target=_serve, args=(theirs, self.function), daemon=True)
        process.start()
        theirs.close()
        return process

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def _serve(pipe, function: Callable[..., Answer]) -> None:
    """Answer jobs until the other end closes, or its process is gone. What engines print is thrown away."""
    parent = os.getppid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    faulthandler.disable()  # an oracle that dies is an answer: no report of it among the tests'
    while True:
        try:
            while not pipe.poll(5):  # servers that were forked later hold this pipe open
                if os.getppid() != parent:
                    return
            job = pipe.recv()
        except EOFError:
            return
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used) + SECONDS, resource.RLIM_INFINITY))
        pipe.send(function(*job))


def oracle(who: str, model: bytes, inputs: Sequence[np.ndarray]) -> Answer:
    """What TFLite Micro (`tflm`) or LiteRT's reference resolver (`litert`) computes; kind `refused` if it does not run the model."""
    from tests.oracle import litert_run, tflm_run

    try:
        found = (tflm_run if who == "tflm" else litert_run)(model, inputs)
    except Exception as error:
        return Answer(who, "refused", None, f"{type(error).__name__}: {error}"[:300])
    return Answer(who, "ran", tuple(np.array(array) for array in found))


def compiled(who: str, model: bytes, inputs: Sequence[np.ndarray]) -> Answer:
    """What our compiled code computes on `who` (host, or a CPU's name); kind `broke` for whatever is not a CompileError."""
    from aot.driver import Options, compile_model, resolve_target
    from aot.errors import CompileError
    from aot.graph.ops import OPERATORS
    from aot.graph.tflite import read_model
    from aot.run import run_bundle

    options = Options(target=None if who == "host" else who)
    try:
        read = read_model(model, "case.tflite", OPERATORS)
        bundle = compile_model(read, *resolve_target(options), options, lambda stage, result: None)
        return Answer(who, "ran", tuple(run_bundle(bundle, inputs).outputs))
    except CompileError as error:
        one_line = "\n" not in str(error) and str(error).isprintable()
        return Answer(who, "refused" if one_line else "broke", None, error.what)
    except Exception as error:
        return Answer(who, "broke", None, last_line(error))


def computed(model: bytes, inputs: Sequence[np.ndarray]) -> Answer:
    """What the numpy interpreter computes: tells a wrong definition from wrong code."""
    from aot.graph.interpreter import run
    from aot.graph.ops import OPERATORS
    from aot.graph.tflite import read_model

    try:
        return Answer("compute", "ran", tuple(run(read_model(model, "case.tflite", OPERATORS).main, inputs)))
    except Exception as error:
        return Answer("compute", "broke", None, last_line(error))


def last_line(error: Exception) -> str:
    """The error and the innermost place in our code that raised it."""
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}aot{os.sep}" in frame.filename]
    place = f" ({os.path.basename(places[-1].filename)}:{places[-1].lineno})" if places else ""
    return f"{type(error).__name__}: {error}"[:300].replace("\n", " ") + place


def quiet() -> None:
    """No warnings of numpy about overflows, which are meant."""
    np.seterr(all="ignore")
    if "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
