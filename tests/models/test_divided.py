"""Random nets of image layers run by rows, and the smallest cases of faults that they have found (`make fuzz` has many more)."""

from __future__ import annotations

import os

import pytest

from tests import divided
from tests.differential.net import parse
from tests.divided import GOOD, Judge, Way, case

pytest.importorskip("unicorn", reason="the emulator Unicorn is not installed")

SEEDS = range(1000 if os.environ.get("AOT_SWEEP") else 12)
BY_ROWS = (1, 11)
"""Cases of which some layers run by rows."""
FINDS = {
    "a sum of its own where nothing runs by rows": (
        Way("cortex-m0plus", "caller"),
        "Net((Tensor((1, 7, 10, 3), dtype='uint8', scale=0.1, zero_point=255), Tensor((1, 7, 10, 3), dtype='uint8', scale=0.1, zero_point=255), "
        "Tensor((4, 2), dtype='int32', data=[[0, 0], [0, 0], [0, 0], [3, 3]]), Tensor((1,), dtype='uint8', scale=0.1, zero_point=255, data=(3,)), "
        "Tensor((1, 7, 10, 9), dtype='uint8', scale=0.1, zero_point=255), Tensor((2,), dtype='int32', data=(1, 2)), "
        "Tensor((1, 1, 1, 9), dtype='uint8', scale=0.1, zero_point=255)), (Node('MAXIMUM', (0, 0), (1,), options={}), "
        "Node('PADV2', (1, 2, 3), (4,), options={}), Node('MEAN', (4, 5), (6,), options={'keep_dims': True})), (0,), (6,))",
    ),
    "columns of padding on a pushed image, which read its first row in their place": (
        Way("cortex-m4", stream_input=True),
        "Net((Tensor((1, 6, 18, 8), scale=0.1, zero_point=-128), Tensor((4, 2), dtype='int32', data=[[0, 0], [0, 0], [3, 0], [1, 1]]), "
        "Tensor((1, 6, 21, 10), scale=0.1, zero_point=-128)), (Node('PAD', (0, 1), (2,), options={}),), (0,), (2,))",
    ),
    "images of as many rows as there are images, which were taken for each other": (
        Way("cortex-m4"),
        "Net((Tensor((3, 3, 5, 4), scale=0.05), Tensor((16, 1, 1, 4), scale=0.02, data=Fill(seed=3, low=-127, high=127)), Tensor((16,), "
        "dtype='int32', scale=0.001, data=Fill(seed=4, low=-1000, high=1000)), Tensor((3, 3, 5, 16), scale=0.2, zero_point=3), Tensor((4,"
        " 3, 3, 16), scale=0.02, data=Fill(seed=5, low=-127, high=127)), Tensor((4,), dtype='int32', scale=0.004, data=Fill(seed=6, "
        "low=-1000, high=1000)), Tensor((3, 3, 5, 4), scale=4.8, zero_point=3)), (Node('CONV_2D', (0, 1, 2), (3,), options={'padding': "
        "'VALID', 'stride_h': 1, 'stride_w': 1, 'fused_activation_function': 'NONE', 'dilation_h_factor': 1, 'dilation_w_factor': 1}), "
        "Node('CONV_2D', (3, 4, 5), (6,), options={'padding': 'SAME', 'stride_h': 1, 'stride_w': 1, 'fused_activation_function': 'NONE', "
        "'dilation_h_factor': 1, 'dilation_w_factor': 1})), (0,), (6,))",
    ),
    "a sum of its own where no placement needed less": (
        Way("cortex-m33", optimize="size"),
        "Net((Tensor((1, 66, 8, 4), scale=0.173), Tensor((2,), dtype='int32', data=(1, 2112)), Tensor((1, 2112), scale=0.173), "
        "Tensor((4, 2112), dtype='int4', scale=0.5, data=Fill(seed=566, low=-7, high=7)), Tensor((4,), dtype='int32', "
        "scale=0.08649999648332596, data=Fill(seed=267, low=-1048576, high=1048576)), Tensor((1, 4), scale=398.0, zero_point=1)), "
        "(Node('RESHAPE', (0, 1), (2,), options={'new_shape': [1, 2112]}), Node('FULLY_CONNECTED', (2, 3, 4), (5,), "
        "options={'fused_activation_function': 'NONE', 'keep_num_dims': False})), (0,), (5,))",
    ),
    "a sum of its own beside a tensor that outlives it": (
        Way("cortex-m4"),
        "Net((Tensor((1, 24, 4, 5), scale=0.00390625), Tensor((1, 24, 4, 5), scale=0.00390625, zero_point=-128), Tensor((1, 8, 4, 5), "
        "scale=0.00390625, zero_point=-128), Tensor((2,), dtype='int32', data=(1, 160)), Tensor((1, 160), scale=0.00390625, "
        "zero_point=-128), Tensor((8, 160), scale=(0.0245, 0.0202, 0.0332, 0.0325, 0.0114, 0.0068, 0.0257, 0.0205), "
        "data=Fill(seed=325, low=-127, high=127)), Tensor((8,), dtype='int32', scale=(9.570312249707058e-05, 7.89062469266355e-05, "
        "0.0001296874979743734, 0.00012695312034338713, 4.4531250750878826e-05, 2.656250035215635e-05, 0.00010039062181022018, "
        "8.007812721189111e-05), data=Fill(seed=565, low=-1048576, high=1048576)), Tensor((1, 8), scale=0.108, zero_point=-128)), "
        "(Node('LOGISTIC', (0,), (1,)), Node('RESHAPE', (2, 3), (4,), options={'new_shape': [1, 160]}), Node('FULLY_CONNECTED', (4, "
        "5, 6), (7,), options={'fused_activation_function': 'RELU6', 'keep_num_dims': True})), (2, 0), (7, 1))",
    ),
}
"""What was wrong: (how it was compiled, the case)."""


@pytest.fixture(scope="module")
def referee():
    referee = Judge()
    yield referee
    referee.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_and_no_larger_than_layer_by_layer(seed: int, referee: Judge) -> None:
    found = referee.judge(*case(seed))
    assert found.kind in (("divided",) if seed in BY_ROWS else GOOD), f"{found.kind}: {found.what}; python -m tests.divided {seed}"


@pytest.mark.parametrize("fault", FINDS)
def test_stays_mended(fault: str, referee: Judge) -> None:
    way, text = FINDS[fault]
    found = referee.judge(parse(text), way)
    assert found.kind in ("divided", "whole"), found


def test_a_larger_workspace_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divided, "layer_by_layer_nbytes", lambda model, options: 1)
    kind, what = divided.judge(*case(2))
    assert kind == "wrong" and "1 layer by layer" in what
