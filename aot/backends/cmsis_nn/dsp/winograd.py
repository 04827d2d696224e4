"""3x3 convolutions of stride 1 by Winograd's F(2,3) x F(4,3): a third of the multiplications, exact in integers.

Enters: contractions. Leaves: `Implementation`s, or the sentence why not.
Invariant: every output element is computed once, from inputs read before it is stored, so that a fused operand may be overwritten
in place.

Two output rows at a time: four input rows, transformed across (two of them by the rows before), are transformed down; then, block by
block of tiles and group by group of channels, 24 products of matrices, and the transformation back. Eight sums are alive in a product, as
in `product.py`: four tiles by two channels, or two by four. Sums of products wait on the stack, where LLVM puts them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from llvmlite import ir

from aot.backends.cmsis_nn.dsp.costs import fused, requantised
from aot.backends.cmsis_nn.dsp.ending import Place, constant_count
from aot.backends.cmsis_nn.dsp.finish import Finish, finish_block
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.cmsis_nn.dsp.packing import paired
from aot.backends.cmsis_nn.dsp.winograd_input import Tiles
from aot.backends.cmsis_nn.dsp.winograd_weights import BANDS, POSITIONS, PRE, Winograd, pack, solved
from aot.backends.cmsis_nn.shared import Body, digest, emit_body
from aot.backends.layers.fused import operands_of
from aot.backends.layers.operands import Layer, read_layer
from aot.graph.ir import DType
from aot.graph.primitive import Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32, POINTER, Value
from aot.lower.implementation import Cost, Implementation, Rows
from aot.lower.inplace import elementwise_overwrites
from aot.lower.program import Buffer, Program
from aot.target import Target

_UNROLLS = (32, 16, 8, 4)  # pairs of inputs in a turn of the inner loop
_REACH = 1000
_LEAST_DEPTH = 3


def claim_winograd(program: Program, instruction: Primitive, target: Target) -> tuple[Implementation, ...] | str:
    """3x3 convolutions of stride 1, any padding."""
    layer = read_layer(program, instruction, target, "conv", "dsp")
    if isinstance(layer, str):
        return layer
    g = layer.geometry
    if (g.kernel, g.stride, g.dilation) != ((3, 3), (1, 1), (1, 1)):
        return "Winograd's transformation is for 3x3 kernels of stride 1 without dilation"
    if g.input[3] < _LEAST_DEPTH:
        return f"an input of depth {g.input[3]}: transforming it takes longer than its products"
    channels = paired(len(layer.bias))
    form = solved(layer, channels)
    if isinstance(form, str):
        return form
    tiles = _tiles(layer)
    packed = pack(layer, form, channels, 8 // tiles.at_once)
    out = layer.instruction.out
    weights = Buffer(f"{out}.winograd", DType.INT32, packed.data.shape, "constant", data=packed.data, align=4)
    reads, constants = operands_of(program, layer.instruction, layer.split.rest)
    made: list[Implementation] = []
    for unroll in _unrolls(packed.pairs):
        plan = _Plan(layer, tiles, packed, unroll)
        made.append(
            Implementation(
                kernel="winograd 3x3",
                instruction=instruction,
                reads=reads,
                writes=(out,),
                constants=(weights, *constants),
                emit=lambda function, plan=plan: _emit(function, plan, weights.name),
                scratch_nbytes=plan.stage_at + plan.stage_nbytes,
                overwrites=elementwise_overwrites(program, instruction),
                rows=Rows(g.output[1], 2, images=g.output[0]),
                style="ordered",
                notes=(str(form), f"a block is {tiles.at_once} x {packed.at_once} (tiles of 2 x 4 pixels x channels)"),
                cost=plan.cost,
                variant=f"{unroll} words a turn",
            )
        )
    return tuple(made)


def _tiles(layer: Layer) -> Tiles:
    """Four tiles at a time, or two where that leaves fewer unused and channels come in fours."""
    choices = [Tiles(layer.geometry, layer.instruction.left_zero_point, at_once) for at_once in (4, 2)]
    return min(choices if len(layer.bias) % 4 == 0 else choices[:1], key=lambda tiles: tiles.room)


def _unrolls(pairs: int) -> list[int]:
    """Pairs of inputs in a turn: about 32, 16, 8 and 4, in equal turns."""
    found: list[int] = []
    for most in _UNROLLS:
        turns = next(turns for turns in range(-(-pairs // most), pairs + 1) if pairs % turns == 0)
        found.append(pairs // turns)
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class _Plan:
    """All decisions for one layer. unroll: pairs of inputs in a turn of the inner loop."""

    layer: Layer
    tiles: Tiles
    packed: Winograd
    unroll: int

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """(how many, columns of each): blocks of a row that are whole, and the last one if it is not."""
        width, each = self.layer.geometry.output[2], 4 * self.tiles.at_once
        return [(count, columns) for count, columns in ((width // each, each), (1, width % each)) if count and columns]

    @property
    def stage_at(self) -> int:
        """Byte of scratch at which two rows of outputs stand before what is fused behind the layer goes over them."""
        return 8 * self.tiles.row_nbytes

    @property
    def stage_nbytes(self) -> int:
        _, _, width, channels = self.layer.geometry.output
        return 0 if self.layer.split.rest is None else -(-2 * width * channels // 4) * 4

    @property
    def pixel_step(self) -> int:
        """Bytes from pixel to pixel, as products store them."""
        return self.layer.geometry.output[3] if self.stage_nbytes else self.layer.out.pixel

    @property
    def code(self) -> tuple[object, ...]:
        """All that the code of a pair of rows depends on."""
        packed, tiles = self.packed, self.tiles
        sizes = (self.layer.geometry.output[2], packed.groups, packed.pairs, packed.at_once, packed.is_odd)
        return (*sizes, self.pixel_step, tiles.room, self.unroll, Place.of(packed.form, 0, 1).code)

    @property
    def cost(self) -> Cost:
        """What the layer is expected to take."""
        layer, tiles = self.layer, self.tiles
        g = layer.geometry
        quads, rest = divmod(g.input[3], 4)
        row = (quads + (rest > 0)) * (tiles.count * 66 + 14) + 30
        down = 6 * self.packed.pairs * (tiles.room // 2 * 18 + 10)
        blocks = [(count, *self._block(columns)) for count, columns in self.blocks]
        behind = 2 * g.output[2] * g.output[3] * fused(layer)
        instructions = 2 * row + down + sum(count * executed for count, executed, _ in blocks) + behind + 60
        transform = 4 * (min(tiles.count, 10) * (50 + (50 if rest else 0)) + 180)
        return Cost(
            int(g.input[0] * (g.output[1] + 1) // 2 * instructions),
            int(sum(code for _, _, code in blocks) + 300),
            ((f"{tiles}", transform),),
        )

    def _block(self, columns: int) -> tuple[float, float]:
        """Instructions of a block of tiles, and bytes of its code. LLVM leaves out tiles that are not stored at all."""
        packed = self.packed
        turns, used = packed.pairs // self.unroll, min(-(-columns // 4), self.tiles.at_once)
        pair = packed.at_once * used + packed.at_once / 2 + self.tiles.at_once / 2
        sums, stored = 16 * packed.at_once * used // 2, 2 * packed.at_once * columns
        back = 20 * sums + stored * (requantised(packed.form) + 1) + 30
        products = 24 * (pair * packed.pairs + (16 * turns if turns > 1 else 0))
        code = 24 * (pair * self.unroll + (10 if turns > 1 else 0)) + 0.6 * back
        return packed.groups * (products + back), 4 * code


def _emit(function: KernelFunction, plan: _Plan, table: str) -> None:
    key = None if plan.stage_nbytes else (plan.code, plan.layer.geometry, plan.layer.out, plan.tiles.zero_point)
    emit_body(function, plan.layer, table, lambda frame: _Emitter(frame, plan).emit(), "winograd", key)


class _Emitter(Body[_Plan]):
    """Emits one layer's body: rows."""

    @property
    def nbytes(self) -> int:
        """Of an output element."""
        return self.output.nbytes

    def emit(self) -> None:
        layer, dsp = self.plan.layer, self.dsp
        nbytes = self.nbytes
        start = dsp.builder.mul(self.frame.y0, I32(layer.out.row * nbytes))
        target = dsp.at(dsp.at(self.frame.target, layer.out.offset * nbytes), start)
        self.each_image(target, self._image)

    def _image(self, image: Value, out: Value, number: Value) -> None:
        """Two output rows a turn. Of the four transformed input rows, the lower two are the next turn's upper ones."""
        plan, dsp, builder = self.plan, self.dsp, self.dsp.builder
        layer, tiles = plan.layer, plan.tiles
        y0, y1, top = self.frame.y0, self.frame.y1, layer.geometry.pad_top
        rows = [dsp.at(self.frame.scratch, number * tiles.row_nbytes) for number in range(4)]
        bands = dsp.at(self.frame.scratch, 4 * tiles.row_nbytes)
        first = builder.sub(y0, I32(top)) if top else y0
        for place in range(2):
            tiles.row(dsp, image, builder.add(first, I32(place)), rows[place])
        turns = builder.lshr(builder.add(builder.sub(y1, y0), I32(1)), I32(1))
        with dsp.repeat(turns, [*rows, first, out]) as carried:
            *rows, above, here = carried.values
            for place in (2, 3):
                tiles.row(dsp, image, builder.add(above, I32(place)), rows[place])
            tiles.down(dsp, rows, bands)
            step = layer.out.row * self.nbytes
            lower = builder.add(above, I32(top + 1))
            is_there = builder.icmp_signed("<", lower, y1) if layer.geometry.output[1] % 2 else None
            if plan.stage_nbytes:
                _PairOfRows(plan).call(dsp, self.frame.table, bands, self._stage, I32(plan.stage_nbytes // 2))
                row = builder.sub(lower, I32(1))
                self._finish(here, I32(2) if is_there is None else builder.add(builder.zext(is_there, I32), I32(1)), number, row)
            else:
                second = I32(step) if is_there is None else builder.select(is_there, I32(step), I32(0))
                _PairOfRows(plan).call(dsp, self.frame.table, bands, here, second)
            carried.next = (rows[2], rows[3], rows[0], rows[1], builder.add(above, I32(2)), dsp.at(here, 2 * step))

    @property
    def _stage(self) -> Value:
        return self.dsp.at(self.frame.scratch, self.plan.stage_at)

    def _finish(self, out: Value, rows: Value, image: Value, row: Value) -> None:
        """Apply what is fused to one or two rows of outputs."""
        plan, dsp = self.plan, self.dsp
        with dsp.repeat(rows, [self._stage, out, row]) as carried:
            stage, here, number = carried.values
            block = Finish(here, plan.layer.geometry.output[2], I32(0), {0: image, 1: number})
            finish_block(dsp, self.output, stage, block)
            forward = (plan.stage_nbytes // 2, plan.layer.out.row * self.nbytes)
            carried.next = (dsp.at(stage, forward[0]), dsp.at(here, forward[1]), dsp.builder.add(number, I32(1)))


Sums = list[list[Value]]
"""[channel of the group][tile]."""


@dataclass
class _PairOfRows:
    """Products and outputs of two rows. second: bytes from the first to the second row's output, or 0: the second one is then below the
    image, and what is stored first is overwritten."""

    plan: _Plan
    dsp: Dsp = field(init=False)
    place: Place = field(init=False)
    slots: dict[str, Value] = field(init=False)
    table: Value = field(init=False)
    weights: Value = field(init=False)
    offset: int = 0

    def call(self, dsp: Dsp, table: Value, bands: Value, out: Value, second: Value) -> None:
        """As a local function, which layers alike share."""

        def build(function: ir.Function) -> None:
            inner = Dsp(dsp.function, ir.IRBuilder(function.append_basic_block("entry")))
            self._emit(inner, *function.args)  # type: ignore[call-arg]
            inner.builder.ret_void()

        type = ir.FunctionType(ir.VoidType(), [POINTER] * 3 + [I32])
        function = dsp.function.helper(f"winograd_pair_{digest(self.plan.code)}", type, build)
        dsp.builder.call(function, [table, bands, out, second])

    def _emit(self, dsp: Dsp, table: Value, bands: Value, out: Value, second: Value) -> None:
        plan = self.plan
        self.dsp, self.table, self.place = dsp, table, Place.of(plan.packed.form, 0, 1)
        self.slots = {name: dsp.stack(1) for name in ("bands", "out", "second", "group", "weights")}
        self._keep("second", second)
        block_nbytes = 4 * plan.tiles.at_once * plan.pixel_step
        for count, columns in plan.blocks:
            with dsp.repeat(count, [bands, out]) as carried:
                here, there = carried.values
                self._keep("bands", here)
                self._block(there, columns)
                carried.next = (dsp.at(here, 4 * plan.tiles.at_once), dsp.at(there, block_nbytes))
            bands, out = carried.results

    def _keep(self, name: str, value: Value) -> None:
        """Put a value on the stack: products need all registers."""
        self.dsp.volatile_store(value, self.slots[name], 4)

    def _kept(self, name: str) -> Value:
        type = I32 if name == "second" else POINTER
        return self.dsp.volatile_load(self.slots[name], type, 4)

    def _block(self, out: Value, columns: int) -> None:
        """All channels of a block of tiles, of which only the first `columns` columns are stored."""
        packed, dsp = self.plan.packed, self.dsp
        self._keep("out", out)
        self._keep("group", self.table)
        with dsp.repeat(packed.groups) as carried:
            step = None
            if packed.is_odd:
                step = dsp.builder.zext(dsp.builder.icmp_signed("!=", carried.index, I32(1)), I32)
            self._group(columns, step)
            self._keep("out", dsp.at(self._kept("out"), packed.at_once))
            self._keep("group", self._kept("weights"))

    def _group(self, columns: int, step: Value | None) -> None:
        """The channels of a group: sums of the positions, combined as A4' says."""
        builder = self.dsp.builder
        self._keep("weights", self.dsp.at(self._kept("group"), self.plan.packed.constants_nbytes))

        def each(function: Callable[[Value, Value], Value], left: list[Sums], right: list[Sums]) -> list[Sums]:
            return [
                [[function(a, b) for a, b in zip(*pair, strict=True)] for pair in zip(*rows, strict=True)]
                for rows in zip(left, right, strict=True)
            ]

        def times(by: int) -> Callable[[Value, Value], Value]:
            return lambda a, b: builder.add(a, builder.shl(b, I32(by)))

        assert POSITIONS == (1, 2, 3, 4, 0, 5)
        first, second = self._position(1), self._position(2)
        even, odd = each(builder.add, first, second), each(builder.sub, first, second)
        third, fourth = self._position(3), self._position(4)
        even2, odd2 = each(builder.add, third, fourth), each(builder.sub, third, fourth)
        self._store(1, each(times(1), odd, odd2), columns, step)
        self._store(2, each(times(2), even, even2), columns, step)
        left, right = each(builder.add, even, even2), each(times(3), odd, odd2)
        self._store(0, self._position(0, left), columns, step)
        self._store(3, self._position(5, right), columns, step)

    def _position(self, position: int, onto: list[Sums] | None = None) -> list[Sums]:
        """The sums of one position across, of the upper and the lower row: bands 1 and 2 go into both, band 0 and 3 into one each."""
        dsp, builder, packed = self.dsp, self.dsp.builder, self.plan.packed
        assert BANDS == (1, 2, 0, 3)
        weights = self._kept("weights")
        tiles = self.plan.tiles.at_once
        firsts = dsp.words(weights, 0, packed.at_once)
        self.weights, self.offset = weights, 4 * packed.at_once
        both = self._product(1, position, [[first] * tiles for first in firsts])
        apart = self._product(2, position, None)
        upper = [[builder.add(a, b) for a, b in zip(*pair)] for pair in zip(both, apart)]
        lower = [[builder.sub(a, b) for a, b in zip(*pair)] for pair in zip(both, apart)]
        if onto is not None:
            upper, lower = ([[builder.add(a, b) for a, b in zip(*pair)] for pair in zip(*two)] for two in zip((upper, lower), onto))
        upper = self._product(0, position, upper)
        lower = self._product(3, position, lower)
        self._keep("weights", dsp.at(self.weights, self.offset))
        return [upper, lower]

    def _product(self, band: int, position: int, sums: Sums | None) -> Sums:
        """Transformed inputs of a band and position times the weights that follow, onto sums or onto nothing."""
        plan, dsp = self.plan, self.dsp
        packed, tiles = plan.packed, plan.tiles
        start = 4 * tiles.room * (position * packed.pairs * 4 + band)
        inputs = dsp.at(self._kept("bands"), start)
        turns = packed.pairs // plan.unroll
        if turns == 1:
            if self.offset + 4 * packed.at_once * packed.pairs > _REACH:
                self._keep("weights", dsp.at(self.weights, self.offset))
                self.weights, self.offset = self._kept("weights"), 0
            found = self._turn(self.weights, self.offset, inputs, sums)
            self.offset += 4 * packed.at_once * packed.pairs
            return found
        flat = [acc for place in sums for acc in place] if sums else [I32(0)] * (packed.at_once * tiles.at_once)
        with dsp.repeat(turns, [dsp.at(self.weights, self.offset), inputs, *flat]) as carried:
            weights, here, *accs = carried.values
            found = self._turn(weights, 0, here, self._shaped(accs))
            flat = [acc for place in found for acc in place]
            forward = (4 * packed.at_once * plan.unroll, 16 * tiles.room * plan.unroll)
            carried.next = (dsp.at(weights, forward[0]), dsp.at(here, forward[1]), *flat)
        self.weights, self.offset = carried.results[0], 0
        return self._shaped(list(carried.results[2:]))

    def _shaped(self, accs: list[Value]) -> Sums:
        tiles = self.plan.tiles.at_once
        return [list(accs[first : first + tiles]) for first in range(0, len(accs), tiles)]

    def _turn(self, weights: Value, offset: int, inputs: Value, sums: Sums | None) -> Sums:
        """Straight code over `unroll` pairs of inputs."""
        dsp, tiles, channels = self.dsp, self.plan.tiles, self.plan.packed.at_once
        found: Sums | None = sums and [list(place) for place in sums]
        for pair in range(self.plan.unroll):
            here, there = 16 * tiles.room * pair, offset + 4 * channels * pair
            fresh: Sums = [[] for _ in range(channels)]
            if channels == 2:
                factors = dsp.pair(weights, there)
                for tile in range(0, tiles.at_once, 2):
                    for number, x in enumerate(dsp.pair(inputs, here + 4 * tile), tile):
                        for channel in range(channels):
                            fresh[channel].append(self._summed(factors[channel], x, found, channel, number))
            else:
                both = dsp.pair(inputs, here)
                for channel in range(0, channels, 2):
                    for place, factor in enumerate(dsp.pair(weights, there + 4 * channel), channel):
                        fresh[place] = [self._summed(factor, x, found, place, number) for number, x in enumerate(both)]
            found = fresh
        assert found is not None
        return found

    def _summed(self, factor: Value, x: Value, sums: Sums | None, channel: int, tile: int) -> Value:
        return self.dsp.smuad(factor, x) if sums is None else self.dsp.smlad(factor, x, sums[channel][tile])

    def _store(self, column: int, rows: list[Sums], columns: int, step: Value | None) -> None:
        """Requantise and store a column of each tile, both rows, the lower one first. step: from a group's first channel to its second, 1
        or 0."""
        dsp, packed, pixel = self.dsp, self.plan.packed, self.plan.pixel_step
        count = constant_count(packed.form)
        group, out = self._kept("group"), self._kept("out")
        below = dsp.at(out, self._kept("second"))
        for channel in range(packed.at_once):
            words = dsp.words(group, 4 * count * channel, count)
            away = step if channel and step is not None else channel
            for tile in range(self.plan.tiles.at_once):
                if 4 * tile + column < columns:
                    for row, start in ((1, below), (0, out)):
                        value = self.place.requantise(dsp, rows[row][channel][tile], PRE > 0, words)
                        dsp.store_byte(value, dsp.at(dsp.at(start, (4 * tile + column) * pixel), away))
