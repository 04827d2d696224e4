"""Two runs of the same object at once, each with its own workspace and stack, as two threads of an RTOS: both are exact wherever they are
interrupted. An interruption saves and restores registers, those of the FPU too, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from aot.bundle import Bundle
from aot.driver import Options, compile
from aot.run import initial_state, run_bundle
from aot.samples import random_inputs
from tests.hardening.core import Core
from tests.hardening.features import DIGITS, bundle_of
from tests.hardening.task import Task
from tests.shared import FIVE, model

SWEEP = bool(os.environ.get("AOT_SWEEP"))
CPUS = ("cortex-m0", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33") if SWEEP else ("cortex-m4",)
SEEDS = range(3 if SWEEP else 1)
NAMES = ("digits", *(FIVE if SWEEP else ("AD",)))


def interleave(tasks: Sequence[Task], core: Core, seed: int, most: int) -> int:
    """Run them all to their ends, at most `most` instructions of one at a time. How many times one was interrupted."""
    random, switches = Random(seed), 0
    while open_tasks := [task for task in tasks if task.left]:
        task = random.choice(open_tasks)
        task.go(core, random.randrange(1, 2 ** random.randrange(1, most.bit_length())))
        switches += task.registers is not None
    return switches


def both(bundle: Bundle, inputs: Sequence[Sequence[np.ndarray]]) -> tuple[Core, list[Task]]:
    """A core with one copy of the code, and a task for each of the inputs."""
    core, tasks = Core(bundle.target), list[Task]()
    for number, arrays in enumerate(inputs):
        base = {"base": tasks[-1].end} if tasks else {}
        tasks.append(Task(bundle, arrays, **base))
        tasks[-1].map(core, code=not number)
    return core, tasks


def check(bundle: Bundle, inputs: Sequence[Sequence[np.ndarray]], seed: int, instructions: int) -> None:
    core, tasks = both(bundle, inputs)
    assert interleave(tasks, core, seed, instructions // 20) > 20
    for task, arrays in zip(tasks, inputs, strict=True):
        state = None if bundle.init is None else arrays[-1].tobytes()
        alone = run_bundle(bundle, arrays[: len(bundle.main.inputs)], state=state)
        expected = [output.tobytes() for output in alone.outputs] + ([] if alone.state is None else [alone.state])
        assert [output.tobytes() for output in task.outputs(core)] == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", NAMES)
def test_real_models(name: str, cpu: str, seed: int) -> None:
    bundle = compile(DIGITS if name == "digits" else model(name), options=Options(target=cpu))
    instructions = run_bundle(bundle, random_inputs(bundle.main, 1)).instructions
    assert instructions is not None
    check(bundle, [random_inputs(bundle.main, 1), random_inputs(bundle.main, 2)], seed, min(instructions, 10_000_000))


@pytest.mark.parametrize("feature", ["rows", "weights in a region", "least memory", "io in the workspace", "state"])
def test_every_kind_of_memory(feature: str) -> None:
    """Weights in a region are copied into the region of each."""
    bundle = bundle_of(feature)
    state = [] if bundle.init is None else [np.frombuffer(initial_state(bundle), np.uint8)]
    inputs = [[*random_inputs(bundle.main, seed), *state] for seed in (1, 2)]
    check(bundle, inputs, 3, 50_000 if not state else 200)


def test_a_shared_workspace_is_noticed() -> None:
    """Interruptions fall into the midst of what a workspace is needed for."""
    bundle = bundle_of("plain")
    inputs = [random_inputs(bundle.main, seed) for seed in (1, 2)]
    core, tasks = both(bundle, inputs)
    tasks[1].known["the workspace"] = tasks[0].known["the workspace"]
    interleave(tasks, core, 1, 2000)
    wrong = [
        task
        for task, arrays in zip(tasks, inputs)
        if task.outputs(core)[0].tobytes() != run_bundle(bundle, arrays).outputs[0].tobytes()
    ]
    assert wrong
