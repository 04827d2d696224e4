"""How often scores name the right class.

Enters: scores of each sample, labels. Leaves: `Accuracy`. Invariant: of equal scores the lower class number counts as the higher, as argmax has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aot.errors import CompileError


@dataclass(frozen=True)
class Accuracy:
    """right: (k, samples whose label is among the k highest scores)."""

    samples: int
    right: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return ", ".join(f"top-{k} {right / self.samples:.2%} ({right} of {self.samples})" for k, right in self.right)


def accuracy(scores: Sequence[np.ndarray], labels: np.ndarray, tops: Sequence[int]) -> Accuracy:
    """Of an output of every sample, which holds a score for each class (dimensions of 1 apart), and a label for each sample."""
    ranks: list[int] = []
    for number, (each, label) in enumerate(zip(scores, labels.tolist(), strict=True)):
        if each.size < 2 or max(each.shape) != each.size:
            raise CompileError(f"labels need a score for each class in the first output, which has shape {list(each.shape)}")
        if not 0 <= label < each.size:
            raise CompileError(f"sample {number} has label {label}, and there are {each.size} classes")
        flat = each.reshape(-1)
        ranks.append(int((flat > flat[label]).sum() + (flat[:label] == flat[label]).sum()))
    return Accuracy(len(ranks), tuple((k, sum(rank < k for rank in ranks)) for k in tops))
