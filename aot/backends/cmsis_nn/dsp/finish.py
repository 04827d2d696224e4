"""What is fused behind a convolution or dense layer, applied to a block of finished outputs in a tight loop.

Enters: requantised outputs of some pixels, side by side in scratch, and where they go. Leaves: the fused expression's values, stored.
Invariant: an element is written as soon as it is known, after all that it reads, so that an operand may be overwritten in place.

Inside a product's core the fused expression would need registers that the accumulators have; here it has them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aot.backends.cmsis_nn.dsp.ending import Output
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.llvm.types import I32, Value


@dataclass(frozen=True)
class Finish:
    """A block's place: `count` pixels from `column` on, the first one's first channel at `out`. axes: image and row of a
    convolution."""

    out: Value
    count: int
    column: Value
    axes: Mapping[int, Value]


def finish_block(dsp: Dsp, output: Output, stage: Value, block: Finish) -> None:
    """Apply the fused expression to the outputs at `stage`, pixel by pixel."""
    layer = output.layer
    channels, step = len(layer.bias), layer.out.pixel * output.nbytes
    if not layer.rest_axes and layer.out.pixel == channels:
        _run(dsp, output, stage, block.out, block.count * channels, {})
        return
    with dsp.repeat(block.count, [stage, block.out, block.column]) as carried:
        here, out, column = carried.values
        _run(dsp, output, here, out, channels, _pixel_axes(dsp, output, block, column))
        carried.next = (dsp.at(here, channels * layer.dtype.nbytes), dsp.at(out, step), dsp.builder.add(column, I32(1)))


def _run(dsp: Dsp, output: Output, source: Value, out: Value, count: int, axes: Mapping[int, Value]) -> None:
    """`count` elements that lie side by side, four, two or one a turn."""
    at_once = next(number for number in (4, 2, 1) if count % number == 0)
    nbytes = output.layer.dtype.nbytes
    channel_axis = len(output.layer.instruction.space) - 1
    numbered = channel_axis in output.layer.rest_axes
    beside = output.beside(out)
    with dsp.repeat(count // at_once, [source, out, *beside, *([I32(0)] if numbered else [])]) as carried:
        here, there, *others = carried.values
        operands, channel = others[: len(beside)], others[len(beside) :]
        for number in range(at_once):
            own = {channel_axis: dsp.builder.add(channel[0], I32(number))} if numbered else {}
            loaded = output.load_beside(operands, number)
            value = output.finished(dsp.element(here, number * nbytes, nbytes), {**axes, **own}, loaded)
            dsp.function.store_at(output.name, dsp.at(there, number * output.nbytes), value)
        steps = [dsp.at(operand, at_once * size) for operand, size in zip(operands, output.beside_nbytes, strict=True)]
        following = [dsp.builder.add(channel[0], I32(at_once))] if numbered else []
        carried.next = (dsp.at(here, at_once * nbytes), dsp.at(there, at_once * output.nbytes), *steps, *following)


def _pixel_axes(dsp: Dsp, output: Output, block: Finish, column: Value) -> dict[int, Value]:
    """The iteration axes of a pixel, the channel's apart."""
    if output.layer.geometry.kind != "dense":
        return {**block.axes, 2: column}
    return output.row_axes(column)
