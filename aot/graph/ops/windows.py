"""Sliding windows along one axis: convolutions and pools see height and width as two of these.

Enters: sizes, stride, dilation, padding from the file. Leaves: `Slide` (output size, padding before, index maps, valid ranges).
Invariant: sizes are at least 1, so that every output position exists; what does not fit is a `site.error`.
"""

from __future__ import annotations

from dataclasses import dataclass

from aot.graph.expr import Affine, affine
from aot.graph.ir import Site

PADDINGS = ("same", "valid")
"""Paddings, by TFLite's number."""

MAX_SPAN = 1 << 24
"""The longest reach of a window, in elements: positions then stay far inside int32."""

Padding = str | tuple[int, int, int, int]
"""A name of PADDINGS, or explicit zeros (real value 0) at top, bottom, left, right."""


def padding_name(code: int) -> str:
    return PADDINGS[code] if 0 <= code < len(PADDINGS) else f"padding {code}"


@dataclass(frozen=True)
class Slide:
    """A window of `kernel` taps, `dilation` apart, moved by `stride` over `size` elements after `before` ones of padding."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    out: int

    def index(self, out_axis: int, window_axis: int) -> Affine:
        """Where output position `out_axis` reads at tap `window_axis`."""
        return affine({out_axis: self.stride, window_axis: self.dilation}, -self.before)

    @property
    def leaves(self) -> bool:
        """Whether any tap of any output position lies outside the input."""
        last = (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation - self.before
        return self.before > 0 or last >= self.size

    @property
    def taps(self) -> range:
        """The taps that lie inside the input for some output position."""
        first = max(0, -(((self.out - 1) * self.stride - self.before) // self.dilation))
        return range(first, min(self.kernel, (self.size - 1 + self.before) // self.dilation + 1))

    def reach(self, tap: int) -> tuple[slice, slice]:
        """The output positions whose `tap` lies inside the input, and the input positions they read there."""
        offset = tap * self.dilation - self.before
        first = max(0, -(offset // self.stride))
        end = min(self.out, (self.size - 1 - offset) // self.stride + 1)
        if end <= first:
            return slice(0, 0), slice(0, 0)
        start = first * self.stride + offset
        return slice(first, end), slice(start, start + (end - 1 - first) * self.stride + 1, self.stride)


def slides(
    site: Site,
    sizes: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    padding: Padding,
) -> tuple[Slide, Slide]:
    """The slides over height and width.

    Source: tflite-micro, tensorflow/lite/kernels/padding.h, ComputeOutSize and ComputePaddingWithOffset.
    """
    if isinstance(padding, str) and padding not in PADDINGS:
        raise site.error(f"{padding} is not supported", "supported: same, valid")
    if min(stride) < 1 or min(dilation) < 1 or min(kernel) < 1:
        raise site.error(f"kernel {_pair(kernel)}, stride {_pair(stride)} and dilation {_pair(dilation)} must be at least 1")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    if max(spans) > MAX_SPAN:
        raise site.error(
            f"kernel {_pair(kernel)} with dilation {_pair(dilation)} spans {max(spans)} elements, more than {MAX_SPAN}"
        )
    explicit = (None, None) if isinstance(padding, str) else (padding[:2], padding[2:])
    pads = [pad or _pad(*sizes) for pad, *sizes in zip(explicit, sizes, kernel, stride, dilation, (padding == "same",) * 2)]
    found = tuple(_slide(*sizes) for sizes in zip(sizes, kernel, stride, dilation, pads))
    if found[0].out < 1 or found[1].out < 1:
        raise site.error(f"the kernel {_pair(kernel)} with dilation {_pair(dilation)} is larger than the input {_pair(sizes)}")
    return found[0], found[1]


def _pad(size: int, kernel: int, stride: int, dilation: int, is_same: bool) -> tuple[int, int]:
    """Padding before and after; SAME puts the odd element after."""
    if not is_same:
        return 0, 0
    out = -(-size // stride)
    total = max((out - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def _slide(size: int, kernel: int, stride: int, dilation: int, pad: tuple[int, int]) -> Slide:
    span = (kernel - 1) * dilation + 1
    return Slide(size, kernel, stride, dilation, pad[0], max((size + sum(pad) - span) // stride + 1, 0))


def _pair(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]}x{sizes[1]}"
