"""Rules on texts: patterns replaced in a text as a whole, and in the events that brought it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import msgspec
import regex

from contract.equality import EventStream, StreamEvent
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
        """Return where a place of the old text is in the new one; inside a match: its beginning."""
        for matches in self._steps:
            index = bisect_right(matches, at, key=lambda match: match.start) - 1
            if index >= 0:
                match = matches[index]
                at = match.new_start if at < match.end else match.new_end + at - match.end
        return at


def rewritten_stream(
    stream: EventStream,
    text: Rewritten,
    reasoning: Rewritten,
    terminal: frozenset[str],
    again: Callable[[str], str],
) -> EventStream:
    """Put the rewritten final text and reasoning into the events that brought them.

    A value may be spread over chunks, so texts are rewritten whole. `again` rewrites a text an
    event showed that is no beginning of the final one. Nothing is read behind a terminal event.
    """
    spoken = _RewrittenText(stream.text, text, again)
    thought = _RewrittenText(stream.reasoning, reasoning, again)
    events: list[StreamEvent] = []
    reached: list[tuple[int, int]] = []
    ended = False
    for event in stream.events:
        made = event
        if not ended:
            made = msgspec.structs.replace(
                event,
                text=spoken.next(event.text, event.growth),
                reasoning=thought.next(event.reasoning, event.growth),
            )
        events.append(made)
        reached.append((spoken.reached, thought.reached))
        ended = ended or event.name in terminal
    return msgspec.structs.replace(
        stream,
        events=tuple(events),
        reached=tuple(reached),
        text=text.text,
        reasoning=reasoning.text,
    )


class _RewrittenText:
    """One text on its way through the events of a stream."""

    def __init__(self, final: str, rewritten: Rewritten, again: Callable[[str], str]) -> None:
        self._final = final
        self._rewritten = rewritten
        self._again = again
        self._come = ""
        self.reached = 0

    def next(self, own: str | None, growth: str | None) -> str | None:
        """Return what an event now has of the text."""
        if own is None:
            return None
        before = self.reached
        self._come = self._come + own if growth == "delta" else own
        if self._final.startswith(self._come):
            whole = self._rewritten.text[: self._rewritten.moved(len(self._come))]
        else:
            whole = self._again(self._come)
        self.reached = len(whole)
        return whole[before:] if growth == "delta" else whole
