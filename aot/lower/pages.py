"""Pages: the constants of layers, brought from where nothing can address them into the workspace, each shortly before its layer runs.

Enters: a Schedule whose constants come in pages. Leaves: the Schedule with a buffer for each layer's constants, and steps that ask for them.
Invariant: pages are asked for in the order in which layers need them; between a request and the first step that reads its page stands
another call, which waits for it; and at no step are there more bytes of pages than the window has.

A page is a buffer like any other: the step that asks for it writes it, its layer's steps read it, and planning finds room for it among
the activations. While a layer runs, the next one's page may be on its way (the double buffer), where both fit into the window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aot.graph.ir import DType
from aot.graph.primitive import Call
from aot.lower.implementation import Choice, Implementation, Request, request_of
from aot.lower.plan import Schedule, Step
from aot.lower.program import Buffer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE_ALIGN = 4
"""Bytes: of a page in the workspace, of its place in the file, and of its size."""


def page_name(position: int) -> str:
    """Name of the buffer that holds the constants of the implementation at this position."""
    return f"page.{position}"


def page_layout(one: Implementation) -> tuple[Mapping[str, int], int, int]:
    """The offset of each constant in an implementation's page; the page's bytes and alignment."""
    offsets: dict[str, int] = {}
    end, align = 0, PAGE_ALIGN
    for constant in one.constants:
        least = max(PAGE_ALIGN, constant.align, constant.dtype.nbytes)
        align = max(align, least)
        offsets[constant.name] = -(-end // least) * least
        end = offsets[constant.name] + constant.nbytes
    return offsets, -(-end // align) * align, align


def page_nbytes(one: Implementation) -> int:
    """Bytes of an implementation's page."""
    return page_layout(one)[1]


def without_pages(schedule: Schedule) -> Schedule:
    """The schedule without pages and the steps that ask for them."""
    kept = [choice for choice in schedule.choices if request_of(choice.implementation.instruction) is None]
    if len(kept) == len(schedule.choices):
        return schedule
    program, count = schedule.program, len(kept)
    buffers = tuple(buffer for buffer in program.buffers if buffer.name not in schedule.pages.values())
    choices = tuple(replace(choice, implementation=_without_page(choice.implementation)) for choice in kept)
    return replace(
        schedule,
        program=replace(program, buffers=buffers, instructions=program.instructions[:count]),
        choices=choices,
        steps=tuple(step for step in schedule.steps if step.position < count),
    )


def _without_page(one: Implementation) -> Implementation:
    return replace(one, reads=tuple(name for name in one.reads if name != one.page), page="") if one.page else one


def with_pages(schedule: Schedule, spare: Sequence[int] | None = None) -> Schedule:
    """The schedule, which has none, with pages, and each step that asks for one as early as the window allows, but not before the page
    before it is needed. spare: the bytes at each step that pages may take which are not needed yet (None: whatever they take)."""
    requests = _Requests(schedule, spare)
    program, count = schedule.program, len(schedule.choices)
    choices, buffers = list(schedule.choices), list(program.buffers)
    added: list[Choice] = []
    asked: dict[int, list[Step]] = {}

    def ask(before: int, request: Request, outs: tuple[str, ...]) -> None:
        call = Call("wait for pages" if request.position is None else "read page", outs, (), request)
        asked.setdefault(before, []).append(Step(count + len(added), 0, 1))
        added.append(Choice(Implementation(call.kernel, call, (), outs, (), _nothing)))

    for number, page in enumerate(requests.pages):
        one, name = choices[page.position].implementation, page_name(page.position)
        _, nbytes, align = page_layout(one)
        buffers.append(Buffer(name, DType.UINT8, (nbytes,), "temporary", label="page of weights", align=align))
        choices[page.position] = replace(choices[page.position], implementation=replace(one, reads=(*one.reads, name), page=name))
        ask(requests.at[number], Request(page.position), (name,))
        if number + 1 == len(requests.pages) or requests.at[number + 1] > page.first:
            ask(page.first, Request(), ())
    steps: list[Step] = []
    for number, step in enumerate(schedule.steps):
        steps += [*asked.get(number, ()), step]
    instructions = (*program.instructions, *(choice.implementation.instruction for choice in added))
    paged = replace(program, buffers=tuple(buffers), instructions=instructions)
    return replace(schedule, program=paged, choices=(*choices, *added), steps=tuple(steps))


def _nothing(function: object) -> None:
    """What a request emits as a kernel: the entry makes the call."""


def fits_window(schedule: Schedule) -> bool:
    """Whether the pages that are needed at once never take more than the window."""
    return schedule.window is None or _Requests(schedule).needed_nbytes <= schedule.window.nbytes


@dataclass(frozen=True)
class _Page:
    """The page of a layer, and the first and the last step that read it."""

    position: int
    nbytes: int
    first: int
    last: int


class _Requests:
    """The pages of a schedule without them, in the order in which they are needed. at: the step before which each is asked for."""

    def __init__(self, schedule: Schedule, spare: Sequence[int] | None = None) -> None:
        window_nbytes = schedule.window.nbytes if schedule.window else 0
        self.spare = list(spare) if spare is not None else [window_nbytes] * len(schedule.steps)
        spans: dict[int, tuple[int, int]] = {}
        for number, step in enumerate(schedule.steps):
            if schedule.implementation(step).constants:
                spans[step.position] = (spans.get(step.position, (number, number))[0], number)
        self.pages = [
            _Page(position, page_nbytes(schedule.choices[position].implementation), first, last)
            for position, (first, last) in spans.items()
        ]
        self.at = [self._earliest(number, window_nbytes) for number in range(len(self.pages))]

    def _earliest(self, number: int, window_nbytes: int) -> int:
        """The first step before which a page fits beside those that are still needed: from where its predecessor is needed on."""
        page, before = self.pages[number], self.pages[:number]
        at = before[-1].first if before else page.first
        for step in range(page.first - 1, at - 1, -1):
            beside = sum(one.nbytes for one in before if one.last >= step)
            if beside + page.nbytes > window_nbytes or page.nbytes > self.spare[step]:
                return step + 1
            self.spare[step] -= page.nbytes
        return at

    @property
    def needed_nbytes(self) -> int:
        """The most bytes of pages that are needed at a step."""
        return max((self._needed(page.first) for page in self.pages), default=0)

    def _needed(self, step: int) -> int:
        return sum(page.nbytes for page in self.pages if page.first <= step <= page.last)
