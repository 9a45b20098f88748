"""Expressions: the patterns of rules, each with a bound on the time one text may cost it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import msgspec
import regex

from compare.streams.events import Event, EventStream
from contract.errors import CutoverError

PATIENCE_S = 2.0
"""Seconds of processor time an expression has for one text; what is sound needs milliseconds."""


class ExpressionTooSlow(CutoverError):
    """A rule's expression did not come to an end with a text."""

    def __init__(self, pattern: str, length: int) -> None:
        super().__init__(
            f"the rule with pattern {pattern!r} took over {PATIENCE_S:g} s on a text of {length:,} "
            "characters: write it without repetitions of repetitions"
        )


@lru_cache(maxsize=256)
def expression_of(pattern: str) -> regex.Pattern[str]:
    """Compile a pattern; raises `regex.error`."""
    return regex.compile(pattern)


def check_replacement(pattern: str, replacement: str) -> None:
    """Raise `regex.error` or `IndexError` where a replacement cannot stand for a match."""
    # A match that is always there, with the pattern's groups; the line end closes its comments.
    match = regex.compile(f"(?:{pattern}\n)|").match("")
    if match is not None:
        match.expand(replacement)


def found_in(expression: regex.Pattern[str], text: str) -> Iterator[regex.Match[str]]:
    """Yield every match; raises `ExpressionTooSlow`."""
    try:
        yield from expression.finditer(text, timeout=PATIENCE_S)
    except TimeoutError as late:
        raise ExpressionTooSlow(expression.pattern, len(text)) from late


class Match(NamedTuple):
    """One match: where it stood, and where what replaces it stands."""

    start: int
    end: int
    new_start: int
    new_end: int


@dataclass(slots=True)
class Rewritten:
    """A text after any number of replacements."""

    text: str
    _steps: list[list[Match]] = field(default_factory=list)

    @property
    def untouched(self) -> bool:
        """Whether nothing matched."""
        return not self._steps

    def replace(self, pattern: regex.Pattern[str], replacement: str) -> list[str]:
        """Replace every match; returns what matched; raises `ExpressionTooSlow`."""
        parts: list[str] = []
        matches: list[Match] = []
        taken: list[str] = []
        end = length = 0
        for found in found_in(pattern, self.text):
            put = found.expand(replacement)
            kept = self.text[end : found.start()]
            begins = length + len(kept)
            parts += kept, put
            matches.append(Match(found.start(), found.end(), begins, begins + len(put)))
            taken.append(found[0])
            end, length = found.end(), begins + len(put)
        if matches:
            self.text = "".join((*parts, self.text[end:]))
            self._steps.append(matches)
        return taken

    def moved(self, at: int) -> int:
        """Say where a place of the old text is in the new one; inside a match: at its beginning."""
        for matches in self._steps:
            at = _moved(at, matches)
        return at


def _moved(at: int, matches: Sequence[Match]) -> int:
    index = bisect_right(matches, at, key=lambda match: match.start) - 1
    if index < 0:
        return at
    match = matches[index]
    return match.new_start if at < match.end else match.new_end + at - match.end


class Texts(NamedTuple):
    """The final text and the reasoning of one stream."""

    text: Rewritten
    reasoning: Rewritten


def rewritten_stream(
    stream: EventStream, texts: Texts, terminal: frozenset[str], again: Callable[[str], str]
) -> EventStream:
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
