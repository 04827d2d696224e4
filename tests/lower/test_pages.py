"""Pages of constants in a schedule: when they are asked for, how much is there at once, and what the checker notices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot.errors import InternalError
from aot.graph.ir import DType
from aot.lower.check import check_plan
from aot.lower.implementation import request_of
from aot.lower.pages import PAGE_ALIGN, fits_window, page_layout, with_pages, without_pages
from aot.lower.place import plan
from aot.lower.plan import Plan, Schedule, Window
from aot.lower.program import Buffer
from aot.lower.schedule import schedule
from tests.lower.toy import GraphBuilder, choices


def constant(name: str, nbytes: int, align: int = 0) -> Buffer:
    return Buffer(name, DType.INT8, (nbytes,), "constant", data=np.zeros(nbytes, np.int8), align=align)


def chain(*sizes: int, window: int = 1000, is_thrifty: bool = False) -> Schedule:
    """Convolutions one behind another, each with a constant of so many bytes (0: none)."""
    builder = GraphBuilder()
    x = builder.input(1, 4, 4, 4)
    for _ in sizes:
        x = builder.conv(x, 4)
    program = builder.program(x)
    given = [
        replace(each, implementation=replace(each.implementation, constants=(constant("c", size),) if size else ()))
        for each, size in zip(choices(program, {}), sizes, strict=True)
    ]
    return replace(schedule(program, tuple(given)), window=Window(window, is_thrifty))


def order(paged: Schedule) -> str:
    """`r0` asks for the page of layer 0, `w` waits, `0` is layer 0."""
    found = []
    for step in paged.steps:
        request = request_of(paged.implementation(step).instruction)
        found.append(str(step.position) if request is None else "w" if request.position is None else f"r{request.position}")
    return " ".join(found)


def test_a_page_is_asked_for_while_the_layer_before_runs() -> None:
    assert order(with_pages(chain(100, 100, 100))) == "r0 r1 0 r2 1 w 2"


def test_only_what_fits_into_the_window() -> None:
    assert order(with_pages(chain(100, 100, 100, window=199))) == "r0 w 0 r1 w 1 r2 w 2"
    assert order(with_pages(chain(100, 60, 140, 20, window=200))) == "r0 r1 0 r2 1 r3 2 w 3"
    assert order(with_pages(chain(100, 60, 144, 20, window=200))) == "r0 r1 0 w 1 r2 r3 2 w 3"


def test_layers_without_constants_need_no_page() -> None:
    assert order(with_pages(chain(0, 100, 0, 100, 0))) == "0 r1 r3 1 2 w 3 4"
    assert order(with_pages(chain(0, 0))) == "0 1"


def test_nothing_early_where_memory_is_short() -> None:
    assert order(with_pages(chain(100, 100, 100), [0, 99, 0])) == "r0 w 0 r1 w 1 r2 w 2"
    assert order(with_pages(chain(100, 100, 100), [0, 100, 0])) == "r0 w 0 r1 r2 1 w 2"


def test_thrift_takes_no_more_memory_than_pages_when_they_are_needed() -> None:
    eager, thrifty = (plan(chain(8, 400, 400, 8, is_thrifty=is_thrifty)) for is_thrifty in (False, True))
    assert eager.workspace_nbytes >= 800 > thrifty.workspace_nbytes >= 400
    assert order(thrifty.schedule) == "r0 r1 0 w 1 r2 w 2 r3 w 3"
    check_plan(eager)
    check_plan(thrifty)


def test_pages_come_and_go() -> None:
    plain = chain(100, 0, 60)
    paged = with_pages(plain)
    assert paged.pages == {0: "page.0", 2: "page.2"} and [paged.program[name].nbytes for name in paged.pages.values()] == [100, 60]
    assert without_pages(paged) == plain and without_pages(plain) is plain
    assert fits_window(plain) and not fits_window(replace(plain, window=Window(99)))


def test_the_layout_of_a_page() -> None:
    (one, *_), wide = chain(4).choices, Buffer("wide", DType.INT64, (2,), "constant", data=np.zeros(2, np.int64))
    constants = (constant("a", 5), wide, constant("b", 3))
    offsets, nbytes, align = page_layout(replace(one.implementation, constants=constants))
    assert (offsets, nbytes, align) == ({"a": 0, "wide": 8, "b": 24}, 32, 8)
    assert page_layout(replace(one.implementation, constants=constants[:1])) == ({"a": 0}, 8, PAGE_ALIGN)


def broken(made: Plan, **changes: object) -> Plan:
    return replace(made, schedule=replace(made.schedule, **changes))


def test_a_layer_that_does_not_wait() -> None:
    made = plan(chain(100, 100))
    steps = made.schedule.steps
    check_plan(made)
    wait = next(n for n, step in enumerate(steps) if "wait" in made.schedule.implementation(step).kernel)
    swapped = (*steps[:wait], steps[wait + 1], steps[wait])
    with pytest.raises(InternalError, match=r"step 3 \(dummy\) reads %page.1, of which 100 bytes are not written yet"):
        check_plan(broken(made, steps=swapped))


def test_constants_without_a_page() -> None:
    made = plan(chain(0, 100))
    with pytest.raises(InternalError, match="its constants are in no page"):
        check_plan(broken(plan(replace(without_pages(made.schedule), window=None)), window=Window(1000)))


def test_more_than_the_window() -> None:
    with pytest.raises(InternalError, match="200 bytes of pages at once, more than the window of 150"):
        check_plan(broken(plan(chain(100, 100)), window=Window(150)))


def test_a_page_that_something_lies_on() -> None:
    made = plan(chain(100, 100))
    offsets = tuple((name, made.offset_of["page.0"] if name == "page.1" else at) for name, at in made.offsets)
    with pytest.raises(InternalError, match=r"step 2 \(dummy\) reads %page.0, but its byte 0 belongs to %page.1"):
        check_plan(replace(made, offsets=offsets))
