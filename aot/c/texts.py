"""C expressions as text that knows its type and range.

Enters: numbers, names, other expressions. Leaves: `Text`s.
Invariant: no implicit conversion but integer promotion happens in a text: operands of an operator have one type, or are narrower than int;
a text's value lies in its range. Assumed of the compiler: int has 32 bits or more, two's complement, >> of a negative number keeps the sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Kind = Literal["int", "bool", "float", "half", "pointer"]
TERNARY, BINARY, UNARY, PRIMARY = range(4)
"""How strongly a text's outermost operator binds."""


@dataclass(frozen=True)
class CType:
    """A C type. bits: of a number. element, const: what a pointer points to; `char` elements are int8_t or uint8_t."""

    kind: Kind
    bits: int = 0
    signed: bool = True
    element: str = ""
    const: bool = False

    @property
    def name(self) -> str:
        match self.kind:
            case "bool":
                return "int"
            case "int":
                return f"{'' if self.signed else 'u'}int{self.bits}_t"
            case "float":
                return "float" if self.bits == 32 else "double"
            case "half":
                return "uint16_t"
            case "pointer":
                return f"{'const ' if self.const else ''}{self.element} *"

    def declare(self, name: str, const: bool = False, restrict: bool = False) -> str:
        """A declarator of this type; const, restrict: of the name itself."""
        marks = "const " * const + "restrict " * restrict
        if self.kind == "pointer":
            return f"{self.name}{marks}{name}"
        return f"{marks}{self.name} {name}"

    @property
    def limits(self) -> tuple[int, int]:
        if self.kind == "bool":
            return 0, 1
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


BOOL = CType("bool", 1)
FLOAT, DOUBLE, HALF = CType("float", 32), CType("float", 64), CType("half", 16)
BYTES = CType("pointer", element="uint8_t")
CHARS = ("int8_t", "uint8_t")


def integer(bits: int, signed: bool = True) -> CType:
    return CType("int", bits, signed)


@dataclass(frozen=True)
class Text:
    """A C expression. low, high: the range of an integer. index: of a pointer, what is added to `text`, in elements."""

    text: str
    type: CType
    level: int = PRIMARY
    low: int = 0
    high: int = 0
    index: Text | None = None

    def at(self, level: int) -> str:
        """The text, in parentheses unless it binds as strongly as `level` asks."""
        return self.text if self.level >= level else f"({self.text})"

    @property
    def number(self) -> int | None:
        """The value of an integer that is known."""
        return self.low if self.type.kind in ("int", "bool") and self.low == self.high else None


def ranged(text: str, type: CType, level: int, low: int | None = None, high: int | None = None) -> Text:
    """An integer's text; a range that does not fit the type is the type's. A known number is written as one."""
    least, most = type.limits
    if low is None or high is None or low < least or high > most:
        low, high = least, most
    return literal(low, type) if low == high else Text(text, type, level, low, high)


def literal(value: int, type: CType) -> Text:
    """An integer constant of this type (of int, where the type is narrower)."""
    suffix = "" if type.signed or type.bits < 32 else "u"
    if type.bits == 64 and not -(1 << 31) < value < (1 << (31 + (not type.signed))):
        text = f"INT64_C({value})" if type.signed else f"UINT64_C({value})"
        text = "INT64_MIN" if value == -(1 << 63) else text
        return Text(text, type, PRIMARY, value, value)
    text = "INT32_MIN" if value == -(1 << 31) else f"{value}{suffix}"
    return Text(text, type, PRIMARY if value >= 0 or text == "INT32_MIN" else UNARY, value, value)


def real(value: float, type: CType, bits: str) -> Text:
    """A float constant, exact on reading back. bits: the function that makes a float of its bits, for what has no literal."""
    exact = np.float32(value) if type.bits == 32 else np.float64(value)
    if not np.isfinite(exact):
        pattern = exact.view(np.uint32 if type.bits == 32 else np.uint64)
        return Text(f"{bits}({literal(int(pattern), integer(type.bits, False)).text})", type)
    shortest = str(exact)
    shortest = shortest if any(char in shortest for char in ".e") else shortest + ".0"
    return Text(shortest + "f" * (type.bits == 32), type, UNARY if shortest.startswith("-") else PRIMARY)


def viewed(x: Text, bits: int, signed: bool) -> Text:
    """An integer as one of these bits, signed or not: its value modulo 2^bits."""
    type = integer(bits, signed)
    if x.type == type:
        return x
    least, most = type.limits
    if (known := x.number) is not None:
        wrapped = known & ((1 << bits) - 1)
        return literal(wrapped - (1 << bits) if signed and wrapped > most else wrapped, type)
    fits = least <= x.low and x.high <= most
    if not signed and x.type == integer(bits) and x.level == UNARY and x.text[0] == "(" and x.type.limits != (x.low, x.high):
        x = Text(f"0 + {x.text}", x.type, BINARY, x.low, x.high)  # or else gcc warns of a sum with a widened number
    return ranged(f"({type.name}){x.at(UNARY)}", type, UNARY, *((x.low, x.high) if fits else (None, None)))


def condition(x: Text) -> Text:
    """Whether an integer is not 0."""
    return x if x.type.kind == "bool" else Text(f"{x.at(UNARY)} != 0", BOOL, BINARY, 0, 1)


def pointer(base: Text) -> Text:
    """A pointer with its index added."""
    if base.index is None:
        return base
    if base.index.number == 0:
        return replace(base, index=None)
    if base.type.element == "void":
        return pointer(replace(pointing(replace(base, index=None), "uint8_t"), index=base.index))
    if base.index.text.startswith("-") and base.index.number is not None:
        return Text(f"{base.at(UNARY)} - {base.index.text[1:]}", base.type, BINARY)
    return Text(f"{base.at(UNARY)} + {base.index.at(UNARY)}", base.type, BINARY)


def pointing(x: Text, element: str, const: bool | None = None) -> Text:
    """A pointer as one to elements of another type."""
    type = replace(x.type, element=element, const=x.type.const if const is None else const)
    if x.type == type:
        return x
    return Text(f"({type.name}){pointer(x).at(UNARY)}", type, UNARY)
