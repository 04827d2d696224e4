"""Grows a net node by node, all of it drawn by Hypothesis, so that Hypothesis can shrink it.

Enters: `draw`. Leaves: a `Net`. An operator's case asks `value` for each operand: with `reuse` it may get a value that is there already
(so that graphs branch and share), else it gets a new model input or constant. Invariant: shapes have at most MOST elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from hypothesis import strategies as st

from tests.differential.net import Fill, Net, Node, Tensor

MOST = 300
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33)
SCALES = (0.05, 1.0, 1 / 256, 0.5, 0.003, 1.7, 0.1)
ZERO_POINTS = {
    "int8": (0, -128, 127, -3, 1, -1),
    "uint8": (128, 0, 255, 3),
    "int16": (0,),
}
QUANTISED = ("int8", "int16", "uint8")
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


class Grower:
    """A net while it grows. Cases call the methods without underscore."""

    def __init__(self, draw: Callable, reuse: bool) -> None:
        self.draw, self.reuse = draw, reuse
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.others: list[Net] = []

    def __getitem__(self, number: int) -> Tensor:
        return self.tensors[number]

    def scale(self, number: int) -> float:
        """The one scale of a quantised operand; 0 where there is none."""
        scale = self.tensors[number].scale
        return float(scale) if isinstance(scale, (int, float)) else 0.0

    # What is drawn

    def pick(self, *options):
        """One of the options; the first is the simplest."""
        return self.draw(st.sampled_from(options))

    def whole(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def coin(self) -> bool:
        return self.draw(st.booleans())

    def seldom(self) -> bool:
        return self.pick(False, False, False, False, True)

    def permutation(self, count: int) -> tuple[int, ...]:
        return tuple(self.draw(st.permutations(range(count))))

    def shape(self, low: int = 1, high: int = 4, most: int = MOST) -> tuple[int, ...]:
        """A shape of `low` to `high` axes; a rank of 4 has a batch of 1 or 2."""
        sizes: list[int] = []
        for axis in range(rank := self.whole(low, high)):
            left = most // max(prod(sizes), 1)
            options = [size for size in ((1, 2) if rank == 4 and axis == 0 else SIZES) if size <= max(left, 1)]
            sizes.append(self.pick(*options))
        return tuple(sizes)

    def quantisation(self, dtype: str) -> tuple[float | None, int]:
        """(scale, zero point) for a dtype, any that converters make and the ends; (None, 0) where there is none."""
        if dtype not in QUANTISED:
            return None, 0
        return self.pick(*SCALES), self.pick(*ZERO_POINTS[dtype])

    def fill(self, dtype: str) -> Fill:
        """A rule for an input's numbers: the whole range, all at one end, or only the ends."""
        seed = self.whole(0, 1 << 16)
        if dtype == "bool":
            return Fill(seed)
        if dtype == "float32":
            return self.pick(Fill(seed), Fill(seed), Fill(seed), Fill(seed, -100, 100), Fill(seed, -1e-3, 1e-3), Fill(seed, 0, 0))
        low, high = Fill().limits(dtype)
        return self.pick(Fill(seed), Fill(seed), Fill(seed), Fill(seed, low, low), Fill(seed, high, high), Fill(seed, ends=True))

    # What grows

    def value(
        self,
        dtypes: str | Sequence[str],
        *,
        rank: tuple[int, int] | int = (1, 4),
        shape: tuple[int, ...] | None = None,
        like: Tensor | None = None,
        fits: Callable[[Tensor], bool] = lambda tensor: True,
        fill: Fill | None = None,
        constant: bool = False,
        most: int = MOST,
    ) -> int:
        """An operand: of one of `dtypes`, of this rank or shape, with the quantisation of `like`, that `fits`.

        fill: the numbers it must have, so that it is always new. constant: it may be a constant.
        """
        wanted = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
        low, high = (rank, rank) if isinstance(rank, int) else rank

        def right(tensor: Tensor) -> bool:
            same = like is None or (tensor.scale, tensor.zero_point) == (like.scale, like.zero_point)
            good = tensor.dtype in wanted and same and prod(tensor.shape) <= most and not tensor.variable and tensor.axis == 0
            return good and (tensor.shape == shape if shape is not None else low <= len(tensor.shape) <= high) and fits(tensor)

        there = [n for n, tensor in enumerate(self.tensors) if right(tensor) and not isinstance(tensor.scale, tuple)]
        if self.reuse and there and fill is None and not self.seldom():
            return self.pick(*reversed(there))
        dtype = like.dtype if like is not None else self.pick(*wanted)
        scale, zero_point = (like.scale, like.zero_point) if like is not None else self.quantisation(dtype)
        size = shape if shape is not None else self.shape(low, high, most)
        rule = fill or self.fill(dtype)
        made = Tensor(size, dtype, scale, zero_point, data=rule if constant and self.seldom() else None, fill=rule)
        return self.add(made if made.data is None else replace(made, fill=Fill()), made.data is None)

    def add(self, tensor: Tensor, is_input: bool = False) -> int:
        """A tensor's number."""
        self.tensors.append(tensor)
        if is_input:
            self.inputs.append(len(self.tensors) - 1)
        return len(self.tensors) - 1

    def integers(self, values: Sequence[int] | Sequence[list[int]] | int, dtype: str = "int32") -> int:
        """A constant of integers: axes, sizes, paddings."""
        array = np.asarray(values)
        return self.add(Tensor(array.shape, dtype, data=array.tolist() if array.ndim != 1 else tuple(map(int, array))))

    def node(self, op: str, inputs: Sequence[int], outputs: Tensor | Sequence[Tensor], options: Mapping | None = None) -> None:
        """Append a node that makes these outputs."""
        made = [self.add(tensor) for tensor in ([outputs] if isinstance(outputs, Tensor) else outputs)]
        self.nodes.append(Node(op, tuple(inputs), tuple(made), options))

    def like(self, number: int, shape: Sequence[int] | None = None) -> Tensor:
        """An output with the dtype and quantisation of an operand (and its shape, unless another is given)."""
        x = self[number]
        return Tensor(x.shape if shape is None else tuple(shape), x.dtype, x.scale, x.zero_point)

    def output(self, shape: Sequence[int], dtype: str) -> Tensor:
        """An output with a quantisation of its own."""
        return Tensor(tuple(shape), dtype, *self.quantisation(dtype))

    # What leaves

    def mark(self) -> tuple[int, int, int, int]:
        """A state to return to."""
        return len(self.tensors), len(self.nodes), len(self.inputs), len(self.others)

    def back(self, mark: tuple[int, int, int, int]) -> None:
        """Forget everything since `mark`."""
        for held, length in zip((self.tensors, self.nodes, self.inputs, self.others), mark):
            del held[length:]

    def net(self, outputs: Sequence[int] | None = None) -> Net:
        """The net; without `outputs`, what the last node makes."""
        last = self.nodes[-1].outputs if outputs is None else tuple(outputs)
        return Net(tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), last, tuple(self.others))
