"""The harness itself: what it calls different, a crash, refused; that a fault in a graph is found and becomes small."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.differential.engines import Answer, Server
from tests.differential.hunt import Hunter, plan
from tests.differential.net import Fill, Net, Node, Tensor
from tests.differential.outcome import Outcome, Referee, compare, sentence
from tests.differential.reduce import reduced
from tests.differential.strategies import graphs

RELU = Net((Tensor((4,), scale=0.5), Tensor((4,), scale=0.5)), (Node("RELU", (0,), (1,)),), (0,), (1,))
CHAIN = Net(
    tuple(Tensor((4,), scale=0.5) for _ in range(5)),
    tuple(Node(op, (n,), (n + 1,)) for n, op in enumerate(("RELU", "ABS", "RELU6", "RELU"))),
    (0,),
    (1, 4),
)


def answer(*outputs: np.ndarray) -> Answer:
    return Answer("someone", "ran", outputs)


def test_integers_must_be_equal() -> None:
    numbers = np.arange(4, dtype=np.int8)
    assert compare(RELU, answer(numbers), answer(numbers.reshape(2, 2))) == ""
    assert "1 of 4 differ, [3]" in compare(RELU, answer(numbers), answer(np.array([0, 1, 2, 4], np.int8)))
    assert "int16[4] instead of int8[4]" in compare(RELU, answer(numbers), answer(numbers.astype(np.int16)))
    assert "2 outputs instead of 1" in compare(RELU, answer(numbers), answer(numbers, numbers))


@pytest.mark.parametrize("op, ulps, wrong", [("RELU", 0, False), ("RELU", 1, True), ("SIN", 8, False), ("SIN", 9, True)])
def test_floats_have_the_bound_of_their_operator(op: str, ulps: int, wrong: bool) -> None:
    net = replace(RELU, nodes=(Node(op, (0,), (1,)),))
    want = np.array([1.0, np.nan, np.inf], np.float32)
    got = want + np.array([ulps * np.spacing(np.float32(1)), 0, 0], np.float32)
    assert bool(compare(net, answer(want), answer(got))) == wrong


def test_nan_is_no_number() -> None:
    assert compare(RELU, answer(np.zeros(1, np.float32)), answer(np.full(1, np.nan, np.float32)))


def _served(who: str, deed: str) -> Answer:
    if deed == "die":
        os.abort()
    if deed == "spin":
        while True:
            pass
    if deed == "hang":
        time.sleep(60)
    return Answer(who, "ran", ())


def test_a_process_that_dies_or_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.differential.engines.SECONDS", 1)
    monkeypatch.setattr("tests.differential.engines.HANGS", 20)
    server = Server(_served)
    assert server.ask("me", "die") == Answer("me", "died", None, "the process ended with -6")
    assert server.ask("me", "live").kind == "ran"
    assert server.ask("me", "spin") == Answer("me", "died", None, "no answer within 1 s of processor time")
    monkeypatch.setattr("tests.differential.engines.HANGS", 1)
    assert server.ask("me", "hang") == Answer("me", "died", None, "no answer within 1 s")
    assert server.ask("me", "live").kind == "ran"
    server.close()


class _Faulty(Referee):
    """Says that whatever contains `op` is different."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.op = op

    def judge(self, net: Net, target: str = "host") -> Outcome:
        return Outcome("different" if self.op in net.ops() else "equal", "planted", "tflm")


def test_a_fault_is_found_and_shrunk() -> None:
    hunter = Hunter()
    hunter.referee = _Faulty("RELU6")
    for seed in range(30):
        hunter.run(graphs(), seed, 10)
        if hunter.tally.failures:
            break
    ops, what, text = hunter.tally.failures[0]
    assert ops == "RELU6" and what == "different on host: planted" and len(text) < 400


def test_a_net_is_reduced_to_the_node() -> None:
    assert reduced(CHAIN, lambda net: "ABS" in net.ops()) == replace(RELU, nodes=(Node("ABS", (0,), (1,)),))
    assert reduced(CHAIN, lambda net: net == CHAIN) == CHAIN


def test_refusals_are_counted_by_sentence() -> None:
    assert sentence("the scale 0.5 of 't1' is not int8 of 2e-3") == "the scale N of '...' is not int8 of N"


def test_the_same_seed_gives_the_same_plan_and_every_operator_comes_up() -> None:
    jobs = [job for batch in range(50) for job in plan(7, batch, 60)]
    assert jobs == [job for batch in range(50) for job in plan(7, batch, 60)] and sum(cases for *_, cases in jobs) == 3000
    assert {op for op, *_ in jobs} > {"ADD", "CONV_2D", "WHILE", ""}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32", "bool", "int4"])
def test_fills(dtype: str) -> None:
    full, ends = Fill(3).array((500,), dtype), Fill(3, ends=True).array((500,), dtype)
    assert full.tobytes() == Fill(3).array((500,), dtype).tobytes() and full.tobytes() != Fill(4).array((500,), dtype).tobytes()
    low, high = Fill().limits(dtype)
    assert set(ends.tolist()) == {low, high}
    if dtype in ("int8", "uint8", "int4", "bool"):
        assert full.min() - low <= 2 and high - full.max() <= 2
