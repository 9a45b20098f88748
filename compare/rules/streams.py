"""Streams under rules: texts rewritten as a whole, and cut again where they were cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from compare.events import Event, Stream
    from compare.rules.rewriting import Rewritten


class Texts(NamedTuple):
    """The final text and the reasoning of one stream."""

    text: Rewritten
    reasoning: Rewritten


def rewritten_stream(
    stream: Stream, texts: Texts, terminal: frozenset[str], again: Callable[[str], str]
) -> Stream:
    """Put rewritten texts into the events that brought them.

    A value may be spread over chunks, so texts are rewritten whole. `again` rewrites a text an
    event showed that is no beginning of the final one. Nothing is read behind a terminal event.
    """
    spoken = _Retelling(stream.text, texts.text, again)
    thought = _Retelling(stream.reasoning, texts.reasoning, again)
    events: list[Event] = []
    reached: list[tuple[int, int]] = []
    ended = False
    for event in stream.events:
        events.append(event if ended else _retold(event, spoken, thought))
        reached.append((spoken.reached, thought.reached))
        ended = ended or event.name in terminal
    return msgspec.structs.replace(
        stream,
        events=tuple(events),
        reached=tuple(reached),
        text=texts.text.text,
        reasoning=texts.reasoning.text,
    )


def _retold(event: Event, spoken: _Retelling, thought: _Retelling) -> Event:
    text = spoken.tell(event.text, event.growth)
    reasoning = thought.tell(event.reasoning, event.growth)
    return msgspec.structs.replace(event, text=text, reasoning=reasoning)


class _Retelling:
    """Follows one text through the events of a stream."""

    def __init__(self, final: str, rewritten: Rewritten, again: Callable[[str], str]) -> None:
        self._final = final
        self._rewritten = rewritten
        self._again = again
        self._told = ""
        self.reached = 0

    def tell(self, own: str | None, growth: str | None) -> str | None:
        """Give what an event now says of the text."""
        if own is None:
            return None
        before = self.reached
        self._told = self._told + own if growth == "delta" else own
        whole = self._whole()
        self.reached = len(whole)
        return whole[before:] if growth == "delta" else whole

    def _whole(self) -> str:
        if self._final.startswith(self._told):
            return self._rewritten.text[: self._rewritten.moved(len(self._told))]
        return self._again(self._told)
