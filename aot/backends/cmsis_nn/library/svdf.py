"""SVDF by CMSIS-NN: arm_svdf_state_s16_s8, which renews the state that it is given.

Enters: a site. Leaves: a `Draft`, or the sentence why not. Invariant: the old state is read before the new one is written: it is
copied first, and lowering drops the copy where both may be the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.backends.library.call import Data, Draft, Record, Scratch, Words, int32
from aot.graph.ir import DType, Site
from aot.graph.ops.svdf import BIAS, DATA, FEATURE, STATE, TIME, integers_of, sizes_of
from aot.target import Target

FUNCTION = "arm_svdf_state_s16_s8"


def draft_svdf(site: Site, target: Target) -> Draft | str:
    data, state = site.input(DATA), site.input(STATE)
    if data.dtype is not DType.INT8 or state.dtype is not DType.INT16:
        return f"{data.dtype} with a state of {state.dtype}: the call is for int8 with a state of int16"
    feature, time, bias, new = site.input(FEATURE), site.input(TIME), site.optional(BIAS), site.outputs[1]
    if any(value is not None and value.data is None for value in (feature, time, bias)):
        return "its weights or bias are computed at run time"
    sizes, numbers = sizes_of(site), integers_of(site)
    scales = [(int(each.multiplier[0]), int(each.shift[0])) for each in (numbers.feature, numbers.out)]
    if _leaves_int32(site, [max(0, shift) for _, shift in scales], numbers.feature.input_zero_point, sizes.units):
        return "a sum of it could leave int32 when it is rescaled"
    batch, filters = sizes.batch, sizes.filters
    sums, totals = 4 * batch * filters, 4 * batch * sizes.units
    parameters = (sizes.rank, numbers.feature.input_zero_point, numbers.out.zero_point, *DType.INT16.limits, *DType.INT8.limits)
    arguments = (
        *(Record((Scratch(), sums)), Record((Scratch(sums), totals)), Words(parameters), *map(Words, scales)),
        *(Words((batch, sizes.depth, 1, 1)), Data(data.name), Words((batch, 1, filters * sizes.memory, 1)), Data(new.name)),
        *(Words((filters, sizes.depth, 1, 1)), Data(feature.name), Words((filters, sizes.memory, 1, 1)), Data(time.name)),
        *(Words((sizes.units, 1, 1, 1)), None if bias is None or bias.data is None else Words(int32(bias.data))),
        *(Words((batch, sizes.units, 1, 1)), Data(site.output.name)),
    )
    reads = (data.name, feature.name, time.name, new.name)
    return Draft(FUNCTION, arguments, reads, (site.output.name, new.name), sums + totals, copies=((new, state.name),))


def _leaves_int32(site: Site, shifts: Sequence[int], zero_point: int, units: int) -> bool:
    """Whether a sum over the input or over time, moved to the left as its rescaling may do first, could leave int32."""
    feature, time, bias = (
        None if value is None else value.data for value in (site.input(FEATURE), site.input(TIME), site.optional(BIAS))
    )
    assert feature is not None and time is not None
    farthest = max(abs(bound - zero_point) for bound in DType.INT8.limits)
    sums = np.abs(feature.astype(np.int64)).sum(1) * farthest
    totals = np.abs(time.astype(np.int64)).reshape(units, -1).sum(1) << 15
    totals = totals if bias is None else totals + np.abs(bias.astype(np.int64))
    return any(int(most.max()) << shift > DType.INT32.limits[1] for most, shift in zip((sums, totals), shifts))
