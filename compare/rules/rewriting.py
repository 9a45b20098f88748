"""Rewriting: a text with its matches replaced, and where each place of it has gone."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from compare.rules.expressions import found_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    import regex


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
