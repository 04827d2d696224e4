"""Program: which buffers are read and written, in which order.

Enters: a Graph (through `build.py`). Leaves: `Buffer`, `Program`. One instruction is one primitive; fusion has already made each of them a
*group* (prologue, reduction and epilogue in one primitive's expressions), so that a group is what a kernel claims and what planning sees.
Invariant: instructions are in execution order, and every buffer is written before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from aot.errors import InternalError
from aot.graph.ir import DType, Quantisation, Shape
from aot.graph.primitive import Contract, Map, Primitive, Reduce, describe, reads, store_of, writes

if TYPE_CHECKING:
    from collections.abc import Mapping

Role = Literal["input", "output", "constant", "temporary", "scratch", "state"]


@dataclass(frozen=True, eq=False)
class Buffer:
    """A typed window on storage. `base`: the buffer whose bytes it shares, from its first byte on (None: its own storage).

    A view has its base's size in bytes (a reshape), or is a window: the bytes from `offset` on, moved by `slide[k]` bytes with each
    turn of the k-th `repeat` around it (the outermost first). Roles: `input` and `output` are the caller's; `constant` has `data`;
    `state` is the caller's too, and keeps its content from one run to the next (`initial`: before the first). pushed: an input whose rows
    the caller hands over one after the other (`pushed.py`).
    """

    name: str
    dtype: DType
    shape: Shape
    role: Role
    base: str | None = None
    data: np.ndarray | None = None
    quantisation: Quantisation | None = None
    label: str = ""
    align: int = 0
    offset: int = 0
    slide: tuple[int, ...] = ()
    initial: np.ndarray | None = None
    pushed: bool = False

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64)) if self.shape else 1

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.nbytes

    @property
    def is_window(self) -> bool:
        return bool(self.offset or self.slide)

    def __str__(self) -> str:
        dims = "x".join(map(str, self.shape))
        place = (
            f" at {self.offset}" + "".join(f" + {step}*turn{depth}" for depth, step in enumerate(self.slide))
            if self.is_window
            else ""
        )
        view = f" = view of %{self.base}{place}" if self.base else ""
        return f"%{self.name}: {self.role} {self.dtype}[{dims}]{view}"


@dataclass(frozen=True)
class Program:
    """Buffers and instructions; `inputs` and `outputs` name buffers in the model's order."""

    name: str
    buffers: tuple[Buffer, ...]
    instructions: tuple[Primitive, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Buffer]:
        return {buffer.name: buffer for buffer in self.buffers}

    def __getitem__(self, name: str) -> Buffer:
        return self.by_name[name]

    def storage(self, name: str) -> str:
        """The buffer at the end of the chain of views: the one that owns the bytes."""
        while (base := self[name].base) is not None:
            name = base
        return name

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """Positions of the instructions that read each storage."""
        found: dict[str, list[int]] = {}
        for position, instruction in enumerate(self.instructions):
            for name in dict.fromkeys(map(self.storage, reads(instruction))):
                found.setdefault(name, []).append(position)
        return {name: tuple(positions) for name, positions in found.items()}

    @cached_property
    def writers(self) -> Mapping[str, tuple[int, ...]]:
        """Positions of the instructions that write each storage."""
        found: dict[str, list[int]] = {}
        for position, instruction in enumerate(self.instructions):
            for name in dict.fromkeys(map(self.storage, writes(instruction))):
                found.setdefault(name, []).append(position)
        return {name: tuple(positions) for name, positions in found.items()}

    def verify(self) -> None:
        """Raise InternalError if an invariant is broken."""
        if len(self.by_name) != len(self.buffers):
            raise InternalError(f"program {self.name}: two buffers share a name")
        written = {buffer.name for buffer in self.buffers if buffer.role in ("input", "constant", "state") and buffer.base is None}
        for buffer in self.buffers:
            if buffer.base is not None and not self._fits(buffer):
                raise InternalError(f"program {self.name}: view %{buffer.name} has another size than %{buffer.base}")
        for instruction in self.instructions:
            for name in reads(instruction):
                if self.storage(name) not in written:
                    raise InternalError(f"program {self.name}: %{name} is read before it is written: {describe(instruction)}")
            for name in writes(instruction):
                if self[self.storage(name)].role in ("input", "constant"):
                    raise InternalError(f"program {self.name}: %{name} may not be written: {describe(instruction)}")
                written.add(self.storage(name))
            if isinstance(instruction, Map | Reduce | Contract) and len(store_of(instruction)) != len(self[instruction.out].shape):
                raise InternalError(f"program {self.name}: a store of another rank than its buffer: {describe(instruction)}")
        for name in self.outputs:
            if self.storage(name) not in written:
                raise InternalError(f"program {self.name}: output %{name} is never written")

    def _fits(self, view: Buffer) -> bool:
        base = self[self.storage(view.name)]
        return view.offset + view.nbytes <= base.nbytes if view.is_window else view.nbytes == base.nbytes

    def __str__(self) -> str:
        lines = [f"program {self.name}"]
        lines += [f"  {buffer}" for buffer in self.buffers]
        lines += [f"  {position}: {describe(instruction)}" for position, instruction in enumerate(self.instructions)]
        return "\n".join(lines)
