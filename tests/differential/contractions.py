"""Cases of operators with weights: convolutions, dense layers, matrix products."""

from __future__ import annotations

import numpy as np

from tests.differential.case import SUM, cases
from tests.differential.grower import ACTIVATIONS, Grower
from tests.differential.net import Fill, Tensor

INPUTS = ("int8", "float32", "int16", "uint8")


def window(g: Grower, shape: tuple[int, ...]) -> tuple[dict, tuple[int, int], tuple[int, int]]:
    """Options, kernel and stride over an image; VALID only where the kernel fits."""
    kernel = (g.pick(1, 2, 3, 5, 4), g.pick(1, 2, 3, 5, 4))
    stride = (g.pick(1, 1, 2, 3), g.pick(1, 1, 2, 3))
    fits = kernel[0] <= shape[1] and kernel[1] <= shape[2]
    padding = g.pick("VALID", "SAME") if fits else "SAME"
    options = {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "fused_activation_function": g.pick(*ACTIVATIONS),
    }
    return options, kernel, stride


def spatial(shape, kernel, stride, dilation, padding: str) -> tuple[int, int]:
    """Output height and width."""
    sizes = zip(shape[1:3], kernel, stride, dilation)
    return tuple(-(-size // s) if padding == "SAME" else -(-(size - (k - 1) * d) // s) for size, k, s, d in sizes)  # type: ignore[return-value]


def weights(g: Grower, x: int, shape: tuple[int, ...], axis: int, per_channel: bool = True) -> int:
    """Constant weights that suit the input: int8 (a few times int4) with a scale for each channel, uint8 with one, float32."""
    rule = Fill(g.whole(0, 999))
    dtype = g[x].dtype
    if dtype == "float32":
        return g.add(Tensor(shape, "float32", data=rule))
    if dtype == "uint8":
        return g.add(Tensor(shape, "uint8", g.pick(0.01, 0.002, 0.5), g.pick(128, 0, 255), data=rule))
    kind = g.pick("int8", "int8", "int8", "int4") if dtype == "int8" else "int8"
    if not per_channel or g.coin():
        return g.add(Tensor(shape, kind, g.pick(0.01, 0.5, 1e-5), data=_symmetric(rule, kind)))
    rng = np.random.default_rng(rule.seed)
    scales = tuple(float(number) for number in np.round(rng.uniform(0.002, 0.05, shape[axis]), 4))
    return g.add(Tensor(shape, kind, scales, axis=axis, data=_symmetric(rule, kind)))


def _symmetric(rule: Fill, dtype: str) -> Fill:
    return Fill(rule.seed, -127 if dtype == "int8" else -7, 127 if dtype == "int8" else 7)


def bias(g: Grower, x: int, w: int, count: int) -> int:
    """A bias of the scale that input and weights imply; small, or over much of its range."""
    if g[x].dtype == "float32":
        return g.add(Tensor((count,), "float32", data=Fill(g.whole(0, 999))))
    dtype = g.pick("int64", "int32") if g[x].dtype == "int16" else "int32"
    scales = np.atleast_1d(np.asarray(g[w].scale, np.float32)) * np.float32(g.scale(x))
    scale = [float(number) for number in scales]
    most = g.pick(2000, 1 << 20, 0)
    rule = Fill(g.whole(0, 999), -most, most)
    return g.add(Tensor((count,), dtype, tuple(scale) if len(scale) > 1 else scale[0], data=rule))


def conv(g: Grower, op: str) -> None:
    x = g.value(INPUTS, rank=4)
    options, kernel, stride = window(g, g[x].shape)
    dilation = _dilation(g, g[x].shape, kernel, options)
    depth, filters = g[x].shape[3], g.pick(1, 2, 3, 4, 8, 17)
    groups = g.pick(*[n for n in (1, 1, 2, 3) if depth % n == 0 and filters % n == 0]) if g.seldom() else 1
    w = weights(g, x, (filters, *kernel, depth // groups), 0)
    shape = (g[x].shape[0], *spatial(g[x].shape, kernel, stride, dilation, options["padding"]), filters)
    _layer(g, op, x, w, shape, {**options, "dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1]})


def depthwise(g: Grower, op: str) -> None:
    x = g.value(INPUTS, rank=4)
    options, kernel, stride = window(g, g[x].shape)
    dilation = _dilation(g, g[x].shape, kernel, options)
    times = g.pick(1, 1, 2, 3)
    channels = g[x].shape[3] * times
    w = weights(g, x, (1, *kernel, channels), 3)
    shape = (g[x].shape[0], *spatial(g[x].shape, kernel, stride, dilation, options["padding"]), channels)
    factors = {"dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1], "depth_multiplier": times}
    _layer(g, op, x, w, shape, {**options, **factors})


def _dilation(g: Grower, shape, kernel, options) -> tuple[int, int]:
    """1, or 2 where the wider kernel still fits."""
    wide = [options["padding"] == "SAME" or 2 * k - 1 <= size for k, size in zip(kernel, shape[1:3])]
    return tuple(2 if fits and g.seldom() else 1 for fits in wide)  # type: ignore[return-value]


def _layer(g: Grower, op: str, x: int, w: int, shape: tuple[int, ...], options: dict) -> None:
    """The node; a bias or none. DEPTHWISE_CONV_2D without one has two inputs: TFLite Micro crashes on its -1."""
    absent = [] if op == "DEPTHWISE_CONV_2D" else [-1]
    third = absent if g.seldom() else [bias(g, x, w, shape[-1])]
    g.node(op, [x, w, *third], g.output(shape, g[x].dtype), options)


def dense(g: Grower, op: str) -> None:
    x = g.value(INPUTS)
    depth, units = g[x].shape[-1], g.pick(1, 2, 3, 4, 8, 17)
    keep = g.coin()
    w = weights(g, x, (units, depth), 0)
    rows = int(np.prod(g[x].shape[:-1]))
    shape = (*g[x].shape[:-1], units) if keep else (rows, units)
    _layer(g, op, x, w, shape, {"fused_activation_function": g.pick(*ACTIVATIONS), "keep_num_dims": keep})


def matrices(g: Grower, op: str) -> None:
    """BATCH_MATMUL: both sides may be turned; batches broadcast."""
    left = g.value(("int8", "float32", "int16"), rank=(2, 4))
    *batch, rows, depth = g[left].shape
    turned_left, turned_right = g.coin(), g.coin()
    if turned_left:
        rows, depth = depth, rows
    columns = g.pick(1, 2, 3, 5, 8)
    batches = [size if g.coin() else 1 for size in batch]
    shape = (*batches, columns, depth) if turned_right else (*batches, depth, columns)
    right = g.value(g[left].dtype, shape=shape, constant=True)
    g.node(op, [left, right], g.output((*batch, rows, columns), g[left].dtype), {"adj_x": turned_left, "adj_y": turned_right})


def transposed_conv(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "int16", "uint8"), rank=4, most=80)
    n, h, w, depth = g[x].shape
    kernel, stride, filters = (g.pick(1, 2, 3, 4), g.pick(1, 2, 3)), (g.pick(1, 2, 3), g.pick(1, 2)), g.pick(1, 2, 3, 5)
    padding = g.pick("VALID", "SAME")
    sizes = zip((h, w), kernel, stride)
    height, width = (size * s if padding == "SAME" else (size - 1) * s + k for size, k, s in sizes)
    shape = (n, height, width, filters)
    kernel_ = weights(g, x, (filters, *kernel, depth), 0)
    options = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
    more = [] if g.coin() else [bias(g, x, kernel_, filters)]
    g.node(op, [g.integers(shape), kernel_, x, *more], g.output(shape, g[x].dtype), options)


CASES = (
    *cases(conv, "CONV_2D", bound=SUM),
    *cases(depthwise, "DEPTHWISE_CONV_2D", bound=SUM),
    *cases(dense, "FULLY_CONNECTED", bound=SUM),
    *cases(matrices, "BATCH_MATMUL", bound=SUM),
    *cases(transposed_conv, "TRANSPOSE_CONV", bound=SUM),
)
