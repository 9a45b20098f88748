"""Tables of a TOML file, turned into frozen values, or refused with file, key and value."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from contract.errors import CutoverError

S = TypeVar("S", bound=msgspec.Struct)

Table = Mapping[str, Any]

_AT = re.compile(r"^(?P<reason>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_SECRET = re.compile(r"(?:^|_)(?:key|keys|secret|password|passwd|token|credentials?|auth|env)$")
_NO_SECRETS = frozenset({"route_key"})
_IN_ADDRESS = re.compile(r"(?<=//)[^/@\s]*@|\?.*$")
HIDDEN = "(not shown)"
_LONGEST_SHOWN = 80


class ConfigRefused(CutoverError):
    """A configuration cannot be used; says file, key, value and what is allowed.

    `shown` is the value as text, None where there is none; whoever raises it hides secrets
    with `display_value`.
    """

    def __init__(self, where: str, key: str, why: str, shown: str | None = None) -> None:
        value = "" if shown is None else f" = {shown}"
        super().__init__(f"{where}: {key}{value}: {why}" if key else f"{where}: {why}")
        self.where = where
        self.key = key
        self.why = why


def display_value(key: str, value: object) -> str:
    """Give a value as people may see it: never a secret, no password of an address, not long."""
    last = key.rpartition(".")[2]
    if isinstance(value, str | list) and _SECRET.search(last) and last not in _NO_SECRETS:
        return HIDDEN
    if isinstance(value, Mapping):
        return "(a table)"
    if isinstance(value, str):
        value = _IN_ADDRESS.sub("…", value)
    if isinstance(value, list):
        text = f"[{', '.join(display_value(key, one) for one in value)}]"
    else:
        text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML, fractions as `Decimal`; raises `ConfigRefused` on bad syntax and on inf, nan."""
    try:
        table = tomllib.loads(text, parse_float=Decimal)
        _refuse_endless(table, where, "")
    # Not its own error alone: thousands of digits are a plain one.
    except ValueError as error:
        raise ConfigRefused(where, "", f"not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigRefused(where, "", "nested too deeply") from error
    return table


def subtable(parent: Table, name: str, where: str, prefix: str = "") -> Table:
    """Give the table under `name`, empty where there is none."""
    value = parent.get(name, {})
    if not isinstance(value, Mapping):
        raise ConfigRefused(where, prefix + name, "a table is due", display_value(name, value))
    return value


def tables(parent: Table, name: str, where: str) -> dict[str, Table]:
    """Give the named tables below `name`: `[flows.chat]`, `[flows.ops]` and so on."""
    named = subtable(parent, name, where)
    return {key: subtable(named, key, where, f"{name}.") for key in named}


def convert_table(table: Table, kind: type[S], where: str, prefix: str) -> S:
    """Turn a table into a struct; raises `ConfigRefused` naming the key below `prefix`."""
    _check_names(table, kind, where, prefix)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, table, kind, where, prefix) from error


def section(parent: Table, name: str, kind: type[S], where: str) -> S:
    """Give the table under `name` as a struct; raises `ConfigRefused`."""
    return convert_table(subtable(parent, name, where), kind, where, f"{name}.")


def checked(test: Callable[[Any], str | None], value: object, where: str, key: str) -> None:
    """Refuse `value` where `test` gives a reason."""
    why = test(value)
    if why:
        raise ConfigRefused(where, key, why, display_value(key, value))


def unknown_name(
    where: str, key: str, known: Iterable[str], kind: str = "key", value: str | None = None
) -> ConfigRefused:
    """Give the refusal of a name nobody knows (`value`, or the key itself), with the nearest."""
    names = sorted(known)
    near = difflib.get_close_matches(value or key.rpartition(".")[2], names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
    told = None if value is None else display_value(key, value)
    return ConfigRefused(where, key, f"unknown {kind}; {hint}", told)


def _check_names(table: Table, kind: type[msgspec.Struct], where: str, prefix: str) -> None:
    hints = get_type_hints(kind)
    for key, value in table.items():
        hint = hints.get(key)
        if hint is None:
            raise unknown_name(where, prefix + key, kind.__struct_encode_fields__)
        below = _struct_of(hint)
        if isinstance(value, Mapping) and below is not None:
            _check_names(value, below, where, f"{prefix}{key}.")
        if isinstance(value, str) and hint is Decimal:
            raise ConfigRefused(where, prefix + key, "a number is due", display_value(key, value))


def _refusal(
    error: msgspec.ValidationError,
    table: Table,
    kind: type[msgspec.Struct],
    where: str,
    prefix: str,
) -> ConfigRefused:
    found = _AT.match(str(error))
    path = (found and found["path"]) or ""
    reason = (found and found["reason"]) or str(error)
    value, hint = _at(path, table, kind)
    key = prefix + path.removeprefix(".") if path else prefix.removesuffix(".")
    if get_origin(hint) is Literal:
        reason = "allowed: " + ", ".join(repr(choice) for choice in get_args(hint))
    return ConfigRefused(where, key, reason, None if value is None else display_value(key, value))


def _at(path: str, table: Table, struct: type[msgspec.Struct]) -> tuple[Any, Any]:
    """Find the value and the declared type `path` leads to (None: not to be told)."""
    value: Any = table
    kind: Any = struct
    for name, index in _STEP.findall(path):
        struct_below = _struct_of(kind)
        kind = get_type_hints(struct_below).get(name) if name and struct_below else None
        if index == "..." or value is None:
            return None, None
        value = value.get(name) if name else value[int(index)]
    return value, kind


def _struct_of(hint: object) -> type[msgspec.Struct] | None:
    """Give the struct a table under this hint is; of a union, the one struct it has."""
    choices = get_args(hint) if get_origin(hint) in {UnionType, Union} else (hint,)
    for one in choices:
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one
    return None


def _refuse_endless(value: object, where: str, key: str) -> None:
    if isinstance(value, Decimal) and not value.is_finite():
        raise ConfigRefused(where, key, "a finite number is due", str(value))
    if isinstance(value, Mapping):
        for name, below in value.items():
            _refuse_endless(below, where, f"{key}.{name}" if key else name)
    if isinstance(value, list):
        for index, below in enumerate(value):
            _refuse_endless(below, where, f"{key}[{index}]")
