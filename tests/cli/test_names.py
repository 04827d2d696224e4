"""Identifiers from untrusted text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aot.errors import CompileError
from aot.names import bundle_identifier, choose, close_names, identifier, listed, suggestion, unique_identifiers


def test_examples() -> None:
    assert identifier("kws_ref_model") == "kws_ref_model"
    assert identifier("serving_default_x:0") == "serving_default_x_0"
    assert identifier('1;}system("rm")') == "model_1_system_rm"
    assert identifier("int") == "model_int"
    assert identifier("") == "model"
    assert unique_identifiers(["a", "A", "a"], "input") == ("a", "a_1", "a_2")
    assert unique_identifiers(["int8_t", "linux"], "input") == ("input_int8_t", "input_linux"), "types and macros of a C compiler"
    assert unique_identifiers(["Init", "init_1"], "signature", taken=("init",)) == ("init_1", "init_1_1")


def test_no_bundle_hides_a_header() -> None:
    assert bundle_identifier("stdint") == "model_stdint" and bundle_identifier("Time") == "model_Time"
    assert bundle_identifier("timer") == "timer" and bundle_identifier("int") == "model_int"


MANY = [f"name_{number}" for number in range(21)]


def test_close_names() -> None:
    names = ["CONV_2D", "DEPTHWISE_CONV_2D", "SignalRfft", "SignalDelay", "PAD", "PADV2"]
    assert close_names("conv2d", names) == ["CONV_2D"], "but for case and punctuation"
    assert close_names("signal", names) == ["SignalRfft", "SignalDelay"], "what contains it, short ones first"
    assert close_names("SignalRft", names)[0] == "SignalRfft", "what has the most letters in common"
    assert close_names("", names) == close_names("xyz", names) == []
    assert len(close_names("name", MANY)) == 5


def test_few_names_are_listed_and_many_are_not() -> None:
    assert suggestion("name", MANY[:20], everything="--help") == f"did you mean name_0? known: {', '.join(MANY[:20])}"
    close = "did you mean name_0, name_1, name_2, name_3 or name_4? "
    assert suggestion("name", MANY, everything="--help") == f"{close}--help lists all 21"
    assert suggestion("xyz", MANY, everything="--help") == "--help lists all 21"
    assert suggestion("xyz", MANY, "it has ") == f"it has {', '.join(MANY[:20])} and 1 more"
    assert suggestion("name", []) == "known: none" and listed([]) == "none"
    with pytest.raises(CompileError, match=r"^unknown thing 'b' \(known: a\)$"):
        choose("thing", "b", ["a"], "--help")


@given(st.lists(st.text(), max_size=6))
def test_always_safe_and_unique(texts: list[str]) -> None:
    names = unique_identifiers(texts, "tensor")
    assert len(set(names)) == len(texts)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) for name in names)
    assert not {"int", "workspace", "weights", "class"} & set(names)
