"""Bundles with every kind of interface that a bundle may have, of small models that are in this repository.

Enters: a feature's name. Leaves: the bundle. Invariant: each feature gives some entry a parameter, or a function, that no other gives it.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from aot.bundle import Bundle
from aot.driver import Emit, Options, compile
from tests.graph import stateful
from tests.shared import ROOT

DIGITS, SINE = ROOT / "bundles/digits/digits.tflite", ROOT / "bundles/sine/sine.tflite"
FEATURES: dict[str, dict] = {
    "plain": {},
    "io in the workspace": {"io": "workspace"},
    "separate weights": {"weights": "separate"},
    "rows": {"stream_input": True},
    "rows, io in the workspace": {"stream_input": True, "io": "workspace"},
    "pages": {"page_weights_nbytes": 4096},
    "regions": {"regions": {"fast": 512, "slow": 8192}},
    "weights in a region": {"regions": {"fast": 4096, "slow": 8192}, "weights_in": "fast"},
    "weights in a region, from separate ones": {
        "regions": {"fast": 4096, "slow": 8192},
        "weights_in": "fast",
        "weights": "separate",
    },
    "threads": {"threads": 2},
    "hooks": {"instrument": "hooks"},
    "cycles": {"instrument": "cycles", "cycle_counter": 0xE000_1004},
    "least memory": {"optimize": "ram"},
    "several models": {"share_workspace": True},
    "state": {},
    "state, separate weights": {"weights": "separate"},
}


@cache
def bundle_of(feature: str, cpu: str | None = "cortex-m4", emit: Emit = "object") -> Bundle:
    """Compile it (for this machine: None): digits, both samples, or a model that remembers."""
    options = Options(target=cpu, emit=emit, **FEATURES[feature])
    if feature == "several models":
        return compile([DIGITS, SINE], options=options)
    if not feature.startswith("state"):
        return compile(DIGITS, options=options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "keeps.tflite")
        initial = stateful.initialiser(1, 2, 3, 4)
        path.write_bytes(stateful.model(stateful.accumulator, stateful.adds(1.0), initial, signatures=[("main", 0), ("init", 1)]))
        return compile(path, options=options)
