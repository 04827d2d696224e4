"""What an instrumented entry does around each call of a layer: it calls the caller's function, or counts cycles.

Enters: the entry's pointers, a layer's number. Leaves: code before and after the call.
Invariant: it reads and writes nothing of the layers'; it runs on the entry's own thread. A layer that fails has no end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from aot.llvm.constants import offset_pointer
from aot.llvm.emission import local_attributes
from aot.llvm.types import I32, POINTER, Builder, Callee, Value
from aot.llvm.volatile import volatile_load

if TYPE_CHECKING:
    from aot.instrument import Instrument

TOLD = ("on_layer", "observer", "cycles")
"""The pointers that this needs."""
_ON_LAYER = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32])
_COUNTER_NBYTES = 4


def clear_counters(builder: Builder, cycles: Value, layers: int) -> None:
    """Set the counters of all layers to 0."""
    if not layers:
        return
    before, again, done = builder.block, builder.append_basic_block("clear"), builder.append_basic_block("cleared")
    builder.branch(again)
    builder.position_at_end(again)
    layer = builder.phi(I32)
    layer.add_incoming(I32(0), before)
    builder.store(I32(0), builder.gep(cycles, [layer], inbounds=True, source_etype=I32), align=_COUNTER_NBYTES)
    following = builder.add(layer, I32(1))
    layer.add_incoming(following, again)
    builder.cbranch(builder.icmp_unsigned("<", following, I32(layers)), again, done)
    builder.position_at_end(done)


class Telling:
    """Tells of the layers of one entry. prefix: of the bundle's local functions. layers: the number of each position."""

    def __init__(self, builder: Builder, instrument: Instrument, prefix: str, layers: Mapping[int, int], pointer_bits: int) -> None:
        self.builder, self.instrument, self.prefix, self.layers = builder, instrument, prefix, layers
        self.integer = ir.IntType(pointer_bits)

    @contextmanager
    def around(self, position: int, pointers: Mapping[Any, Value]) -> Generator[None]:
        """Around the call of a layer."""
        layer = self.layers[position]
        end = self._count(layer, pointers["cycles"]) if self.instrument.kind == "cycles" else self._tell(layer, pointers)
        yield
        end()

    def _count(self, layer: int, cycles: Value) -> Callable[[], None]:
        """Adds what a layer takes to its counter. The difference of two readings is right if the counter goes past zero between them."""
        begin = self._now()

        def end() -> None:
            taken = self.builder.sub(self._now(), begin)
            slot = offset_pointer(self.builder, cycles, layer * _COUNTER_NBYTES)
            before = self.builder.load(slot, align=_COUNTER_NBYTES, typ=I32)
            self.builder.store(self.builder.add(before, taken), slot, align=_COUNTER_NBYTES)

        return end

    def _now(self) -> Value:
        address = self.builder.inttoptr(self.integer(self.instrument.counter), POINTER)
        return volatile_load(self.builder, address, I32, _COUNTER_NBYTES)

    def _tell(self, layer: int, pointers: Mapping[Any, Value]) -> Callable[[], None]:
        given = [pointers["on_layer"], pointers["observer"], I32(layer)]
        teller = _teller(self.builder.module, f"{self.prefix}_tell")
        self.builder.call(teller, [*given, I32(1)])
        return lambda: self.builder.call(teller, [*given, I32(0)])


def _teller(module: ir.Module, name: str) -> ir.Function:
    """`void tell(on_layer, observer, layer, before)`: calls the caller's function, if there is one."""
    if (found := module.globals.get(name)) is not None:
        return found
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I32, I32]), name)
    local_attributes(function)
    on_layer, *told = function.args
    builder: Builder = ir.IRBuilder(function.append_basic_block("entry"))
    with builder.if_then(builder.icmp_unsigned("!=", on_layer, ir.Constant(POINTER, None))):
        builder.call(Callee(on_layer, _ON_LAYER), told)
    builder.ret_void()
    return function
