"""The interface of Glow's bundles (`--api glow`, `--api glow-dynamic`): where a model's inputs and outputs lie in one block, and how large
all blocks are.

Enters: an entry's ports, and the bytes of its workspace and weights. Leaves: `Glow`, and refusals of what that interface has no place for.
Invariant: no placeholder overlaps another; every offset is aligned as the entry asks.

Source: Glow's documentation, AOT.md: static and dynamic bundle API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aot.errors import CompileError
from aot.names import require_no_library_function

if TYPE_CHECKING:
    from aot.bundle import Port
    from aot.driver import Options

Api = Literal["native", "glow", "glow-dynamic"]
APIS: tuple[Api, ...] = ("native", "glow", "glow-dynamic")
_WORD = 4


@dataclass(frozen=True)
class Placeholder:
    """An input or output, `offset` bytes from the start of the mutable block."""

    port: Port
    offset: int

    @property
    def name(self) -> str:
        return self.port.name

    @property
    def elements(self) -> int:
        return self.port.nbytes // self.port.dtype.nbytes


@dataclass(frozen=True)
class Glow:
    """The three blocks that `int NAME(uint8_t *constantWeight, uint8_t *mutableWeight, uint8_t *activations)` takes. None is ever empty.

    dynamic: the sizes are in a constant `NAME_config`, too, which other objects can read when they run.
    """

    symbol: str
    placeholders: tuple[Placeholder, ...]
    constant_nbytes: int
    mutable_nbytes: int
    activations_nbytes: int
    align: int
    dynamic: bool

    @property
    def config(self) -> str:
        return f"{self.symbol}_config"


def lay_out(symbol: str, ports: Sequence[Port], workspace: tuple[int, int], weights: tuple[int, int], dynamic: bool) -> Glow:
    """The blocks for an entry with these ports, inputs first. workspace, weights: their (bytes, alignment)."""
    align = max(_WORD, workspace[1], weights[1], *(port.align for port in ports), 1)
    offset = 0
    placeholders: list[Placeholder] = []
    for port in ports:
        offset += -offset % max(_WORD, port.align)
        placeholders.append(Placeholder(port, offset))
        offset += port.nbytes
    constant, mutable, activations = (nbytes + -nbytes % align or align for nbytes in (weights[0], offset, workspace[0]))
    return Glow(symbol, tuple(placeholders), constant, mutable, activations, align, dynamic)


def require_glow(options: Options) -> None:
    """CompileError for options that have no place in Glow's interface: one function, three blocks."""
    refused = {
        "--io workspace": options.io == "workspace",
        "--stream-input": options.stream_input,
        "--page-weights": options.page_weights_nbytes is not None,
        "--region": bool(options.regions),
        "--threads": options.threads > 1,
        "--instrument": options.instrument is not None,
        "C files": options.emit != "object",
    }
    for what, asked in refused.items():
        if asked:
            raise _refusal(options, what)


def require_one_entry(options: Options, name: str, entries: int, state_nbytes: int) -> None:
    """CompileError for models that have no place in it, and for a bundle whose function would be another's."""
    if entries > 1:
        raise _refusal(options, "several models or signatures")
    if state_nbytes:
        raise _refusal(options, "a model with state")
    require_no_library_function(name, f"--api {options.api}")


def _refusal(options: Options, what: str) -> CompileError:
    return CompileError(f"--api {options.api} has no place for {what}", hint="--api native has")
