"""Code generation in a child process, for targets that nobody has tried: LLVM ends its process on what a target can't do.

Enters: a function. Leaves: its result. Invariant: whatever LLVM does, this process goes on, and the user reads one line.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from aot.errors import CompileError, InternalError

Result = TypeVar("Result")


def isolated(function: Callable[[], Result], triple: str) -> Result:
    """`function()`, in a child process. CompileError if LLVM ends the process, or complains about the target."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as complaints:
        child = os.fork()
        if not child:
            os.close(reader)
            _answer(function, writer, complaints.fileno())
        os.close(writer)
        try:
            with os.fdopen(reader, "rb") as stream:
                answer = stream.read()
        finally:
            _, status = os.waitpid(child, 0)
        complaints.seek(0)
        lines = complaints.read().decode(errors="replace").splitlines()
    if lines or status:
        reason = f": {lines[-1].strip()}" if lines else ""
        raise CompileError(
            f"LLVM can't compile for this target ('{triple}'){reason}", hint="choose another target, CPU or features"
        )
    kind, *content = pickle.loads(answer)  # our own child's
    if kind == "refused":
        what, where, hint = content
        raise CompileError(what, where=where, hint=hint)
    if kind == "broken":
        raise InternalError(content[0])
    return content[0]


def _answer(function: Callable[[], Any], writer: int, complaints: int) -> None:
    """The child's whole life: compute, answer, end. What it writes to standard error is kept in `complaints`."""
    os.dup2(complaints, 2)
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer: tuple[Any, ...] = ("done", function())
    except CompileError as error:
        answer = ("refused", error.what, error.where, error.hint)
    except BaseException:  # the parent raises it
        answer = ("broken", traceback.format_exc())
    with os.fdopen(writer, "wb") as stream:
        pickle.dump(answer, stream)
    sys.stderr.flush()
    os._exit(0)
