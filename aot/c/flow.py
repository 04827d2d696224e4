"""Control flow: blocks and branches become `for`, `if`, `switch`; what is left, labels and `goto`.

Enters: a function's shape and values. Leaves: the body of the C function.
Invariant: every block is written once, after the block that dominates it and inside the loop that it is in; a branch to a block that comes
next is written as nothing, to any other as `break`, `continue` or `goto`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from aot.c.arithmetic import inverted
from aot.c.body import Body, Label, Nested, Variable
from aot.c.shape import Loop, Shape
from aot.c.texts import BINARY, Text, pointer, viewed
from aot.c.values import Values
from aot.errors import InternalError

Block = Any
Instructions = ir.instructions


@dataclass(frozen=True)
class Around:
    """What a statement is inside: the innermost loop, what follows that, and whether a `switch` lies between."""

    loop: Loop | None = None
    after: Block | None = None
    switch: bool = False


class Flow:
    """The statements of one function."""

    def __init__(self, shape: Shape, values: Values) -> None:
        self.shape, self.values = shape, values
        self.behind: dict[Loop, list[Block]] = {loop: [] for loop in shape.loops.values()}
        self.joined: dict[Block, list[Block]] = {block: [] for block in shape.order}
        self.labels: dict[Block, str] = {}
        self.breaks: dict[Loop, Block | None] = {}
        for block in shape.order[1:]:
            self._place(block)

    def _place(self, block: Block) -> None:
        """Where a block is written: behind the loop that it leaves, behind its dominator's own code, or where it is branched to."""
        dominator = self.shape.idom[block]
        left = [loop for loop in self.shape.loops_of(dominator) if block not in loop.blocks]
        alone = len(self.shape.forward(block)) == 1
        ends = isinstance(block.instructions[-1], Instructions.Ret | Instructions.Unreachable)
        if left and not (alone and ends and left[0].counted is None) and not (alone and ends and not self._is_exit(block, left)):
            self.behind[left[-1]].append(block)
        elif not alone:
            self.joined[dominator].append(block)

    def _is_exit(self, block: Block, loops: list[Loop]) -> bool:
        return any(loop.counted is not None and loop.counted.exit is block for loop in loops)

    def body(self) -> Body:
        """The whole function."""
        body = Body()
        self._section(self.shape.order[0], body, None, Around())
        for block, name in self.labels.items():
            if not self._placed_label(body, name):
                raise InternalError(f"{self.shape.function.name}: no place for {block.name}")
        if body.items and body.items[-1] == "return;":
            body.items.pop()
        return body

    def _placed_label(self, body: Body, name: str) -> bool:
        return any(
            (isinstance(item, Label) and item.name == name) or (isinstance(item, Nested) and self._placed_label(item.body, name))
            for item in body.items
        )

    def _section(self, block: Block, body: Body, follow: Block | None, around: Around) -> bool:
        """A block and what it dominates. Returns whether control may reach the end, where `follow` comes next."""
        loop = self.shape.loops.get(block)
        own = loop is not None and (around.loop is not loop or around.after is not block)
        tails = self.behind[loop] if own and loop is not None else self.joined[block]
        tails = sorted(tails, key=lambda each: self.shape.number[each])
        for tail in tails:
            for phi in self.values.phis.phis(tail):
                if self.values.uses.get(phi):
                    body.declare(self.values.phi(phi))
        following = [*tails, follow]
        if own and loop is not None:
            falls = self._loop(loop, body, following[0], around)
        else:
            falls = self._block(block, body, following[0], around)
        for tail, after in zip(tails, following[1:]):
            body.items.append(Label(self._label(tail)))
            falls = self._section(tail, body, after, around)
        return falls

    def _label(self, block: Block) -> str:
        """The name that a label for this block would have."""
        stem = re.sub(r"\W", "_", block.name) or "block"
        return f"{stem}_{self.shape.number[block]}"

    def _loop(self, loop: Loop, body: Body, follow: Block | None, around: Around) -> bool:
        inner = body.inner()
        inside = Around(loop, loop.header)
        head = "for (;;)"
        if loop.counted is not None:
            counted = loop.counted
            variable = self.values.phi(counted.index)
            before = next(block for block in self.shape.forward(loop.header))
            type = variable.type
            start, bound = (
                viewed(self.values.text(each, before, body), type.bits, type.signed) for each in (counted.start, counted.bound)
            )
            step = f"{variable.name} += {counted.step}" if counted.step != 1 else f"{variable.name}++"
            if type.bits == 32 and not type.signed and counted.step != 1:
                step += "u"
            head = f"for ({type.declare(variable.name)} = {start.text}; {variable.name} < {bound.at(BINARY)}; {step})"
            variable.home = inner
        self.breaks[loop] = follow
        body.items.append(Nested(head, inner))
        self._section(loop.header, inner, loop.header, inside)
        return True

    def _block(self, block: Block, body: Body, follow: Block | None, around: Around) -> bool:
        self.values.emit(block, body)
        last = block.instructions[-1]
        match last:
            case Instructions.Ret():
                self._return(last, block, body)
                return False
            case Instructions.Unreachable():
                return False
            case Instructions.SwitchInstr():
                return self._switch(last, block, body, follow, around)
            case Instructions.ConditionalBranch():
                return self._condition(last, block, body, follow, around)
            case Instructions.Branch():
                return self._branch(block, last.operands[0], body, follow, around)
            case _:
                pass
        raise InternalError(f"the C emitter knows no {last.opname}")

    def _return(self, last: Any, block: Block, body: Body) -> None:
        if last.return_value is None:
            body.items.append("return;")
            return
        value = self.values.text(last.return_value, block, body)
        if value.type.kind == "int":
            value = viewed(value, value.type.bits, True)
        body.items.append(f"return {pointer(value).text};")

    def _condition(self, last: Any, block: Block, body: Body, follow: Block | None, around: Around) -> bool:
        test, yes, no = last.operands
        loop = around.loop
        if loop is not None and loop.counted is not None and block is loop.latches[0]:
            self._assign(block, no, body, loop)
            self._assign(block, yes, body)
            return True
        guarded = self.shape.loops.get(yes)
        if guarded is not None and guarded.counted is not None and guarded.counted.guard is block:
            self._assign(block, no, body, guarded)
            self._branch(block, yes, body, no, around)
            return True if follow is no else self._jump(no, body, around)
        condition = self.values.text(test, block, body)
        if condition.number is not None:
            return self._branch(block, yes if condition.number else no, body, follow, around)
        if self._leaves(block, no, follow) and not self._leaves(block, yes, follow):
            condition, yes, no = inverted(condition), no, yes
        then, otherwise = body.inner(), body.inner()
        falls = self._branch(block, yes, then, follow, around)
        if not falls:
            body.items.append(Nested(f"if ({condition.text})", then))
            return self._branch(block, no, body, follow, around)
        also = self._branch(block, no, otherwise, follow, around)
        if then.items:
            body.items.append(Nested(f"if ({condition.text})", then))
            if otherwise.items:
                body.items.append(Nested("else", otherwise))
        elif otherwise.items:
            body.items.append(Nested(f"if ({inverted(condition).text})", otherwise))
        return falls or also

    def _leaves(self, block: Block, target: Block, follow: Block | None) -> bool:
        """Whether a branch is short, and does not come back."""
        if target is follow:
            return False
        if not self._written_here(block, target):
            return True
        return isinstance(target.instructions[-1], Instructions.Ret | Instructions.Unreachable)

    def _written_here(self, source: Block, target: Block) -> bool:
        """Whether a block is written where it is branched to."""
        return (
            self.shape.idom.get(target) is source
            and target not in self.joined[source]
            and not any(target in behind for behind in self.behind.values())
        )

    def _switch(self, last: Any, block: Block, body: Body, follow: Block | None, around: Around) -> bool:
        value = self.values.text(last.value, block, body)
        inner = body.inner()
        inside = Around(around.loop, around.after, switch=True)
        for target in dict.fromkeys(target for _, target in last.cases):
            numbers = [case for case, goes in last.cases if goes is target]
            arm = inner.inner()
            if self._branch(block, target, arm, follow, inside):
                arm.items.append("break;")
            *others, case = [f"case {int(number.constant)}:" for number in numbers]
            inner.items += [*others, Nested(case, arm)]
        if not isinstance(last.default.instructions[-1], Instructions.Unreachable):
            arm = inner.inner()
            if self._branch(block, last.default, arm, follow, inside):
                arm.items.append("break;")
            inner.items.append(Nested("default:", arm))
        else:
            inner.items += ["default:", "    break;"]
        body.items.append(Nested(f"switch ({viewed(value, value.type.bits, True).text})", inner))
        return True

    def _branch(self, source: Block, target: Block, body: Body, follow: Block | None, around: Around) -> bool:
        """Go to a block. Returns whether control may reach the end of what is written."""
        self._assign(source, target, body)
        if self._written_here(source, target):
            return self._section(target, body, follow, around)
        if target is follow:
            return True
        return self._jump(target, body, around)

    def _jump(self, target: Block, body: Body, around: Around) -> bool:
        if around.loop is not None and target is around.loop.header:
            body.items.append("continue;")
        elif around.loop is not None and self.breaks.get(around.loop) is target and not around.switch:
            body.items.append("break;")
        else:
            self.labels.setdefault(target, self._label(target))
            body.items.append(f"goto {self._label(target)};")
        return False

    def _assign(self, source: Block, target: Block, body: Body, past: Loop | None = None) -> None:
        """What the phis of a block become on the way from another; past: a counted loop whose own phis hold what theirs are."""
        values = self.values
        held = [] if past is None else [values.phis.leader(phi) for phi in values.phis.phis(past.header)]
        pending: list[tuple[Variable, str]] = []
        loop = self.shape.loops.get(target)
        for phi in values.phis.phis(target):
            if not values.uses.get(phi) or (loop is not None and loop.counted is not None and loop.counted.index is phi):
                continue
            if values.phis.leader(phi) in held:
                continue
            variable = values.phi(phi)
            given = values.text(values.phis.incoming(phi, source), source, body)
            text = self._fitting(given, variable)
            if text != variable.name:
                pending.append((variable, text))
        while pending:
            free = next(
                (each for each in pending if not any(_names(text, each[0]) for _, text in pending if (_, text) != each)), None
            )
            if free is None:
                variable, text = pending[0]
                old = values.variable("t", variable.type, True)
                body.assign(old, variable.name)
                pending = [(one, re.sub(rf"\b{variable.name}\b", old.name, text)) for one, text in pending]
                continue
            pending.remove(free)
            body.assign(*free)

    def _fitting(self, given: Text, variable: Variable) -> str:
        type = variable.type
        if type.kind == "int":
            return viewed(given, type.bits, type.signed).text
        if type.kind == "pointer" and given.type.element != type.element and given.text != "NULL":
            return pointer(self.values.pointing(given, type.element)).text
        return pointer(given).text


def _names(text: str, variable: Variable) -> bool:
    return re.search(rf"\b{variable.name}\b", text) is not None
