"""Spans: under which event names a text was sent, however it was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from compare.events import Stream

TEXT, REASONING = 0, 1


class Span(NamedTuple):
    """A stretch of one text under one name, "" where events say more than text.

    `end` is how far the text had come with it, `at` the index of its first event.
    """

    name: str
    end: int
    at: int


def renamed(legacy: Stream, graph: Stream) -> tuple[int, int] | None:
    """Find where equal texts are sent under different names, as the indices of both events.

    Only events that are nothing but text are looked at: all others are aligned by name anyway.
    """
    names = {event.name for stream in (legacy, graph) for event in stream.events if event.bare}
    if len(names) == 1:
        return None
    for channel in (TEXT, REASONING):
        found = _parted(_spans(legacy, channel), _spans(graph, channel))
        if found is not None:
            return found
    return None


def _parted(old: list[Span], new: list[Span]) -> tuple[int, int] | None:
    i = j = 0
    while i < len(old) and j < len(new):
        before, after = old[i], new[j]
        if before.name and after.name and before.name != after.name:
            return before.at, after.at
        i += before.end <= after.end
        j += after.end <= before.end
    return None


def _spans(stream: Stream, channel: int) -> list[Span]:
    spans: list[Span] = []
    come = 0
    for index, (event, reached) in enumerate(zip(stream.events, stream.reached, strict=True)):
        if reached[channel] <= come:
            continue
        come = reached[channel]
        name = event.name if event.bare else ""
        first = spans.pop().at if spans and spans[-1].name == name else index
        spans.append(Span(name, come, first))
    return spans
