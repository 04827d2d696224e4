"""The signal operators of TFLite Micro (custom operators Signal...): the audio front end."""

from __future__ import annotations

from aot.graph.ops.signal import rfft

OPERATORS = (*rfft.OPERATORS,)
