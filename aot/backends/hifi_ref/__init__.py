"""The `hifi-ref` back end: Tensilica's HiFi DSPs, for which LLVM has no public code generator.

Enters: nothing. Leaves: `BACKEND`, which has no kernels of its own, and `HIFI_NN`, the rows by which layers become calls of Cadence's NN
library. Invariant: a row that drafts a call has TFLite Micro's bytes, by what the library's public source rounds and saturates; the
reference in `reference/` computes just that, and stands for the library wherever that is not at hand.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from aot.backends.hifi_ref.check import check_file
from aot.backends.hifi_ref.contractions import (
    CLAMP,
    CONVOLVE,
    DENSE,
    DEPTHWISE,
    POINTWISE,
    draft_convolution,
    draft_dense,
    draft_depthwise,
)
from aot.backends.hifi_ref.others import draft_add, draft_average_pool, draft_max_pool, draft_mul, draft_softmax, draft_sub
from aot.backends.hifi_ref.prototypes import declarations
from aot.backends.library import Function, Library
from aot.bundle import LibraryNotes
from aot.lower.implementation import Backend

FUNCTIONS = (
    Function("CONV_2D", (CONVOLVE, POINTWISE, CLAMP), draft_convolution),
    Function("DEPTHWISE_CONV_2D", (DEPTHWISE, CLAMP), draft_depthwise),
    Function("FULLY_CONNECTED", (DENSE, POINTWISE, CLAMP), draft_dense),
    Function("AVERAGE_POOL_2D", ("xa_nn_avgpool_8", CLAMP), draft_average_pool),
    Function("MAX_POOL_2D", ("xa_nn_maxpool_8", CLAMP), draft_max_pool),
    Function("ADD", ("xa_nn_elm_add_asym8sxasym8s_asym8s",), draft_add),
    Function("SUB", ("xa_nn_elm_sub_asym8sxasym8s_asym8s",), draft_sub),
    Function("MUL", ("xa_nn_elm_mul_asym8sxasym8s_asym8s",), draft_mul),
    Function("SOFTMAX", ("xa_nn_vec_softmax_asym8s_asym8s",), draft_softmax),
)


@cache
def reference_files() -> tuple[tuple[str, bytes], ...]:
    """The reference's sources, by name."""
    folder = files(__name__) / "reference"
    return tuple((path.name, path.read_bytes()) for path in sorted(folder.iterdir(), key=lambda each: each.name))


NOTES = LibraryNotes(
    "Cadence's NN library",
    "4.1.0",
    "built without SINGLE_ROUNDING (its default)",
    "docs/hifi.md",
    reference_files(),
)
HIFI_NN = Library(NOTES, FUNCTIONS, check_file, declarations())
BACKEND = Backend(
    "hifi-ref", (), default_cpu="hifi4", summary="C for Tensilica HiFi DSPs, whose layers call Cadence's NN library", portable=True
)
