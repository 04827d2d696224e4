"""Wrong pointers for every function of a bundle, and what each must answer.

    python -m tests.hardening.pointers FEATURE...

Enters: a bundle. Leaves: `Wrong`s. Run by itself, it calls code for this machine, as an object and as C, where no pointer leads to any memory: a
function that touches any ends the process.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aot.bundle import Bundle, Entry
from aot.run import memory
from aot.run.compiled import Compiled
from aot.run.host import _load
from aot.run.memory import CONTEXT, NO_FUNCTIONS, READ, Call
from aot.samples import random_inputs
from tests.hardening.features import bundle_of

NULL, MISALIGNED = -1, -2
OBJECTS = ("threads", "hooks", "cycles")
"""Features that C files do not have."""
_NOWHERE, _STEP = 0x1000, 0x400
"""Addresses from which on there is no memory, on Linux: below 0x10000."""


@dataclass(frozen=True)
class Wrong:
    """A call one of whose arguments is changed by so much, or null (None), and what it must return."""

    call: Call
    number: int
    change: int | None
    answer: int

    def put(self, values: list[int]) -> None:
        values[self.number] = 0 if self.change is None else values[self.number] + self.change


def functions(bundle: Bundle) -> Iterator[tuple[Bundle, Entry, Sequence[np.ndarray]]]:
    """Each entry with inputs, and a state, if it has one."""
    for model in bundle.parts:
        for entry in (*model.entries, *([model.init] if model.init else [])):
            inputs = [] if entry.initialises else random_inputs(entry, 1)
            state = [np.zeros(entry.state_nbytes, np.uint8)] if memory.takes_state(entry) else []
            yield model, entry, [*inputs, *state]


def wrong_calls(bundle: Bundle, entry: Entry, inputs: Sequence[np.ndarray]) -> Iterator[Wrong]:
    """For every pointer of every function of an entry.

    One to no bytes may be anything; so may a context, and the functions that run parts or hear of layers. Of one that reads only null
    can be told from a right one.
    """
    regions, calls = memory.arguments(bundle, entry, inputs, 1)
    known = {region.name: region for region in regions}
    for call in {each.symbol: Call(each.symbol, each.arguments) for each in calls}.values():
        for number, name in enumerate(call.arguments):
            if not isinstance(name, str) or name in (CONTEXT, *NO_FUNCTIONS) or (name != READ and not known[name].nbytes):
                continue
            yield Wrong(call, number, None, NULL)
            for change in range(1, 1 if name == READ else min(known[name].align, 17)):
                yield Wrong(call, number, change, MISALIGNED)


def main() -> None:
    checked = 0
    for feature in sys.argv[1:]:
        for emit in ("object",) if feature in OBJECTS else ("object", "c"):
            bundle = bundle_of(feature, None, emit)
            engine = Compiled(bundle, {}) if emit == "c" else _load(bundle.object, {})
            for each in functions(bundle):
                for wrong in wrong_calls(*each):
                    values = [_NOWHERE + _STEP * number for number in range(len(wrong.call.arguments))]
                    wrong.put(values)
                    types = [ctypes.c_void_p if isinstance(one, str) else ctypes.c_uint32 for one in wrong.call.arguments]
                    address = engine.get_function_address(wrong.call.symbol)
                    answer = ctypes.CFUNCTYPE(ctypes.c_int, *types)(address)(*values)
                    assert answer == wrong.answer, (feature, emit, wrong, answer)
                    checked += 1
    print(f"{checked} wrong pointers")


if __name__ == "__main__":
    main()
