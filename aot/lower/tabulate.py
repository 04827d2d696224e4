"""Tables for what depends on one 8-bit number: 256 answers computed now instead of arithmetic for every element.

Enters: a Program of groups. Leaves: the same Program in which such expressions are `Lookup`s in new constants.
Invariant: the table is the expression's own numpy meaning at all 256 values, so no byte changes.
"""

from __future__ import annotations

from aot.graph.expr import Binary, Cast, Const, Expr, Lookup, Requantise, children, walk
from aot.graph.ir import DType
from aot.lower.program import Program
from aot.lower.tables import Tables, often_enough, with_children

_LEAST_COST = 6


def tabulate(program: Program) -> Program:
    """expr(x) -> table[x], where x is 8 bits wide, expr reads nothing else that varies, costs more than a load, and is evaluated often."""
    tables = Tables(program)
    return tables.rewritten(lambda root, uses: _tabulated(root, uses, tables))


def _tabulated(root: Expr, uses: int, tables: Tables) -> Expr:
    """`root` with its largest sub-expressions that qualify replaced; a table's argument may hold a table of its own."""
    done: dict[int, Expr] = {}

    def visit(expr: Expr) -> Expr:
        if id(expr) not in done:
            argument = tables.byte_argument(expr)
            if argument is not None and _worth(expr, argument, uses):
                done[id(expr)] = tables.lookup(tables.values(expr, (argument,)), visit(argument))
            else:
                done[id(expr)] = with_children(expr, visit)
        return done[id(expr)]

    return visit(root)


def _worth(expr: Expr, argument: Expr, uses: int) -> bool:
    if expr.dtype is DType.BOOL or not often_enough(uses, 256 * expr.dtype.nbytes):
        return False
    below = {id(each) for each in walk(argument)}
    return sum(_instructions(each) for each in walk(expr) if id(each) not in below) >= _LEAST_COST


def _instructions(expr: Expr) -> int:
    """What one node of an expression costs, roughly."""
    match expr:
        case Const() | Cast():
            return 0
        case Requantise():
            return 12
        case Binary(op=("div" | "rem")):
            return 8
        case Lookup():
            return 2
        case _:
            pass
    return 1 if children(expr) else 0
