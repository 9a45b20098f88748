"""Why a configuration is refused: file, key, value and what is allowed instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from contract.errors import CutoverError

_SECRET = re.compile(r"(?:^|_)(?:key|keys|secret|password|passwd|token|credentials?|auth|env)$")
_NO_SECRETS = frozenset({"route_key"})
_IN_ADDRESS = re.compile(r"(?<=//)[^/@\s]*@|\?.*$")
_LONGEST_SHOWN = 80

HIDDEN = "(not shown)"


class ConfigRefused(CutoverError):
    """A configuration cannot be used.

    `shown` is the value as text, made by `display_value`; None where there is none.
    """

    def __init__(self, where: str, key: str, why: str, shown: str | None = None) -> None:
        value = "" if shown is None else f" = {shown}"
        super().__init__(f"{where}: {key}{value}: {why}" if key else f"{where}: {why}")
        self.where = where
        self.key = key
        self.why = why
        self.shown = shown


def display_value(key: str, value: object) -> str:
    """Return a value as text for people: no secret, no password of an address, not long."""
    last = key.rpartition(".")[2].partition("[")[0]
    if isinstance(value, str | list) and _SECRET.search(last) and last not in _NO_SECRETS:
        return HIDDEN
    match value:
        case Mapping():
            return "(a table)"
        case str():
            text = repr(_IN_ADDRESS.sub("…", value))
        case list():
            text = f"[{', '.join(display_value(key, one) for one in value)}]"
        case bool():
            text = str(value).lower()
        case Decimal():
            text = str(value)
        case _:
            text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def unknown_name(
    where: str, key: str, known: Iterable[str], kind: str = "key", value: str | None = None
) -> ConfigRefused:
    """Return the refusal of an unknown name, `value` or the key itself, with the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(value or key.rpartition(".")[2], names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
    shown = None if value is None else display_value(key, value)
    return ConfigRefused(where, key, f"unknown {kind}; {hint}", shown)
