"""The functions of a bundle as C sees them: parameters, their types, and what can be left out.

Enters: llvmlite modules. Leaves: a `Signature` for each function that is defined.
Invariant: a parameter that is left out is unused, or the same number in every call; a pointer is to const unless something behind it is
written here (functions that are not here get theirs by a cast).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir

from aot.c.texts import CType, Text, integer
from aot.errors import InternalError

Value = Any
Instructions = ir.instructions
READER = CType("pointer", element="aot_read")
"""The caller's function that reads weights."""


@dataclass(frozen=True)
class Parameter:
    """A parameter in C. number: what it is in every call, if it is left out for that; used: whether the body names it."""

    name: str
    type: CType
    restrict: bool = False
    number: int | None = None
    used: bool = True

    @property
    def passed(self) -> bool:
        return self.used and self.number is None


@dataclass(eq=False)
class Signature:
    """How a function is declared. head: its declaration, where the header has one."""

    function: Any
    returns: CType | None
    parameters: tuple[Parameter, ...]
    exported: bool = False
    head: str = ""

    @property
    def name(self) -> str:
        return self.function.name

    def declaration(self) -> str:
        """The head of its definition."""
        if self.head:
            return self.head
        parts = [one.type.declare(one.name, restrict=one.restrict) for one in self.parameters if one.passed]
        result = "void" if self.returns is None else self.returns.name
        return f"static {result} {self.name}({', '.join(parts) or 'void'})"


def type_of(type: Any) -> CType:
    """The C type of a number."""
    match type:
        case ir.IntType(width=1):
            return CType("bool", 1)
        case ir.IntType() if type.width in (8, 16, 32, 64):
            return integer(type.width)
        case ir.FloatType():
            return CType("float", 32)
        case ir.DoubleType():
            return CType("float", 64)
        case ir.HalfType():
            return CType("half", 16)
        case _:
            pass
    raise InternalError(f"the C emitter knows no type {type}")


def is_pure(call: Any) -> bool:
    """Whether a call has no effect, and depends on nothing but its arguments."""
    return isinstance(call.callee, ir.InlineAsm) or (isinstance(call.callee, ir.Function) and call.callee.name.startswith("llvm."))


def element_of(type: Any) -> str:
    """The type in C of an element in memory; bytes are int8_t until something wants them unsigned."""
    names = {8: "int8_t", 16: "aot_int16", 32: "aot_int32", 64: "aot_int64"}
    match type:
        case ir.IntType() if type.width in names:
            return names[type.width]
        case ir.FloatType():
            return "aot_float"
        case ir.DoubleType():
            return "aot_double"
        case ir.HalfType():
            return "aot_half"
        case ir.PointerType():
            return "aot_pointer"
        case _:
            pass
    raise InternalError(f"the C emitter knows no elements of type {type}")


def instructions(function: Any) -> Iterator[Any]:
    for block in function.blocks:
        yield from block.instructions


def _operands(instruction: Any) -> list[tuple[Value, Any]]:
    """What an instruction uses, and in which block: a phi at the end of those that its values come from."""
    found = [(operand, instruction.parent) for operand in instruction.operands]
    if isinstance(instruction, Instructions.PhiInstr):
        found += instruction.incomings
    if isinstance(instruction, Instructions.CallInstr) and not isinstance(instruction.callee, ir.Function | ir.InlineAsm):
        found.append((instruction.callee.pointer, instruction.parent))
    return found


def _live(function: Any) -> list[Any]:
    """The instructions that have an effect, or are needed by those, in order."""
    live: set[Any] = set()
    pending = [
        each
        for each in instructions(function)
        if isinstance(each, Instructions.StoreInstr | Instructions.Terminator)
        or (isinstance(each, Instructions.CallInstr) and not is_pure(each))
    ]
    while pending:
        each = pending.pop()
        if each not in live:
            live.add(each)
            pending += [operand for operand, _ in _operands(each) if isinstance(operand, Instructions.Instruction)]
    return [each for each in instructions(function) if each in live]


@dataclass(eq=False)
class Program:
    """All functions that are defined, callees first. uses: who uses a value of those that have an effect, and in which block (phis: at
    the end of the one it comes from)."""

    functions: dict[str, Any] = field(default_factory=dict[str, Any])
    uses: dict[Value, list[tuple[Any, Any]]] = field(default_factory=dict[Value, list[tuple[Any, Any]]])
    calls: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    reads: Mapping[str, Collection[int]] = field(default_factory=dict[str, Collection[int]])
    written: set[Value] = field(default_factory=set[Value])
    readers: set[Value] = field(default_factory=set[Value])
    signatures: dict[str, Signature] = field(default_factory=dict[str, Signature])

    @classmethod
    def of(
        cls,
        modules: Sequence[ir.Module],
        exported: Mapping[str, tuple[str, Sequence[tuple[str, CType]]]],
        reads: Mapping[str, Collection[int]] | None = None,
    ) -> Program:
        """exported: of each function in the header, its declaration and its parameters' names and types. reads: of functions that are not
        here, the parameters that they only read through."""
        program = cls(reads=reads or {})
        found = {function.name: function for module in modules for function in module.functions if function.blocks}
        for function in found.values():
            program._note_uses(function)
        program._order(found)
        program._note_written()
        program._note_readers()
        for name, function in program.functions.items():
            program.signatures[name] = (
                program._exported(function, *exported[name]) if name in exported else program._local(function)
            )
        return program

    def _note_uses(self, function: Any) -> None:
        for instruction in _live(function):
            for operand, block in _operands(instruction):
                self.uses.setdefault(operand, []).append((instruction, block))
            if isinstance(instruction, Instructions.CallInstr) and isinstance(instruction.callee, ir.Function):
                self.calls.setdefault(instruction.callee.name, []).append(instruction)

    def _order(self, found: Mapping[str, Any]) -> None:
        def visit(name: str) -> None:
            if name in self.functions or name not in found:
                return
            for each in instructions(found[name]):
                if isinstance(each, Instructions.CallInstr) and isinstance(each.callee, ir.Function):
                    visit(each.callee.name)
            self.functions[name] = found[name]

        for name in found:
            visit(name)

    def bases(self, value: Value) -> Iterator[Value]:
        """What a pointer is made of: the pointers that it may be, or lie behind."""
        match value:
            case Instructions.GEPInstr():
                yield value.pointer
            case Instructions.PhiInstr():
                yield from (each for each, _ in value.incomings)
            case Instructions.SelectInstr():
                yield from value.operands[1:]
            case Instructions.CallInstr() if isinstance(value.callee, ir.InlineAsm):
                yield from value.args
            case _:
                pass

    def _write(self, value: Value) -> bool:
        """Note that something behind a pointer is written; whether that was news."""
        pending, news = [value], False
        while pending:
            each = pending.pop()
            if each not in self.written:
                self.written.add(each)
                news = True
                pending += self.bases(each)
        return news

    def _note_written(self) -> None:
        for function in self.functions.values():
            for each in instructions(function):
                if isinstance(each, Instructions.StoreInstr):
                    self._write(each.operands[1])
                elif isinstance(each, Instructions.CallInstr) and not isinstance(each.callee, ir.InlineAsm):
                    self._write_unknown(each)
        news = True
        while news:
            news = False
            for name, function in self.functions.items():
                for call in self.calls.get(name, ()):
                    for argument, given in zip(function.args, call.args, strict=True):
                        if argument in self.written:
                            news |= self._write(given)

    def _write_unknown(self, call: Any) -> None:
        """What a function that is not here is passed may be written, unless it is known to be only read."""
        if isinstance(call.callee, ir.Function) and call.callee.name in self.functions:
            return
        only_read = self.reads.get(call.callee.name, ()) if isinstance(call.callee, ir.Function) else ()
        for number, argument in enumerate(call.args):
            if isinstance(argument.type, ir.PointerType) and number not in only_read:
                self._write(argument)

    def _note_readers(self) -> None:
        """Pointers to the caller's function: where it is called, and where it came from."""
        pending = [
            each.callee.pointer
            for function in self.functions.values()
            for each in instructions(function)
            if isinstance(each, Instructions.CallInstr) and not isinstance(each.callee, ir.Function | ir.InlineAsm)
        ]
        while pending:
            each = pending.pop()
            if each in self.readers:
                continue
            self.readers.add(each)
            pending += self.bases(each)
            if isinstance(each, ir.Argument):
                position = each.parent.args.index(each)
                pending += [call.args[position] for call in self.calls.get(each.parent.name, ())]
            pending += [user for user, _ in self.uses.get(each, ()) if isinstance(user, Instructions.PhiInstr)]

    def is_const(self, value: Value, seen: frozenset[Value] = frozenset()) -> bool:
        """Whether a pointer is one to const in C."""
        if value in seen or isinstance(value, ir.Constant):
            return False
        if isinstance(value, ir.GlobalVariable):
            return True
        if isinstance(value, ir.Argument):
            signature = self.signatures.get(value.parent.name)
            if signature is not None:
                return signature.parameters[value.parent.args.index(value)].type.const
            return value not in self.written
        return any(self.is_const(each, seen | {value}) for each in self.bases(value))

    def pointee(self, value: Value) -> str:
        """The type of elements that suits a pointer: what is addressed from it, if that is of one type."""
        found: set[str] = set()
        signed = False
        unsigned = False
        for user, _ in self.uses.get(value, ()):
            match user:
                case Instructions.GEPInstr() if user.pointer is value:
                    found.add(element_of(user.source_etype))
                    accesses = [(each, user) for each, _ in self.uses.get(user, ())]
                case Instructions.StoreInstr() if user.operands[1] is not value:
                    continue
                case Instructions.LoadInstr() | Instructions.StoreInstr():
                    accesses = [(user, value)]
                    found.add(element_of(user.type if isinstance(user, Instructions.LoadInstr) else user.operands[0].type))
                case Instructions.PhiInstr():
                    accesses = []
                case _:
                    continue
            for access, address in accesses:
                if isinstance(access, Instructions.LoadInstr) and element_of(access.type) == "int8_t":
                    names = [getattr(each, "opname", "") for each, _ in self.uses.get(access, ())]
                    unsigned |= "zext" in names
                    signed |= "sext" in names
                elif isinstance(access, Instructions.LoadInstr) or (
                    isinstance(access, Instructions.StoreInstr) and access.operands[1] is address
                ):
                    of = access.type if isinstance(access, Instructions.LoadInstr) else access.operands[0].type
                    if element_of(of) != "int8_t" and found == {"int8_t"}:
                        unsigned = True
        if len(found) == 1 and found != {"int8_t"}:
            return found.pop()
        return "int8_t" if found == {"int8_t"} and (signed or not unsigned) else "uint8_t"

    def pointer_type(self, value: Value) -> CType:
        """The C type of a pointer that is a parameter or a variable."""
        if value in self.readers:
            return READER
        return CType("pointer", element=self.pointee(value), const=self.is_const(value))

    def _local(self, function: Any) -> Signature:
        returned = function.function_type.return_type
        returns = None if isinstance(returned, ir.VoidType) else type_of(returned)
        parameters: list[Parameter] = []
        for position, argument in enumerate(function.args):
            used = bool(self.uses.get(argument))
            type = self.pointer_type(argument) if isinstance(argument.type, ir.PointerType) else type_of(argument.type)
            name = argument.name.replace(".", "a")
            alone = "noalias" in argument.attributes and not self._meets(function, position)
            parameters.append(Parameter(name, type, alone, self._number(function, position), used))
        return Signature(function, returns, tuple(parameters))

    def _meets(self, function: Any, position: int) -> bool:
        """Whether a call passes the same address twice, here and elsewhere: to parts that are never used at once, but compilers warn."""
        for call in self.calls.get(function.name, ()):
            places = [_place(each) for each in call.args]
            if places.count(places[position]) > 1:
                return True
        return False

    def _number(self, function: Any, position: int) -> int | None:
        """What an integer argument is in all calls."""
        given = {self._known(call, call.args[position]) for call in self.calls.get(function.name, ())}
        return given.pop() if len(given) == 1 else None

    def _known(self, call: Any, value: Value) -> int | None:
        return int(value.constant) if isinstance(value, ir.Constant) and isinstance(value.type, ir.IntType) else None

    def _exported(self, function: Any, head: str, parameters: Sequence[tuple[str, CType]]) -> Signature:
        made = tuple(Parameter(name, type) for name, type in parameters)
        returned = CType("int", 32) if function.function_type.return_type == ir.IntType(32) else None
        if returned is None or len(made) != len(function.args):
            raise InternalError(f"{function.name} is not as the header declares it")
        return Signature(function, returned, made, True, head)


def _place(value: Value) -> tuple[Any, int]:
    """A pointer as another and the bytes between them."""
    offset = 0
    while isinstance(value, Instructions.GEPInstr) and isinstance(value.indices[0], ir.Constant):
        size = 1 if isinstance(value.source_etype, ir.PointerType) else type_of(value.source_etype).bits // 8
        offset += int(value.indices[0].constant) * size
        value = value.pointer
    return value, offset


def argument_text(parameter: Parameter) -> Text:
    """A parameter inside its function."""
    if parameter.number is not None:
        from aot.c.texts import literal

        return literal(parameter.number, parameter.type)
    low, high = parameter.type.limits if parameter.type.kind in ("int", "bool") else (0, 0)
    return Text(parameter.name, parameter.type, low=low, high=high)
