"""Weights beyond int8, which kernels do not take: brought to int8 where only a few are beyond it.

Enters: a Program of groups. Leaves: the same Program in which contractions of int8 activations have int8 weights without a zero point.
uint8 weights less their zero point have nine bits, but most networks have only some that need the ninth.
Invariant: every sum is the same integer as before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from aot.graph.expr import Affine, IndexMap, Load, Table, axis, fixed, loads
from aot.graph.ir import DType
from aot.graph.primitive import Call, Contract, Control, Map, Primitive, store_of
from aot.lower.build import without_unused
from aot.lower.indexing import compose_all, rebase, rebase_load, simplify
from aot.lower.program import Buffer, Program

_FEW = 4
"""Input channels that may always be added; of many channels up to half as many, as they take memory."""


def bare_weights(program: Program) -> Program:
    """sum (a - za) * (w - zw) -> sum (a - za) * w' of weights w' without a zero point: int8 where all of a layer's fit, else int16 for
    kernels that take nine bits."""
    baring = _Narrowing(program, stays_wide=True)
    for position, instruction in enumerate(program.instructions):
        baring.add(position, instruction)
    return baring.finish()


def narrow_weights(program: Program) -> Program:
    """sum (a - za) * (w - zw) -> sum (a' - za) * w' of int8 weights w'.

    A convolution or dense layer: where some w - zw is beyond int8, its input channel comes twice in a', and two weights share it.
    A depthwise layer: such output channels are computed again, each by a convolution of its own that stores over what was wrong.
    """
    narrowing = _Narrowing(program)
    for position, instruction in enumerate(program.instructions):
        narrowing.add(position, instruction)
    return narrowing.finish()


@dataclass
class _Narrowing:
    """The Program under construction. stays_wide: weights beyond int8 become int16. wider: buffers that got more channels, and those
    that stand for them."""

    program: Program
    stays_wide: bool = False
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    instructions: list[Primitive] = field(default_factory=list[Primitive])
    wider: dict[str, str] = field(default_factory=dict[str, str])

    def finish(self) -> Program:
        if not self.buffers:
            return self.program
        instructions = tuple(self.redirected(instruction) for instruction in self.instructions)
        return without_unused(
            replace(self.program, buffers=(*self.program.buffers, *self.buffers.values()), instructions=instructions)
        )

    def redirected(self, instruction: Primitive) -> Primitive:
        if isinstance(instruction, Call | Control) or instruction.out not in self.wider:
            return instruction
        return replace(instruction, out=self.wider[instruction.out], store=store_of(instruction))

    def add(self, position: int, instruction: Primitive) -> None:
        found = self.weights_of(instruction)
        if found is None:
            self.instructions.append(instruction)
            return
        layer, weights = found
        if fits(weights) or self.stays_wide:
            self.instructions.append(self.with_weights(layer, weights))
        elif layer.geometry is not None and layer.geometry.kind == "depthwise":
            self.repaired(layer, weights)
        else:
            self.widened(position, layer, weights)

    def weights_of(self, instruction: Primitive) -> tuple[Contract, np.ndarray] | None:
        """A layer of int8 activations, and its weights without their zero point where these are not int8 as they are."""
        if not isinstance(instruction, Contract) or instruction.geometry is None or instruction.left.dtype is not DType.INT8:
            return None
        right, owner = instruction.right, self.program[self.program.storage(instruction.right.buffer)]
        if owner.data is None or right.fill is not None or (right.dtype is DType.INT8 and instruction.right_zero_point == 0):
            return None
        if instruction.geometry.groups != 1 or instruction.initial.dtype is not DType.INT32 or not right.dtype.is_integer:
            return None
        data = owner.data.reshape(self.program[right.buffer].shape).astype(np.int64)
        return instruction, data - instruction.right_zero_point

    def with_weights(self, layer: Contract, weights: np.ndarray) -> Contract:
        dtype = DType.INT8 if fits(weights) else DType.INT16
        name = self.constant(f"{layer.out}_{dtype}", dtype, weights)
        return replace(layer, right=Load(name, layer.right.index, dtype), right_zero_point=0)

    def repaired(self, layer: Contract, weights: np.ndarray) -> None:
        """A depthwise layer of clipped weights, then the channels for which that is wrong."""
        beyond = ~fits_each(weights)
        wrong = [int(number) for number in np.flatnonzero(beyond.reshape(-1, beyond.shape[-1]).any(0))]
        repairs = [self.repair(layer, weights[..., [number]], number) for number in wrong]
        if any(repair is None for repair in repairs):
            self.instructions.append(layer)
            return
        self.instructions.append(self.with_weights(layer, clipped(weights)))
        self.instructions += [instruction for repair in repairs if repair is not None for instruction in repair]

    def repair(self, layer: Contract, weights: np.ndarray, number: int) -> tuple[Primitive, ...] | None:
        """Output channel `number` of a depthwise layer by its weights (1, KH, KW, 1), as a convolution of its input channel, which
        comes twice; None if it can't be said."""
        geometry, source = layer.geometry, self.program[layer.left.buffer]
        assert geometry is not None
        again, shared = split(weights)
        channel, own = divmod(number, geometry.multiplier)
        by = (axis(0), axis(1), axis(2), fixed(channel), fixed(own), axis(4), axis(5))
        space, window = (*layer.space[:3], 1), (*layer.window, 1 + len(again))
        left, store = rebase_load(layer.left, by, (*space, *window)), compose_all(store_of(layer), by, space)
        initial, result = rebase(layer.initial, by, (*space, *window)), rebase(layer.result, by, space)
        if left is None or store is None or initial is None or result is None:
            return None
        if source.shape != geometry.input or source.is_window:
            return None
        n, h, w, _ = geometry.input
        twice = self.name(f"{layer.out}_channel{number}")
        self.buffers[twice] = replace(source, name=twice, shape=(n, h, w, 1 + len(again)), role="temporary", base=None, label="")
        index = (axis(0), axis(1), axis(2), fixed(channel))
        copy = Map(twice, self.buffers[twice].shape, Load(source.name, index, DType.INT8), nodes=layer.nodes)
        conv = replace(
            layer,
            space=space,
            window=window,
            left=replace(left, buffer=twice, index=(*left.index[:3], axis(6))),
            right=replace(layer.right, index=(axis(3), axis(4), axis(5), axis(6))),
            initial=initial,
            result=result,
            store=store,
            geometry=replace(geometry, kind="conv", input=(n, h, w, 1 + len(again)), output=(*layer.space[:3], 1), multiplier=1),
        )
        return copy, self.with_weights(conv, shared)

    def widened(self, position: int, layer: Contract, weights: np.ndarray) -> None:
        """A convolution or dense layer that reads some input channels more than once."""
        again, shared = split(weights)
        depth, last = weights.shape[-1], len(layer.space) + len(layer.window) - 1
        if len(again) > max(_FEW, depth // 2) or not self.depth_is_last(layer, depth, last):
            self.instructions.append(layer)
            return
        assert layer.geometry is not None
        n, h, w, _ = layer.geometry.input
        source = self.widen(position, layer, again)
        geometry = replace(layer.geometry, input=(n, h, w, depth + len(again)))
        wide = replace(
            layer, window=(*layer.window[:-1], depth + len(again)), left=replace(layer.left, buffer=source), geometry=geometry
        )
        self.instructions.append(self.with_weights(wide, shared))

    def depth_is_last(self, layer: Contract, depth: int, last: int) -> bool:
        """Whether the last axis runs over the input channels, and over nothing else."""
        for load in (layer.left, layer.right):
            shape = self.program[load.buffer].shape
            if self.program[load.buffer].is_window or not shape or shape[-1] != depth or load.index[-1] != axis(last):
                return False
            if any(_depends(index, last) for index in load.index[:-1]):
                return False
        return layer.window[-1] == depth

    def widen(self, position: int, layer: Contract, again: tuple[int, ...]) -> str:
        """The layer's input with these channels once more behind the others: its producers store there, or it is copied."""
        old = self.program[layer.left.buffer]
        *outer, depth = old.shape
        name = self.name(f"{layer.out}_wider")
        self.buffers[name] = replace(old, name=name, shape=(*outer, depth + len(again)), role="temporary", base=None, label="")
        before = [axis(number) for number in range(len(outer))]
        direct = self.may_store_elsewhere(old, position, layer)
        if direct:
            self.wider[old.name] = name
        source, first = (name, depth) if direct else (old.name, 0)
        channels = again if direct else (*range(depth), *again)
        space = (*outer, len(channels))
        index = (*before, simplify(Table(len(outer), channels), space))
        store = (*before, axis(len(outer), 1, first)) if direct else ()
        self.instructions.append(Map(name, space, Load(source, index, DType.INT8), store, layer.nodes))
        return name

    def may_store_elsewhere(self, buffer: Buffer, position: int, layer: Contract) -> bool:
        """Whether nothing but this layer reads the buffer, and all its writers say where each element goes."""
        writers = [self.program.instructions[number] for number in self.program.writers.get(buffer.name, ())]
        return (
            buffer.base is None
            and buffer.role == "temporary"
            and self.program.readers.get(buffer.name) == (position,)
            and all(not isinstance(each, Call | Control) and each.out == buffer.name for each in writers)
            and buffer.name not in {load.buffer for load in loads(layer.initial, layer.result)}
        )

    def constant(self, name: str, dtype: DType, data: np.ndarray) -> str:
        name = self.name(name)
        self.buffers[name] = Buffer(name, dtype, data.shape, "constant", data=data.astype(dtype.np))
        return name

    def name(self, name: str) -> str:
        """`name`, or with the first number after it that no buffer has."""
        found, count = name, 1
        while found in self.program.by_name or found in self.buffers:
            found, count = f"{name}{count}", count + 1
        return found


def fits_each(weights: np.ndarray) -> np.ndarray:
    low, high = DType.INT8.limits
    return (weights >= low) & (weights <= high)


def fits(weights: np.ndarray) -> bool:
    return bool(fits_each(weights).all())


def clipped(weights: np.ndarray) -> np.ndarray:
    return np.clip(weights, *DType.INT8.limits)


def split(weights: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
    """Weights (..., depth) as int8 weights (..., depth + n), and for each of the n the input channel that it multiplies too."""
    parts, rest = [clipped(weights)], weights - clipped(weights)
    again: list[int] = []
    while rest.any():
        columns = np.flatnonzero(rest.reshape(-1, rest.shape[-1]).any(0))
        parts.append(clipped(rest[..., columns]))
        again += [int(column) for column in columns]
        rest = rest - clipped(rest)
    return tuple(again), np.concatenate(parts, -1)


def _depends(index: IndexMap, number: int) -> bool:
    return index.axis == number if not isinstance(index, Affine) else any(term == number for term, _ in index.terms)
