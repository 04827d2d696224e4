"""The values of one function as C expressions: which are written where they are used, and which become variables.

Enters: a function's shape, and the program that it belongs to. Leaves: texts of values, statements of blocks.
Invariant: a value is written where it is used only if it is used once, in its own block, and no store or call lies between that and a load
in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir

from aot.c import arithmetic
from aot.c.body import Body, Variable
from aot.c.calls import called
from aot.c.phis import Phis
from aot.c.program import Program, Signature, argument_text, element_of, is_pure, type_of
from aot.c.shape import Counted, Shape
from aot.c.support import Support
from aot.c.texts import (
    BOOL,
    CHARS,
    HALF,
    PRIMARY,
    UNARY,
    CType,
    Text,
    integer,
    literal,
    pointer,
    pointing,
    ranged,
    real,
    viewed,
)
from aot.errors import InternalError

Value = Any
Instructions = ir.instructions
_LONGEST = 96
"""Characters of an expression that is written where it is used."""
_INDICES = "ijklmn"


class Values:
    """The values of a function."""

    def __init__(self, program: Program, signature: Signature, shape: Shape, support: Support) -> None:
        self.program, self.signature, self.shape, self.support = program, signature, shape, support
        self.function = signature.function
        self.uses = program.uses
        self.phis = Phis(shape, self.uses)
        self.texts: dict[Value, Text] = {}
        self.variables: dict[Value, Variable] = {}
        self.names: dict[str, int] = {}
        self.top: list[Variable] = []
        self.arguments = dict(zip(self.function.args, signature.parameters, strict=True))
        self.taken = {one.name for one in signature.parameters}
        self.skipped = set(self._counting())

    def _counting(self) -> Iterator[Value]:
        """Instructions that only count a loop's turns: `for` says what they do."""
        for loop in self.shape.loops.values():
            if (counted := loop.counted) is None:
                continue
            test = loop.latches[0].instructions[-1].operands[0]
            if len(self.uses[test]) == 1:
                yield test
                if all(user is test or user is counted.index for user, _ in self.uses[counted.following]):
                    yield counted.following
            if counted.guard is not None and len(self.uses[test_ := counted.guard.instructions[-1].operands[0]]) == 1:
                yield test_

    def name(self, stem: str) -> str:
        """A name that no other variable of the function has."""
        while True:
            number = self.names.get(stem, 0)
            self.names[stem] = number + 1
            name = f"{stem}{number}"
            if name not in self.taken:
                return name

    def variable(self, stem: str, type: CType, fixed: bool) -> Variable:
        made = Variable(self.name(stem), type, fixed)
        self.top.append(made)
        return made

    # Which values are written where they are used.

    def inlined(self, block: Any) -> set[Value]:
        """The values of a block that are."""
        last = len(block.instructions) - 1
        stops = [at for at, each in enumerate(block.instructions) if self._disturbs(each)]
        root = {each: at for at, each in enumerate(block.instructions)}
        found: set[Value] = set()
        for at in range(last - 1, -1, -1):
            each = block.instructions[at]
            if not self._foldable(each) or (use := self._only_use(each)) is None:
                continue
            user, where = use
            if where is not block:
                continue
            ends = last if isinstance(user, Instructions.PhiInstr) else root[user]
            if isinstance(each, Instructions.LoadInstr) and any(at < stop < ends for stop in stops):
                continue
            found.add(each)
            root[each] = ends
        return found

    def _only_use(self, value: Value) -> tuple[Value, Any] | None:
        """The one use of a value by its own name: phis of one class count as one, and behind its loop it has another name."""
        uses: dict[tuple[Value, Any], tuple[Value, Any]] = {}
        for user, where in self.uses.get(value, ()):
            if self.phis.after(value, where) is value:
                uses[self.phis.leader(user), where] = user, where
        return next(iter(uses.values())) if len(uses) == 1 else None

    def _disturbs(self, each: Value) -> bool:
        return isinstance(each, Instructions.StoreInstr) or (isinstance(each, Instructions.CallInstr) and not is_pure(each))

    def _foldable(self, each: Value) -> bool:
        if isinstance(each, Instructions.CallInstr):
            return is_pure(each)
        return not isinstance(each, Instructions.PhiInstr | Instructions.AllocaInstr)

    # Texts.

    def known(self, value: Value) -> int | None:
        """The number that an integer is, if that can be told."""
        if isinstance(value, ir.Constant):
            return int(value.constant) if isinstance(value.type, ir.IntType) and value.constant is not ir.Undefined else None
        if isinstance(value, ir.Argument):
            return self.arguments[value].number
        if getattr(value, "opname", "") in ("add", "sub", "mul"):
            a, b = (self.known(each) for each in value.operands)
            if a is not None and b is not None:
                exact = a + b if value.opname == "add" else a - b if value.opname == "sub" else a * b
                return exact if value.type.width == 32 and -(1 << 31) <= exact < 1 << 31 else None
        return None

    def text(self, value: Value, block: Any, body: Body) -> Text:
        """A value as an operand of something in a block, whose statements go to `body`."""
        if isinstance(value, ir.Constant):
            return self._constant(value)
        if isinstance(value, ir.Argument):
            return argument_text(self.arguments[value])
        if isinstance(value, ir.GlobalVariable):
            return Text(value.name, CType("pointer", element="uint8_t", const=True))
        value = self.phis.after(value, block)
        if isinstance(value, Instructions.PhiInstr):
            variable = self.phi(value)
            least, most = variable.type.limits if variable.type.kind in ("int", "bool") else (0, 0)
            self._look(variable, body)
            return Text(variable.name, variable.type, low=least, high=most)
        if value in self.variables:
            self._look(self.variables[value], body)
        return self.texts[value]

    def _look(self, variable: Variable, body: Body) -> None:
        if variable.home is not None and not body.sees(variable.home):
            variable.hoisted = True

    def _constant(self, value: ir.Constant) -> Text:
        if isinstance(value.type, ir.PointerType):
            if value.constant is not None:
                raise InternalError("the C emitter knows no pointer that is a constant but null")
            return Text("NULL", CType("pointer", element="void"))
        type = type_of(value.type)
        if type.kind == "bool":
            return literal(int(value.constant) & 1, BOOL)
        if type.kind == "int":
            return viewed(literal(int(value.constant), integer(64)), type.bits, True)
        if type.kind == "half":
            return Text(f"{int(np.float16(value.constant).view(np.uint16))}u", HALF)
        self.support.floats = True
        return real(value.constant, type, self.support.of_bits(type.bits) if not _finite(value.constant) else "")

    def phi(self, phi: Value) -> Variable:
        """The variable of a phi's class."""
        leader = self.phis.leader(phi)
        if leader not in self.variables:
            if isinstance(leader.type, ir.PointerType):
                type, stem = self.program.pointer_type(leader), "p"
            else:
                type, stem = type_of(leader.type), "v"
                if type.kind == "int" and self.phis.wraps(leader):
                    type = integer(type.bits, False)
            counted = self._counted(leader)
            if counted is not None:
                type = integer(32, counted[0].signed) if type.bits == 32 else type
                name = self._index(counted[1])
                self.variables[leader] = Variable(name, type, home=None)
            else:
                self.variables[leader] = self.variable("acc" if self.phis.accumulates(leader) else stem, type, False)
        return self.variables[leader]

    def _counted(self, phi: Value) -> tuple[Counted, int] | None:
        loop = self.shape.loops.get(phi.parent)
        if loop is None or loop.counted is None or loop.counted.index is not phi:
            return None
        return loop.counted, sum(each.counted is not None for each in self.shape.loops_of(phi.parent)) - 1

    def _index(self, depth: int) -> str:
        name = _INDICES[depth] if depth < len(_INDICES) else f"i{depth}"
        return name if name not in self.taken else f"{name}_"

    # Statements.

    def emit(self, block: Any, body: Body) -> None:
        """All of a block but its phis and its end."""
        inlined = self.inlined(block)
        for each in block.instructions[:-1]:
            if each in self.skipped or isinstance(each, Instructions.PhiInstr):
                continue
            if isinstance(each, Instructions.StoreInstr):
                body.items.append(self._store(each, block, body))
                continue
            pure = not isinstance(each, Instructions.CallInstr) or is_pure(each)
            if pure and not self.uses.get(each):
                continue
            if isinstance(each, Instructions.AllocaInstr):
                self._alloca(each, body)
                continue
            made = self.compute(each, block, body)
            if made is None or not self.uses.get(each):
                body.items.append(f"{made.text if made else ''};")
                continue
            simple = made.number is not None or (made.level == PRIMARY and made.text.isidentifier() and made.index is None)
            if pure and (simple or (each in inlined and len(pointer(made).text) <= _LONGEST)):
                self.texts[each] = made
            else:
                self.keep(each, made, body)

    def keep(self, value: Value, made: Text, body: Body) -> None:
        """Make a variable of a value."""
        stem = "p" if made.type.kind == "pointer" else "t"
        if made.type.kind == "pointer" and made.type.element == "void" and made.index is not None:
            made = pointing(made, "uint8_t")
        variable = self.variable(stem, made.type, True)
        variable.pure = not isinstance(value, Instructions.CallInstr) or is_pure(value)
        self.variables[value] = variable
        body.assign(variable, pointer(made).text)
        self.texts[value] = Text(variable.name, made.type, low=made.low, high=made.high)

    def _alloca(self, each: Any, body: Body) -> None:
        """Bytes on the stack, aligned for pointers."""
        name = self.name("block")
        count = each.allocated_type.count
        body.items.append("union {")
        body.items.append("    void *align;")
        body.items.append(f"    uint8_t bytes[{count}];")
        body.items.append(f"}} {name};")
        self.texts[each] = Text(f"{name}.bytes", CType("pointer", element="uint8_t"))

    def _store(self, each: Any, block: Any, body: Body) -> str:
        value, address = each.operands
        where = self.text(address, block, body)
        if isinstance(value.type, ir.PointerType):
            given = pointing(self.text(value, block, body), "void", False)
            return f"{self._access(where, 'aot_pointer')} = {pointer(given).text};"
        type = type_of(value.type)
        made = self.text(value, block, body)
        size = type.bits // 8
        if (each.align or size) < size:
            return self._store_pieces(where, made, type, each.align)
        element = self._element(where, value.type)
        wanted = _stored(element, type)
        made = viewed(made, wanted.bits, wanted.signed) if wanted.kind == "int" else made
        made = (
            Text(f"({wanted.name}){made.at(UNARY)}", wanted, UNARY)
            if wanted.kind == "int" and wanted.bits < 32 and made.level == 1
            else made
        )
        return f"{self._access(where, element)} = {made.text};"

    def _store_pieces(self, where: Text, made: Text, type: CType, align: int) -> str:
        """A store at an address that the type's own alignment does not suit."""
        pieces = self.support.pieces(type, align)
        given = viewed(made, type.bits, True).text if type.kind == "int" else made.text
        return f"{pieces.store}({pointer(pointing(where, pieces.element, False)).text}, {given});"

    def pointing(self, x: Text, element: str) -> Text:
        """A pointer as one to these elements."""
        return _pointing(x, self.support.element(element))

    def _element(self, where: Text, type: Any) -> str:
        """The type of an access: that of the pointer where both are bytes."""
        wanted = element_of(type)
        return where.type.element if wanted in CHARS and where.type.element in CHARS else wanted

    def _access(self, where: Text, element: str) -> str:
        """An element in memory."""
        self.support.element(element)
        place = where if where.type.element == element else _pointing(where, element)
        index = place.index.text if place.index is not None else "0"
        base = Text(place.text, place.type, place.level)
        return f"{base.at(PRIMARY)}[{index}]"

    def compute(self, each: Any, block: Any, body: Body) -> Text | None:
        """The text of an instruction; None for a call that returns nothing, which is then a statement."""
        operands = [] if isinstance(each, Instructions.CallInstr) else [self.text(one, block, body) for one in each.operands]
        match each:
            case Instructions.LoadInstr():
                return self._load(each, operands[0])
            case Instructions.GEPInstr():
                return self._gep(each, operands)
            case Instructions.ICMPInstr():
                return arithmetic.compare(each.op, operands[0], operands[1])
            case Instructions.FCMPInstr():
                self.support.floats = True
                return arithmetic.compare_floats(each.op, operands[0], operands[1])
            case Instructions.SelectInstr():
                return self._select(each, operands)
            case Instructions.CastInstr():
                source = CType("pointer") if isinstance(each.operands[0].type, ir.PointerType) else type_of(each.operands[0].type)
                target = type_of(each.type)
                self.support.floats |= "float" in (source.kind, target.kind)
                return arithmetic.cast(self.support, each.opname, operands[0], source, target)
            case Instructions.CallInstr():
                return called(self, each, block, body)
            case Instructions.Instruction() if each.opname == "fneg":
                x = operands[0]
                return Text(f"-({x.text})" if x.text.startswith("-") else f"-{x.at(UNARY)}", x.type, UNARY)
            case Instructions.Instruction() if len(operands) == 2:
                type = type_of(each.type)
                self.support.floats |= type.kind == "float"
                return arithmetic.binary(self.support, each.opname, operands[0], operands[1], type, each.flags)
            case _:
                pass
        raise InternalError(f"the C emitter knows no {each.opname}")

    def _select(self, each: Any, operands: list[Text]) -> Text:
        which, yes, no = operands
        if isinstance(each.type, ir.PointerType):
            type = self.program.pointer_type(each)
            yes, no = (pointer(_pointing(one, type.element)) for one in (yes, no))
            return arithmetic.select(which, yes, no, type)
        return arithmetic.select(which, yes, no, type_of(each.type))

    def _load(self, each: Any, where: Text) -> Text:
        if isinstance(each.type, ir.PointerType):
            raise InternalError("the C emitter loads no pointers")
        type = type_of(each.type)
        if (each.align or 1 << 30) < type.bits // 8:
            pieces = self.support.pieces(type, each.align)
            text = f"{pieces.load}({pointer(pointing(where, pieces.element, True)).text})"
            return ranged(text, type, PRIMARY) if type.kind == "int" else Text(text, type)
        element = self._element(where, each.type)
        found = _stored(element, type)
        text = self._access(where, element)
        return ranged(text, found, PRIMARY) if found.kind == "int" else Text(text, found)

    def _gep(self, each: Any, operands: list[Text]) -> Text:
        base, index = operands
        element = element_of(each.source_etype)
        bytes_ = element in CHARS
        if bytes_ and base.type.element in (*CHARS, "void"):
            element = base.type.element
        if base.type.element != element:
            base = _pointing(base, element)
        self.support.element(element)
        offset = viewed(index, index.type.bits, True)
        if offset.number is not None:
            offset = literal(offset.number, integer(32)) if abs(offset.number) < 1 << 31 else offset
        if base.index is not None:
            offset = arithmetic.added(base.index, offset)
        return Text(base.text, base.type, base.level, index=offset)


def _pointing(x: Text, element: str) -> Text:
    """A pointer as one to other elements; what is added to it stays apart, where both are bytes."""
    sized = {*CHARS, "void"}
    if x.index is not None and x.type.element in sized and element in sized:
        bare = pointing(Text(x.text, x.type, x.level), element)
        return Text(bare.text, bare.type, bare.level, index=x.index)
    return pointing(x, element)


def _stored(element: str, type: CType) -> CType:
    """The C type of an element in memory."""
    return integer(8, element == "int8_t") if element in CHARS else type


def _finite(value: Any) -> bool:
    return math.isfinite(value)
