"""What a model takes when every layer runs whole: what running by rows is compared with.

Enters: a model and options. Leaves: bytes. Invariant: the kernels are those of balanced code.
"""

from __future__ import annotations

from dataclasses import replace

from aot.driver import Options, lower_model, resolve_target
from aot.graph.ir import Model
from aot.lower.select import decide
from aot.offers import offers
from aot.planning import layer_by_layer


def layer_by_layer_nbytes(model: Model, options: Options) -> int:
    """Bytes of the workspace, the largest of all entries; what takes a pushed input's rows runs by rows."""
    plain = replace(options, optimize="balanced", max_workspace_nbytes=None)
    target, backend = resolve_target(plain)
    lowered = lower_model("model", model, model.graphs, target, backend, plain, _silent)
    found = offers(lowered.programs, lowered.backends, target, plain)
    plans = [layer_by_layer(*each, plain, _silent) for each in zip(found.programs, decide(found.usual, found.goal), strict=True)]
    return max(plan.workspace_nbytes for plan in plans)


def _silent(stage: str, result: object) -> None:
    """An observer that looks away."""
