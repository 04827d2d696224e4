"""uint8 as int8: activations of contractions, which kernels know as int8 only.

Enters: a Program of single primitives. Leaves: the same Program in which uint8 temporaries beside contractions hold int8, each element
less by 128 (the same byte but for its highest bit), and inputs that contractions read are copied so.
Invariant: what else is computed from such an element is computed from the uint8 that it stands for, so that no output's byte changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from aot.graph.arithmetic import INT32_MAX
from aot.graph.expr import Acc, Binary, Cast, Const, Expr, Load, Lookup, Requantise, Select, add, clamp, rewrite, walk
from aot.graph.ir import DType, Quantisation
from aot.graph.primitive import Call, Contract, Control, Loop, Map, Primitive, Reduce, expressions, identity, reads, writes
from aot.lower.program import Buffer, Program

_HALF = 128
_SIGN = Const(_HALF, DType.UINT8)
_ORDERED = ("min", "max")


def signed_bytes(program: Program) -> Program:
    """b = contract(a) of uint8 -> b' = contract(a') of int8, where a' = a - 128 and b' = b - 128; zero points move with them.

    Of an output only the requantisation becomes one to int8: the uint8 is then made of it, element by element.
    """
    if not any(_is_unsigned(program, instruction) for instruction in program.instructions):
        return program
    signing = _Signing(program, _movable(program))
    instructions = tuple(map(signing.instruction, program.instructions))
    buffers = tuple(
        _signed_buffer(buffer) if program.storage(buffer.name) in signing.moved else buffer for buffer in program.buffers
    )
    copies = tuple(signing.copies.values())
    first = tuple(_copy(program[name], copy.name) for name, copy in signing.copies.items())
    return replace(program, buffers=(*buffers, *copies), instructions=(*first, *instructions))


def _is_unsigned(program: Program, instruction: Primitive) -> bool:
    """Whether it is a layer that a kernel might claim, if its activations were int8."""
    return isinstance(instruction, Contract) and instruction.geometry is not None and instruction.left.dtype is DType.UINT8


def _movable(program: Program) -> frozenset[str]:
    """Temporaries that contractions read or write, and those that hold the same elements or the largest or smallest of them."""
    able = _able(program)
    found: set[str] = set()
    for instruction in program.instructions:
        if isinstance(instruction, Contract) and _is_unsigned(program, instruction):
            found |= {program.storage(instruction.left.buffer), program.storage(instruction.out)} & able
    groups = [
        {*map(program.storage, (*reads(each), *writes(each)))} & able for each in program.instructions if _keeps_elements(each)
    ]
    while grown := [group for group in groups if group & found and not group <= found]:
        found.update(*grown)
    return frozenset(found)


def _able(program: Program) -> set[str]:
    """uint8 temporaries that nothing but loops touch, whole elements at a time, at indices known now."""
    able = {buffer.name for buffer in program.buffers if buffer.base is None and buffer.role == "temporary"}
    able -= {program.storage(buffer.name) for buffer in program.buffers if buffer.dtype is not DType.UINT8 or buffer.is_window}
    for instruction in program.instructions:
        if isinstance(instruction, Call | Control):
            able -= set(map(program.storage, (*reads(instruction), *writes(instruction))))
        else:
            able -= {program.storage(each.buffer) for each in walk(*expressions(instruction)) if isinstance(each, Lookup)}
    return able


def _keeps_elements(instruction: Primitive) -> bool:
    """Whether results are elements of what it reads."""
    match instruction:
        case Map(value=Load(dtype=DType.UINT8)):
            return True
        case Reduce(term=Load(dtype=DType.UINT8), combine=combine):
            return combine in _ORDERED
        case _:
            pass
    return False


@dataclass
class _Signing:
    """moved: storages that become int8. copies: of inputs, as int8, by the name of the buffer that is read."""

    program: Program
    moved: frozenset[str]
    copies: dict[str, Buffer] = field(default_factory=dict[str, Buffer])

    def instruction(self, instruction: Primitive) -> Primitive:
        match instruction:
            case Map():
                return replace(instruction, value=self.stored(instruction, instruction.value))
            case Reduce():
                return self.reduction(instruction)
            case Contract():
                return self.contraction(instruction)
            case _:
                pass
        return instruction

    def reduction(self, reduce: Reduce) -> Reduce:
        term, initial, result = self.unsigned(reduce.term), self.unsigned(reduce.initial), reduce.result
        if reduce.combine in _ORDERED and _keeps_elements(reduce):
            term, initial = self.signed(term), self.signed(initial)
            result = rewrite(result, lambda node: _unsigned(Acc(DType.INT8)) if node == Acc(DType.UINT8) else None)
        return replace(reduce, term=term, initial=initial, result=self.stored(reduce, result))

    def contraction(self, contract: Contract) -> Contract:
        left, left_zero_point = self.operand(contract.left, contract.left_zero_point, _is_unsigned(self.program, contract))
        right, right_zero_point = self.operand(contract.right, contract.right_zero_point, False)
        result = self.stored(contract, contract.result)
        if left.dtype is DType.INT8 and result.dtype is DType.UINT8 and (found := self.requantised(contract.result)) is not None:
            result = _unsigned(found)
        return replace(
            contract,
            left=left,
            right=right,
            left_zero_point=left_zero_point,
            right_zero_point=right_zero_point,
            initial=self.unsigned(contract.initial),
            result=result,
        )

    def operand(self, load: Load, zero_point: int, is_layer: bool) -> tuple[Load, int]:
        """A contraction's operand and its zero point; an input is read from a copy."""
        storage = self.program.storage(load.buffer)
        if storage in self.moved:
            return _signed_load(load, load.buffer), zero_point - _HALF
        if is_layer and self.program[storage].role == "input" and not self.program[load.buffer].is_window:
            return _signed_load(load, self.copy_of(load.buffer)), zero_point - _HALF
        return load, zero_point

    def copy_of(self, name: str) -> str:
        if name not in self.copies:
            taken = {*self.program.by_name, *(copy.name for copy in self.copies.values())}
            free = next(text for k in range(len(taken) + 1) if (text := f"{name}_signed{k or ''}") not in taken)
            self.copies[name] = replace(_signed_buffer(self.program[name]), name=free, role="temporary", base=None, label="")
        return self.copies[name].name

    def stored(self, instruction: Loop, value: Expr) -> Expr:
        """What is stored, where the buffer is int8 now."""
        value = self.unsigned(value)
        return self.signed(value) if self.program.storage(instruction.out) in self.moved else value

    def unsigned(self, expr: Expr) -> Expr:
        """`expr` with the uint8 that it knew for every load of what is int8 now."""

        def rule(node: Expr) -> Expr | None:
            match node:
                case Load(buffer) if self.program.storage(buffer) in self.moved:
                    return _unsigned(_signed_load(node, buffer))
                case Cast(Binary("xor", Cast(x, DType.UINT8), sign), DType.INT32) if sign == _SIGN and x.dtype is DType.INT8:
                    return add(Cast(x, DType.INT32), Const(_HALF, DType.INT32))
                case _:
                    pass
            return None

        return rewrite(expr, rule)

    def signed(self, expr: Expr) -> Expr:
        """The uint8 `expr` less 128, as int8."""
        match expr:
            case Const(value):
                return Const(int(value) - _HALF, DType.INT8)
            case Binary("xor", Cast(x, DType.UINT8), sign) if sign == _SIGN and x.dtype is DType.INT8:
                return x
            case Binary("min" | "max" as op, a, b):
                return Binary(op, self.signed(a), self.signed(b))
            case Select(condition, yes, no):
                return Select(condition, self.signed(yes), self.signed(no))
            case _:
                pass
        return self.requantised(expr) or Cast(Binary("xor", expr, _SIGN), DType.INT8)

    def requantised(self, expr: Expr) -> Expr | None:
        """uint8(clamp(requantise(...) + zero point)) -> the same to int8, as kernels know it; None if it is something else."""
        match expr:
            case Cast(
                Binary("min", Binary("max", Binary("add", Requantise() as x, Const(zero_point)), Const(low)), Const(high)),
                DType.UINT8,
            ) if 0 <= low <= high <= 255 and 0 <= zero_point <= 255 and self.is_small(x):
                moved = add(x, Const(int(zero_point) - _HALF, DType.INT32))
                return Cast(clamp(moved, int(low) - _HALF, int(high) - _HALF), DType.INT8)
            case _:
                pass
        return None

    def is_small(self, x: Requantise) -> bool:
        """Whether neither zero point can bring the result out of int32: it is at most the multiplier and one more, either side of 0."""
        multiplier = x.multiplier
        if isinstance(multiplier, Load):
            data = self.program[self.program.storage(multiplier.buffer)].data
            return data is not None and bool(data.size) and int(data.max()) < INT32_MAX - 2 * _HALF
        return isinstance(multiplier, Const) and multiplier.value < INT32_MAX - 2 * _HALF


def _signed_load(load: Load, buffer: str) -> Load:
    fill = None if load.fill is None else Const(int(load.fill.value) - _HALF, DType.INT8)
    return Load(buffer, load.index, DType.INT8, fill)


def _unsigned(x: Expr) -> Expr:
    """The uint8 that an int8 stands for."""
    return Binary("xor", Cast(x, DType.UINT8), _SIGN)


def _signed_buffer(buffer: Buffer) -> Buffer:
    old = buffer.quantisation
    quantisation = old and Quantisation(old.scales, tuple(number - _HALF for number in old.zero_points), old.axis)
    return replace(buffer, dtype=DType.INT8, quantisation=quantisation)


def _copy(source: Buffer, name: str) -> Map:
    """An input as int8."""
    value = Cast(Binary("xor", Load(source.name, identity(len(source.shape)), DType.UINT8), _SIGN), DType.INT8)
    return Map(name, source.shape, value)
