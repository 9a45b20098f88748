"""Expressions: the patterns of rules, each with a bound on the time one text may cost it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import regex

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
