"""NAME_check_scratch.c: a function that asks the library, on the core itself, whether the scratch that a bundle plans is enough.

Enters: a bundle's name and its instructions. Leaves: the file's name and C99 text, of one question for each distinct size of scratch.
Invariant: every call that has scratch is asked about; the questions have the parameters of release 4.1.0's `_getsize` functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aot.backends.hifi_ref.contractions import CHANNELS_LAST, CONVOLVE, DEPTHWISE
from aot.backends.library.call import library_call
from aot.errors import InternalError
from aot.graph.primitive import Call, Primitive

_PRECISION_8, _ASYM8S, _SYM8S = 8, -4, -5


def _convolution(n: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    height, width, depth, kernel_height, kernel_width, channels, x_stride, y_stride, left, top, rows, columns, *_ = n
    sizes = (height, width, depth, kernel_height, kernel_width, depth, y_stride, top, x_stride, left, rows, columns, channels)
    return "xa_nn_conv2d_std_getsize", (*sizes, _ASYM8S, _SYM8S, 1, 1, CHANNELS_LAST)


def _depthwise(n: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    return "xa_nn_conv2d_depthwise_getsize", (*n[:12], _ASYM8S, CHANNELS_LAST)


def _pool(function: str) -> Callable[[tuple[int, ...]], tuple[str, tuple[int, ...]]]:
    def question(n: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        height, width, channels, *rest = n[:11]
        return function, (channels, _PRECISION_8, _PRECISION_8, height, width, *rest, CHANNELS_LAST, CHANNELS_LAST)

    return question


def _softmax(n: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    return "get_softmax_scratch_size", (_ASYM8S, _ASYM8S, n[3])


_QUESTIONS: dict[str, Callable[[tuple[int, ...]], tuple[str, tuple[int, ...]]]] = {
    CONVOLVE: _convolution,
    DEPTHWISE: _depthwise,
    "xa_nn_avgpool_8": _pool("xa_nn_avgpool_getsize"),
    "xa_nn_maxpool_8": _pool("xa_nn_maxpool_getsize"),
    "xa_nn_vec_softmax_asym8s_asym8s": _softmax,
}
"""By function: which one says how much scratch it wants, and with which arguments, from the numbers that it is passed itself."""


def check_file(name: str, instructions: Iterable[Primitive]) -> tuple[str, bytes]:
    """The file's name and content."""
    lines = dict.fromkeys(line for one in instructions if (line := _line(one)))
    body = "".join(f"    {line}\n" for line in lines)
    text = f"""/* {name}_check_scratch.c - whether the scratch that {name} plans is enough for the library that it is linked with.
 *
 * Compile it with the firmware, call it once while bringing up a core or another release of the library; a product does not need it.
 * With a release before 4.1.0, whose functions have other parameters, compare the numbers by hand.
 */
#include "xa_nn_reference.h"

/* Returns 0 if every function asks for at most what is planned, else the most that is lacking; -1 if one refuses its arguments. */
int {name}_check_scratch(void);

static int32_t most(int32_t lacking, int32_t planned, int32_t wanted) {{
    if (lacking < 0 || wanted < 0) {{
        return -1;
    }}
    return wanted - planned > lacking ? wanted - planned : lacking;
}}

int {name}_check_scratch(void) {{
    int32_t lacking = most(0, 0, 0);
{body}    return (int)lacking;
}}
"""
    return f"{name}_check_scratch.c", text.encode()


def _line(instruction: Primitive) -> str:
    """The question for a call; "" for what has no scratch."""
    found = library_call(instruction)
    if found is None or not isinstance(instruction, Call) or not instruction.scratch_nbytes:
        return ""
    if instruction.kernel not in _QUESTIONS:
        raise InternalError(f"nothing says how much scratch {instruction.kernel} wants")
    numbers = tuple(argument for argument in found.arguments if isinstance(argument, int))
    function, arguments = _QUESTIONS[instruction.kernel](numbers)
    given = ", ".join(f"({number})" if number < 0 else str(number) for number in arguments)
    return f"lacking = most(lacking, {instruction.scratch_nbytes}, {function}({given}));"
