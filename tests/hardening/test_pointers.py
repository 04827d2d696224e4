"""Every function of a bundle answers null and misaligned pointers by an error code, before it touches anything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from aot.bundle import Bundle, Entry
from aot.run.memory import CONTEXT, PARALLEL_FOR, POOL, READ, Call
from aot.samples import random_inputs
from tests.hardening.core import Core
from tests.hardening.features import FEATURES, bundle_of
from tests.hardening.task import Task

NULL, MISALIGNED = -1, -2


def functions(bundle: Bundle) -> Iterator[tuple[Task, Call]]:
    """Each function of the bundle once."""
    seen: set[str] = set()
    for model in bundle.parts:
        for entry in (*model.entries, *([model.init] if model.init else [])):
            task = Task(model, arguments(entry), entry)
            for call in task.calls:
                if call.symbol not in seen:
                    seen.add(call.symbol)
                    yield task, call


def arguments(entry: Entry) -> list[np.ndarray]:
    """Inputs, and a state, if the entry has one."""
    if entry.initialises:
        return []
    return [*random_inputs(entry, 1), *([np.zeros(entry.state_nbytes, np.uint8)] if entry.state_nbytes else [])]


def answer(task: Task, call: Call, number: int, change: int | None) -> int:
    """What the function returns with an argument changed by so much, or null (None), where no pointer leads to any memory."""
    core = Core(task.bundle.target)
    task.map(core, memory=False)

    def changed(values: list[int]) -> None:
        values[number] = 0 if change is None else values[number] + change

    call = Call(call.symbol, call.arguments)  # without rows: there is no memory to put them in
    task.begin(core, call, changed)
    core.go(1000)
    assert core.done, "still running"
    return core["r0"] - (1 << 32 if core["r0"] >> 31 else 0)


@pytest.mark.parametrize(("feature", "cpu"), [*((feature, "cortex-m4") for feature in FEATURES), ("plain", "cortex-m0")])
def test_every_pointer_of_every_function(feature: str, cpu: str) -> None:
    """Functions and contexts apart: of those only a null `read` can be told from a right one."""
    nulls = 0
    for task, call in functions(bundle_of(feature, cpu)):
        for number, name in enumerate(call.arguments):
            if name in (CONTEXT, PARALLEL_FOR, POOL) or not isinstance(name, str):
                continue
            region = task.placed[name].region if name != READ else None
            if region is None or region.nbytes:
                assert answer(task, call, number, None) == NULL, (call.symbol, name)
                nulls += 1
            for change in () if region is None or not region.nbytes else range(1, min(region.align, 17)):
                assert answer(task, call, number, change) == MISALIGNED, (call.symbol, name, change)
    assert nulls >= 1
