# pyright: basic
"""The one file that calls LLVM (`llvmlite.binding`): passes, linking, object code.

Enters: LLVM IR as text or bitcode, and a target. Leaves: bitcode, object code with the frame size of each function, assembly text.
Invariant: the same input gives the same bytes, whatever ran before in this process: process-wide options are set before each
emission and put back after it.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llvmlite
from llvmlite import binding

from aot.errors import CompileError, InternalError
from aot.llvm.isolation import isolated

if TYPE_CHECKING:
    from aot.target import Target

_FRAME = re.compile(r"stack frame size \((\d+)\) exceeds limit \(0\) in function '([^']*)'")
_DEFINED = re.compile(r'@(?:"([^"]+)"|([\w.$-]+))\(')
_CALLED = re.compile(r'\bcall\b[^\n"@]*@(?:"([^"]+)"|([\w.$-]+))\(')
"""LLVM's text of a function's head, and of a call of a function by its name (inline assembly has quotes before it)."""
_ARCHITECTURES = (
    "aarch64",
    "arm",
    "thumb",
    "riscv32",
    "riscv64",
    "hexagon",
    "xtensa",
    "x86_64",
    "mips",
    "avr",
    "msp430",
    "powerpc",
)
"""Those of microcontrollers, and of machines that aot runs on."""
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Emission:
    """Object code, and the bytes of stack that each function takes itself (saved registers too, a pushed return address not)."""

    object: bytes
    frames: Mapping[str, int]


def versions() -> dict[str, str]:
    """Which LLVM this is: the versions of llvmlite and of LLVM itself."""
    return {"llvmlite": llvmlite.__version__, "llvm": ".".join(map(str, binding.llvm_version_info))}


def architectures() -> tuple[str, ...]:
    """The architectures that this LLVM makes code for, as it calls them itself."""
    _initialise()
    found = {}
    for prefix in _ARCHITECTURES:
        try:
            found[prefix] = binding.Target.from_triple(prefix).name
        except RuntimeError:
            continue
    return tuple(found)


@functools.cache
def _initialise() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    # Of a Hexagon alone: constants of 64 bits would lie in a writable section, which the firmware's GP register points to.
    binding.set_option("aot", "-hexagon-small-data-threshold=0")


def _named(pattern: re.Pattern[str], text: str) -> list[str]:
    """The names that a pattern finds, in quotes or plain."""
    return [quoted or plain for quoted, plain in pattern.findall(text)]


class Compiler:
    """LLVM for one target. Modules go in and out as text or bitcode; each call has an LLVM context of its own."""

    def __init__(self, target: Target, position_independent: bool = False, speed_level: int = 2) -> None:
        _initialise()
        self.target, self.speed_level = target, speed_level
        self.position_independent = position_independent or target.pointer_bits == 64
        try:
            self.machine: Any = binding.Target.from_triple(target.triple).create_target_machine(
                cpu=target.cpu,
                features=target.features,
                opt=3,
                reloc="pic" if self.position_independent else "static",
                codemodel="default",
                abiname=abi_name(target),
            )
        except RuntimeError as error:
            raise CompileError(f"LLVM has no target '{target.triple}': {error}") from error
        self.layout = str(self.machine.target_data)
        form = binding.get_object_format(target.triple)
        if form != "ELF" or self.layout.startswith("E"):
            what = "big-endian" if form == "ELF" else f"for {form} objects"
            raise CompileError(f"'{target.triple}' is {what}", hint="only little-endian ELF is emitted")

    def parse(self, text: str) -> bytes:
        """Check LLVM IR text and give it as bitcode of this target. InternalError if LLVM refuses it."""
        context = binding.create_context()
        try:
            module: Any = binding.parse_assembly(text, context)
            module.triple, module.data_layout = self.target.triple, self.layout
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"LLVM refuses the module: {error}") from error
        return module.as_bitcode()

    def optimise(self, bitcode: bytes) -> bytes:
        """Run LLVM's pass pipeline. Loops are unrolled as the target likes; vectors only where it has them.

        LLVM 22's loop vectoriser ends the process on some loops (its two cost models disagree): then there are none.
        """
        if not has_vectors(self.target):
            return self._optimised(bitcode, vectors=False)
        try:
            return isolated(lambda: self._optimised(bitcode, vectors=True), self.target.triple)
        except CompileError:
            return self._optimised(bitcode, vectors=False)

    def _optimised(self, bitcode: bytes, vectors: bool) -> bytes:
        module = self._load(bitcode)
        tuning: Any = binding.create_pipeline_tuning_options(speed_level=self.speed_level)
        tuning.loop_unrolling = True
        tuning.loop_interleaving = False
        tuning.loop_vectorization = tuning.slp_vectorization = vectors
        builder = binding.create_pass_builder(self.machine, tuning)
        manager = builder.getModulePassManager()
        manager.run(module, builder)
        return module.as_bitcode()

    def link(self, modules: Sequence[bytes], exported: Collection[str]) -> bytes:
        """One module out of several; every function and variable that is not `exported` becomes local."""
        context = binding.create_context()
        whole: Any = binding.parse_bitcode(modules[0], context)
        for other in modules[1:]:
            whole.link_in(binding.parse_bitcode(other, context))
        for value in [*whole.functions, *whole.global_variables]:
            if value.name not in exported and not value.is_declaration:
                value.linkage = "internal"
        self._verify(whole)
        return whole.as_bitcode()

    def emit(self, bitcode: bytes, ordered: bool) -> Emission:
        """Object code. `ordered`: the instruction order is the author's, so the machine scheduler stays off."""
        module = self._load(bitcode)
        with _LOCK, _scheduler(not ordered and self.schedules), _captured_stderr() as lines:
            code = self._object(module)
        frames: dict[str, int] = {}
        for line in lines:
            if match := _FRAME.search(line):
                frames[match[2]] = int(match[1])
            else:
                print(line, file=sys.stderr)
        return Emission(code, frames)

    def _object(self, module: Any) -> bytes:
        try:
            return self.machine.emit_object(module)
        except RuntimeError as error:
            raise CompileError(f"LLVM makes no objects for '{self.target.triple}'", hint="choose another target") from error

    def assembly(self, bitcode: bytes, ordered: bool) -> str:
        """Assembly text, for people."""
        module = self._load(bitcode)
        with _LOCK, _scheduler(not ordered and self.schedules), _captured_stderr():
            return self.machine.emit_assembly(module)

    def calls(self, bitcode: bytes) -> dict[str, set[str]]:
        """For each function of a module, the functions that it calls by name."""
        found: dict[str, set[str]] = {}
        for text in str(self._load(bitcode)).split("\ndefine ")[1:]:  # to ask for each instruction's operands takes far longer
            head, _, body = text.partition("\n")
            found[_named(_DEFINED, head)[0]] = set(_named(_CALLED, body.partition("\n}\n")[0]))
        return found

    @property
    def schedules(self) -> bool:
        """Whether LLVM runs its machine scheduler on this target by itself (it does not on Armv6-M)."""
        return not self.target.triple.startswith("thumbv6m")

    def _load(self, bitcode: bytes) -> Any:
        return binding.parse_bitcode(bitcode, binding.create_context())

    def _verify(self, module: Any) -> None:
        try:
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"LLVM refuses the module: {error}") from error


def has_vectors(target: Target) -> bool:
    """Whether vectorising loops can pay."""
    return target.triple.startswith(("x86_64", "aarch64", "arm64")) or "mve" in target.has or "neon" in target.has


def abi_name(target: Target) -> str:
    """LLVM's ABI name, which RISC-V needs to be told where floats are passed in registers."""
    if not target.triple.startswith("riscv"):
        return ""
    given = {part.strip() for part in target.features.split(",")}
    floats = "d" if "+d" in given else "f" if "+f" in given else ""
    return ("lp64" if target.pointer_bits == 64 else "ilp32") + floats


@contextmanager
def _scheduler(enabled: bool) -> Generator[None]:
    """Switch LLVM's machine scheduler, which is an option of the whole process. Setting it again replaces it."""
    binding.set_option("aot", f"-enable-misched={'true' if enabled else 'false'}")
    try:
        yield
    finally:
        binding.set_option("aot", "-enable-misched=true")


@contextmanager
def _captured_stderr() -> Generator[list[str]]:
    """Catch what LLVM writes to file descriptor 2: llvmlite gives no other way to its diagnostics (frame sizes among them).

    Yields a list that holds the lines once the block is left.
    """
    lines: list[str] = []
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # the process has no standard error
        saved = None
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            if saved is None:
                os.close(2)
            else:
                os.dup2(saved, 2)
                os.close(saved)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()
