"""Statements of a C function: nested bodies, variables that know where they are declared, labels.

Enters: statements in order. Leaves: lines of C.
Invariant: a variable is declared where every statement that names it sees it: at its first assignment, or, where a statement outside that
body names it, at the top of the function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from aot.c.texts import CType

INDENT = "    "
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(eq=False)
class Variable:
    """A local variable. home: the body that declares it (None: not yet declared). fixed: it is assigned once; pure: by what has no effect."""

    name: str
    type: CType
    fixed: bool = False
    pure: bool = True
    home: Body | None = None
    hoisted: bool = False


@dataclass(frozen=True)
class Assignment:
    """`variable = value`; the declaration, if it is the first. value: "" declares alone."""

    variable: Variable
    value: str
    declares: bool

    def text(self) -> str:
        declares = self.declares and not self.variable.hoisted
        if not declares:
            return _updated(self.variable.name, self.value) if self.value else ""
        if not self.value:
            return f"{self.variable.type.declare(self.variable.name)};"
        return f"{self.variable.type.declare(self.variable.name, const=self.variable.fixed)} = {self.value};"


@dataclass(frozen=True)
class Nested:
    """`head { body }`."""

    head: str
    body: Body


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(eq=False)
class Body:
    """Statements between braces."""

    parent: Body | None = None
    items: list[str | Assignment | Nested | Label] = field(default_factory=list[str | Assignment | Nested | Label])

    def sees(self, home: Body | None) -> bool:
        """Whether what `home` declares is visible here."""
        body: Body | None = self
        while body is not None:
            if body is home:
                return True
            body = body.parent
        return False

    def inner(self) -> Body:
        return Body(self)

    def declare(self, variable: Variable) -> None:
        """Declare a variable that is assigned later."""
        if variable.home is None:
            variable.home = self
            self.items.append(Assignment(variable, "", True))

    def assign(self, variable: Variable, value: str) -> None:
        first = variable.home is None
        if first:
            variable.home = self
        elif not self.sees(variable.home):
            variable.hoisted = True
        self.items.append(Assignment(variable, value, first))

    def prune(self) -> None:
        """Leave out variables that only their own assignments name: what they are for turned out to be a number, or to be read by nobody."""
        while True:
            named = Counter(word for line in self.lines() for word in _WORD.findall(line))
            for each in self._assignments():
                named.subtract(word for word in _WORD.findall(each.text()) if word == each.variable.name)
            unread = {each.variable for each in self._assignments() if not named[each.variable.name]}
            if not unread:
                return
            self._drop(unread)

    def _assignments(self) -> Iterator[Assignment]:
        for item in self.items:
            if isinstance(item, Nested):
                yield from item.body._assignments()
            elif isinstance(item, Assignment):
                yield item

    def _drop(self, unread: Collection[Variable]) -> None:
        kept: list[str | Assignment | Nested | Label] = []
        for item in self.items:
            if isinstance(item, Nested):
                item.body._drop(unread)
            if not isinstance(item, Assignment) or item.variable not in unread:
                kept.append(item)
            elif not item.variable.pure:
                kept.append(f"{item.value};")
        self.items = kept

    def lines(self, depth: int = 1) -> Iterator[str]:
        """The statements, indented."""
        for item in self.items:
            match item:
                case str():
                    yield f"{INDENT * depth}{item}"
                case Label(name):
                    yield f"{INDENT * (depth - 1)}{name}:;"
                case Assignment():
                    if text := item.text():
                        yield f"{INDENT * depth}{text}"
                case Nested(head, body):
                    yield f"{INDENT * depth}{head} {{"
                    yield from body.lines(depth + 1)
                    yield f"{INDENT * depth}}}"


def _updated(name: str, value: str) -> str:
    """`name = value;`, shorter where a value is added to the variable."""
    added = value.removeprefix(f"{name} + ")
    depth = 0
    for char in added:
        depth += (char in "([") - (char in ")]")
        if char == " " and not depth:
            return f"{name} = {value};"
    return (
        f"{name} = {value};"
        if added == value
        else f"{name} += {added.removeprefix('(').removesuffix(')') if _wrapped(added) else added};"
    )


def _wrapped(text: str) -> bool:
    """Whether one pair of parentheses is around all of a text."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return position == len(text) - 1 and text.startswith("(")
    return False
