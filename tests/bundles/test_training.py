"""The training of the sample models: gradients are gradients, and no sum is ever rounded."""

from __future__ import annotations

import numpy as np
import pytest

from bundles.convert import Scale, calibrated, convert
from bundles.training import (
    ACTIVATION_BITS,
    WEIGHT_BITS,
    AveragePool,
    Conv,
    Dense,
    Depthwise,
    Flatten,
    Layer,
    Relu,
    Unweighted,
    dot,
    grid,
    predict,
    scatter,
    windows,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "layer",
    [Dense(3, 4, RNG), Conv(3, 3, 4, RNG), Conv(1, 3, 2, RNG), Depthwise(3, 3, RNG), AveragePool(), Flatten(), Relu()],
    ids=lambda layer: type(layer).__name__,
)
def test_backward_is_the_gradient_of_forward(layer: Layer) -> None:
    """Against differences: layers are linear (ReLU: away from 0), so that these are exact up to rounding."""
    x = grid(RNG.uniform(-1, 1, (2, 4, 4, 3)), ACTIVATION_BITS)
    delta = grid(RNG.uniform(-1, 1, layer.forward(x).shape), ACTIVATION_BITS)
    direction = grid(RNG.uniform(-1, 1, x.shape), ACTIVATION_BITS) * 2.0**-8
    change = (layer.forward(x + direction) - layer.forward(x)) * delta
    layer.forward(x)
    assert change.sum() == pytest.approx((layer.backward(delta) * direction).sum(), rel=0.05, abs=1e-3)
    for position, gradient in enumerate(layer.gradients):
        before = layer.weights[position].copy()
        step = grid(RNG.uniform(-1, 1, before.shape), WEIGHT_BITS)
        output = layer.forward(x)
        layer.weights[position] = before + step
        change = ((layer.forward(x) - output) * delta).sum()
        layer.weights[position] = before
        assert change == pytest.approx((gradient * step).sum())


def test_windows_and_scatter_are_transposes() -> None:
    x, y = RNG.integers(-9, 9, (2, 5, 4, 3)), RNG.integers(-9, 9, (2, 5, 4, 3, 3, 3))
    assert (windows(x, 3) * y).sum() == (x * scatter(y)).sum()


def test_a_sum_that_could_be_rounded_is_refused() -> None:
    a = np.full((1, 1 << 12), 2.0**10)
    with pytest.raises(ArithmeticError, match="a sum of 4096 products could be rounded"):
        dot(a, a.T, 30)
    assert dot(a, a.T, 20) == 2.0**32


def test_calibration_covers_the_values_and_zero() -> None:
    assert calibrated(np.array([0.0, 2.55])) == Scale(float(np.float32(2.55 / 255)), -128)
    assert calibrated(np.array([-5.1, 0.0])).zero_point == 127
    assert calibrated(np.array([1.0, 2.0])).zero_point == -128


class Sine(Unweighted):
    """A layer that no TFLite operator computes."""

    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.sin(x)

    def backward(self, delta: np.ndarray) -> np.ndarray:
        return delta


def test_a_layer_without_an_operator_is_refused() -> None:
    with pytest.raises(TypeError, match="no TFLite operator for Sine"):
        convert([Sine()], np.zeros((1, 4)), ("x", "y"), "", None, softmax=False)


def test_predict_returns_every_layer() -> None:
    layers: list[Layer] = [Dense(2, 3, RNG), Relu(), Dense(3, 1, RNG)]
    outputs = predict(layers, grid(RNG.uniform(-1, 1, (5, 2)), ACTIVATION_BITS))
    assert [array.shape for array in outputs] == [(5, 3), (5, 3), (5, 1)]
    assert np.array_equal(outputs[1], np.maximum(outputs[0], 0))
