"""Routines of the compiler as C, for a C compiler whose own are not at hand: those that objects get as machine code.

Enters: names of routines, a target. Leaves: a C file that defines them.
Invariant: their arithmetic is `aot/llvm/routines.py`'s, translated like any function of a bundle.
"""

from __future__ import annotations

from collections.abc import Collection

from llvmlite import ir

from aot.c.module import function_text, routine_texts
from aot.c.program import Program, type_of
from aot.c.support import Support
from aot.errors import CompileError
from aot.llvm.routines import define, table
from aot.target import Target


def routines_file(names: Collection[str], target: Target) -> str:
    """The file. CompileError for a routine that is not known."""
    support = Support("routines", {})
    texts: list[str] = []
    for name in sorted(names):
        routine = table(target.pointer_bits).get(name)
        if routine is None:
            raise CompileError(f"the C compiler needs {name}, which is not known here")
        module = ir.Module(name)
        own = f"aot{name}"
        define(module, own, name, target)
        program = Program.of([module], {})
        texts += [function_text(program, each, support) for each in program.signatures.values()]
        given = [f"{type_of(one).name} {letter}" for one, letter in zip(routine.takes, "ab")]
        head = f"{type_of(routine.returns).name} {name}({', '.join(given)})"
        passed = ", ".join(letter for one, letter in zip(program.signatures[own].parameters, "ab") if one.passed)
        texts.append(f"{head};\n{head}\n{{\n    return {own}({passed});\n}}\n")
    return "\n".join(["#include <stdint.h>\n", *support.functions.values(), *routine_texts(support, target), *texts])
