"""From llvmlite modules to C files.

Enters: the modules of a bundle before LLVM has seen them, the block of constants, the declarations of the functions in the header. Leaves:
NAME.c and NAME_weights.c as text.
Invariant: nothing is global but the functions in the header and the constants; no function of a C library is called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llvmlite import ir

from aot.c.flow import Flow
from aot.c.program import Program, Signature
from aot.c.shape import shape_of
from aot.c.support import CUSTOM_CALL, ELEMENTS, Foreign, Support
from aot.c.texts import CType
from aot.c.values import Values
from aot.llvm.routines import define
from aot.target import Target

Exported = Mapping[str, tuple[str, Sequence[tuple[str, CType]]]]
"""Of each function in the header: its declaration, and its parameters' names and types."""
_PER_LINE = 16


def function_text(program: Program, signature: Signature, support: Support) -> str:
    """The definition of a function. Its parameters are then those that its body names: callers are written after it."""
    numbers = dict(zip(signature.function.args, signature.parameters, strict=True))

    def known(value: Any) -> int | None:
        if isinstance(value, ir.Constant):
            return int(value.constant) if isinstance(value.type, ir.IntType) else None
        return numbers[value].number if isinstance(value, ir.Argument) else None

    shape = shape_of(signature.function, known)
    values = Values(program, signature, shape, support)
    body = Flow(shape, values).body()
    body.prune()
    named = set(re.findall(r"\w+", "\n".join(body.lines())))
    signature.parameters = tuple(replace(one, used=one.name in named) for one in signature.parameters)
    lines = [signature.declaration(), "{"]
    lines += [f"    {one.type.declare(one.name)};" for one in values.top if one.hoisted and one.name in named]
    lines += [f"    (void){one.name};" for one in signature.parameters if signature.exported and not one.used]
    return "\n".join([*lines, *_without_unused_labels(list(body.lines())), "}", ""])


def _without_unused_labels(lines: list[str]) -> list[str]:
    """Labels are written wherever control may join; those that no goto names go."""
    wanted = {line.strip().removeprefix("goto ").removesuffix(";") for line in lines if line.strip().startswith("goto ")}
    return [line for line in lines if not line.endswith(":;") or line.strip().removesuffix(":;") in wanted]


def main_text(
    name: str,
    modules: Sequence[ir.Module],
    exported: Exported,
    target: Target,
    foreign: Mapping[str, Foreign],
    weights_nbytes: int | None,
) -> str:
    """NAME.c. weights_nbytes: of the constants in NAME_weights.c, if there are any."""
    support = Support(name, foreign)
    program = Program.of(modules, exported, {each: one.reads for each, one in foreign.items()})
    texts = [function_text(program, signature, support) for signature in program.signatures.values()]
    routines = routine_texts(support, target)
    elements = [f"typedef {type} AOT_MAY_ALIAS {element};" for element, type in ELEMENTS.items() if element in support.elements]
    parts = [_head(name, support, target, program)]
    if elements:
        parts.append("\n".join([*elements, ""]))
    if program.readers:
        parts.append("typedef int aot_read(void *ctx, uint32_t offset, uint32_t size, void *dst);\n")
    if weights_nbytes:
        parts.append(f"extern const uint8_t {name}_weights[{weights_nbytes}];\n")
    declared = [support.foreign[each].declaration for each in sorted(support.called) if support.foreign[each].declaration]
    if declared:
        parts.append("\n".join([*declared, ""]))
    return "\n".join([*parts, *support.functions.values(), *routines, *texts])


def routine_texts(support: Support, target: Target) -> list[str]:
    """The functions that stand for instructions that C lacks, callees first."""
    made: dict[str, str] = {}
    while len(made) < len(support.routines):
        for symbol, name in list(support.routines.items()):
            if symbol in made:
                continue
            module = ir.Module(symbol)
            define(module, symbol, name, target)
            program = Program.of([module], {})
            made[symbol] = "\n".join(function_text(program, each, support) for each in program.signatures.values())
    return list(made.values())


def _head(name: str, support: Support, target: Target, program: Program) -> str:
    lines = [
        f"/* {name}.c: C99 without a C library. Compile it with {name}_weights.c; see {name}.h. Do not edit: make it again. */"
    ]
    lines += [f'#include "{name}.h"', "", "#include <stddef.h>", "#include <stdint.h>"]
    lines += [f"#include {header}" for header in sorted({support.foreign[each].header for each in support.called} - {""})]
    lines += [
        "",
        "#if defined(__BYTE_ORDER__) && (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)",
        '#error "constants are little-endian"',
        "#endif",
    ]
    if support.floats:
        lines += [
            "#if defined(__FAST_MATH__)",
            '#error "floats must be computed as written: no -ffast-math"',
            "#endif",
            "#if defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ != 0)",
            '#error "floats must not be computed in a wider format: for x86, -msse2 -mfpmath=sse"',
            "#endif",
            "#if defined(__clang__) || !defined(__GNUC__)",
            "#pragma STDC FP_CONTRACT OFF",
            "#elif !defined(__STRICT_ANSI__)",
            '#pragma GCC optimize ("fp-contract=off")',
            "#endif",
        ]
    if support.elements:
        lines += [
            "#if defined(__GNUC__)",
            "#define AOT_MAY_ALIAS __attribute__((__may_alias__)) /* buffers of several types share memory */",
            "#else",
            "#define AOT_MAY_ALIAS",
            "#endif",
        ]
    if any(CUSTOM_CALL in support.foreign[each].parameters for each in support.called):  # structs with pointers are laid out
        lines += [
            f"typedef char aot_pointers_have_{target.pointer_bits}_bits[(sizeof(void *) == {target.pointer_bits // 8}) ? 1 : -1];"
        ]
    return "\n".join([*lines, ""])


def weights_text(name: str, block: bytes, align: int) -> str:
    """NAME_weights.c."""
    rows = [", ".join(map(str, block[at : at + _PER_LINE])) for at in range(0, len(block), _PER_LINE)]
    lines = [
        f"/* {name}_weights.c: the constants of {name}.c, little-endian. Do not edit: make it again. */",
        "#include <stdint.h>",
        "",
        "#if defined(__GNUC__)",
        "#define AOT_ALIGNED(n) __attribute__((__aligned__(n)))",
        "#elif defined(__STDC_VERSION__) && (__STDC_VERSION__ >= 201112L)",
        "#define AOT_ALIGNED(n) _Alignas(n)",
        "#else",
        '#error "define AOT_ALIGNED(n): how this compiler aligns an array to n bytes"',
        "#endif",
        "",
        f"extern const uint8_t {name}_weights[{len(block)}];",
        f"AOT_ALIGNED({align}) const uint8_t {name}_weights[{len(block)}] = {{",
        *(f"    {row}," for row in rows),
        "};",
        "",
    ]
    return "\n".join(lines)
