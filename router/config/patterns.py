"""Named patterns of personal data, and a cheap test whether any could match at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import regex

from contract.errors import CutoverError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
# Digits become "0", what people put between them disappears, the rest becomes a space.
_MASK = bytes(
    ord("0") if chr(code) in "0123456789" else code if chr(code) == "+" else ord(" ")
    for code in range(256)
)
_BETWEEN_DIGITS = b" -.()"
_DIGIT_MOST = 9

PATIENCE_S = 0.5
"""Seconds of processor time a custom pattern has for one text."""


class PatternTooSlow(CutoverError):
    """A custom pattern took too long for one text."""

    def __init__(self, name: str) -> None:
        super().__init__(f"pattern {name!r} took over {PATIENCE_S:g} s on one text")
        self.name = name


class PatternMatch(NamedTuple):
    """A stretch of a text that is personal data, and its pattern's name."""

    start: int
    end: int
    name: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of personal data.

    Every match holds one of `marks`, or what `shape` finds, or one of `digits` in the masked text;
    with none of these the expression itself must look. `check` rejects false matches. A custom
    expression is one of `regex`, which lets other threads run and stops after `PATIENCE_S`.
    """

    name: str
    expression: re.Pattern[str] | regex.Pattern[str]
    marks: tuple[bytes, ...] = ()
    shape: re.Pattern[bytes] | None = None
    digits: tuple[bytes, ...] = ()
    check: Callable[[str], bool] | None = None

    def possible(self, raw: bytes, masked: bytes) -> bool:
        """Whether the text could hold a match, judged by its bytes."""
        if self.blind or (self.shape is not None and self.shape.search(raw)):
            return True
        return any(mark in raw for mark in self.marks) or any(run in masked for run in self.digits)

    @property
    def blind(self) -> bool:
        """Whether only the expression itself can find where it matches."""
        return not self.marks and not self.digits and self.shape is None

    def matches(self, text: str) -> Iterator[PatternMatch]:
        """Yield the matches, none of them empty; raises `PatternTooSlow`."""
        expression = self.expression
        matches: Iterator[re.Match[str] | regex.Match[str]] = (
            expression.finditer(text)
            if isinstance(expression, re.Pattern)
            else expression.finditer(text, timeout=PATIENCE_S)
        )
        try:
            for found in matches:
                start, end = found.span()
                if end > start and (self.check is None or self.check(found.group())):
                    yield PatternMatch(start, end, self.name)
        except TimeoutError as late:
            raise PatternTooSlow(self.name) from late


def luhn(text: str) -> bool:
    """Whether the digits of `text` end in the check digit of ISO/IEC 7812-1, annex B."""
    total = 0
    for place, digit in enumerate(int(char) for char in reversed(text) if char.isdigit()):
        doubled = digit * 2 if place % 2 else digit
        total += doubled - 9 if doubled > _DIGIT_MOST else doubled
    return total % 10 == 0


BUILT_IN: tuple[Pattern, ...] = (
    Pattern(
        "email",
        re.compile(
            r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.[A-Za-z]{2,24}"
        ),
        marks=(b"@",),
    ),
    Pattern(  # issuers' first digits, then 13 to 19 in all, in groups or not
        "card",
        re.compile(
            r"(?<![0-9])(?:3[0-9]|4[0-9]|5[0-9]|6[0-9]|2[2-7])(?:[ -]?[0-9]){11,17}(?![0-9])"
        ),
        digits=(b"0" * 13,),
        check=luhn,
    ),
    Pattern(  # GB 11643: region, date of birth, serial, check digit (mistyped ones too)
        "id_card",
        re.compile(
            r"(?<![0-9A-Za-z])[1-9][0-9]{5}(?:18|19|20)[0-9]{2}(?:0[1-9]|1[0-2])"
            r"(?:0[1-9]|[12][0-9]|3[01])[0-9]{3}[0-9Xx](?![0-9A-Za-z])"
        ),
        digits=(b"0" * 17,),
    ),
    Pattern(  # Chinese mobile numbers, and anything in E.164 with its plus
        "phone",
        re.compile(
            r"(?<![0-9])(?:(?:\+|00)?86[ -]?)?1[3-9][0-9](?:[ -]?[0-9]{4}){2}(?![0-9])"
            r"|\+[1-9](?:[ .()-]{0,2}[0-9]){6,14}(?![0-9])"
        ),
        digits=(b"0" * 11, b"+0000000"),
    ),
    Pattern(
        "api_key",
        re.compile(
            r"(?<![A-Za-z0-9_])(?:sk-[A-Za-z0-9_-]{16,200}|AKIA[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{35}"
            r"|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}"
            r"|xox[abeprs]-[A-Za-z0-9-]{10,200}"
            r"|eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,2000})"
        ),
        marks=(b"sk-", b"AKIA", b"AIza", b"xox", b"eyJ", b"github_pat_"),
        shape=re.compile(rb"gh[pousr]_"),
    ),
)


class Patterns:
    """The patterns in force."""

    __slots__ = ("_blind", "_marks", "_runs", "_shapes", "all")

    def __init__(self, patterns: tuple[Pattern, ...] = BUILT_IN) -> None:
        self.all = patterns
        # What nearly every text is searched for without success, each once.
        self._blind = any(one.blind for one in patterns)
        self._marks = tuple({mark for one in patterns for mark in one.marks})
        self._shapes = tuple(one.shape for one in patterns if one.shape is not None)
        runs = {run for one in patterns for run in one.digits}
        self._runs = tuple(run for run in runs if not any(run != o and o in run for o in runs))

    def __bool__(self) -> bool:
        return bool(self.all)

    def possible(self, raw: bytes) -> Patterns:
        """Return the patterns that could match somewhere in `raw`; usually none."""
        masked = raw.translate(_MASK, _BETWEEN_DIGITS)
        found = any(map(masked.__contains__, self._runs)) or any(map(raw.__contains__, self._marks))
        for shape in self._shapes:
            found = found or shape.search(raw) is not None
        if found or self._blind:
            return Patterns(tuple([one for one in self.all if one.possible(raw, masked)]))
        return NONE

    def matches(self, text: str) -> list[PatternMatch]:
        """Return all matches of all patterns; they may overlap."""
        return [match for pattern in self.all for match in pattern.matches(text)]


NONE: Final = Patterns(())


def compile_patterns(custom: Mapping[str, str]) -> Patterns:
    """Join the built-in patterns and `custom` ones; raises `ValueError` on a bad one.

    A custom pattern takes the place of the built-in one of its name, an empty one removes it.
    """
    own = [
        Pattern(pattern_name(name), pattern_expression(expression))
        for name, expression in custom.items()
        if expression
    ]
    kept = [pattern for pattern in BUILT_IN if pattern.name not in custom]
    return Patterns((*kept, *own))


def pattern_name(name: str) -> str:
    """Return the name of a custom pattern; raises `ValueError` on one that is none."""
    if not _NAME.fullmatch(name):
        message = "a pattern's name is a lower-case word of 32 characters at most"
        raise ValueError(message)
    return name


def pattern_expression(expression: str) -> regex.Pattern[str]:
    """Compile a custom pattern; raises `ValueError` on one that cannot be used."""
    try:
        found = regex.compile(expression)
    except (regex.error, RecursionError, OverflowError) as error:
        message = f"not a regular expression: {error}"
        raise ValueError(message) from error
    if found.fullmatch(""):
        message = "matches the empty text"
        raise ValueError(message)
    return found
