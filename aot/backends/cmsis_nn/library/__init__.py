"""Library mode (`--kernels library`): layers are computed by calls of Arm's CMSIS-NN, which the firmware links.

Enters: the table of operators, a target, a back end. Leaves: the table with lowerings that call the library where it computes TFLite
Micro's bytes; the back end with a kernel that emits such calls, and otherwise says why a node is none.
Invariant: what is lowered to a call and what is said to be none come from the same rows, `FUNCTIONS`. The choice is made for each node
of the graph, before anything is fused: the library's functions do whole operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from aot.backends.cmsis_nn.library.call import Draft, LibraryCall, append_call, claim_call, library_call
from aot.backends.cmsis_nn.library.contractions import draft_convolution, draft_dense, draft_depthwise
from aot.backends.cmsis_nn.library.others import draft_add, draft_average_pool, draft_max_pool, draft_mul, draft_softmax
from aot.backends.cmsis_nn.library.svdf import draft_svdf
from aot.errors import CompileError
from aot.graph.ir import Graph, Site
from aot.graph.operator import Lowering, Operator
from aot.graph.primitive import Call, Primitive
from aot.lower.implementation import Backend, Implementation, Kernel
from aot.lower.program import Program
from aot.target import Target


@dataclass(frozen=True)
class Function:
    """A row: how nodes of an operator become a call. draft(site, target): the call, or the sentence why there is none."""

    operator: str
    names: tuple[str, ...]
    draft: Callable[[Site, Target], Draft | str]


def _no_lstm(site: Site, target: Target) -> str:
    return (
        "arm_lstm_unidirectional_s8 and _s16 up to 7.0.0 start from zeros at every run; a model's states go on from the run before"
    )


FUNCTIONS = (
    Function("CONV_2D", ("arm_convolve_wrapper_s8",), draft_convolution),
    Function("DEPTHWISE_CONV_2D", ("arm_depthwise_conv_wrapper_s8", "arm_convolve_wrapper_s8"), draft_depthwise),
    Function("FULLY_CONNECTED", ("arm_fully_connected_s8", "arm_convolve_wrapper_s8"), draft_dense),
    Function("AVERAGE_POOL_2D", ("arm_avgpool_s8",), draft_average_pool),
    Function("MAX_POOL_2D", ("arm_max_pool_s8",), draft_max_pool),
    Function("ADD", ("arm_elementwise_add_s8", "arm_elementwise_add_s16"), draft_add),
    Function("MUL", ("arm_elementwise_mul_s8", "arm_elementwise_mul_s16"), draft_mul),
    Function("SOFTMAX", ("arm_softmax_s8", "arm_softmax_s8_s16", "arm_softmax_s16"), draft_softmax),
    Function("SVDF", ("arm_svdf_state_s16_s8",), draft_svdf),
    Function("UNIDIRECTIONAL_SEQUENCE_LSTM", (), _no_lstm),
)
_ROWS = {row.operator: row for row in FUNCTIONS}
_NAME = "library"


def with_library(operators: Mapping[str, Operator], target: Target) -> Mapping[str, Operator]:
    """The operators, of which those with a row lower to calls where they can."""

    def lower(original: Operator, row: Function, site: Site, lowering: Lowering) -> None:
        draft = row.draft(site, target)
        if isinstance(draft, str):
            original.lower(site, lowering)
        else:
            append_call(draft, lowering)

    changed = {
        row.operator: replace(operators[row.operator], lower=partial(lower, operators[row.operator], row)) for row in FUNCTIONS
    }
    return {**operators, **changed}


def library_backend(backend: Backend, graph: Graph, target: Target) -> Backend:
    """The back end, asked after the library, for a graph that was lowered by `with_library`'s table."""
    refusals = {node.index: _refusal(graph.site(node), target) for node in graph.nodes}

    def claim(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
        if library_call(instruction) is not None:
            return claim_call(program, instruction, target)
        found = [refusals[number] for number in instruction.nodes if refusals.get(number)]
        return found[0] if found else "no function of CMSIS-NN is called for it"

    return replace(backend, kernels=(Kernel(_NAME, claim, "calls of CMSIS-NN"), *backend.kernels))


def _refusal(site: Site, target: Target) -> str:
    row = _ROWS.get(site.node.op)
    if row is None:
        return f"no function of CMSIS-NN is called for {site.node.op}"
    draft = row.draft(site, target)
    return draft if isinstance(draft, str) else ""


def require_free(name: str, custom: Iterable[str]) -> None:
    """CompileError for a bundle whose own names could be the library's, and for functions of the firmware that have its names."""
    names = {function for row in FUNCTIONS for function in row.names}
    if any(function.lower().startswith(f"{name.lower()}_") for function in names):
        raise CompileError(f"a bundle that calls CMSIS-NN can't be called '{name}'", hint="--name gives it another")
    if taken := sorted(names & set(custom)):
        raise CompileError(f"'{taken[0]}' is a function of CMSIS-NN", hint="give the firmware's function another name")


def library_functions(instructions: Iterable[Primitive]) -> tuple[str, ...]:
    """The library's functions that instructions call, sorted."""
    calls = (each for each in instructions if isinstance(each, Call) and library_call(each) is not None)
    return tuple(sorted({call.kernel for call in calls}))


__all__ = ["FUNCTIONS", "LibraryCall", "library_backend", "library_call", "library_functions", "require_free", "with_library"]
