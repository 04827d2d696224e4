"""Models of uint8 layers one behind another, whose weights have a zero point, and some of them nine bits without it.

Enters: a seed. Leaves: .tflite bytes. Layers: convolutions, depthwise ones, dense ones, pools, paddings, sums, concatenations.
"""

from __future__ import annotations

import numpy as np

from tests.builder import ModelBuilder
from tests.one_operator import _spatial

SCALE = 0.05


class Network:
    """A model under construction. beyond: how many weights of a layer are beyond int8 when their zero point is taken off."""

    def __init__(self, seed: int, beyond: int = 2) -> None:
        self.m, self.rng, self.beyond = ModelBuilder(), np.random.default_rng(seed), beyond
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.zero_points: dict[int, int] = {}

    def activation(self, shape, zero_point: int | None = None) -> int:
        zero_point = int(self.rng.integers(0, 256)) if zero_point is None else zero_point
        number = self.m.tensor(f"a{len(self.shapes)}", shape, "uint8", scale=SCALE, zero_point=zero_point)
        self.shapes[number], self.zero_points[number] = tuple(shape), zero_point
        return number

    def weights(self, shape) -> int:
        zero_point = int(self.rng.choice([60, 100, 128, 150, 200]))
        centred = self.rng.integers(-50, 51, shape)
        if zero_point != 128:
            at = self.rng.integers(0, centred.size, self.beyond)
            centred.reshape(-1)[at] = 255 - zero_point if zero_point < 128 else -zero_point
        return self.m.constant((centred + zero_point).astype(np.uint8), scale=0.01, zero_point=zero_point)

    def bias(self, channels: int) -> int:
        return self.m.constant(self.rng.integers(-2000, 2000, channels).astype(np.int32), scale=SCALE * 0.01, zero_point=0)

    def conv(self, x: int, channels: int, kernel=(1, 1), stride=1, padding="SAME", activation="NONE") -> int:
        n, _, _, depth = self.shapes[x]
        size = _spatial(self.shapes[x], kernel, (stride, stride), (1, 1), padding)
        out = self.activation((n, *size, channels))
        options = {"stride_h": stride, "stride_w": stride, "padding": padding, "fused_activation_function": activation}
        options |= {"dilation_h_factor": 1, "dilation_w_factor": 1}
        self.m.operator("CONV_2D", [x, self.weights((channels, *kernel, depth)), self.bias(channels)], [out], options)
        return out

    def depthwise(self, x: int, multiplier: int = 1, stride: int = 1) -> int:
        n, _, _, depth = self.shapes[x]
        size, channels = _spatial(self.shapes[x], (3, 3), (stride, stride), (1, 1), "SAME"), depth * multiplier
        out = self.activation((n, *size, channels))
        options = {"stride_h": stride, "stride_w": stride, "padding": "SAME", "depth_multiplier": multiplier}
        options |= {"dilation_h_factor": 1, "dilation_w_factor": 1}
        self.m.operator("DEPTHWISE_CONV_2D", [x, self.weights((1, 3, 3, channels)), self.bias(channels)], [out], options)
        return out

    def dense(self, x: int, units: int) -> int:
        n, depth = self.shapes[x][0], int(np.prod(self.shapes[x][1:]))
        out = self.activation((n, units))
        self.m.operator("FULLY_CONNECTED", [x, self.weights((units, depth)), self.bias(units)], [out], {})
        return out

    def pool(self, x: int, op: str = "MAX_POOL_2D") -> int:
        n, h, w, c = self.shapes[x]
        out = self.activation((n, h // 2, w // 2, c), self.zero_points[x])
        options = {"stride_h": 2, "stride_w": 2, "padding": "VALID", "filter_height": 2, "filter_width": 2}
        self.m.operator(op, [x], [out], options)
        return out

    def reshape(self, x: int, shape) -> int:
        out = self.activation(shape, self.zero_points[x])
        self.m.operator("RESHAPE", [x, self.m.constant(np.array(shape, np.int32))], [out], {"new_shape": list(shape)})
        return out

    def add(self, a: int, b: int) -> int:
        out = self.activation(self.shapes[a])
        self.m.operator("ADD", [a, b], [out], {})
        return out

    def join(self, a: int, b: int) -> int:
        """CONCATENATION along the channels; b is made to have a's quantisation."""
        shape = (*self.shapes[a][:3], self.shapes[a][3] + self.shapes[b][3])
        out, same = self.activation(shape, self.zero_points[a]), self.activation(self.shapes[b], self.zero_points[a])
        self.m.operator("QUANTIZE", [b], [same], {})
        self.m.operator("CONCATENATION", [a, same], [out], {"axis": 3})
        return out


def small_network(seed: int, beyond: int = 2) -> bytes:
    """Every kind of layer once, and a branch."""
    net = Network(seed, beyond)
    x = net.activation((1, 8, 8, int(net.rng.choice([1, 3, 4]))))
    y = net.conv(x, int(net.rng.choice([4, 6, 8])), (3, 3), activation="RELU6")
    y = net.depthwise(y, int(net.rng.choice([1, 2])))
    z = net.conv(y, net.shapes[y][3])
    y = net.conv(net.pool(net.add(y, z)), 8, (1, 1))
    y = net.join(y, net.depthwise(y))
    y = net.conv(net.depthwise(y, stride=2), 12)
    y = net.conv(net.pool(y, "AVERAGE_POOL_2D"), 10)
    y = net.dense(net.reshape(y, (1, 10)), 5)
    return net.m.build([x], [y, z])
