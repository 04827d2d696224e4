"""Identifiers from untrusted text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from aot.names import identifier, unique_identifiers


def test_examples() -> None:
    assert identifier("kws_ref_model") == "kws_ref_model"
    assert identifier("serving_default_x:0") == "serving_default_x_0"
    assert identifier('1;}system("rm")') == "model_1_system_rm"
    assert identifier("int") == "model_int"
    assert identifier("") == "model"
    assert unique_identifiers(["a", "A", "a"], "input") == ("a", "a_1", "a_2")
    assert unique_identifiers(["int8_t", "linux"], "input") == ("input_int8_t", "input_linux"), "types and macros of a C compiler"


@given(st.lists(st.text(), max_size=6))
def test_always_safe_and_unique(texts: list[str]) -> None:
    names = unique_identifiers(texts, "tensor")
    assert len(set(names)) == len(texts)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) for name in names)
    assert not {"int", "workspace", "weights", "class"} & set(names)
