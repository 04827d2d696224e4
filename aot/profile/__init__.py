"""What an inference takes, layer by layer: instructions counted in an emulator, and cycles by a model.

Enters: a bundle and inputs. Leaves: `Profile`.
Invariant: instructions are counted; cycles are modelled, and None for a core without a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.bundle import Bundle, Layer
from aot.errors import CompileError
from aot.profile.cores import CORES
from aot.profile.cycles import modelled_cycles
from aot.run import RunResult, place_for, require_functions, run_bundle
from aot.target import Target

__all__ = ["Profile", "Row", "emulator_for", "profile"]


@dataclass(frozen=True)
class Row:
    """A layer, or the entry itself (`layer` None): its instructions and modelled cycles; None where they are not known."""

    symbol: str
    layer: Layer | None
    instructions: int | None
    cycles: int | None

    @property
    def macs(self) -> int:
        return self.layer.macs if self.layer else 0


@dataclass(frozen=True)
class Profile:
    """One inference. model: what the cycles are, or why there are none."""

    bundle: Bundle
    result: RunResult
    rows: tuple[Row, ...]
    wait_states: int
    model: str

    @property
    def macs(self) -> int:
        return sum(row.macs for row in self.rows)

    @property
    def instructions(self) -> int | None:
        return self.result.instructions

    @property
    def cycles(self) -> int | None:
        """Modelled cycles of the inference; None without a model."""
        known = [row.cycles for row in self.rows if row.cycles is not None]
        return sum(known) if len(known) == len(self.rows) else None


def profile(bundle: Bundle, inputs: Sequence[np.ndarray], wait_states: int = 0) -> Profile:
    """Run the main entry once, with state after NAME_init. wait_states: of a flash memory that holds code and constants.

    CompileError where no emulator has the target's CPU, or firmware functions are missing.
    """
    place = emulator_for(bundle.target)
    require_functions(bundle, place)
    result = run_bundle(bundle, inputs, place, tracing="flash" if wait_states else "code")
    core = CORES.get(bundle.target.cpu)
    cycles: dict[str, int] = {}
    if core is None:
        model = f"no cycles: there is no model of {bundle.target.name}"
    elif result.trace is None:
        model = f"no cycles: {place} does not record what the model of the {core.name} needs"
    else:
        cycles = dict(modelled_cycles(result.trace, core, wait_states))
        memory = (
            f"{wait_states} wait state{'s' * (wait_states > 1)} without a cache" if wait_states else "memory without wait states"
        )
        model = f"cycles are modelled, not measured: {core.name}, {memory}; {core.note}"
    if result.per_layer is None:
        model += f"; {place} counts only the whole run"
    return Profile(bundle, result, _rows(bundle, result, cycles), wait_states, model)


def emulator_for(target: Target) -> str:
    """Where the target's instructions are counted. CompileError if nowhere."""
    if target.is_host:
        raise CompileError("instructions are counted in an emulator, and this is code for the host", hint="name a CPU with --cpu")
    return place_for(target, "auto")


def _rows(bundle: Bundle, result: RunResult, cycles: dict[str, int]) -> tuple[Row, ...]:
    """The layers in their order, then the entry itself, which calls them."""
    counts = dict(result.per_layer or ())
    layers: dict[str, Layer | None] = {layer.symbol: layer for layer in bundle.main.layers}
    layers.setdefault(bundle.main.symbol, None)
    return tuple(Row(symbol, layer, counts.get(symbol), cycles.get(symbol)) for symbol, layer in layers.items())
