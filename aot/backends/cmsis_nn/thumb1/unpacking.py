"""1x1 convolutions on Cortex-M0 whose weights are bytes in flash: those of some channels are unpacked to scratch, then serve all pixels.

Enters: a layer, how its k's are grouped. Leaves: a `Grouped` plan, or None where that is of no use.
Invariant: as for other convolutions; nothing is fused behind, so that the channels which the last group shares with the one before it
may be computed twice.

The product is the one with two channels' weights in a word, on a few blocks of channels. Its table lies in scratch, and is made for each
group of channels from words of four bytes, each weight more by 128: two AND, two SUBS and a shift for two words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from llvmlite import ir

from aot.backends.cmsis_nn.dsp.ending import word32
from aot.backends.cmsis_nn.dsp.gather import Patches
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.shared import Frame
from aot.backends.cmsis_nn.thumb1.assembler import EQ, LR, PC, SP, Code
from aot.backends.cmsis_nn.thumb1.packing import Packed, packed_channels
from aot.backends.cmsis_nn.thumb1.product import Product
from aot.backends.layers.operands import Layer
from aot.llvm.machine_code import machine_code
from aot.llvm.types import I32, POINTER, Value
from aot.lower.implementation import Cost

_BLOCK = 6  # channels
_TABLE_NBYTES = 3328  # of scratch that the unpacked weights may take, where that is more than a block
_LEAST_PIXELS = 4
_MASK, _EXCESS = 0x00FF00FF, 0x00800080


@dataclass(frozen=True)
class Grouped:
    """packed: the tables of groups of `product.channels` channels, which begin at `starts`; all have one shape. offset_nbytes: of the
    places of inputs."""

    layer: Layer
    starts: tuple[int, ...]
    packed: tuple[Packed, ...]

    @property
    def product(self) -> Product:
        return self.packed[0].product

    @property
    def constants(self) -> int:
        """Words of constants behind a block."""
        assert self.product.rescaling is not None
        return _BLOCK * len(self.product.rescaling.words(0))

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(words of weights, words of constants behind them) in the order of a table."""
        product = self.product
        words = product.depth * _BLOCK // 2
        blocks = product.blocks[0][1]
        return [
            (words, self.constants if chunk + 1 == product.chunks else 0) for chunk in range(product.chunks) for _ in range(blocks)
        ]

    @cached_property
    def table(self) -> np.ndarray:
        """The places of inputs, then each group's weights as bytes and constants as words."""
        nbytes = self.product.offset_nbytes
        raw = np.maximum(self.packed[0].order, 0).astype(f"<u{nbytes}").tobytes()
        raw += bytes(-len(raw) % 4)
        for packed in self.packed:
            at = 0
            for weights, constants in self.runs:
                raw += _squeezed(packed.data[at : at + weights])
                raw += packed.data[at + weights : at + weights + constants].tobytes()
                at += weights + constants
        return np.frombuffer(raw, "<i4")

    @property
    def offsets_nbytes(self) -> int:
        return -(-self.product.offset_nbytes * len(self.packed[0].order) // 4) * 4

    @property
    def group_nbytes(self) -> int:
        """Bytes of a group in the table."""
        return sum(8 * _turns(weights) + 4 * constants for weights, constants in self.runs)

    @property
    def scratch_nbytes(self) -> int:
        return self.product.parts_nbytes + 4 * sum(map(sum, self.runs)) + 16

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code depends on."""
        return self.layer.geometry, self.layer.out, self.product.code, self.starts

    @property
    def cost(self) -> Cost:
        images, pixels = self.layer.geometry.output[0], prod(self.layer.geometry.output[1:3])
        unpack = sum(16 * _turns(weights) + 4 * constants + 30 for weights, constants in self.runs)
        each = unpack + pixels * (self.product.instructions + 8) + 30
        return Cost(images * len(self.starts) * each, len(self.product.code) + 400)

    def emit(self, frame: Frame) -> None:
        layer, dsp, builder = self.layer, frame.dsp, frame.dsp.builder
        g, out = layer.geometry, layer.out
        first = dsp.at(dsp.at(frame.target, out.offset), builder.mul(frame.y0, I32(out.row)))
        source = dsp.at(frame.source, builder.mul(frame.y0, I32(g.input[2] * g.input[3])))
        rows = builder.sub(frame.y1, frame.y0)
        unpacked = dsp.at(frame.scratch, self.product.parts_nbytes)
        with dsp.repeat(len(self.starts), [dsp.at(frame.table, self.offsets_nbytes), first]) as groups:
            stream, channel = groups.values
            self._unpack(dsp, stream, unpacked)
            with dsp.repeat(g.output[0], [source, channel]) as images:
                image, there = images.values
                with dsp.repeat(1 if g.output[1] == 1 else rows, [image, there]) as lines:
                    line, target = lines.values
                    with dsp.repeat(g.output[2], [line, target]) as pixels:
                        here, result = pixels.values
                        self.product.call(dsp, here, frame.table, unpacked, result, frame.scratch)
                        pixels.next = (dsp.at(here, g.input[3]), dsp.at(result, out.pixel))
                    lines.next = (dsp.at(line, g.input[2] * g.input[3]), dsp.at(target, out.row))
                images.next = (dsp.at(image, prod(g.input[1:])), dsp.at(there, out.image))
            groups.next = (dsp.at(stream, self.group_nbytes), dsp.at(channel, self._step(dsp, groups.index)))

    def _step(self, dsp: Dsp, left: Value) -> Value | int:
        """Channels to the next group: fewer to the last one. `left` counts groups down to 1."""
        steps = np.diff(self.starts)
        if len(set(steps.tolist())) <= 1:
            return int(steps[0]) if len(steps) else 0
        builder = dsp.builder
        return builder.select(builder.icmp_signed("==", left, I32(2)), I32(int(steps[-1])), I32(int(steps[0])))

    def _unpack(self, dsp: Dsp, stream: Value, into: Value) -> None:
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I32, I32, POINTER])
        function = machine_code(dsp.function, "unpack_bytes", type, unpack_code(), 20)
        for weights, constants in self.runs:
            behind, turns = dsp.at(into, 4 * weights), _turns(weights)
            dsp.builder.call(function, [stream, into, I32(turns), I32(constants), behind])
            stream, into = dsp.at(stream, 8 * turns + 4 * constants), dsp.at(behind, 4 * constants)


def grouped(layer: Layer, fast: Packed, groups: Sequence[tuple[int, ...]]) -> Grouped | None:
    """A plan for a layer of which `fast` is the product of all channels, with `groups` of k's."""
    channels, rescaling = len(layer.bias), fast.product.rescaling
    g = layer.geometry
    useful = Patches.of(layer, 1).contiguous and prod(g.output[1:3]) >= _LEAST_PIXELS and channels > _BLOCK
    if not useful or rescaling is None or layer.split.rest is not None:
        return None
    block_nbytes = 4 * (len(fast.order) * _BLOCK // 2 + _BLOCK * len(rescaling.words(0)))
    most = max(1, min(_TABLE_NBYTES // block_nbytes, channels // _BLOCK))
    size = _BLOCK * min(range(1, most + 1), key=lambda blocks: (-(-channels // (_BLOCK * blocks)) * blocks, -blocks))
    starts = tuple(min(first, channels - size) for first in range(0, channels, size))
    weights = layer.weights.reshape(channels, -1)
    packed = tuple(packed_channels(weights, range(first, first + size), tuple(groups), rescaling) for first in starts)
    return Grouped(layer, starts, packed)


def _turns(words: int) -> int:
    """Turns of the unpacking loop: four words each."""
    return -(-words // 4)


def _squeezed(words: np.ndarray) -> bytes:
    """Two words' four weights in one."""
    padded = np.concatenate([words.astype(np.int64), np.zeros(-len(words) % 4, np.int64)])
    lanes = (padded + _EXCESS) & 0xFFFFFFFF
    return np.array([word32(word) for word in (lanes[0::2] | lanes[1::2] << 8).tolist()], "<i4").tobytes()


def unpack_code() -> bytes:
    """r0 bytes, r1 where words go, r2 turns, r3 words of constants, on the stack: where those go."""
    code = Code()
    code.push((4, 5, 6, 7, LR))
    code.number(6, _MASK)
    code.number(7, _EXCESS)
    code.label("turn")
    for _ in range(2):
        code.ldm(0, (4,))
        code.lsrs(5, 4, 8)
        for register in (4, 5):
            code.ands(register, 6)
            code.subs(register, register, 7)
        code.stm(1, (4, 5))
    code.repeat_until_zero(2, "turn")
    code.cmp_number(3, 0)
    code.branch(EQ, "done")
    code.ldr(1, SP, 20)
    code.label("constants")
    code.ldm(0, (4,))
    code.stm(1, (4,))
    code.repeat_until_zero(3, "constants")
    code.label("done")
    code.pop((4, 5, 6, 7, PC))
    return code.finish()
