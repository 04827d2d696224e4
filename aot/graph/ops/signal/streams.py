"""SignalFramer, SignalStacker, SignalDelay: pieces of a stream that overlap from one run to the next.

What TFLite Micro keeps in circular buffers are memories here: the samples that later runs still need, oldest first, and a count of
what has come. Outputs that are not valid yet, which TFLite Micro does not write, are made of zeros and what has come.
Source: tflite-micro, signal/micro/kernels/{framer,stacker,delay}.cc, signal/src/circular_buffer.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.graph.expr import (
    Affine,
    Binary,
    Const,
    Expr,
    Load,
    Select,
    add,
    affine,
    axis,
    fixed,
    integer,
    sub,
)
from aot.graph.ir import DType, Shape, Site, Value
from aot.graph.operator import Lowering, Memory, Operator
from aot.graph.ops import checks
from aot.graph.ops.signal.memory import MAX_SAMPLES, history, memory_shapes, require_rows, row_axes
from aot.graph.ops.signal.options import Options, option, options_of, read_options
from aot.graph.primitive import Map
from aot.graph.support import micro

BOOL, INT16, INT32 = DType.BOOL, DType.INT16, DType.INT32


def _require_int16(site: Site) -> None:
    for value in (site.input(0), site.outputs[0]):
        checks.require_dtype(site, value, INT16)


@dataclass(frozen=True)
class _Joined:
    """Appends Maps over rows of samples: first the history and the input as one buffer, then what is read from it."""

    site: Site
    lowering: Lowering
    history: Value | None

    @property
    def outer(self) -> Shape:
        return self.site.input(0).shape[:-1]

    @property
    def rank(self) -> int:
        return len(self.outer)

    @property
    def kept(self) -> int:
        return self.history.shape[-1] if self.history else 0

    def append(self, out: str, space: Shape, value: Expr, store: Affine | None = None) -> None:
        where = () if store is None else (*row_axes(self.rank), store)
        self.lowering.append(Map(out, (*self.outer, *space), value, where, nodes=(self.site.node.index,)))

    def buffer(self) -> str:
        """History and input, side by side; the input itself where there is no history."""
        fresh = self.site.input(0)
        if self.history is None:
            return fresh.name
        name = self.lowering.temporary("joined", INT16, (*self.outer, self.kept + fresh.shape[-1]))
        for value, start in ((self.history, 0), (fresh, self.kept)):
            here = Load(value.name, row_axes(self.rank + 1), INT16)
            self.append(name, (value.shape[-1],), here, axis(self.rank, 1, start))
        return name

    def sample(self, buffer: str, place: Affine) -> Load:
        return Load(buffer, (*row_axes(self.rank), place), INT16)

    def keep(self, buffer: str, after: Value) -> None:
        """The new history: the last samples."""
        skipped = self.site.input(0).shape[-1]
        self.append(after.name, (self.kept,), self.sample(buffer, axis(self.rank, 1, skipped)))


def _scalar(site: Site, lowering: Lowering, out: Value, value: Expr) -> None:
    lowering.append(Map(out.name, out.shape, value, nodes=(site.node.index,)))


# SignalFramer: the last dimension in steps; each step ends one frame, which begins with the oldest sample kept. The second output says
# whether all frames are whole.


@dataclass(frozen=True)
class _Frames:
    """kept: samples of history. waiting: how many steps the first whole frame takes."""

    size: int
    step: int
    kept: int
    waiting: int


def _frames(options: Options) -> _Frames:
    """From a file's options, whatever they are: sizes below 1 count as 1."""
    size, step = max(options.get("frame_size"), 1), max(options.get("frame_step"), 1)
    steps = -(-size // step)
    if options.get("prefill"):
        return _Frames(size, step, max(size - step, 0), 1)
    return _Frames(size, step, (steps - 1) * step, steps)


def _framer_memories(options: Options, inputs: tuple[Value | None, ...]) -> tuple[Memory, ...]:
    frames = _frames(options)
    count = (Memory("steps", INT32, (1,)),) if frames.waiting > 1 else ()
    return (*history(inputs, frames.kept), *count)


def _infer_framer(site: Site) -> tuple[Shape, ...]:
    size, step = option(site, "frame_size", 1, MAX_SAMPLES), option(site, "frame_step", 1, MAX_SAMPLES)
    if option(site, "prefill", 0, 1) and step > size:
        raise site.error(f"its frame_step {step} is more than its frame_size {size}, which prefill can't make up for")
    frames = _frames(options_of(site))
    shape = require_rows(site, 1)
    kept = memory_shapes(site, _framer_memories(options_of(site), site.inputs), 1, 2)
    if shape[-1] % step:
        raise site.error(f"its rows have {shape[-1]} samples, no multiple of its frame_step {step}")
    return (*shape[:-1], shape[-1] // step, frames.size), (), *kept


def _check_valid(site: Site) -> None:
    _require_int16(site)
    checks.require_dtype(site, site.outputs[1], BOOL)


def _parts(frames: _Frames, arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """History and count of steps, where the node has them."""
    return (arrays[0] if frames.kept else None), (arrays[-1] if frames.waiting > 1 else None)


def _compute_framer(site: Site, data: np.ndarray, *memories: np.ndarray) -> tuple[np.ndarray, ...]:
    frames = _frames(options_of(site))
    before, steps = _parts(frames, memories)
    joined = data if before is None else np.concatenate([before, data], -1)
    count = data.shape[-1] // frames.step
    out = np.stack([joined[..., number * frames.step :][..., : frames.size] for number in range(count)], -2)
    kept = () if before is None else (joined[..., data.shape[-1] :].copy(),)
    if steps is None:
        return out, np.array(True), *kept
    return (
        out,
        np.array(int(steps[0]) + 1 >= frames.waiting),
        *kept,
        np.array([min(int(steps[0]) + count, frames.waiting)], np.int32),
    )


def _lower_framer(site: Site, lowering: Lowering) -> None:
    frames, memories = _frames(options_of(site)), len(site.inputs) - 1
    rows = _Joined(site, lowering, site.input(1) if frames.kept else None)
    joined, rank, count = rows.buffer(), rows.rank, site.input(0).shape[-1] // frames.step
    rows.append(site.output.name, (count, frames.size), rows.sample(joined, affine({rank: frames.step, rank + 1: 1})))
    if frames.kept:
        rows.keep(joined, site.outputs[2])
    valid: Expr = Const(True, BOOL)
    if frames.waiting > 1:
        steps = Load(site.input(memories).name, (fixed(0),), INT32)
        valid = Binary("ge", steps, integer(frames.waiting - 1))
        most = min(count, frames.waiting)
        _scalar(site, lowering, site.outputs[1 + memories], Binary("min", add(steps, integer(most)), integer(frames.waiting)))
    _scalar(site, lowering, site.outputs[1], valid)


# SignalDelay: the last dimension comes `delay_length` samples later, after zeros.


def _delay_memories(options: Options, inputs: tuple[Value | None, ...]) -> tuple[Memory, ...]:
    return history(inputs, options.get("delay_length"))


def _infer_delay(site: Site) -> tuple[Shape, ...]:
    option(site, "delay_length", 0, MAX_SAMPLES)
    shape = require_rows(site, 1)
    return (shape, *memory_shapes(site, _delay_memories(options_of(site), site.inputs), 1, 1))


def _compute_delay(site: Site, data: np.ndarray, *history: np.ndarray) -> tuple[np.ndarray, ...]:
    joined = np.concatenate([*history, data], -1)
    size = data.shape[-1]
    return (joined[..., :size].copy(), *(joined[..., size:].copy() for _ in history))


def _lower_delay(site: Site, lowering: Lowering) -> None:
    rows = _Joined(site, lowering, site.input(1) if len(site.inputs) > 1 else None)
    joined = rows.buffer()
    rows.append(site.output.name, site.input(0).shape[-1:], rows.sample(joined, axis(rows.rank)))
    if rows.history:
        rows.keep(joined, site.outputs[1])


# SignalStacker: a frame with those before and after it, side by side, every `stacker_step` frames; the second output says whether it is
# complete. The first frame stands in for those before it.


@dataclass(frozen=True)
class _Stack:
    """In frames: width of the stack, how many come after the one it is for, how far it moves. channels: samples of a frame."""

    channels: int
    left: int
    width: int
    step: int


def _stack(options: Options) -> _Stack:
    left, right = options.get("stacker_left_context"), options.get("stacker_right_context")
    return _Stack(options.get("num_channels"), left, left + right + 1, options.get("stacker_step"))


NEVER = -1
"""The count of frames kept before the first one has come."""


def _stacker_memories(options: Options, inputs: tuple[Value | None, ...]) -> tuple[Memory, ...]:
    stack = _stack(options)
    kept = (stack.width - 1) * stack.channels
    history = (Memory("history", INT16, (kept,)),) if 0 < kept <= MAX_SAMPLES else ()
    return (*history, Memory("frames", INT32, (1,), np.array([NEVER], np.int32)))


def _infer_stacker(site: Site) -> tuple[Shape, ...]:
    channels = option(site, "num_channels", 1, MAX_SAMPLES)
    contexts = [option(site, f"stacker_{side}_context", 0, MAX_SAMPLES) for side in ("left", "right")]
    width = sum(contexts) + 1
    option(site, "stacker_step", 1, width)
    if width * channels > MAX_SAMPLES:
        raise site.error(f"it stacks {width * channels} samples, more than {MAX_SAMPLES}")
    kept = memory_shapes(site, _stacker_memories(options_of(site), site.inputs), 1, 2)
    if site.input(0).shape != (channels,):
        raise site.error(f"{checks.describe(site.input(0))} is {checks.shape_text(site.input(0).shape)}, not {channels} channels")
    return (width * channels,), (), *kept


def _compute_stacker(site: Site, frame: np.ndarray, *memories: np.ndarray) -> tuple[np.ndarray, ...]:
    stack, frames = _stack(options_of(site)), int(memories[-1][0])
    before = [np.tile(frame, stack.width - 1) if frames == NEVER else history for history in memories[:-1]]
    joined = np.concatenate([*before, frame])
    now = stack.left + 1 if frames == NEVER else frames + 1
    valid = now >= stack.width
    left = np.array([now - stack.step if valid else now], np.int32)
    return (joined, np.array(valid), *(joined[frame.size :].copy() for _ in before), left)


def _lower_stacker(site: Site, lowering: Lowering) -> None:
    stack, frame, memories = _stack(options_of(site)), site.input(0), len(site.inputs) - 1
    frames, out, nodes = Load(site.input(memories).name, (fixed(0),), INT32), site.output.name, (site.node.index,)
    first = Binary("lt", frames, integer(0))
    if memories == 2:
        history, space = site.input(1), (stack.width - 1, stack.channels)
        place = affine({0: stack.channels, 1: 1})
        before = Select(first, Load(frame.name, (axis(1),), INT16), Load(history.name, (place,), INT16))
        lowering.append(Map(out, space, before, (place,), nodes=nodes))
    store = (axis(0, 1, (stack.width - 1) * stack.channels),)
    lowering.append(Map(out, frame.shape, Load(frame.name, (axis(0),), INT16), store, nodes=nodes))
    if memories == 2:
        moved = Load(out, (axis(0, 1, stack.channels),), INT16)
        lowering.append(Map(site.outputs[2].name, site.outputs[2].shape, moved, nodes=nodes))
    now = Select(first, integer(stack.left + 1), add(frames, integer(1)))
    valid = Binary("ge", now, integer(stack.width))
    _scalar(site, lowering, site.outputs[1 + memories], Select(valid, sub(now, integer(stack.step)), now))
    _scalar(site, lowering, site.outputs[1], valid)


OPERATORS = (
    Operator(
        "SignalFramer",
        "CUSTOM",
        read_options("frame_size", "frame_step", "prefill"),
        _infer_framer,
        _check_valid,
        _compute_framer,
        _lower_framer,
        memories=_framer_memories,
    ).supports(
        micro("int16"),
        notes="The samples still needed are state; outputs that are not valid yet are made of zeros and what has come.",
    ),
    Operator(
        "SignalStacker",
        "CUSTOM",
        read_options("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step"),
        _infer_stacker,
        _check_valid,
        _compute_stacker,
        _lower_stacker,
        memories=_stacker_memories,
    ).supports(micro("int16"), notes="As SignalFramer."),
    Operator(
        "SignalDelay",
        "CUSTOM",
        read_options("delay_length"),
        _infer_delay,
        _require_int16,
        _compute_delay,
        _lower_delay,
        memories=_delay_memories,
    ).supports(micro("int16"), notes="The delayed samples are state."),
)
