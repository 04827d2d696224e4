"""The signal operators of TFLite Micro (custom operators Signal...): the audio front end."""

from __future__ import annotations

from aot.graph.ops.signal import channels, filter_bank, overlap, rfft, samples, streams

OPERATORS = (
    *samples.OPERATORS,
    *rfft.OPERATORS,
    *filter_bank.OPERATORS,
    *channels.OPERATORS,
    *streams.OPERATORS,
    *overlap.OPERATORS,
)
