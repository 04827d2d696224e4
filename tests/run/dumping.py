"""Dumps as firmware makes them, of bundles that run in process.

Enters: a bundle for this machine made with `--instrument dump`, inputs. Leaves: the text of a dump.
Invariant: a tensor is read when the entry says that its layer has ended, and not later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from aot.bundle import Bundle, Entry
from aot.instrument import fingerprint
from aot.run import host, initial_state, memory
from aot.run.memory import OBSERVER, ON_LAYER, PARALLEL_FOR, POOL
from aot.run.observer import C_ON_LAYER


def dump(bundle: Bundle, samples: Sequence[Sequence[np.ndarray]], entry: Entry | None = None) -> str:
    """A run for each sample, each from the state that the one before left."""
    entry = entry or bundle.main
    engine = host._load(bundle.object, {})
    state = np.frombuffer(initial_state(bundle), np.uint8) if entry.state_nbytes else None
    lines = []
    for sample in samples:
        regions, calls = memory.arguments(bundle, entry, [*sample, *([] if state is None else [state])], 1)
        kept = [np.empty(region.nbytes + 2 * host._GUARD_NBYTES + 2 * region.align, np.uint8) for region in regions]
        placed = {region.name: host._placed(region, block, 1) for region, block in zip(regions, kept, strict=True)}
        for one in placed.values():
            ctypes.memmove(one.start, one.image, one.end - one.start)
        names = [name for name in calls[-1].arguments if isinstance(name, str)]
        lines.append(f"@dump {entry.symbol} {fingerprint(entry.tensors):08x}")

        def told(observer: int, layer: int, before: int, names: list[str] = names, placed: dict = placed) -> None:
            for number, tensor in enumerate(entry.tensors):
                if tensor.layer == layer and not before:
                    content = ctypes.string_at(placed[names[tensor.argument]].address + tensor.offset, tensor.nbytes)
                    lines.append(f"@tensor {number:08x} {tensor.nbytes:08x}")
                    lines.extend(f"@ {content[at : at + 32].hex()}" for at in range(0, len(content), 32))

        function = C_ON_LAYER(told)
        others = {ON_LAYER: ctypes.cast(function, ctypes.c_void_p).value or 0, OBSERVER: 0, PARALLEL_FOR: 0, POOL: 0}
        for call in calls:
            assert host._call(engine, call, placed, others, at_end=True) == 0
        lines.append("@end")
        if state is not None:
            one = placed["the state"]
            state = np.frombuffer(ctypes.string_at(one.address, entry.state_nbytes), np.uint8)
    return "\n".join(lines) + "\n"
