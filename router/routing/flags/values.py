"""What a flag may be, and a flow's settings with flags in place of the file's values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from router.config import (
    FLAG_KINDS,
    ConfigRefused,
    FlagKind,
    checked_percent,
    display_value,
    refuse_double_pins,
)
from router.routing.flags.source import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.config import FlowSettings

WHERE = "flags"


@dataclass(frozen=True, slots=True)
class Applied:
    """A flow's settings with flags, those that differ from the file's, and what was refused."""

    flow: FlowSettings
    changed: Mapping[str, Any]
    refused: Mapping[str, str]


def defaults(flow: FlowSettings, names: tuple[str, ...]) -> dict[str, Any]:
    """Give the file's values of some flags as a flag source writes them."""
    return {name: plain(getattr(flow, name)) for name in names}


def apply(name: str, flow: FlowSettings, values: Mapping[str, object]) -> Applied:
    """Put values in the place of the file's; one that cannot be used leaves the file's."""
    taken: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for flag, value in values.items():
        key = f"{name}.{flag}"
        try:
            taken[flag] = _taken(FLAG_KINDS[flag], value, key)
        except ConfigRefused as error:
            refused[key] = str(error)
    try:
        refuse_double_pins(msgspec.structs.replace(flow, **taken), WHERE, f"{name}.")
    except ConfigRefused as error:
        refused[f"{name}.force_graph"] = str(error)
        taken.pop("force_graph", None)
        taken.pop("force_legacy", None)
    changed = {flag: value for flag, value in taken.items() if value != getattr(flow, flag)}
    return Applied(msgspec.structs.replace(flow, **changed), changed, refused)


def plain(value: object) -> object:
    """Give a setting as a flag source writes it."""
    match value:
        case Decimal():
            return float(value)
        case frozenset():
            return sorted(value)
        case _:
            return value


def _taken(kind: FlagKind, value: object, key: str) -> object:
    if isinstance(value, Refused):
        raise ConfigRefused(WHERE, key, f"the provider says {value.code}")
    match kind, value:
        case "switch", bool():
            return value
        case "percent", bool():
            pass
        case "percent", int() | float() if Decimal(value).is_finite():
            return checked_percent(Decimal(str(value)), WHERE, key)
        case "keys", list() | tuple() if all(isinstance(one, str) for one in value):
            return frozenset(value)
        case _:
            pass
    due = {"switch": "true or false is due", "percent": "a number is due"}
    raise ConfigRefused(
        WHERE, key, due.get(kind, "a list of route keys is due"), display_value(key, value)
    )
