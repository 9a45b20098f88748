"""What redaction finds: kinds of personal data and of secrets, in a text."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import phonenumbers
import regex
from stdnum import iban, luhn
from stdnum.br import cpf
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.in_ import aadhaar
from stdnum.it import codicefiscale
from stdnum.us import ssn

from cutover.errors import CutoverError

PATIENCE_SECONDS = 0.5
"""What an own pattern may take for one text."""
REGIONS = ("CN", "US", "GB", "DE", "FR")
"""Countries whose telephone numbers are found without their international prefix."""

Span = tuple[int, int]


class PatternRefused(CutoverError):
    """An own pattern cannot be used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"pattern {name!r}: {reason}")


class PatternTooSlow(CutoverError):
    """An own pattern took longer than `PATIENCE_SECONDS` for one text."""

    def __init__(self, name: str) -> None:
        super().__init__(f"pattern {name!r} took over {PATIENCE_SECONDS:g} s for one text")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of data: `find` yields where it stands; `what` is its row in docs/privacy.md.

    Of values of a `digits` kind, letters and digits alone decide whether they are equal.
    """

    name: str
    what: str
    find: Callable[[str], Iterable[Span]]
    digits: bool = False

    def normal(self, value: str) -> str:
        """Return what equal values have in common."""
        return re.sub(r"[\W_]", "", value).upper() if self.digits else value.casefold()


_SHORTER = re.compile(r".*(?=[ -][^ -]*\Z)", re.DOTALL)


def _spans(
    expression: str,
    likely: Callable[[str], object],
    check: Callable[[str], bool] = bool,
    group: int = 0,
) -> Callable[[str], Iterator[Span]]:
    """Return a finder; `likely` is a quick test of the text, `check` rejects false matches."""
    compiled = re.compile(expression)

    def find(text: str) -> Iterator[Span]:
        at = 0
        while likely(text) and (found := compiled.search(text, at)) is not None:
            value, start = found[group], found.start(group)
            while value and not check(value):  # the last group may be no part of it
                value = shorter[0] if (shorter := _SHORTER.match(value)) else ""
            if value:
                yield start, start + len(value)
            at = start + len(value) if value else found.start() + 1

    return find


_DIGITS = re.compile(r"\d[ .()/\-‐-―]{0,3}(?:\d[ .()/\-‐-―]{0,3}){5}\d").search

_EMAIL = (
    r"(?:[A-Za-z0-9._%+'-]{1,64}|[^\W\dA-Za-z_][^\WA-Za-z]{0,63})"
    r"@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}"
    r"(?:[Xx][Nn]--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24}(?![A-Za-z0-9-])|[^\W\dA-Za-z_]{2,24})"
)

# A value that follows its name: in prose, code, JSON text, queries. Pseudonyms are none.
_NAMED = (
    r"(?i:(?<![A-Za-z])(?:pass(?:word|wd|phrase)?|pwd|secret|api[_-]?key|access[_-]?(?:key|token)"
    r"|auth[_-]?token|refresh[_-]?token|client[_-]?secret|secret[_-]?(?:access[_-]?)?key)"
    r"|密码|口令)[\"'\\]*\s{0,3}(?:[:=：]|是)\s{0,3}[\"'\\]*([^\s\"'\\,;&<>{}()\[\]，。；！？、]{6,256})"
)

_LISTS = tomllib.loads((Path(__file__).parent / "kinds.toml").read_text("utf-8"))
SECRETS: Mapping[str, str] = _LISTS["secrets"]
NOT_FOUND: Mapping[str, str] = _LISTS["not_found"]
"""What stays in captures, with an example each."""
_SECRET = r"(?<![A-Za-z0-9_])(?:%s)" % "|".join(SECRETS.values())  # noqa: UP031 - braces
_SECRET_MARKS = re.compile(
    r"sk[-_]|gsk_|hf_|xai-|r8_|pplx-|nvapi-|tvly-|lsv2_|[rp]k_|whsec|AIza|ya29|A[KSBC][IC]A|gh[pousr]_"
    r"|github_pat|glpat|xox|SG\.|npm_|pypi-|dop_|eyJ|-----BEGIN|[Bb]earer|BEARER|[Bb]asic|\d:"
).search

_NAMES = re.compile(r"(?i)pass|pwd|secret|key|token|密码|口令").search
_SEPARATOR = r"[ .()/\-‐-―]{0,3}"
_INTERNATIONAL = re.compile(
    rf"(?<![A-Za-z0-9+])(?:\+|00){_SEPARATOR}[1-9](?:{_SEPARATOR}\d){{6,14}}(?!\d)"
)
_NATIONAL = re.compile(rf"(?<![A-Za-z0-9+])\(?\d(?:{_SEPARATOR}\d){{6,13}}(?![A-Za-z0-9])")
_GROUP = re.compile(r"\(?\d+\D*")
_LAST_GROUP = re.compile(r"\D*\d*\Z")
_LEAST_DIGITS, _MOST_DIGITS, _MOST_GROUPS = 7, 13, 6


def _phones(text: str) -> Iterator[Span]:
    if not _DIGITS(text):
        return
    for found in _INTERNATIONAL.finditer(text):
        value = found[0]
        while value and not _possible(value):
            value = _LAST_GROUP.sub("", value)
        if value:
            yield found.start(), found.start() + len(value)
    until, at = time.thread_time() + PATIENCE_SECONDS, 0
    while (window := _NATIONAL.search(text, at)) is not None:
        part = window[0]
        while part and (length := _national(part)) == 0:
            part = _LAST_GROUP.sub("", part)
        if part:
            yield window.start(), window.start() + length
            at = window.start() + length
        else:
            at = window.start() + len(_GROUP.match(window[0])[0])  # type: ignore[index]
        if time.thread_time() > until:
            raise PatternTooSlow(name="phone")


def _national(text: str) -> int:
    """Return the length of a number that a text begins with, read as one whole; 0: it is none."""
    digits = sum(map(str.isdigit, text))
    if not _LEAST_DIGITS <= digits <= _MOST_DIGITS or len(_GROUP.findall(text)) > _MOST_GROUPS:
        return 0
    for region in REGIONS:
        if text.isdigit() and not _valid(text, region):
            continue  # it cannot be found in parts, and the search below takes long
        for match in phonenumbers.PhoneNumberMatcher(text, region):
            if match.start <= 1:
                return int(match.end)
    return 0


def _valid(digits: str, region: str) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(digits, region))
    except phonenumbers.NumberParseException:
        return False


def _possible(value: str) -> bool:
    try:
        number = phonenumbers.parse(re.sub(r"\A00", "+", value))
    except phonenumbers.NumberParseException:
        return False
    reason = phonenumbers.is_possible_number_with_reason(number)
    return reason == phonenumbers.ValidationResult.IS_POSSIBLE


def _card(value: str) -> bool:
    return len(digits := re.sub(r"\D", "", value)) >= 13 and luhn.is_valid(digits)  # noqa: PLR2004


def _any_of(*modules: Any) -> Callable[[str], bool]:
    return lambda value: any(module.is_valid(value) for module in modules)


BUILT_IN = (
    Kind("secret", "keys and tokens of a known shape, below", _spans(_SECRET, _SECRET_MARKS)),
    Kind(
        "password",
        "what follows `password`, `secret`, `api_key`, `access_token`, 密码 … and `:` or `=`",
        _spans(_NAMED, _NAMES, group=1),
    ),
    Kind(
        "url_key",
        "what follows `token`, `key`, `auth`, `sig` or `signature` in the query of a URL",
        _spans(
            r"(?i)(?<=[?&])(?:token|key|auth|sig|signature)="
            r"([^\s\"'\\&#,;<>{}()\[\]，。；！？、]{6,256})",
            lambda text: "=" in text,
            group=1,
        ),
    ),
    Kind(
        "login",
        "user, password and host in a URL",
        _spans(
            r"(?<=://)[^\s/:@]{0,64}:[^\s/@]{1,256}@[^\s/?#\"'\\,;，。]{1,256}",
            lambda text: "://" in text,
        ),
    ),
    Kind(
        "email",
        "e-mail addresses, also of internationalised domains",
        _spans(_EMAIL, lambda text: "@" in text),
    ),
    Kind(
        "phone",
        "telephone numbers of every country with `+` or `00`; without, of "
        + ", ".join(REGIONS)
        + " as `phonenumbers` knows them",
        _phones,
        digits=True,
    ),
    Kind(
        "card",
        "payment cards: 13 to 19 digits of an issuer's range with a right check digit",
        _spans(r"(?<![A-Za-z0-9])[2-6](?:[ -]?\d){12,18}(?![A-Za-z0-9])", _DIGITS, _card),
        digits=True,
    ),
    Kind(
        "iban",
        "bank accounts (IBAN) with right check digits",
        _spans(
            r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]){11,30}(?![A-Za-z0-9])",
            re.compile(r"[A-Za-z]{2}\d{2}").search,
            iban.is_valid,
        ),
        digits=True,
    ),
    Kind(
        "id_number",
        "numbers of persons: China (18 digits, also mistyped), USA (SSN), Brazil (CPF), Spain "
        "(DNI, NIE), France (NIR), India (Aadhaar), Italy (codice fiscale)",
        _spans(
            r"(?<![A-Za-z0-9])(?:[1-9]\d{5}(?:18|19|20)\d{2}(?:0[1-9]|1[0-2])[0-3]\d{4}[\dXx]"
            r"|\d{3}[ -]\d{2}[ -]\d{4}|\d{3}\.?\d{3}\.?\d{3}-\d{2}|[XYZxyz]?\d{7,8}[A-Za-z]"
            r"|[12] ?\d{2} ?\d{2} ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}|[2-9]\d{3} \d{4} \d{4}"
            r"|[A-Za-z]{6}\d{2}[A-Za-z]\d{2}[A-Za-z]\d{3}[A-Za-z])(?![A-Za-z0-9])",
            re.compile(r"\d").search,
            lambda value: (
                len(value) == 18  # noqa: PLR2004 - China's, which people mistype
                or _any_of(ssn, cpf, dni, nie, nir, aadhaar, codicefiscale)(value)
            ),
        ),
        digits=True,
    ),
)
"""The kinds that are looked for unless a configuration says otherwise."""

_SHORTEST = 6
"""Characters of what the built-in kinds find, at least."""
_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
# What looks like a number of a person, and is not: pseudonyms, uuids, moments, IP addresses.
_IMPERSONAL = re.compile(
    r"<[a-z][a-z0-9_]{0,31}:[0-9a-f]{12}>"
    r"|(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])"
    rf"|(?<![\d.]){_BYTE}(?:\.{_BYTE}){{3}}(?![\d.]*\d)"
    r"|(?<!\d)\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(?!\d)"
)


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
        if found:
            apart = [one.span() for one in _IMPERSONAL.finditer(text)]
            found = [
                (start, end, kind)
                for start, end, kind in found
                if not any(a <= start and end <= b for a, b in apart)
            ]
        return found


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
