"""What the differential runs have found: the smallest case of each fault, which must stay equal."""

from __future__ import annotations

import pytest

from tests.differential.net import parse
from tests.differential.outcome import Referee

FINDS = {
    "a WHILE whose carried value nobody reads": (
        "host",
        "Net((Tensor((1, 1), scale=0.05), Tensor((), dtype='int32', fill=Fill(low=0, high=5)), Tensor((), dtype='int32'), "
        "Tensor((1, 1), scale=0.05)), (Node('WHILE', (1, 0), (2, 3), options={'cond_subgraph_index': 1, 'body_subgraph_index': 2}),), "
        "(1, 0), (2,), others=(Net((Tensor((), dtype='int32'), Tensor((1, 1), scale=0.05), Tensor((), dtype='int32', data=0), "
        "Tensor((), dtype='bool')), (Node('LESS', (0, 2), (3,), options={}),), (0, 1), (3,)), Net((Tensor((), dtype='int32'), "
        "Tensor((1, 1), scale=0.05), Tensor((1, 1), scale=0.05), Tensor((), dtype='int32', data=1), Tensor((), dtype='int32')), "
        "(Node('RELU', (1,), (2,)), Node('ADD', (0, 3), (4,), options={'fused_activation_function': 'NONE'})), (0, 1), (4, 2))))",
    ),
    "RSQRT of int16 computed as LiteRT does": (
        "host",
        "Net((Tensor((7, 7), dtype='int16', scale=0.05, fill=Fill(low=0)), Tensor((7, 7), dtype='int16', scale=0.05)), "
        "(Node('RSQRT', (0,), (1,)),), (0,), (1,))",
    ),
    "a NaN clamped to 6 by a fused RELU6": (
        "host",
        "Net((Tensor((1,), 'float32', fill=Fill(low=-2, high=-1)), Tensor((1,), 'float32', fill=Fill(low=0.1, high=0.4)), Tensor((1,), 'float32'), "
        "Tensor((1,), 'float32')), (Node('POW', (0, 1), (2,)), "
        "Node('MUL', (2, 2), (3,), options={'fused_activation_function': 'RELU6'})), (0, 1), (3,))",
    ),
    "an element of a vector stored as a scalar without a copy": (
        "host",
        "Net((Tensor((2,), scale=0.05, fill=Fill(seed=8766)), Tensor((), dtype='int32', data=0), Tensor((1,), scale=0.05), "
        "Tensor((1,), scale=0.05), Tensor((), scale=0.05)), (Node('SPLIT', (1, 0), (2, 3), options={'num_splits': 2}), "
        "Node('UNPACK', (3,), (4,), options={'num': 1, 'axis': -1})), (0,), (4,))",
    ),
}
"""What was wrong: (target, the case)."""


@pytest.fixture(scope="module")
def referee():
    for engine in ("tflite_micro", "ai_edge_litert"):
        pytest.importorskip(engine, reason="needs TFLite Micro and LiteRT")
    referee = Referee()
    yield referee
    referee.close()


@pytest.mark.parametrize("fault", FINDS)
def test_stays_mended(fault: str, referee: Referee) -> None:
    target, text = FINDS[fault]
    outcome = referee.judge(parse(text), target)
    assert outcome.kind == "equal", outcome
