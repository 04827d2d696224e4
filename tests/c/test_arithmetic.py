"""C expressions of integers: random ones, compiled with the sanitizer of undefined behaviour, have LLVM's values, which lie in their ranges."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from aot.c.arithmetic import binary, cast, compare
from aot.c.support import Support
from aot.c.texts import BOOL, PRIMARY, UNARY, Text, integer, literal, viewed
from tests.c.program import SANITIZERS, compilers

COMPILERS = compilers()
FUNCTIONS, CALLS = 5000 if os.environ.get("AOT_SWEEP") else 400, 6
SUMS, BITWISE, SHIFTS = ("add", "sub", "mul"), ("and", "or", "xor"), ("shl", "lshr", "ashr")
DIVISIONS, ORDERS = ("sdiv", "udiv", "srem", "urem"), ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
EDGES = (-128, -127, -2, -1, 0, 1, 2, 3, 7, 31, 127, 128, 255, 32767, 65535, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 63)
Values = Mapping[str, int]


class Poison(Exception):
    """LLVM leaves the result open."""


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def unsigned(x: int, bits: int) -> int:
    return x & ((1 << bits) - 1)


def meaning(op: str, x: int, y: int, bits: int, stays: bool) -> int:
    """What LLVM's operator gives; Poison where it gives nothing in particular."""
    a, b, u, v = signed(x, bits), signed(y, bits), unsigned(x, bits), unsigned(y, bits)
    if op in SUMS:
        found = a + b if op == "add" else a - b if op == "sub" else a * b
        if stays and signed(found, bits) != found:
            raise Poison
        return found
    if op in BITWISE:
        return u & v if op == "and" else u | v if op == "or" else u ^ v
    if op in SHIFTS:
        if v >= bits:
            raise Poison
        return u << v if op == "shl" else u >> v if op == "lshr" else a >> v
    if v == 0 or (op.startswith("s") and a == -(1 << (bits - 1)) and b == -1):
        raise Poison
    if op.startswith("u"):
        return u // v if op == "udiv" else u % v
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if op == "sdiv" else a - quotient * b


def ordered(op: str, x: int, y: int, bits: int) -> bool:
    a, b = (unsigned(each, bits) if op.startswith("u") else signed(each, bits) for each in (x, y))
    return {"e": a == b, "n": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op[0] if op in ("eq", "ne") else op[1:]]


@dataclass(frozen=True)
class Node:
    """An expression: its text, its bits, and its value for those of the variables."""

    text: Text
    bits: int
    value: Callable[[Values], int]


@dataclass
class Maker:
    pick: random.Random
    variables: dict[str, Text]

    def leaf(self, bits: int) -> Node:
        least, most = (type := integer(bits, self.pick.random() < 0.6)).limits
        ends = sorted(self.pick.choice((self.pick.randint(least, most), *(e for e in EDGES if least <= e <= most))) for _ in "ab")
        if self.pick.random() < 0.3:
            return Node(literal(ends[0], type), bits, lambda values: ends[0])
        name = f"x{len(self.variables)}"
        self.variables[name] = Text(name, type, PRIMARY, *(ends if self.pick.random() < 0.7 else (least, most)))
        return Node(self.variables[name], bits, lambda values: values[name])

    def node(self, bits: int, depth: int) -> Node:
        if not depth:
            return self.leaf(bits)
        kind = self.pick.choice(("sum", "sum", "bitwise", "shift", "shift", "division", "cast", "compare"))
        if kind == "cast":
            return self.cast(bits, depth)
        x, y = self.node(bits, depth - 1), self.node(bits, self.pick.randrange(depth))
        if kind == "compare":
            order = self.pick.choice(ORDERS)
            text = cast(Support("m", {}), "zext", compare(order, x.text, y.text), BOOL, integer(bits))
            return Node(text, bits, lambda values: ordered(order, x.value(values), y.value(values), bits))
        if kind == "shift" and self.pick.random() < 0.8:
            count = self.pick.randrange(bits)
            y = Node(literal(count, integer(bits)), bits, lambda values: count)
        op = self.pick.choice({"sum": SUMS, "bitwise": BITWISE, "shift": SHIFTS, "division": DIVISIONS}[kind])
        stays = kind == "sum" and self.pick.random() < 0.3
        text = binary(Support("m", {}), op, x.text, y.text, integer(bits), ("nsw",) * stays)
        return Node(text, bits, lambda values: meaning(op, x.value(values), y.value(values), bits, stays))

    def cast(self, bits: int, depth: int) -> Node:
        """Of another width."""
        source = self.pick.choice([other for other in (8, 16, 32, 64) if other != bits])
        x, op = self.node(source, depth - 1), "trunc" if source > bits else self.pick.choice(("zext", "sext"))
        seen = unsigned if op == "zext" else signed
        text = cast(Support("m", {}), op, x.text, integer(source), integer(bits))
        return Node(text, bits, lambda values: seen(x.value(values), source))


def drawn(seed: int) -> tuple[dict[str, Text], Node, list[tuple[Values, int]]]:
    """Variables, an expression of them, and what it is for values of theirs."""
    maker = Maker(random.Random(seed), {})
    node, found = maker.node(maker.pick.choice((8, 16, 32, 32, 64)), 1 + seed % 3), []
    for _ in range(CALLS):
        values = {
            name: maker.pick.choice((x.low, x.high, maker.pick.randint(x.low, x.high))) for name, x in maker.variables.items()
        }
        try:
            found.append((values, signed(node.value(values), node.bits)))
        except Poison:
            continue
    return maker.variables, node, found


@pytest.mark.parametrize("name", COMPILERS)
def test_random_expressions(name: str, tmp_path: Path) -> None:
    functions, calls, expected = [], [], []
    for number in range(FUNCTIONS):
        variables, node, found = drawn(number)
        parameters = ", ".join(each.type.declare(each.text) for each in variables.values()) or "void"
        functions.append(
            f"static int64_t f{number}({parameters}) {{ return (int64_t){viewed(node.text, node.bits, True).at(UNARY)}; }}"
        )
        for values, value in found:
            low, high, type = node.text.low, node.text.high, node.text.type
            assert low <= (signed if type.signed else unsigned)(value, node.bits) <= high, (number, node.text, values)
            given = ", ".join(literal(values[each], x.type).text for each, x in variables.items())
            calls.append(f'    printf("%lld\\n", (long long)f{number}({given}));')
            expected.append((number, node.text.text, value))
    lines = ("#include <stdint.h>", "#include <stdio.h>", *functions, "int main(void) {", *calls, "    return 0;", "}")
    (tmp_path / "x.c").write_text("\n".join(lines) + "\n")
    made = subprocess.run([*COMPILERS[name], *SANITIZERS[name], "x.c", "-o", "x"], cwd=tmp_path, capture_output=True, text=True)
    assert not made.returncode, made.stderr
    done = subprocess.run([tmp_path / "x"], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    results = [int(line) for line in done.stdout.split()]
    for (number, text, value), result in zip(expected, results, strict=True):
        assert value == result, (number, text)
    assert len(expected) > 3 * FUNCTIONS


def test_what_random_expressions_found() -> None:
    """An unsigned divisor beyond int; a literal of int shifted by more than 31; a count that is none."""
    support, wide = Support("m", {}), integer(64)
    x, y, n = (Text(name, integer(32, name != "y"), PRIMARY, 0, high) for name, high in (("x", 9), ("y", (1 << 32) - 1), ("n", 63)))
    assert binary(support, "udiv", x, y, integer(32)).text == "(uint32_t)x / y"
    assert binary(support, "shl", literal(1, wide), viewed(n, 64, True), wide).text == "(uint64_t)1u << (int64_t)n"
    assert binary(support, "lshr", y, literal(-1, integer(32)), integer(32)).text == "y >> 31"
