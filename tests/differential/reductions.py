"""Cases of operators over axes and windows that have no weights: sums, extremes, softmax, pools."""

from __future__ import annotations

from tests.differential.case import SUM, ULPS, cases
from tests.differential.contractions import spatial, window
from tests.differential.grower import Grower
from tests.differential.net import Tensor


def reduction(g: Grower, op: str) -> None:
    """Some axes, in any order and of any sign; keep_dims or not. A constant keeps its scale: LiteRT copies one of a single element as it is."""
    boolean = op in ("REDUCE_ANY", "REDUCE_ALL")
    x = g.value("bool" if boolean else ("int8", "float32", "int16", "int32", "uint8", "int64"))
    rank = len(g[x].shape)
    axes = g.permutation(rank)[: g.whole(1, rank)]
    keep = g.coin() or len(axes) == rank
    shape = [1 if n in axes else size for n, size in enumerate(g[x].shape) if keep or n not in axes]
    given = [n - rank if g.seldom() else n for n in axes]
    same = op.startswith("REDUCE_M") or g[x].data is not None or g.coin()
    made = g.like(x, shape) if same else g.output(shape, g[x].dtype)
    g.node(op, [x, g.integers(given[0] if len(given) == 1 and g.coin() else given)], made, {"keep_dims": keep})


def position(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "int16", "int32", "uint8", "bool"))
    axis = g.whole(-len(g[x].shape), len(g[x].shape) - 1)
    shape = [size for n, size in enumerate(g[x].shape) if n != axis % len(g[x].shape)]
    dtype = g.pick("int32", "int32", "int64")
    g.node(op, [x, g.integers((axis,) if g.coin() else axis)], Tensor(tuple(shape), dtype), {"output_type": dtype.upper()})


def largest(g: Grower, op: str) -> None:
    x = g.value(("float32", "int8", "int32", "int16", "uint8", "int64"))
    count = g.whole(1, g[x].shape[-1])
    shape = (*g[x].shape[:-1], count)
    g.node(op, [x, g.integers(count)], [g.like(x, shape), Tensor(shape, "int32")], {})


def cumulative(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "int32", "int64"))
    axis = g.whole(-len(g[x].shape), len(g[x].shape) - 1)
    made = g.output(g[x].shape, g[x].dtype)
    g.node(op, [x, g.integers(axis)], made, {"exclusive": g.coin(), "reverse": g.coin()})


def softmax(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "int16", "uint8"))
    dtype = g[x].dtype
    shape, wide = g[x].shape, dtype == "int8" and g.seldom()
    made = {
        "int8": Tensor(shape, "int16", 1 / 65536, -32768) if wide else Tensor(shape, "int8", 1 / 256, -128),
        "uint8": Tensor(shape, "uint8", 1 / 256, 0),
        "int16": Tensor(shape, "int16", 1 / 32768, 0),
        "float32": Tensor(shape, "float32"),
    }[dtype]
    g.node(op, [x], made, {"beta": g.pick(1.0, 1.0, 0.5, 2.0)})


def log_softmax(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "uint8"))
    dtype = g[x].dtype
    quantised = {"int8": (16 / 256, 127), "uint8": (16 / 256, 255), "float32": (None, 0)}[dtype]
    g.node(op, [x], Tensor(g[x].shape, dtype, *quantised), {})


def l2_normalisation(g: Grower, op: str) -> None:
    x = g.value(("int8", "float32", "uint8"), rank=(2, 4))
    quantised = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "float32": (None, 0)}[g[x].dtype]
    g.node(op, [x], Tensor(g[x].shape, g[x].dtype, *quantised), {"fused_activation_function": "NONE"})


def pool(g: Grower, op: str) -> None:
    """Windows up to the image, and beyond it with SAME padding."""
    x = g.value(("int8", "float32", "int16", "uint8") if op != "L2_POOL_2D" else "float32", rank=4)
    options, kernel, stride = window(g, g[x].shape)
    shape = (g[x].shape[0], *spatial(g[x].shape, kernel, stride, (1, 1), options["padding"]), g[x].shape[3])
    g.node(op, [x], g.like(x, shape), {**options, "filter_height": kernel[0], "filter_width": kernel[1]})


CASES = (
    *cases(reduction, "MEAN", "SUM", "REDUCE_PROD", bound=SUM),
    *cases(reduction, "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"),
    *cases(position, "ARG_MAX", "ARG_MIN", jumps=True),
    *cases(largest, "TOPK_V2", jumps=True),
    *cases(cumulative, "CUMSUM", bound=SUM),
    *cases(softmax, "SOFTMAX", bound=SUM),
    *cases(log_softmax, "LOG_SOFTMAX", bound=SUM),
    *cases(l2_normalisation, "L2_NORMALIZATION", bound=ULPS),
    *cases(pool, "AVERAGE_POOL_2D", "L2_POOL_2D", bound=SUM),
    *cases(pool, "MAX_POOL_2D"),
)
