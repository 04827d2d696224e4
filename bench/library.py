"""CMSIS-NN's functions in our bundles: library mode, linked with CMSIS-NN and counted in the same emulators.

Enters: a model's name, a CPU. Leaves: instructions of one inference, or None where the downloaded part of CMSIS-NN lacks a function.
Invariant: what is counted beside the library's functions is ours, and little: activations that move no data, the calls.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from aot.driver import Options, compile
from aot.run import run_bundle
from aot.run.linking import link
from bench.measure import Figures, golden_inputs, model_path
from tests.cmsis_nn_sources import cmsis_nn, run_tool

_REST = Path(__file__).resolve().parent.parent / "tests" / "backends" / "library_rest.c"
_SMALL = ("arm_softmax_s8",)  # of some ten values: what stands in for it does not matter
_THERE = ("arm_convolve_wrapper_s8", "arm_depthwise_conv_wrapper_s8", "arm_fully_connected_s8", "arm_avgpool_s8", "arm_max_pool_s8")


def library_figures(name: str, cpu: str) -> Figures | None:
    """Instructions of a real model whose layers are CMSIS-NN's. Unavailable where that can't be had."""
    bundle = compile(model_path(name), cpu, options=Options(io="workspace", kernels="library"))
    if not bundle.library or set(bundle.library) - {*_THERE, *_SMALL}:
        return None
    library = cmsis_nn(bundle.target)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "library.o")
        include = [f"-isystem{path}" for path in library.include]
        loops = "-fno-tree-loop-distribute-patterns"  # else memcpy calls itself
        parts = (str(_REST), str(library.object), "-lgcc")
        run_tool("arm-none-eabi-gcc", *library.flags, loops, *include, "-r", "-nostdlib", *parts, "-o", str(whole))
        bundle = link(bundle, [whole])
    return {"instructions": run_bundle(bundle, golden_inputs(name, bundle)).instructions or 0}
