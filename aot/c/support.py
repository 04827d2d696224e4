"""What the C of a bundle shares: types that may alias, and functions that C has no operator for.

Enters: what the code asks for. Leaves: the text of what was asked for, and nothing else, so that no compiler finds it unused.
Invariant: no function of a C library is called; floats are computed by the same definitions as in objects for cores without an FPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aot.c.texts import CType
from aot.errors import InternalError

ELEMENTS = {"aot_int16": "int16_t", "aot_int32": "int32_t", "aot_int64": "int64_t", "aot_float": "float", "aot_double": "double"}
"""Elements of buffers that share memory with buffers of other types."""
ELEMENTS["aot_half"] = "uint16_t"
ELEMENTS["aot_pointer"] = "void *"
_ROUTINES = {
    ("fmod", 32): "fmodf",
    ("fmod", 64): "fmod",
    ("widen", 16): "__gnu_h2f_ieee",
    ("narrow", 16): "__gnu_f2h_ieee",
    **{
        (name, bits): f"{name}{'f' if bits == 32 else ''}"
        for name in ("sqrt", "floor", "ceil", "trunc", "rint")
        for bits in (32, 64)
    },
}
"""Routines of `aot.llvm.routines` that stand for an instruction."""


CUSTOM_CALL = "const aot_custom_call *"
"""The parameter of a function of the firmware's: a struct with pointers."""


@dataclass(frozen=True)
class Foreign:
    """A function that the code calls and that is not here: the header that declares it (`<name.h>` or `"name.h"`), or else its declaration;
    its parameters' types, to which arguments are cast. reads: the numbers of those that are pointers to what it does not write, which its
    declaration may not say."""

    parameters: tuple[str, ...]
    header: str = ""
    declaration: str = ""
    reads: frozenset[int] = frozenset()


class Support:
    """What has been asked for. prefix: the bundle's name. foreign: functions that may be called. called: those that are.
    floats: whether there is anything to compute in floats.
    """

    def __init__(self, prefix: str, foreign: Mapping[str, Foreign]) -> None:
        self.prefix, self.foreign = prefix, dict(foreign)
        self.called: set[str] = set()
        self.elements: set[str] = set()
        self.functions: dict[str, str] = {}
        self.routines: dict[str, str] = {}
        self.floats = False

    def element(self, name: str) -> str:
        """A type of elements, noted as used."""
        if name in ELEMENTS:
            self.elements.add(name)
        return name

    def routine(self, purpose: str, bits: int) -> str:
        """The name of the function that is a routine."""
        name = _ROUTINES.get((purpose, bits))
        if name is None:
            raise InternalError(f"the C emitter has no {purpose} of {bits} bits")
        symbol = f"{self.prefix}_{purpose}{'' if bits == 32 else bits}"
        self.routines.setdefault(symbol, name)
        return symbol

    def function(self, name: str, text: Callable[[str], str]) -> str:
        """The name of a function, defined on first use."""
        symbol = f"{self.prefix}_{name}"
        self.functions.setdefault(symbol, text(symbol))
        return symbol

    def bits_of(self, bits: int) -> str:
        """float -> the integer of its bits."""
        return self.function(f"bits{bits}", lambda name: _reinterpret(name, _real(bits), f"uint{bits}_t"))

    def of_bits(self, bits: int) -> str:
        """The bits of a float -> the float."""
        return self.function(f"float{bits}", lambda name: _reinterpret(name, f"uint{bits}_t", _real(bits)))

    def to_integer(self, source: int, bits: int, signed: bool) -> str:
        """float -> integer, towards zero; 0 for what does not fit."""
        type, real = f"{'' if signed else 'u'}int{bits}_t", _real(source)
        high = f"{2.0 ** (bits - signed)!r}{'f' if source == 32 else ''}"
        low = f"-{high}" if signed else f"-1.0{'f' if source == 32 else ''}"
        from_ = ">=" if signed and (bits == 64 or (source == 32 and bits == 32)) else ">"
        if signed and from_ == ">":
            low = f"-{2.0 ** (bits - 1) + 1!r}{'f' if source == 32 else ''}"
        return self.function(
            f"{'i' if signed else 'u'}{bits}_of_f{source}",
            lambda name: (
                f"static inline {type} {name}({real} x)\n{{\n"
                f"    return ((x {from_} {low}) && (x < {high})) ? ({type})x : ({type})0;\n}}\n"
            ),
        )

    def leading_zeros(self, bits: int) -> str:
        """The number of leading zeros of an integer; `bits` of 0."""
        type, half = f"uint{bits}_t", bits // 2

        def text(name: str) -> str:
            lines = [
                f"static inline {type} {name}({type} x)",
                "{",
                f"    {type} n = 0u;",
                "    if (x == 0u) {",
                f"        return {bits}u;",
                "    }",
            ]
            step = half
            while step:
                limit = f"UINT64_C({1 << (bits - step)})" if bits == 64 else f"{1 << (bits - step)}u"
                lines += [f"    if (x < {limit}) {{", f"        n += {step}u;", f"        x <<= {step};", "    }"]
                step //= 2
            return "\n".join([*lines, "    return n;", "}", ""])

        return self.function(f"clz{bits}", text)

    def clamp(self, bits: int) -> str:
        """int32 -> the nearest integer of so many bits, as int32."""
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        body = f"    return (x < {low}) ? {low} : ((x > {high}) ? {high} : x);"
        return self.function(f"clamp{bits}", lambda name: f"static inline int32_t {name}(int32_t x)\n{{\n{body}\n}}\n")

    def pieces(self, type: CType, align: int) -> Pieces:
        """How an element is loaded and stored whose address is a multiple of `align` only: piece by piece."""
        bits, part = type.bits, 8 * align
        whole, piece = f"uint{bits}_t", f"uint{part}_t"
        element = self.element({1: "uint8_t", 2: "aot_int16", 4: "aot_int32"}[align])
        wide = "uint64_t" if bits == 64 else "uint32_t"
        suffix = f"{'f' if type.kind == 'float' else 'i'}{bits}_{align}"
        into, out_of = (self.of_bits(bits), self.bits_of(bits)) if type.kind == "float" else (f"({type.name})", f"({whole})")

        def load(name: str) -> str:
            parts = [f"(({wide})({piece})p[{at}] << {part * at})" if at else f"({wide})({piece})p[0]" for at in range(bits // part)]
            joined = "\n        | ".join(parts)
            return f"static inline {type.name} {name}(const {element} *p)\n{{\n    return {into}({joined});\n}}\n"

        def store(name: str) -> str:
            kept = element if element == "uint8_t" else f"int{part}_t"
            lines = [
                f"    p[{at}] = ({kept})(bits >> {part * at});" if at else f"    p[0] = ({kept})bits;" for at in range(bits // part)
            ]
            head = f"static inline void {name}({element} *p, {type.name} x)\n{{\n    const {whole} bits = {out_of}(x);\n"
            return "\n".join([head + lines[0], *lines[1:], "}", ""])

        return Pieces(element, self, f"load_{suffix}", load, f"store_{suffix}", store)


@dataclass(frozen=True)
class Pieces:
    """Functions that load and store an element piece by piece, defined where their names are asked for. element: of a piece."""

    element: str
    support: Support
    load_name: str
    load_text: Callable[[str], str]
    store_name: str
    store_text: Callable[[str], str]

    @property
    def load(self) -> str:
        return self.support.function(self.load_name, self.load_text)

    @property
    def store(self) -> str:
        return self.support.function(self.store_name, self.store_text)


def _real(bits: int) -> str:
    return "float" if bits == 32 else "double"


def _reinterpret(name: str, source: str, target: str) -> str:
    union = f"    union {{\n        {source} from;\n        {target} to;\n    }} both;\n"
    return f"static inline {target} {name}({source} x)\n{{\n{union}    both.from = x;\n    return both.to;\n}}\n"
