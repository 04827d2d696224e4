"""Nets of image layers, larger than the other cases: several rows, odd sizes, branches, so that layers run by rows.

Enters: a seed. Leaves: a `Net`, the same for the same seed. Invariant: one batch, at most MOST elements a value; most outputs are spread
over their type's range, so that a wrong element shows behind further layers.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot, prod, sqrt
from random import Random

from tests.differential.grower import QUANTISED, ZERO_POINTS, Grower
from tests.differential.net import Fill, Net, Tensor
from tests.differential.reduce import alone, cone, trimmed
from tests.differential.strategies import accepted
from tests.differential.table import CASES

MOST = 12_000
DTYPES = (*["int8"] * 15, "uint8", "uint8", "int16", "int16", "float32")
LAYERS = (
    *["CONV_2D"] * 6, *["DEPTHWISE_CONV_2D"] * 4, *["AVERAGE_POOL_2D", "MAX_POOL_2D"] * 2, *["ADD"] * 4, *["CONCATENATION"] * 2,
    "MUL", "SUB", "MAXIMUM", "RELU", "LOGISTIC", "HARD_SWISH", "LEAKY_RELU", "PRELU", "PAD", "PADV2", "MIRROR_PAD", "RESIZE_NEAREST_NEIGHBOR",
    "RESIZE_BILINEAR", "TRANSPOSE_CONV", "SLICE", "STRIDED_SLICE", "SPLIT", "TRANSPOSE", "REVERSE_V2", "MEAN", "QUANTIZE", "SOFTMAX",
)  # fmt: skip
_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")


class Images(Grower):
    """Grows a net around one image. Operands are values that are there already, mostly the newest."""

    def __init__(self, seed: int) -> None:
        super().__init__(lambda _: None, reuse=True)
        self.random = Random(seed)
        self.dtype = self.pick(*DTYPES)
        shape = (1, self.whole(5, 33), self.whole(1, 20), self.pick(1, 1, 2, 3, 3, 4, 5, 8, 16))
        self.add(Tensor(shape, self.dtype, *self.quantisation(self.dtype), fill=Fill(self.whole(0, 999))), is_input=True)

    # What is drawn

    def pick(self, *options):
        return self.random.choice(options)

    def whole(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def coin(self) -> bool:
        return self.random.random() < 0.5

    def seldom(self) -> bool:
        return self.random.random() < 0.2

    def permutation(self, count: int) -> tuple[int, ...]:
        return tuple(self.random.sample(range(count), count))

    def shape(self, low: int = 1, high: int = 4, most: int = MOST) -> tuple[int, ...]:
        """Of what is new and has no shape given: it is small."""
        return tuple(self.whole(1, 4) for _ in range(self.whole(low, high)))

    def quantisation(self, dtype: str) -> tuple[float | None, int]:
        if dtype not in QUANTISED:
            return None, 0
        low, high = (-128, 127) if dtype == "int8" else (0, 255)
        return self.pick(0.05, 0.05, 0.1, 1 / 256), self.pick(*ZERO_POINTS[dtype], 0 if dtype == "int16" else self.whole(low, high))

    # What grows

    def value(
        self, dtypes, *, rank=(1, 4), shape=None, like=None, fits=lambda tensor: True, fill=None, constant=False, most=MOST
    ) -> int:
        wanted = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
        low, high = (rank, rank) if isinstance(rank, int) else rank

        def right(tensor: Tensor) -> bool:
            same = like is None or (tensor.scale, tensor.zero_point) == (like.scale, like.zero_point)
            good = tensor.dtype in wanted and same and tensor.data is None and prod(tensor.shape) <= MOST
            return good and (tensor.shape == shape if shape is not None else low <= len(tensor.shape) <= high) and fits(tensor)

        there = [n for n, tensor in enumerate(self.tensors) if right(tensor)]
        if there and fill is None:
            return there[-1] if self.random.random() < 0.6 else self.pick(*there)
        dtype = self.dtype if self.dtype in wanted else wanted[0]
        scale, zero_point = (like.scale, like.zero_point) if like is not None else self.quantisation(dtype)
        rule = fill or Fill(self.whole(0, 999))
        made = Tensor(shape if shape is not None else self.shape(low, high), dtype, scale, zero_point)
        return self.add(replace(made, data=rule)) if constant else self.add(replace(made, fill=rule), is_input=True)

    def node(self, op, inputs, outputs, options=None) -> None:
        if isinstance(outputs, Tensor) and outputs.dtype in QUANTISED and (scale := self._spread(op, inputs)):
            outputs = replace(outputs, scale=scale)
        super().node(op, inputs, outputs, options)

    def _spread(self, op: str, inputs) -> float:
        """A scale that spreads what comes out over its type, from operands that are spread over theirs; 0: any."""
        wide = 256 if self.dtype == "int16" else 1
        if op in _WEIGHTED:
            x, w = (inputs[2], inputs[1]) if op == "TRANSPOSE_CONV" else (inputs[0], inputs[1])
            taps = prod(self[w].shape) // self[w].shape[3 if op == "DEPTHWISE_CONV_2D" else 0]
            scales = self[w].scale
            mean = sum(scales) / len(scales) if isinstance(scales, tuple) else float(scales or 0)
            return float(f"{self.scale(x) * mean * sqrt(max(taps, 1)) * 100:.3g}")
        if op in ("ADD", "SUB"):
            return float(f"{hypot(self.scale(inputs[0]), self.scale(inputs[1])):.3g}")
        if op == "MUL":
            return float(f"{self.scale(inputs[0]) * self.scale(inputs[1]) * 60 * wide:.3g}")
        return 0.0

    def step(self, op: str) -> None:
        """One more node, unless our compiler refuses it, it is too large, or it would mostly want further inputs."""
        mark = self.mark()
        try:
            CASES[op].grow(self, op)
        except (IndexError, ValueError, ZeroDivisionError):  # nothing there to pick from
            self.back(mark)
            return
        if len(self.nodes) == mark[1]:
            self.back(mark)
            return
        made = self.nodes[-1]
        large = any(prod(self[n].shape) > MOST or 0 in self[n].shape for n in made.outputs)
        foreign = len(self.inputs) > mark[2] and (len(self.inputs) > 2 or not self.seldom())
        if large or foreign or not accepted(alone(self.net(), made)):
            self.back(mark)

    def end(self) -> None:
        """What classifiers end with, or nothing."""
        if self.seldom():
            return
        last = max(n for node in self.nodes for n in node.outputs)
        if self.coin() and len(self[last].shape) == 4:
            self.node(
                "MEAN",
                [last, self.integers((1, 2))],
                self.like(last, (self[last].shape[0], 1, 1, self[last].shape[3])),
                {"keep_dims": True},
            )
            last = len(self.tensors) - 1
        if self.coin():
            flat = (1, prod(self[last].shape))
            self.node("RESHAPE", [last, self.integers(flat)], self.like(last, flat), {"new_shape": list(flat)})
            self.step("FULLY_CONNECTED")


def image_net(seed: int, most_layers: int = 10) -> Net:
    """Some layers on an image; what nothing reads is an output, and now and then another value."""
    grower = Images(seed)
    count = grower.whole(2, most_layers)
    for _ in range(4 * most_layers):
        if len(grower.nodes) >= count:
            break
        grower.step(grower.pick(*LAYERS))
    if not grower.nodes:
        grower.step("RELU")
    grower.end()
    made = [n for node in grower.nodes for n in node.outputs]
    read = {n for node in grower.nodes for n in node.inputs}
    ends = [n for n in made if n not in read]
    kept = [n for n in ends if n == ends[-1] or grower.coin()]
    more = [grower.pick(*made)] if grower.seldom() else []
    return cone(trimmed(grower.net(list(dict.fromkeys((*kept, *more))))))
