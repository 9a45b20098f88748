"""What redaction finds: kinds of personal data and of secrets, in a text."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import phonenumbers
import regex
from stdnum import iban, luhn

from cutover.errors import CutoverError

PATIENCE_SECONDS = 0.5
"""What a pattern may take for one text."""
REGIONS = ("CN", "US", "GB", "DE", "FR")
"""Countries whose telephone numbers are found without their international prefix."""
_LISTS = tomllib.loads((Path(__file__).parent / "kinds.toml").read_text("utf-8"))
SECRETS: Mapping[str, str] = _LISTS["secrets"]
NOT_FOUND: Mapping[str, str] = _LISTS["not_found"]
"""What stays in captures, with an example each."""
_IMPERSONAL = re.compile("|".join(_LISTS["impersonal"].values()))

Span = tuple[int, int]


class PatternRefused(CutoverError):
    """An own pattern cannot be used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"pattern {name!r}: {reason}")


class PatternTooSlow(CutoverError):
    """A pattern took longer than `PATIENCE_SECONDS` for one text."""

    def __init__(self, name: str) -> None:
        super().__init__(f"pattern {name!r} took over {PATIENCE_SECONDS:g} s for one text")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of data: `find` yields where it stands; `what` is its row in docs/privacy.md.

    Of values of a `digits` kind, letters and digits alone decide whether they are equal.
    """

    name: str
    what: str = ""
    find: Callable[[str], Iterable[Span]] = lambda _: ()
    digits: bool = False

    def normal(self, value: str) -> str:
        """Return what equal values have in common."""
        return re.sub(r"[\W_]", "", value).upper() if self.digits else value.casefold()


# --- Numbers, which have to be right


_SEPARATORS = r" .()/\-‐-―"
_LAST_GROUP = re.compile(rf"(?:\A|[{_SEPARATORS}]+)[^{_SEPARATORS}]*\Z")
_LEAST_DIGITS, _MOST_DIGITS, _MOST_GROUPS = 7, 13, 6
_CARD_DIGITS, _CHINESE_DIGITS = 13, 18
_UNCHECKED = re.compile(r"[A-Z]{2} ?(?:\d\d ?){3}[A-D]|[A-Z]{1,2}\d{6}\([0-9A]\)")  # GB, HK
_PERSONS = [import_module(f"stdnum.{one}") for one in _LISTS["persons"]["modules"]]


def _is_card(value: str) -> bool:
    digits = re.sub(r"\D", "", value)
    return len(digits) >= _CARD_DIGITS and luhn.is_valid(digits)


def _is_person(value: str) -> bool:
    plain = re.sub(r"[\W_]", "", value).upper()
    if len(plain) == _CHINESE_DIGITS and plain[:-1].isdigit():
        return True  # people mistype it
    if _UNCHECKED.fullmatch(value):
        return True
    return any(one.is_valid(value) or one.is_valid(plain) for one in _PERSONS)


@lru_cache(1 << 12)  # numbers of a table recur, and each takes a millisecond
def _is_phone(value: str) -> bool:
    if value.startswith(("+", "00")):
        number = _parsed(re.sub(r"\A00", "+", value))
        return (
            number is not None
            and phonenumbers.is_possible_number_with_reason(number)
            == phonenumbers.ValidationResult.IS_POSSIBLE  # and not within a town alone
        )
    digits, groups = sum(map(str.isdigit, value)), re.findall(r"\d+", value)
    if not _LEAST_DIGITS <= digits <= _MOST_DIGITS or len(groups) > _MOST_GROUPS:
        return False
    return any(_is_national(value, region) for region in REGIONS)


def _is_national(value: str, region: str) -> bool:
    """Whether a text is a number of a country, read as one whole."""
    if value.isdigit():  # it cannot be found in parts, and the search below takes long
        number = _parsed(value, region)
        if number is None or not phonenumbers.is_valid_number(number):
            return False
    found = phonenumbers.PhoneNumberMatcher(value, region)
    return any(one.start <= 1 and one.end == len(value) for one in found)


def _parsed(value: str, region: str | None = None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(value, region)
    except phonenumbers.NumberParseException:
        return None


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "phone": _is_phone,
    "card": _is_card,
    "iban": lambda value: iban.is_valid(re.sub(r"[\W_]", "", value)),
    "id_number": _is_person,
}


# --- Kinds


def _built_in(name: str, row: Mapping[str, Any]) -> Kind:
    expression = "".join(row["pattern"])
    for part, said in {**_LISTS["parts"], "secrets": "|".join(SECRETS.values())}.items():
        expression = expression.replace(f"{{{part}}}", said)
    patterns = [re.compile(one) for one in (expression, row.get("also")) if one]
    likely = re.compile(row.get("likely", ""))
    check, group = _CHECKS.get(name, bool), row.get("group", 0)

    def find(text: str) -> Iterator[Span]:
        until = time.thread_time() + PATIENCE_SECONDS
        for pattern in patterns if likely.search(text) else ():
            at = 0
            while (found := pattern.search(text, at)) is not None:
                value, start = found[group], found.start(group)
                while value and not check(value):  # the last group may be no part of it
                    value = _LAST_GROUP.sub("", value)
                    if time.thread_time() > until:
                        raise PatternTooSlow(name)
                if value:
                    yield start, start + len(value)
                at = start + len(value) if value else found.start() + 1

    return Kind(name, row["what"], find, row.get("digits", False))


BUILT_IN = tuple(_built_in(name, row) for name, row in _LISTS["kinds"].items())
_SHORTEST = 6
"""Characters of what the built-in kinds find, at least."""


class Kinds:
    """The kinds in force: built in ones, and `own` regular expressions by name.

    An own pattern takes the place of the kind of its name; an empty one removes that. Raises
    `PatternRefused`.
    """

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        own = own or {}
        self._built_in = [kind for kind in BUILT_IN if kind.name not in own]
        self._own = [_own(name, text) for name, text in own.items() if text]

    def find(self, text: str) -> list[tuple[int, int, Kind]]:
        """Return what is found; raises `PatternTooSlow`."""
        kinds = self._own if len(text) < _SHORTEST else [*self._built_in, *self._own]
        found = [(*span, kind) for kind in kinds for span in kind.find(text)]
        apart = [one.span() for one in _IMPERSONAL.finditer(text)] if found else []
        return [
            one
            for one in found
            if not (one[2].digits or one[2] in self._own)
            or not any(a <= one[0] and one[1] <= b for a, b in apart)
        ]


def _own(name: str, expression: str) -> Kind:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name):
        raise PatternRefused(name, "a name is a lower-case word of at most 32 characters")
    try:
        compiled = regex.compile(expression)
    except (regex.error, RecursionError, OverflowError) as error:
        raise PatternRefused(name, f"no regular expression: {error}") from error
    if compiled.fullmatch(""):
        raise PatternRefused(name, "it matches the empty text")

    def find(text: str) -> Iterator[Span]:
        try:
            for found in compiled.finditer(text, timeout=PATIENCE_SECONDS):
                if found.end() > found.start():
                    yield found.span()
        except TimeoutError as late:
            raise PatternTooSlow(name) from late

    return Kind(name, expression, find)
