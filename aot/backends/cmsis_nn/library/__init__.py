"""Library mode (`--kernels library`): layers are computed by calls of Arm's CMSIS-NN, which the firmware links.

Enters: nothing. Leaves: the library's rows (`aot/backends/library`). Invariant: a row that drafts a call has TFLite Micro's bytes by every
release named.
"""

from __future__ import annotations

from aot.backends.cmsis_nn.library.contractions import draft_convolution, draft_dense, draft_depthwise
from aot.backends.cmsis_nn.library.others import draft_add, draft_average_pool, draft_max_pool, draft_mul, draft_softmax
from aot.backends.cmsis_nn.library.svdf import draft_svdf
from aot.backends.library import Function, Library
from aot.bundle import LibraryNotes
from aot.graph.ir import Site
from aot.target import Target


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
NOTES = LibraryNotes("CMSIS-NN", "4.0.0 to 7.0.0", "built for this CPU without CMSIS_NN_USE_SINGLE_ROUNDING", "docs/library.md")
CMSIS_NN = Library(NOTES, FUNCTIONS)
