"""The register of traps: combinations that gave wrong bytes or crashes in other engines, and where each is tested here.

A trap's tests bear its number (`test_trap_12_...`), with a line that says what went wrong elsewhere. Some are tested with the
operator or the pass that they are about; some can't happen here. None may be forgotten: the last test looks.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.shared import SHARED

TESTS = Path(__file__).resolve().parent.parent
TRAPS = SHARED / "traps.md"
ELSEWHERE = {
    4: ("graph/test_ops_lstm.py", "test_on_a_cortex_m"),  # states kept over runs, batches, time first and second
    6: ("graph/test_ops_svdf.py", "test_unit_counts_on_a_cortex_m"),  # 1 to 7 units, state behind state
    22: ("graph/test_ops_lstm.py", "test_int8"),  # hidden states with zero points that are not 0
    29: ("cli/test_linking.py", "test_links_with_firmware"),  # two bundles in one image, with constants of one name
    37: ("models/test_random_layers.py", "test_compiled_layer_is_the_interpreter"),  # kernel, padding, width, one by one
    45: ("lower/test_build.py", "test_zero_sized_values"),
    59: ("graph/test_ops_resize.py", "test_resize_of_every_small_size"),  # all flags, up, down and to one
    64: ("models/test_random_layers.py", "test_compiled_layer_is_the_interpreter"),
}
NOT_HERE = {55: "calibration: nothing here chooses a quantisation"}
ALL = {*range(1, 7), 8, *range(10, 14), *range(15, 19), *range(20, 23), 24, 25, 26, *range(28, 33), *range(34, 39)}
ALL |= {*range(40, 44), 45, 46, *range(48, 52), 53, 54, 55, 56, 58, 59, 61, 62, 64, 66, 67, 68}


@pytest.mark.skipif(not TRAPS.is_file(), reason="the list of traps is not beside the repository")
def test_the_register_is_the_list() -> None:
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", TRAPS.read_text(), re.MULTILINE)} == ALL


@pytest.mark.parametrize("number", ELSEWHERE)
def test_what_is_tested_elsewhere_is_there(number: int) -> None:
    path, name = ELSEWHERE[number]
    assert f"def {name}(" in (TESTS / path).read_text()


def test_no_trap_is_forgotten_or_listed_twice() -> None:
    texts = (path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    here = {int(number) for text in texts for number in re.findall(r"\ndef test_trap_(\d+)_", text)}
    sets = (here, {*ELSEWHERE}, {*NOT_HERE})
    assert set().union(*sets) == ALL
    assert sum(map(len, sets)) == len(ALL)
