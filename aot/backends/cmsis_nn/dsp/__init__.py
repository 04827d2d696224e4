"""Kernels for cores with the DSP extension (SMLAD), such as Cortex-M4, M7 and M33; the rows of the back end's table that are theirs.

Enters: nothing. Leaves: `KERNELS`. Invariant: every kernel here declines, with a sentence, on a core without the extension.
"""

from __future__ import annotations

from aot.backends.cmsis_nn.dsp.convolution import claim_convolution, claim_dense, claim_pointwise
from aot.backends.cmsis_nn.dsp.dense_rows import claim_dense_rows
from aot.backends.cmsis_nn.dsp.depthwise import claim_depthwise
from aot.backends.cmsis_nn.dsp.elementwise import claim_product
from aot.backends.cmsis_nn.dsp.lines import claim_lines
from aot.backends.cmsis_nn.dsp.matmul import claim_matmul
from aot.backends.cmsis_nn.dsp.pool import claim_pool
from aot.backends.cmsis_nn.dsp.rows import claim_rows
from aot.backends.cmsis_nn.dsp.single_rows import claim_single_rows
from aot.backends.cmsis_nn.dsp.sums import claim_sums
from aot.backends.cmsis_nn.dsp.winograd import claim_winograd
from aot.backends.layers.turned import either_way
from aot.lower.implementation import Kernel

KERNELS = (
    Kernel(
        "conv 1x1",
        either_way(claim_pointwise),
        "int8 and int16 1x1 convolution, two channels a word, four pixels at a time",
        ("conv",),
    ),
    Kernel("conv rows", either_way(claim_rows), "int8 convolution over input rows that are expanded once", ("conv", "depthwise")),
    Kernel(
        "conv",
        either_way(claim_convolution),
        "int8 and int16 convolution of any kernel, stride, dilation and padding",
        ("conv", "depthwise"),
    ),
    Kernel("winograd", claim_winograd, "int8 3x3 convolution of stride 1 with a third of the multiplications", ("conv",)),
    Kernel("product", claim_product, "int8 products element by element", ("map",)),
    Kernel("sums", either_way(claim_sums), "sums of int8 over all pixels, eight channels at a time, row after row", ("reduce",)),
    Kernel("pool", either_way(claim_pool), "int8 average and maximum pools and means, four channels a word", ("reduce",)),
    Kernel(
        "depthwise",
        either_way(claim_depthwise),
        "int8 and int16 depthwise convolution; 3x3 two rows at a time",
        ("depthwise", "conv"),
    ),
    Kernel("lines", either_way(claim_lines), "int8 depthwise convolution of one column, four channels abreast", ("depthwise",)),
    Kernel(
        "single rows",
        either_way(claim_single_rows),
        "int8 depthwise convolution of three rows, one at a time, without scratch",
        ("depthwise",),
    ),
    Kernel("dense rows", claim_dense_rows, "sums of an int8 fully connected layer, row after row of an image", ("dense",)),
    Kernel("dense", claim_dense, "int8 and int16 fully connected layer on any number of rows", ("dense",)),
    Kernel("matmul", claim_matmul, "int8 and int16 products of two activations, two columns at a time", ("contract", "dense")),
)
