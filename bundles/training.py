"""Training of the sample models: a small convolutional network in numpy, with results that do not depend on the machine.

Enters: arrays of inputs and targets, a list of layers. Leaves: trained layers (float64 weights on a grid of 2**-16).
Invariant: every sum of products is exact. Operands are rounded to multiples of a power of two, few bits each, so that no partial
sum needs more than the 53 bits of a float64 (`check_exact`); then neither BLAS, SIMD width nor thread count can change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

WEIGHT_BITS, ACTIVATION_BITS, DELTA_BITS, EXP_BITS = 16, 10, 18, 20


def grid(array: np.ndarray, bits: int) -> np.ndarray:
    """`array` rounded to multiples of 2**-bits."""
    return np.rint(array * 2.0**bits) * 2.0**-bits


def dot(a: np.ndarray, b: np.ndarray, bits: int) -> np.ndarray:
    """a @ b, exactly. `bits` is the sum of the grids of `a` and `b`."""
    check_exact(a.shape[-1], a, b, bits)
    return a @ b


def einsum(subscripts: str, a: np.ndarray, b: np.ndarray, bits: int) -> np.ndarray:
    """As `dot`, for other sums of products."""
    left, _, right = subscripts.replace("->", ",").split(",")
    summed = [a.shape[i] for i, letter in enumerate(left) if letter not in right]
    check_exact(int(np.prod(summed)), a, b, bits)
    return np.einsum(subscripts, a, b)


def check_exact(terms: int, a: np.ndarray, b: np.ndarray, bits: int) -> None:
    """ArithmeticError if a partial sum of `terms` products might need rounding."""
    bound = terms * np.abs(a).max(initial=0) * np.abs(b).max(initial=0) * 2.0**bits
    if bound >= 2.0**53:
        raise ArithmeticError(f"a sum of {terms} products could be rounded: it may reach {bound:.3g} units")


def windows(x: np.ndarray, size: int) -> np.ndarray:
    """(N, H, W, C) -> (N, H, W, C, size, size): what each position of a SAME convolution of odd `size` sees."""
    edge = size // 2
    return sliding_window_view(np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0))), (size, size), axis=(1, 2))


class Layer(Protocol):
    """A layer. `forward` keeps what `backward` needs; `backward` returns the gradient of its input and fills `gradients`."""

    weights: list[np.ndarray]
    gradients: list[np.ndarray]

    def forward(self, x: np.ndarray) -> np.ndarray: ...

    def backward(self, delta: np.ndarray) -> np.ndarray: ...


class Dense:
    """y = x @ W + b on the last axis; W is (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        self.weights = [uniform(rng, (inputs, outputs), inputs), np.zeros(outputs)]
        self.gradients: list[np.ndarray] = []

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return dot(x, self.weights[0], ACTIVATION_BITS + WEIGHT_BITS) + self.weights[1]

    def backward(self, delta: np.ndarray) -> np.ndarray:
        x, rows = self.x.reshape(-1, self.x.shape[-1]), delta.reshape(-1, delta.shape[-1])
        self.gradients = [dot(x.T, rows, ACTIVATION_BITS + DELTA_BITS), rows.sum(axis=0)]
        return dot(delta, self.weights[0].T, DELTA_BITS + WEIGHT_BITS)


class Conv(Dense):
    """SAME convolution, stride 1: a Dense layer over windows; W is (C * size * size, outputs)."""

    def __init__(self, size: int, channels: int, outputs: int, rng: np.random.Generator) -> None:
        super().__init__(channels * size * size, outputs, rng)
        self.size, self.channels = size, channels

    def forward(self, x: np.ndarray) -> np.ndarray:
        return super().forward(windows(x, self.size).reshape(*x.shape[:3], -1))

    def backward(self, delta: np.ndarray) -> np.ndarray:
        columns = super().backward(delta).reshape(*delta.shape[:3], self.channels, self.size, self.size)
        return scatter(columns)

    def kernel(self) -> np.ndarray:
        """The weights as TFLite wants them: (outputs, size, size, channels)."""
        return self.weights[0].T.reshape(-1, self.channels, self.size, self.size).transpose(0, 2, 3, 1)


class Depthwise:
    """SAME depthwise convolution of odd size, stride 1; W is (size * size, C)."""

    def __init__(self, size: int, channels: int, rng: np.random.Generator) -> None:
        self.size = size
        self.weights = [uniform(rng, (size * size, channels), size * size), np.zeros(channels)]
        self.gradients: list[np.ndarray] = []

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.columns = windows(x, self.size).reshape(*x.shape, -1)  # (N, H, W, C, K*K)
        return einsum("nhwck,kc->nhwc", self.columns, self.weights[0], ACTIVATION_BITS + WEIGHT_BITS) + self.weights[1]

    def backward(self, delta: np.ndarray) -> np.ndarray:
        self.gradients = [einsum("nhwck,nhwc->kc", self.columns, delta, ACTIVATION_BITS + DELTA_BITS), delta.sum(axis=(0, 1, 2))]
        columns = einsum("nhwc,kc->nhwck", delta, self.weights[0], DELTA_BITS + WEIGHT_BITS)
        return scatter(columns.reshape(*delta.shape, self.size, self.size))

    def kernel(self) -> np.ndarray:
        """The weights as TFLite wants them: (1, size, size, C)."""
        return self.weights[0].reshape(1, self.size, self.size, -1)


class Unweighted:
    """What layers without weights share."""

    def __init__(self) -> None:
        self.weights: list[np.ndarray] = []
        self.gradients: list[np.ndarray] = []


class Relu(Unweighted):
    def forward(self, x: np.ndarray) -> np.ndarray:
        self.positive = x > 0
        return np.where(self.positive, x, 0)

    def backward(self, delta: np.ndarray) -> np.ndarray:
        return np.where(self.positive, delta, 0)


class AveragePool(Unweighted):
    """Mean of 2x2 squares: (N, H, W, C) -> (N, H/2, W/2, C)."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        n, h, w, c = x.shape
        return x.reshape(n, h // 2, 2, w // 2, 2, c).sum(axis=(2, 4)) / 4

    def backward(self, delta: np.ndarray) -> np.ndarray:
        return delta.repeat(2, axis=1).repeat(2, axis=2) / 4


class Flatten(Unweighted):
    def forward(self, x: np.ndarray) -> np.ndarray:
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, delta: np.ndarray) -> np.ndarray:
        return delta.reshape(self.shape)


def uniform(rng: np.random.Generator, shape: Sequence[int], fan_in: int) -> np.ndarray:
    """He's uniform initialisation (He et al. 2015), on the weights' grid."""
    bound = np.sqrt(6.0 / fan_in)
    return grid(rng.uniform(-bound, bound, shape), WEIGHT_BITS)


def scatter(columns: np.ndarray) -> np.ndarray:
    """The gradient of `windows`: (N, H, W, C, K, K) -> (N, H, W, C)."""
    n, h, w, c, size, _ = columns.shape
    padded = np.zeros((n, h + size - 1, w + size - 1, c))
    for row in range(size):
        for column in range(size):
            padded[:, row : row + h, column : column + w] += columns[..., row, column]
    edge = size // 2
    return padded[:, edge : edge + h, edge : edge + w]


def predict(layers: Sequence[Layer], x: np.ndarray) -> list[np.ndarray]:
    """The output of every layer, activations on their grid; the last are logits (or the regression's value)."""
    outputs = []
    for layer in layers:
        x = grid(layer.forward(x), ACTIVATION_BITS)
        outputs.append(x)
    return outputs


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = grid(np.exp(logits - logits.max(axis=-1, keepdims=True)), EXP_BITS)
    return powers / powers.sum(axis=-1, keepdims=True)


def cross_entropy_delta(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Gradient of the mean cross entropy of integer `labels`, times the batch size."""
    return softmax(logits) - np.eye(logits.shape[-1])[labels]


def squared_error_delta(values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return values - targets


@dataclass(frozen=True)
class Schedule:
    """How to train: `rates` is one learning rate for each epoch."""

    rates: Sequence[float]
    batch: int = 64
    seed: int = 1
    weight_decay: float = 0.0


def train(layers: Sequence[Layer], x: np.ndarray, y: np.ndarray, delta: Callable, schedule: Schedule) -> None:
    """Adam (Kingma & Ba 2015) on shuffled batches; changes the layers' weights in place, and leaves them on their grid."""
    rng = np.random.default_rng(schedule.seed)
    exact = [[weight.copy() for weight in layer.weights] for layer in layers]
    means = [[np.zeros_like(weight) for weight in layer.weights] for layer in layers]
    squares = [[np.zeros_like(weight) for weight in layer.weights] for layer in layers]
    fade_mean = fade_square = 1.0
    for rate in schedule.rates:
        order = rng.permutation(len(x))
        for start in range(0, len(x), schedule.batch):
            chosen = order[start : start + schedule.batch]
            _backward(layers, delta(predict(layers, x[chosen])[-1], y[chosen]))
            fade_mean, fade_square = fade_mean * 0.9, fade_square * 0.999
            for i, layer in enumerate(layers):
                for j, gradient in enumerate(layer.gradients):
                    slope = gradient / len(chosen) + schedule.weight_decay * exact[i][j]
                    means[i][j] = 0.9 * means[i][j] + 0.1 * slope
                    squares[i][j] = 0.999 * squares[i][j] + 0.001 * slope * slope
                    step = means[i][j] / (1 - fade_mean) / (np.sqrt(squares[i][j] / (1 - fade_square)) + 1e-8)
                    exact[i][j] = exact[i][j] - rate * step
                    layer.weights[j] = grid(exact[i][j], WEIGHT_BITS)


def _backward(layers: Sequence[Layer], delta: np.ndarray) -> None:
    for layer in reversed(layers):
        delta = layer.backward(grid(delta, DELTA_BITS))
