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


def model_figures(name: str, cpu: str, mode: Optimize) -> Figures:
    """One inference of a real model, on input 0 of its golden file. Inputs and outputs lie in the workspace."""
    bundle = compile(model_path(name), cpu, options=Options(io="workspace", optimize=mode))
    golden = GOLDEN / f"{SHORT_NAMES.get(name, name).replace('/', '__', 1)}.npz"
    if golden.is_file():
        with np.load(golden, allow_pickle=False) as arrays:
            inputs = input_arrays(bundle.main, dict(arrays), golden.name)
    else:
        inputs = random_inputs(bundle.main, 0)
    entry = bundle.main
    return {
        "macs": sum(layer.macs for layer in entry.layers),
        **counts(bundle, inputs),
        "code_bytes": bundle.code_nbytes,
        "weights_bytes": bundle.weights_nbytes,
        "object_bytes": len(bundle.object),
        "workspace_bytes": entry.workspace_nbytes,
        "scratch_bytes": entry.scratch_nbytes,
        "stack_bytes": entry.stack_nbytes,
    }


def counts(bundle: Bundle, inputs: Sequence[np.ndarray]) -> Figures:
    """Instructions, and modelled cycles where the core has a model."""
    if bundle.target.cpu not in CORES or default_where(bundle.target) != "unicorn":
        return {"instructions": run_bundle(bundle, inputs).instructions or 0}
    found = profile(bundle, inputs)
    return {"instructions": found.instructions or 0, "cycles": found.cycles or 0}
