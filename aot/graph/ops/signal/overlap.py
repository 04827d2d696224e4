"""SignalOverlapAdd: frames of a stream added where they overlap, int16 (each sum saturated) and float32.

The sums still to be finished are a memory. Source: tflite-micro, signal/micro/kernels/overlap_add.cc, signal/src/overlap_add.cc.
"""

from __future__ import annotations

import numpy as np

from aot.graph.expr import Const, Expr, Load, add, affine, axis, cast, clamp, integer, real
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Memory, Operator
from aot.graph.ops import checks
from aot.graph.ops.signal.memory import MAX_SAMPLES, history, memory_shapes, require_rows, row_axes
from aot.graph.ops.signal.options import Options, option, options_of, read_options
from aot.graph.primitive import Map
from aot.graph.support import micro

DTYPES = {0: DType.FLOAT32, 7: DType.INT16}
"""By TFLite's number, which the option T holds."""
MAX_OVERLAP = 32
"""How many frames may cover one sample."""


def _memories(options: Options, inputs: tuple[Value | None, ...]) -> tuple[Memory, ...]:
    """The samples of a frame after its first step."""
    data = inputs[0] if inputs else None
    if data is None or len(data.shape) < 2:
        return ()
    return history(inputs, data.shape[-1] - max(options.get("frame_step"), 1), 2)


def _infer(site: Site) -> tuple[Shape, ...]:
    step, shape = option(site, "frame_step", 1, MAX_SAMPLES), require_rows(site, 2)
    *outer, frames, size = shape
    if step > size:
        raise site.error(f"its frame_step {step} is more than the {size} samples of its frames")
    if -(-size // step) > MAX_OVERLAP:
        raise site.error(f"more than {MAX_OVERLAP} of its frames overlap: they have {size} samples, its frame_step is {step}")
    return (*outer, frames * step), *memory_shapes(site, _memories(options_of(site), site.inputs), 1, 1)


def _check(site: Site) -> None:
    checks.require_dtype(site, site.input(0), *DTYPES.values())
    checks.require_same_dtype(site, site.output, site.input(0))
    if DTYPES.get(number := options_of(site).get("T")) is not site.input(0).dtype:
        raise site.error(f"its option T is {number}, which does not say {site.input(0).dtype}")


def _compute(site: Site, data: np.ndarray, *kept: np.ndarray) -> tuple[np.ndarray, ...]:
    (*outer, frames, size), step = data.shape, option(site, "frame_step", 1)
    sums = np.zeros((*outer, size), np.float32 if data.dtype.kind == "f" else np.int32)
    sums[..., : size - step] = kept[0] if kept else 0
    out = np.zeros((*outer, frames, step), data.dtype)
    for number in range(frames):
        with np.errstate(all="ignore"):
            sums += data[..., number, :]
        if data.dtype.kind != "f":
            sums = np.clip(sums, -32768, 32767)
        out[..., number, :] = sums[..., :step]
        sums = np.concatenate([sums[..., step:], np.zeros((*outer, step), sums.dtype)], -1)
    return (out.reshape(*outer, frames * step), *(sums[..., : size - step].astype(data.dtype) for _ in kept))


def _lower(site: Site, lowering: Lowering) -> None:
    """The first step of each frame into the output; what would be the steps after the last frame into the memory."""
    data, nodes, step = site.input(0), (site.node.index,), option(site, "frame_step", 1)
    *outer, frames, _ = data.shape
    rank = len(outer)
    rows = row_axes(rank)
    place = affine({rank: step, rank + 1: 1})
    lowering.append(Map(site.output.name, (*outer, frames, step), _sum(site, None), (*rows, place), nodes=nodes))
    if len(site.inputs) > 1:
        lowering.append(Map(site.outputs[1].name, site.outputs[1].shape, _sum(site, frames), nodes=nodes))


def _sum(site: Site, frame: int | None) -> Expr:
    """What frames add up to at a sample after the start of one frame (None: of the first axis after the rows, `frame`: of that one).

    Sums are made in the order of the frames, after what the memory holds. Outside a frame or the memory is 0, which changes no sum.
    """
    data, step = site.input(0), option(site, "frame_step", 1)
    rank, size = len(data.shape) - 2, data.shape[-1]
    rows, sample = row_axes(rank), rank + 1 if frame is None else rank
    zero = Const(0, data.dtype)

    def wide(x: Expr) -> Expr:
        return x if data.dtype is DType.FLOAT32 else cast(x, DType.INT32)

    total: Expr = real(0.0) if data.dtype is DType.FLOAT32 else integer(0)
    if len(site.inputs) > 1:
        place = affine({rank: step, sample: 1}) if frame is None else axis(rank, 1, frame * step)
        total = wide(Load(site.input(1).name, (*rows, place), data.dtype, zero))
    for back in range(-(-size // step) - 1, -1 if frame is None else 0, -1):
        which = axis(rank, 1, -back) if frame is None else affine({}, frame - back)
        if frame is not None and frame < back:
            continue
        total = add(total, wide(Load(data.name, (*rows, which, axis(sample, 1, back * step)), data.dtype, zero)))
        total = total if data.dtype is DType.FLOAT32 else clamp(total, -32768, 32767)
    return cast(total, data.dtype)


OPERATORS = (
    Operator(
        "SignalOverlapAdd", "CUSTOM", read_options("T", "frame_step"), _infer, _check, _compute, _lower, memories=_memories
    ).supports(micro("int16, float32"), notes="The unfinished sums are state; int16 sums saturate."),
)
