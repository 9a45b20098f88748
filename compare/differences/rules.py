"""`diff.toml`: what of two runs is not compared, or not so closely; see docs/report.md."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

import msgspec

from cutover.chat_form import encode
from cutover.errors import Unusable


class _Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all rules have: where they hold."""

    flow: str = "*"
    name: str = "*"
    path: str = ""

    def holds(self, name: str, path: str) -> bool:
        """Whether a rule holds at a place."""
        return bool(_pattern(self.name).fullmatch(name) and _pattern(self.path).fullmatch(path))


class Ignore(_Rule, frozen=True, kw_only=True):
    """What is there is not compared."""


class Replace(_Rule, frozen=True, kw_only=True):
    """What a pattern finds in a string is taken for `by`, which may refer to groups."""

    pattern: str
    by: str
    path: str = "*"


class Unordered(_Rule, frozen=True, kw_only=True):
    """A list's order does not count."""

    path: str


class Tolerance(_Rule, frozen=True, kw_only=True):
    """Numbers that are at most `by` apart are equal."""

    path: str
    by: float


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ignore: tuple[Ignore, ...] = ()
    replace: tuple[Replace, ...] = ()
    unordered: tuple[Unordered, ...] = ()
    tolerance: tuple[Tolerance, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a file; `used` are those that were of use, in words."""

    file: _File = field(default_factory=_File)
    used: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.file != _File()

    def of(self, flow: str) -> Rules:
        """Return the rules of a flow, none of them used."""
        kinds = (getattr(self.file, kind) for kind in _File.__struct_fields__)
        mine = ([one for one in kind if _pattern(one.flow).fullmatch(flow)] for kind in kinds)
        return Rules(_File(*map(tuple, mine))) if self else self

    def value(self, name: str, value: Any, path: str = "") -> Any:
        """Return what of a value is compared; None where a rule leaves nothing of it.

        Where something of a name is ignored, its empty holders are absent, too.
        """
        ignore = [rule for rule in self.file.ignore if _pattern(rule.name).fullmatch(name)]
        if any(self._use(rule) for rule in ignore if rule.holds(name, path)):
            return None
        match value:
            case str():
                return self._replaced(name, value, path)
            case dict():
                kept = {}
                for key, one in value.items():
                    left = self.value(name, one, f"{path}.{key}" if path else key)
                    if left is not None or one is None:
                        kept[key] = left
                return kept if kept or not ignore else None
            case list():
                below = f"{path}[]"
                items = [(one, self.value(name, one, below)) for one in value]
                left = [item for one, item in items if item is not None or one is None]
                rules = [rule for rule in self.file.unordered if rule.holds(name, below)]
                ordered = sorted(left, key=encode) if rules else left
                if ordered != left:
                    self._use(rules[0])
                return ordered if ordered or not ignore else None
            case _:
                return value

    def tolerates(self, name: str, path: str, legacy: Any, graph: Any) -> bool:
        """Whether two values are numbers that a rule takes for equal."""
        numbers = all(isinstance(one, int | float) for one in (legacy, graph))
        return numbers and any(
            self._use(rule)
            for rule in self.file.tolerance
            if abs(legacy - graph) <= rule.by and rule.holds(name, path)
        )

    def _replaced(self, name: str, text: str, path: str) -> str:
        for rule in self.file.replace:
            if rule.holds(name, path):
                text, count = re.subn(rule.pattern, rule.by, text)
                if count:
                    self._use(rule)
        return text

    def _use(self, rule: _Rule) -> bool:
        what = rule.path if not isinstance(rule, Replace) else rule.pattern
        self.used.add(f"{type(rule).__name__.lower()} {what or 'all'} of {rule.name}")
        return True


NONE: Final = Rules()
"""No rules."""


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def read_rules(text: str) -> Rules:
    """Read the text of a `diff.toml`; raises `Unusable` with the key and the nearest name."""
    try:
        file = msgspec.convert(tomllib.loads(text), _File)
    except tomllib.TOMLDecodeError as error:
        raise Unusable(where="", reason=str(error)) from error
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from error
    for place, rule in enumerate(file.replace):
        try:
            re.compile(rule.pattern).sub(rule.by, "")
        except (re.error, IndexError) as error:
            raise Unusable(where=f"replace[{place}].pattern", reason=str(error)) from error
    return Rules(file)


def _refused(message: str) -> Unusable:
    """Translate msgspec's sentence, and name the nearest key."""
    reason, _, at = message.partition(" - at `$")
    key = at.rstrip("`").removeprefix(".")
    if unknown := re.search(r"unknown field `(.+)`", reason):
        structs = (Replace, Tolerance) if key else (_File,)
        known = sorted({name for struct in structs for name in struct.__struct_fields__})
        near = get_close_matches(unknown[1], known, n=1) or known
        reason = f"no such key; did you mean {' or '.join(map(repr, near))}?"
        key = f"{key}.{unknown[1]}".removeprefix(".")
    return Unusable(where=key, reason=reason)
