"""The caller's function that is told of layers, for bundles that run in process or in Unicorn.

Enters: `on_layer(observer, layer, before)`. Leaves: (layer, before) of each call, in order.
Invariant: a layer ends before the next begins, and both calls name it.
"""

from __future__ import annotations

import ctypes

from aot.bundle import Entry
from aot.errors import InternalError

OBSERVER = 0x0B5E
"""What is passed as the observer: nothing is there."""
C_ON_LAYER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)


class Observer:
    """Hears of the layers of one run. raised: what it raised meanwhile, which can't cross C frames."""

    def __init__(self, entry: Entry) -> None:
        self.count, self.told = len(entry.layers), list[tuple[int, bool]]()
        self.raised: BaseException | None = None
        self.function = C_ON_LAYER(self._called)

    @property
    def address(self) -> int:
        """Of `on_layer` as a C function, which is there as long as this object."""
        return ctypes.cast(self.function, ctypes.c_void_p).value or 0

    def tell(self, observer: int, layer: int, before: int) -> None:
        """The function itself. InternalError for what no entry may say."""
        open_ = self.told[-1][0] if self.told and self.told[-1][1] else None
        wanted = 0 <= layer < self.count if before else layer == open_
        if observer != OBSERVER or before not in (0, 1) or not wanted or (before and open_ is not None):
            raise InternalError(f"on_layer({observer:#x}, {layer}, {before}) after {self.told[-1:]}, of {self.count} layers")
        self.told.append((layer, bool(before)))

    def check(self) -> None:
        """InternalError if what was told of last has not ended."""
        if self.raised is not None:
            raise self.raised
        if self.told and self.told[-1][1]:
            raise InternalError(f"on_layer was not called after layer {self.told[-1][0]}")

    def _called(self, observer: int | None, layer: int, before: int) -> None:
        try:
            self.tell(observer or 0, layer, before)
        except BaseException as error:
            self.raised = self.raised or error
