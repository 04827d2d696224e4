"""Calls in C: the bundle's own functions, LLVM's intrinsics, functions of the firmware or of a library.

Enters: a call in LLVM IR, and the values of its function. Leaves: its text.
Invariant: a call that may have effects is a statement of its own, in the order of the IR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from aot.c import arithmetic
from aot.c.body import Body
from aot.c.program import Parameter, type_of
from aot.c.support import Foreign
from aot.c.texts import PRIMARY, UNARY, CType, Text, integer, literal, pointer, ranged, viewed
from aot.errors import InternalError

if TYPE_CHECKING:
    from aot.c.values import Values

_ROUNDING = ("sqrt", "floor", "ceil", "trunc", "rint")


def called(values: Values, call: Any, block: Any, body: Body) -> Text | None:
    """The text of a call; as a statement, if it returns nothing."""
    callee = call.callee
    given = [values.text(each, block, body) for each in call.args]
    if isinstance(callee, ir.InlineAsm):
        if callee.asm or len(given) != 1:
            raise InternalError("the C emitter knows no assembly")
        return given[0]
    if not isinstance(callee, ir.Function):
        return _reader(values, call, given, block, body)
    if callee.name.startswith("llvm."):
        return _intrinsic(values, callee.name, given, call)
    signature = values.program.signatures.get(callee.name)
    if signature is None:
        return _foreign(values, call, given)
    passed = [_argument(values, text, one) for text, one in zip(given, signature.parameters, strict=True) if one.passed]
    text = f"{callee.name}({', '.join(passed)})"
    return Text(text, CType("int", 32)) if signature.returns is None else _result(text, type_of(call.type))


def _result(text: str, type: CType) -> Text:
    return ranged(text, type, PRIMARY) if type.kind in ("int", "bool") else Text(text, type)


def _argument(values: Values, given: Text, parameter: Parameter) -> str:
    type = parameter.type
    if type.kind != "pointer":
        return viewed(given, type.bits, type.signed).text if type.kind == "int" else given.text
    if given.type.element in (type.element, "aot_read") or type.element == "void" or given.text == "NULL":
        return pointer(given).text
    return pointer(values.pointing(given, type.element)).text


def _reader(values: Values, call: Any, given: list[Text], block: Any, body: Body) -> Text:
    """A call of the caller's function that reads weights."""
    function = values.text(call.callee.pointer, block, body)
    ctx, offset, nbytes, target = given
    numbers = (viewed(each, 32, False).text for each in (offset, nbytes))
    return ranged(f"{function.text}({pointer(ctx).text}, {', '.join(numbers)}, {pointer(target).text})", integer(32), PRIMARY)


def _foreign(values: Values, call: Any, given: list[Text]) -> Text:
    """A function that is not here: its arguments as its declaration has them; without one, as LLVM has them."""
    name = call.callee.name
    if name not in values.support.foreign:
        values.support.foreign[name] = _undeclared(call.callee)
    wanted = values.support.foreign[name]
    arguments: list[str] = []
    for text, type in zip(given, wanted.parameters, strict=True):
        if text.type.kind == "pointer":
            arguments.append(pointer(text).text if text.text == "NULL" else f"({type}){pointer(text).at(UNARY)}")
        else:
            arguments.append(text.text if type == text.type.name else f"({type}){text.at(UNARY)}")
    values.support.called.add(name)
    text = f"{name}({', '.join(arguments)})"
    return Text(text, CType("int", 32)) if isinstance(call.type, ir.VoidType) else _result(text, type_of(call.type))


def _undeclared(function: Any) -> Foreign:
    """A function that no header declares: as its type in LLVM says."""
    types = tuple("void *" if isinstance(one, ir.PointerType) else type_of(one).name for one in function.function_type.args)
    returned = function.function_type.return_type
    result = "void" if isinstance(returned, ir.VoidType) else type_of(returned).name
    return Foreign(types, declaration=f"{result} {function.name}({', '.join(types) or 'void'});")


def _intrinsic(values: Values, name: str, given: list[Text], call: Any) -> Text:
    """One of LLVM's intrinsics, `llvm.NAME.TYPE`."""
    stem = name.split(".")[1]
    type = type_of(call.type)
    if stem in _ROUNDING and type.kind == "float":
        return Text(f"{values.support.routine(stem, type.bits)}({given[0].text})", type)
    if stem == "fabs" and type.kind == "float":
        bits = integer(type.bits, False)
        mask = literal((1 << (type.bits - 1)) - 1, bits).text
        plain = f"{values.support.bits_of(type.bits)}({given[0].text}) & {mask}"
        return Text(f"{values.support.of_bits(type.bits)}({plain})", type)
    if stem == "ctlz" and type.kind == "int":
        return _leading_zeros(values, given[0], type.bits)
    if name == "llvm.arm.ssat":
        bits_ = given[1].number or 32
        return ranged(
            f"{values.support.clamp(bits_)}({viewed(given[0], 32, True).text})",
            type,
            PRIMARY,
            -(1 << (bits_ - 1)),
            (1 << (bits_ - 1)) - 1,
        )
    raise InternalError(f"the C emitter knows no {name}")


def _leading_zeros(values: Values, x: Text, bits: int) -> Text:
    wide = max(bits, 32)
    seen = viewed(viewed(x, bits, False), wide, False)
    count = ranged(f"{values.support.leading_zeros(wide)}({seen.text})", integer(wide, False), PRIMARY, wide - bits, wide)
    signed = viewed(count, wide, True)
    less = arithmetic.added(signed, literal(bits - wide, integer(wide))) if wide != bits else signed
    return viewed(less, bits, True)
