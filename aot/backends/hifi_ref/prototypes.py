"""What C needs to know of the library's functions to call them: their parameters, read from the header of our reference.

Enters: nothing. Leaves: a declaration for each function. Invariant: there is one place that says them, `xa_nn_reference.h`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from aot.c.support import Foreign

HEADER = "xa_nn_reference.h"
_WRITTEN = ("p_out", "p_scratch")


@cache
def declarations() -> Mapping[str, Foreign]:
    """By function: the header, and the C types of its parameters, in order."""
    text = (files("aot.backends.hifi_ref") / "reference" / HEADER).read_text()
    found = re.findall(r"^(?:int32_t|int) (\w+)\(([^)]*)\);", text, re.MULTILINE)
    return {name: _declaration(" ".join(given.split()).split(", ")) for name, given in found}


def _declaration(parameters: Sequence[str]) -> Foreign:
    """`const int8_t *p_inp` is `const int8_t *`, and only read: all pointers are but the output's and the scratch's."""
    split = [re.fullmatch(r"(.*?)(\w+)", one) for one in parameters]
    pairs = [(each.group(1).strip(), each.group(2)) for each in split if each is not None]
    reads = frozenset(number for number, (type, name) in enumerate(pairs) if "*" in type and name not in _WRITTEN)
    return Foreign(tuple(type for type, _ in pairs), header=f'"{HEADER}"', reads=reads)
