"""The two errors of the project.

`CompileError` is the user's to mend (model or flags): one line that says where, what and what to do; exit code 1.
`InternalError` is ours: it keeps its traceback; exit code 70.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class CompileError(Exception):
    """The model or the flags can't be compiled.

    `what` is one sentence; `where` names the place (file, node number, operator, tensor); `hint` says what to do.
    Text from a model file is untrusted: control characters are replaced, so that the message stays one line.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = one_line(what), one_line(where), one_line(hint)
        text = f"{self.where}: {self.what}" if self.where else self.what
        super().__init__(f"{text} ({self.hint})" if self.hint else text)

    def at(self, where: str) -> CompileError:
        """The same error, with `where` (a file, say) before the place it names, unless it names that first already."""
        if self.where == one_line(where) or self.where.startswith(f"{one_line(where)}: "):
            return self
        return CompileError(self.what, where=f"{where}: {self.where}" if self.where else where, hint=self.hint)


class InternalError(Exception):
    """A fault of the compiler itself: a broken invariant, never the user's input."""


@contextmanager
def located(where: str) -> Generator[None]:
    """CompileErrors from here name `where` (a file; "": none) first."""
    try:
        yield
    except CompileError as error:
        raise (error.at(where) if where else error) from None


def one_line(text: str) -> str:
    """`text` with every control character as `?`, cut at 400 characters."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if len(clean) <= 400 else clean[:397] + "..."
