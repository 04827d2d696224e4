"""LLVM's operators on integers, floats and conditions, as C expressions.

Enters: an operator and the texts of its operands. Leaves: a text.
Invariant: equal to LLVM's meaning bit for bit where LLVM defines a result; nothing is undefined behaviour in C, also where LLVM has poison
that a `select` leaves out: what may wrap is unsigned, counts of shifts are masked, floats become integers by functions defined for all.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aot.c.support import Support
from aot.c.texts import (
    BINARY,
    BOOL,
    FLOAT,
    HALF,
    PRIMARY,
    TERNARY,
    UNARY,
    CType,
    Text,
    condition,
    integer,
    literal,
    pointer,
    ranged,
    viewed,
)
from aot.errors import InternalError

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_DIVIDE = {"sdiv": "/", "udiv": "/", "srem": "%", "urem": "%"}
_FLOATS = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/"}
_COMPARE = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_INVERSE = {"==": "!=", "!=": "==", ">": "<=", ">=": "<", "<": ">=", "<=": ">"}


def binary(support: Support, op: str, a: Text, b: Text, type: CType, flags: Collection[str] = ()) -> Text:
    """An operator of two operands of one type."""
    if type.kind == "float":
        return _float(support, op, a, b, type)
    if type.kind == "bool":
        return _logic(op, a, b)
    if op in _DIVIDE:
        return _narrow(_divide(op, a, b, type.bits), type.bits)
    if op in ("shl", "lshr", "ashr"):
        return _shift(op, a, b, type.bits)
    if op in ("and", "or", "xor"):
        return _bitwise(op, a, b, type.bits)
    if op in _SIGNS:
        return _narrow(_sum(op, a, b, type.bits, "nsw" in flags), type.bits)
    raise InternalError(f"the C emitter knows no {op}")


def _float(support: Support, op: str, a: Text, b: Text, type: CType) -> Text:
    if op == "frem":
        return Text(f"{support.routine('fmod', type.bits)}({a.text}, {b.text})", type)
    if op not in _FLOATS:
        raise InternalError(f"the C emitter knows no {op}")
    return Text(f"{a.at(UNARY)} {_FLOATS[op]} {b.at(UNARY)}", type, BINARY)


def _logic(op: str, a: Text, b: Text) -> Text:
    """Conditions are pure, so that the second need not be computed."""
    if op == "xor" and b.number == 1:
        return inverted(a)
    if op == "xor":
        return Text(f"{a.at(UNARY)} != {b.at(UNARY)}", BOOL, BINARY, 0, 1)
    if op not in ("and", "or"):
        raise InternalError(f"the C emitter knows no {op} of conditions")
    return Text(f"{a.at(UNARY)} {'&&' if op == 'and' else '||'} {b.at(UNARY)}", BOOL, BINARY, 0, 1)


def inverted(x: Text) -> Text:
    """The opposite of a condition."""
    parts = x.text.split(" ")
    if x.level == BINARY and len(parts) == 3 and parts[1] in ("==", "!="):
        return replace(x, text=f"{parts[0]} {_INVERSE[parts[1]]} {parts[2]}")
    return Text(f"!{x.at(UNARY)}", BOOL, UNARY, 0, 1) if x.number is None else literal(1 - x.number, BOOL)


def _wide(bits: int) -> int:
    """Integers narrower than int are computed as int32_t."""
    return max(bits, 32)


def _widened(x: Text, bits: int, signed: bool = True) -> Text:
    """A signed or unsigned view of an integer of `bits`, in a type no narrower than int."""
    seen = viewed(x, bits, signed)
    return seen if bits >= 32 else viewed(seen, 32, True if signed else seen.high > (1 << 31))


def _narrow(x: Text, bits: int) -> Text:
    return x if x.type.bits == bits else viewed(x, bits, True)


def _sum(op: str, a: Text, b: Text, bits: int, stays: bool) -> Text:
    """add, sub, mul. stays: LLVM may assume that nothing overflows."""
    wide = _wide(bits)
    x, y = _widened(a, bits), _widened(b, bits)
    ends = [_exact(op, left, right) for left in (x.low, x.high) for right in (y.low, y.high)]
    low, high = min(ends), max(ends)
    least, most = integer(wide).limits
    if not stays and not (least <= low and high <= most):
        return _modular(op, viewed(a, wide, False), viewed(b, wide, False), wide)
    if op in ("add", "sub") and (known := y.number) is not None and known != least and known < 0:
        op, y = ("sub" if op == "add" else "add"), literal(-known, y.type)
    if op == "add" and (known := x.number) is not None:
        x, y = y, x
    if y.number == 0 and op in ("add", "sub"):
        return x
    if y.number == 1 and op == "mul":
        return x
    if x.number == 0 and op == "sub":
        return ranged(f"-{y.at(PRIMARY)}", integer(wide), UNARY, low, high)
    if op == "mul" and x.number is not None:
        x, y = y, x
    return ranged(f"{_left(x, op)} {_SIGNS[op]} {y.at(UNARY)}", integer(wide), BINARY, max(low, least), min(high, most))


def added(a: Text, b: Text) -> Text:
    """The sum of two offsets, which does not overflow."""
    bits = max(a.type.bits, b.type.bits)
    return _sum("add", viewed(a, bits, True), viewed(b, bits, True), bits, True)


def _left(x: Text, op: str) -> str:
    """A left operand: a chain of sums needs no parentheses."""
    chained = op in ("add", "sub") and x.level == BINARY and _is_sum(x.text)
    return x.text if chained else x.at(UNARY)


def _is_sum(text: str) -> bool:
    """Whether the outermost operators are + and - and *, which bind so that a further + or - may follow."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if not depth and char == " " and text[position + 1] not in "+-*" and text[position - 1] not in "+-*":
            return False
    return True


def _exact(op: str, a: int, b: int) -> int:
    return a + b if op == "add" else a - b if op == "sub" else a * b


def _modular(op: str, x: Text, y: Text, bits: int) -> Text:
    """Modulo 2^bits."""
    type = integer(bits, False)
    half = 1 << (bits - 1)
    if op in ("add", "sub") and (known := y.number) is not None and known > half:
        op, y = ("sub" if op == "add" else "add"), literal(2 * half - known, type)
    if y.number == 0 and op != "mul":
        return x
    known_ = _exact(op, x.low, y.low) % (2 * half) if x.number is not None and y.number is not None else None
    return ranged(f"{_left(x, op)} {_SIGNS[op]} {y.at(UNARY)}", type, BINARY, known_, known_)


def _bitwise(op: str, a: Text, b: Text, bits: int) -> Text:
    signed = any(x.type.signed and x.number is None for x in (a, b)) or (a.type.signed and b.type.signed)
    x, y = (_widened(each, bits, signed) for each in (a, b))
    if x.number is not None:
        x, y = y, x
    if op == "xor" and y.number is not None and viewed(y, bits, True).number == -1:
        known = ~x.number & ((1 << bits) - 1) if x.number is not None and not signed else None
        low, high = (~x.high, ~x.low) if signed else (known, known)
        return _narrow(ranged(f"~{x.at(UNARY)}", x.type, UNARY, low, high), bits)
    if x.number is not None and y.number is not None:
        known = {"and": x.number & y.number, "or": x.number | y.number, "xor": x.number ^ y.number}[op]
        return _narrow(literal(known, x.type), bits)
    low, high = (0, y.number) if op == "and" and (y.number or -1) >= 0 else (None, None)
    return _narrow(ranged(f"{x.at(UNARY)} {_SIGNS[op]} {y.at(UNARY)}", x.type, BINARY, low, high), bits)


def _shift(op: str, a: Text, b: Text, bits: int) -> Text:
    amount = _count(b, bits)
    count = amount.number
    if count == 0:
        return a
    x = _widened(a, bits, op == "ashr")
    wide = x.type.bits
    if op == "shl":
        plain = _widened(a, bits)
        if count is not None and count < bits - 1 and _within(plain, count, wide):
            low, high = plain.low << count, plain.high << count
            times = literal(1 << count, integer(wide)).text
            return _narrow(ranged(f"{plain.at(UNARY)} * {times}", integer(wide), BINARY, low, high), bits)
        x = viewed(x, wide, False)
    if wide == 64 and x.number is not None:  # its text may be a literal of int, whose type the shift would have
        x = replace(x, text=f"({x.type.name}){x.at(UNARY)}", level=UNARY)
    if op == "shl":
        return _narrow(ranged(f"{x.at(UNARY)} << {amount.at(UNARY)}", x.type, BINARY), bits)
    low, high = (x.low >> count, x.high >> count) if count is not None else (min(x.low, 0), max(x.high, 0))
    return _narrow(ranged(f"{x.at(UNARY)} >> {amount.at(UNARY)}", x.type, BINARY, low, high), bits)


def _within(x: Text, count: int, bits: int) -> bool:
    least, most = integer(bits).limits
    return least <= x.low << count and x.high << count <= most


def _count(b: Text, bits: int) -> Text:
    """A count that is less than `bits`: a larger one is poison."""
    if b.number is not None:
        return literal(b.number & (bits - 1), integer(32))
    if b.low >= 0 and b.high < bits:
        return b
    x = _widened(b, bits, False) if bits >= 32 else _widened(b, bits)
    return ranged(f"{x.at(UNARY)} & {literal(bits - 1, x.type).text}", x.type, BINARY, 0, bits - 1)


def _divide(op: str, a: Text, b: Text, bits: int) -> Text:
    most = integer(bits).limits[1]
    signed = op.startswith("s") or (a.type.signed and min(a.low, b.low) >= 0 and max(a.high, b.high) <= most)
    x, y = (_widened(each, bits, signed) for each in (a, b))
    if x.number is not None and y.number:
        quotient = abs(x.number) // abs(y.number) * (1 if (x.number < 0) == (y.number < 0) else -1)
        return literal(quotient if "div" in op else x.number - quotient * y.number, x.type)
    low: int | None = None
    high: int | None = None
    if x.low >= 0 and y.low > 0:
        low, high = (x.low // y.high, x.high // y.low) if "div" in op else (0, min(x.high, y.high - 1))
    return ranged(f"{x.at(UNARY)} {_DIVIDE[op]} {y.at(UNARY)}", x.type, BINARY, low, high)


def compare(op: str, a: Text, b: Text) -> Text:
    """`icmp`."""
    sign = _COMPARE[op.removeprefix("s").removeprefix("u")] if op not in ("eq", "ne") else _COMPARE[op]
    if pointer(a).text == pointer(b).text:
        return literal(int(sign in ("==", "<=", ">=")), BOOL)
    if a.type.kind == "pointer":
        return _compare_pointers(sign, a, b)
    if a.type.kind == "bool":
        if op in ("eq", "ne") and b.number is not None:
            return a if (op == "ne") == (b.number == 0) else inverted(a)
        return Text(f"{a.at(UNARY)} {sign} {b.at(UNARY)}", BOOL, BINARY, 0, 1)
    bits = a.type.bits
    signed = op.startswith("s")
    if op in ("eq", "ne"):
        signed = any(x.type.signed and x.number is None for x in (a, b)) or a.type.signed
    x, y = (viewed(each, bits, signed) for each in (a, b))
    outcome = _known(sign, x, y)
    if outcome is not None:
        return literal(int(outcome), BOOL)
    return Text(f"{x.at(UNARY)} {sign} {y.at(UNARY)}", BOOL, BINARY, 0, 1)


def _known(sign: str, x: Text, y: Text) -> bool | None:
    """What a comparison says of any two numbers in these ranges."""
    if sign in ("<=", ">"):
        return _known(">=" if sign == "<=" else "<", y, x)
    if sign == "<" or sign == ">=":
        less = True if x.high < y.low else False if x.low >= y.high else None
        return less if less is None or sign == "<" else not less
    same = True if x.number is not None and x.number == y.number else False if x.high < y.low or y.high < x.low else None
    return same if same is None or sign == "==" else not same


def _compare_pointers(sign: str, a: Text, b: Text) -> Text:
    x, y = (pointer(each) for each in (a, b))
    if sign in ("==", "!="):
        return Text(f"{x.at(UNARY)} {sign} {y.at(UNARY)}", BOOL, BINARY, 0, 1)
    return Text(f"(uintptr_t){x.at(UNARY)} {sign} (uintptr_t){y.at(UNARY)}", BOOL, BINARY, 0, 1)


def compare_floats(op: str, a: Text, b: Text) -> Text:
    """`fcmp`."""
    if op == "ord" or op == "uno":
        sign, joined = ("==", "&&") if op == "ord" else ("!=", "||")
        both = [f"({each.at(UNARY)} {sign} {each.at(UNARY)})" for each in (a, b)]
        return Text(f" {joined} ".join(both), BOOL, BINARY, 0, 1)
    sign = _COMPARE[op[1:]]
    if op in ("one", "ueq"):
        below, above = (f"({a.at(UNARY)} {each} {b.at(UNARY)})" for each in ("<", ">"))
        either = Text(f"{below} || {above}", BOOL, BINARY, 0, 1)
        return either if op == "one" else inverted(either)
    if op.startswith("o") or op == "une":
        return Text(f"{a.at(UNARY)} {sign} {b.at(UNARY)}", BOOL, BINARY, 0, 1)
    return Text(f"!({a.at(UNARY)} {_INVERSE[sign]} {b.at(UNARY)})", BOOL, UNARY, 0, 1)


def cast(support: Support, op: str, x: Text, source: CType, type: CType) -> Text:
    """A conversion."""
    if op in ("zext", "sext"):
        if source.kind == "bool":
            plain = ranged(f"({integer(type.bits).name}){x.at(UNARY)}", integer(type.bits), UNARY, 0, 1)
            return plain if op == "zext" else _narrow(_sum("sub", literal(0, plain.type), plain, type.bits, True), type.bits)
        return viewed(viewed(x, source.bits, op == "sext"), type.bits, True)
    if op == "trunc":
        return (
            condition(_bitwise("and", x, literal(1, integer(source.bits)), source.bits))
            if type.kind == "bool"
            else viewed(x, type.bits, True)
        )
    if op == "ptrtoint":
        return ranged(f"({integer(type.bits, False).name})(uintptr_t){pointer(x).at(UNARY)}", integer(type.bits, False), UNARY)
    if op in ("sitofp", "uitofp"):
        seen = x
        if source.kind == "int":
            seen = viewed(x, source.bits, op == "sitofp")
        elif op == "sitofp":
            seen = cast(support, "sext", x, source, integer(32))
        if type.kind == "half":
            return _from_float(support, Text(f"(float){seen.at(UNARY)}", FLOAT, UNARY))
        return Text(f"({type.name}){seen.at(UNARY)}", type, UNARY)
    if op in ("fptosi", "fptoui"):
        wide = _float_of(support, x)
        name = support.to_integer(wide.type.bits, type.bits, op == "fptosi")
        return ranged(f"{name}({wide.text})", integer(type.bits, op == "fptosi"), PRIMARY)
    if op in ("fpext", "fptrunc"):
        if type.kind == "half" and source.bits != 32:
            raise InternalError("the C emitter narrows no double to half a float")
        wide = _float_of(support, x)
        if type.kind == "half":
            return _from_float(support, wide)
        return wide if wide.type == type else Text(f"({type.name}){wide.at(UNARY)}", type, UNARY)
    if op == "bitcast":
        return _bitcast(support, x, source, type)
    raise InternalError(f"the C emitter knows no {op}")


def _float_of(support: Support, x: Text) -> Text:
    return x if x.type.kind != "half" else Text(f"{support.routine('widen', 16)}({x.text})", FLOAT)


def _from_float(support: Support, x: Text) -> Text:
    return Text(f"{support.routine('narrow', 16)}({x.text})", HALF)


def _bitcast(support: Support, x: Text, source: CType, type: CType) -> Text:
    if source.kind == type.kind and source.bits == type.bits:
        return x
    if source.kind == "half":
        return viewed(Text(x.text, integer(16, False), x.level, 0, 65535), 16, True)
    if type.kind == "half":
        return Text(viewed(x, 16, False).text, HALF, x.level if not x.type.signed else UNARY)
    if source.kind == "float" and type.kind == "int" and source.bits == type.bits:
        return ranged(f"{support.bits_of(source.bits)}({x.text})", integer(type.bits, False), PRIMARY)
    if source.kind == "int" and type.kind == "float" and source.bits == type.bits:
        return Text(f"{support.of_bits(type.bits)}({viewed(x, type.bits, False).text})", type)
    raise InternalError(f"the C emitter casts no {source.name} to {type.name}")


def select(which: Text, yes: Text, no: Text, type: CType) -> Text:
    """One of two values."""
    if which.number is not None:
        return yes if which.number else no
    if type.kind == "int":
        signed = not (not yes.type.signed and not no.type.signed)
        yes, no = (viewed(each, type.bits, signed) for each in (yes, no))
        text = f"{which.at(BINARY)} ? {yes.at(BINARY)} : {no.at(BINARY)}"
        low, high = min(yes.low, no.low), max(yes.high, no.high)
        if type.bits < 32:
            return ranged(f"({yes.type.name})({text})", yes.type, UNARY, low, high)
        return ranged(text, yes.type, TERNARY, low, high)
    if type.kind == "half":
        return Text(f"(uint16_t)({which.at(BINARY)} ? {yes.at(BINARY)} : {no.at(BINARY)})", HALF, UNARY)
    return Text(f"{which.at(BINARY)} ? {yes.at(BINARY)} : {no.at(BINARY)}", yes.type, TERNARY, 0, int(type.kind == "bool"))
