# pyright: basic
"""Products of two int8 tensors, element by element, requantised by the cheapest instructions that the solver proves.

Enters: Maps. Leaves: `Implementation`s, or the sentence why not.
Invariant: an element's operands are read before it is stored, so that each of them may be overwritten in place.
"""

from __future__ import annotations

from math import prod

import numpy as np

from aot.backends.cmsis_nn.dsp.ending import Place, constants_of_form
from aot.backends.cmsis_nn.dsp.instructions import Dsp
from aot.backends.generic import activations
from aot.backends.layers.requantise import Stage, solve
from aot.graph.expr import Binary, Cast, Const, Expr, Load, Requantise
from aot.graph.ir import DType
from aot.graph.primitive import Map, Primitive
from aot.llvm.emission import KernelFunction
from aot.llvm.types import I32
from aot.lower.implementation import Cost, Implementation
from aot.lower.inplace import elementwise_overwrites, stored_element_loads
from aot.lower.program import Program
from aot.target import Target


def claim_product(program: Program, instruction: Primitive, target: Target) -> Implementation | str:
    """int8(clamp(requantise((a - za) * (b - zb)) + zero point)) over whole tensors of one shape."""
    if "dsp" not in target.has:
        return f"{target.name} has no DSP extension (SMMLA, SSAT)"
    if "mve" in target.has:
        return "Helium has vectors for it"
    if not isinstance(instruction, Map) or instruction.store or not prod(instruction.space):
        return "not a layer of elements"
    found = _stage(instruction.value)
    if found is None:
        return "not a requantised product of two int8 tensors"
    product, loads, stage = found
    names = activations(program, instruction)
    beside = stored_element_loads(program, instruction)
    if program[instruction.out].size != prod(instruction.space) or any(load not in beside for load in loads):
        return "its operands are not element by element as its output"
    if set(names) != {load.buffer for load in loads}:
        return "an operand is a constant"
    form = solve(stage, (np.zeros(1, np.int64), np.full(1, 8)))
    if form.kind == "exact" or form.delta.any():
        return "no short requantisation"
    place, words = Place.of(form, 0, 1), [I32(word) for word in constants_of_form(form, 0)]
    count = prod(instruction.space)

    def emit(function: KernelFunction) -> None:
        dsp = Dsp(function)
        at_once = next(number for number in (4, 2, 1) if count % number == 0)
        buffers = (instruction.out, *dict.fromkeys(load.buffer for load in loads))
        with dsp.repeat(count // at_once, [function.pointer(name) for name in buffers]) as carried:
            out, *operands = carried.values
            pointers = dict(zip(buffers[1:], operands, strict=True))
            for number in range(at_once):
                loaded = {load: function.load_at(load.buffer, dsp.at(pointers[load.buffer], number)) for load in loads}
                acc = function.value(product, {}, loaded=loaded)
                dsp.store_byte(place.requantise(dsp, acc, False, words), dsp.at(out, number))
            carried.next = tuple(dsp.at(pointer, at_once) for pointer in carried.values)

    return Implementation(
        kernel="product",
        instruction=instruction,
        reads=names,
        writes=(instruction.out,),
        constants=(),
        emit=emit,
        overwrites=elementwise_overwrites(program, instruction),
        style="ordered",
        cost=Cost(20 + 10 * count, 150),
        notes=(str(form),),
    )


def _stage(value: Expr) -> tuple[Expr, tuple[Load, ...], Stage] | None:
    """The product, its operands, and its requantisation with the range that int8 operands give it."""
    match value:
        case Cast(
            Binary(
                "min",
                Binary("max", Binary("add", Requantise(product, Const(multiplier), Const(shift)), Const(zero_point)), Const(low)),
                Const(high),
            ),
            DType.INT8,
        ):
            pass
        case _:
            return None
    if not isinstance(product, Binary) or product.op != "mul" or not -128 <= low <= high <= 127 or multiplier < 0:
        return None
    factors = [_factor(each) for each in (product.a, product.b)]
    if None in factors or not -31 <= shift <= 30:
        return None
    (a, first), (b, second) = factors  # type: ignore[misc]
    ends = [(x - first) * (y - second) for x in (-128, 127) for y in (-128, 127)]
    scale, by, least, most = (np.array([int(number)], np.int64) for number in (multiplier, shift, min(ends), max(ends)))
    return product, tuple(dict.fromkeys((a, b))), Stage(scale, by, least, most, int(zero_point), int(low), int(high))


def _factor(expr: Expr) -> tuple[Load, int] | None:
    """An int8 element less a number."""
    match expr:
        case Cast(Load() as load, DType.INT32) if load.dtype is DType.INT8 and load.fill is None:
            return load, 0
        case Binary("sub", Cast(Load() as load, DType.INT32), Const(zero)) if load.dtype is DType.INT8 and load.fill is None:
            return load, int(zero)
        case _:
            pass
    return None
