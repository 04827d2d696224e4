"""What is measured: a model's inference on a CPU in a mode, in an emulator.

Enters: names. Leaves: dictionaries of whole numbers, as bench/results.json holds them.
Invariant: counted, the same at every run; cycles are the model's (`aot/profile`), and absent where it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aot.bundle import Bundle
from aot.driver import Options, compile
from aot.lower.tradeoff import Optimize
from aot.profile import profile
from aot.profile.cores import CORES
from aot.run import default_where, run_bundle
from aot.samples import input_arrays, random_inputs
from tests.shared import GOLDEN, MODELS, SHORT_NAMES

CPUS = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
MODES: tuple[Optimize, ...] = ("balanced", "speed", "size")
Figures = dict[str, int]


def model_path(name: str) -> Path:
    """Where a model lies, if it is there."""
    return MODELS / f"{SHORT_NAMES.get(name, name)}.tflite"


def model_figures(name: str, cpu: str, modes: Sequence[Optimize] = MODES) -> dict[Optimize, Figures]:
    """One inference of a real model, on input 0 of its golden file. Inputs and outputs lie in the workspace."""
    counted: dict[bytes, Figures] = {}  # by object: modes often differ in nothing
    return {mode: _figures(name, compile(model_path(name), cpu, options=_options(mode)), counted) for mode in modes}


def _options(mode: Optimize) -> Options:
    return Options(io="workspace", optimize=mode)


def _figures(name: str, bundle: Bundle, counted: dict[bytes, Figures]) -> Figures:
    entry = bundle.main
    if bundle.object not in counted:
        counted[bundle.object] = counts(bundle, golden_inputs(name, bundle))
    return {
        "macs": sum(layer.macs for layer in entry.layers),
        **counted[bundle.object],
        "code_bytes": bundle.code_nbytes,
        "weights_bytes": bundle.weights_nbytes,
        "object_bytes": len(bundle.object),
        "workspace_bytes": entry.workspace_nbytes,
        "scratch_bytes": entry.scratch_nbytes,
        "stack_bytes": entry.stack_nbytes,
    }


def golden_inputs(name: str, bundle: Bundle) -> Sequence[np.ndarray]:
    """Input 0 of the model's golden file; random ones where there is none."""
    golden = GOLDEN / f"{SHORT_NAMES.get(name, name).replace('/', '__', 1)}.npz"
    if not golden.is_file():
        return random_inputs(bundle.main, 0)
    with np.load(golden, allow_pickle=False) as arrays:
        return input_arrays(bundle.main, dict(arrays), golden.name)


def counts(bundle: Bundle, inputs: Sequence[np.ndarray]) -> Figures:
    """Instructions, and modelled cycles where the core has a model."""
    if bundle.target.cpu not in CORES or default_where(bundle.target) != "unicorn":
        return {"instructions": run_bundle(bundle, inputs).instructions or 0}
    found = profile(bundle, inputs)
    return {"instructions": found.instructions or 0, "cycles": found.cycles or 0}
