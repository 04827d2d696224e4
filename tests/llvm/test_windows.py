"""Windows that move with the turns of the loops around them, compiled: each turn reads and writes its own bytes."""

from __future__ import annotations

import numpy as np
import pytest

from aot.graph.expr import add, integer, mul
from aot.graph.ir import Graph, Site
from aot.graph.operator import Lowering, Operator, load
from aot.graph.primitive import Control, Map
from aot.lower.build import build_program
from aot.lower.fuse import fuse
from aot.run import run_bundle
from aot.target import host_target, load_target
from tests.llvm.compiled import bundle_of
from tests.lower.toy import GraphBuilder, narrow, wide

BATCHES, TURNS = 3, 4


def lower_pairs(site: Site, lowering: Lowering) -> None:
    """x (turns + 1, batches, stride), out (batches, turns, width): out[b, t] = 3 x[t + 1, b] + x[t, b], the first `width` of each row.

    The windows start at different places, and move by different steps with the outer and the inner loop.
    """
    x, out = site.input(0), site.output
    stride, width, nbytes = x.shape[-1], out.shape[-1], x.dtype.nbytes
    row, part = stride * nbytes, width * nbytes
    first = lowering.window("first", x, (width,), 0, (row,))
    now = lowering.window("now", x, (width,), BATCHES * row, (row, BATCHES * row))
    then = lowering.window("then", out, (width,), 0, (TURNS * part, part))
    lowering.temporary("before", x.dtype, (width,))
    before = lowering.values[-1]
    lowering.append(Control("repeat", count=BATCHES))
    lowering.copy(before, first.name)
    lowering.append(Control("repeat", count=TURNS))
    lowering.append(Map(then.name, (width,), narrow(add(mul(wide(load(now)), integer(3)), wide(load(before))))))
    lowering.copy(before, now.name)
    lowering.append(Control("end"))
    lowering.append(Control("end"))


PAIRS = {
    "PAIRS": Operator("PAIRS", None, lambda options: None, lambda site: (), lambda site: None, lambda *arrays: (), lower_pairs)
}


def pairs(stride: int, width: int) -> Graph:
    builder = GraphBuilder()
    x = builder.input(TURNS + 1, BATCHES, stride)
    return builder.graph(builder.node("PAIRS", x, shape=(BATCHES, TURNS, width)))


@pytest.mark.parametrize(("stride", "width"), [(4, 4), (8, 8), (6, 4), (5, 3), (10, 8), (1, 1)])
@pytest.mark.parametrize("cpu", ["host", "cortex-m4", "cortex-m0plus"])
def test_each_turn_has_its_part(cpu: str, stride: int, width: int) -> None:
    """On Armv6-M words are copied only where every turn's addresses are multiples of four; the emulated core faults on others."""
    target = host_target() if cpu == "host" else load_target(cpu)
    x = np.random.default_rng(stride).integers(-128, 128, (TURNS + 1, BATCHES, stride), np.int8)
    expected = (3 * x[1:, :, :width].astype(int) + x[:-1, :, :width]).astype(np.int8).transpose(1, 0, 2)
    program = build_program(pairs(stride, width), PAIRS)
    for stage, io in ((program, "caller"), (fuse(program), "workspace")):
        (got,) = run_bundle(bundle_of(stage, target, io), [x]).outputs
        np.testing.assert_array_equal(got, expected)
