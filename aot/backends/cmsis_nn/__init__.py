"""The `cmsis-nn` back end: our own int8 kernels for Cortex-M cores with the DSP extension (SMLAD).

Enters: nothing. Leaves: `BACKEND`, its table of kernels. Cores without the extension are declined with a sentence; the generic
emitter takes them.
"""

from __future__ import annotations

from aot.backends.cmsis_nn.convolution import claim_convolution, claim_dense, claim_pointwise
from aot.backends.cmsis_nn.depthwise import claim_depthwise
from aot.lower.implementation import Backend, Kernel

KERNELS = (
    Kernel("conv 1x1", claim_pointwise, "int8 1x1 convolution, two channels a word, four pixels at a time", ("conv",)),
    Kernel("conv", claim_convolution, "int8 convolution of any kernel, stride, dilation and padding", ("conv", "depthwise")),
    Kernel("depthwise", claim_depthwise, "int8 depthwise convolution; 3x3 two rows at a time", ("depthwise",)),
    Kernel("dense", claim_dense, "int8 fully connected layer on any number of rows", ("dense",)),
)
BACKEND = Backend(
    "cmsis-nn", KERNELS, default_cpu="cortex-m4", summary="our own int8 kernels for Cortex-M, specialised to each layer"
)
