"""Sliding windows: which taps lie inside, against counting positions one by one."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from aot.graph.ir import DType, Node, Site, Value
from aot.graph.ops.windows import slides

SITE = Site(Node("CONV_2D", (), ("y",)), (), (Value("y", DType.INT8, (1,)),))
SMALL = st.integers(1, 6)


@given(
    size=st.integers(1, 12),
    kernel=SMALL,
    stride=SMALL,
    dilation=st.integers(1, 4),
    padding=st.sampled_from(["same", "valid", (3, 2, 3, 2), (0, 9, 0, 9)]),
)
def test_reach_and_leaves_by_counting(size, kernel, stride, dilation, padding):
    assume(padding == "same" or size + (0 if padding == "valid" else sum(padding[:2])) > (kernel - 1) * dilation)
    slide, other = slides(SITE, (size, size), (kernel, kernel), (stride, stride), (dilation, dilation), padding)
    assert slide == other
    inside = {
        (tap, out): position
        for tap in range(kernel)
        for out in range(slide.out)
        if 0 <= (position := out * stride + tap * dilation - slide.before) < size
    }
    found = {}
    for tap in slide.taps:
        outs, ins = slide.reach(tap)
        pairs = zip(range(slide.out)[outs], range(size)[ins], strict=True)
        found |= {(tap, out): position for out, position in pairs}
    assert found == inside
    assert slide.leaves == (len(inside) < kernel * slide.out)
