"""Flags: a flow's switches and shares from a team's own flag service, never waited for long."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Protocol

from router.config.errors import ConfigRefused
from router.config.loader import PINNED_TWICE, convert_table, pinned_twice
from router.config.schema import FlowSettings
from router.routing.lookup import BoundedLookup

log = logging.getLogger(__name__)

WHERE = "flags"
REPORTED_SECONDS = 60.0
"""How long a refused value stays a fault after it was last seen."""

_MOST = 256
_VERSION_BYTES = 4


@dataclass(frozen=True, slots=True)
class Targeting:
    """The request a flag is evaluated for: `key` is the route key; "" is unknown."""

    flow: str
    key: str
    user: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class RefusedFlag:
    """Stands where a value would: the source has one, and it cannot be used."""

    code: str


Changed = Callable[["Sequence[str] | None"], None]
"""Called with the flags that changed, as `flow.flag`; None where the source does not say which."""


class FlagSource(Protocol):
    """A service that evaluates flags."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def on_change(self, changed: Changed) -> None:
        """Call `changed` on this loop whenever flags have changed, where the service reports it."""
        ...

    async def values(
        self, targeting: Targeting, defaults: Mapping[str, Any]
    ) -> Mapping[str, object]:
        """Return the values of a flow's flags, without those the source does not know.

        `defaults` names the wanted flags, each with its value in the file. Raises `LookupFailed`.
        """
        ...


@dataclass(slots=True)
class FixedFlags:
    """Flags by `flow.flag`, the same for every request: the fake in tests; records its calls."""

    flags: dict[str, object] = field(default_factory=dict)
    calls: list[tuple[Targeting, Sequence[str]]] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)
    name: str = "fixed"

    def on_change(self, changed: Changed) -> None:
        """Add the listener."""
        self.changed.append(changed)

    async def values(
        self, targeting: Targeting, defaults: Mapping[str, Any]
    ) -> Mapping[str, object]:
        """Return what is there for the flow."""
        self.calls.append((targeting, tuple(defaults)))
        found = {name: self.flags.get(f"{targeting.flow}.{name}") for name in defaults}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class FlaggedSettings:
    """A flow's settings with flags, those that differ from the file's, and why some were refused.

    `refused` holds reasons by `flow.flag`.
    """

    flow: FlowSettings
    changed: Mapping[str, Any]
    refused: Mapping[str, str]


def plain(value: object) -> object:
    """Return a setting as a flag source writes it."""
    match value:
        case Decimal():
            return float(value)
        case frozenset():
            return sorted(value)
        case _:
            return value


def defaults(flow: FlowSettings, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the file's values of some flags as a flag source writes them."""
    return {name: plain(getattr(flow, name)) for name in names}


def apply(name: str, flow: FlowSettings, values: Mapping[str, object]) -> FlaggedSettings:
    """Put values in place of the file's; one that cannot be used leaves the file's."""
    taken: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for flag, value in values.items():
        if isinstance(value, RefusedFlag):
            key, why = f"{name}.{flag}", f"the provider reports {value.code}"
            refused[key] = str(ConfigRefused(WHERE, key, why))
            continue
        try:
            read = convert_table({flag: value}, FlowSettings, WHERE, f"{name}.")
            taken[flag] = getattr(read, flag)
        except ConfigRefused as error:
            refused[f"{name}.{flag}"] = str(error)
    if both := pinned_twice(flow.model_copy(update=taken)):
        key = f"{name}.force_graph"
        refused[key] = str(ConfigRefused(WHERE, key, PINNED_TWICE, repr(both)))
        taken.pop("force_graph", None)
        taken.pop("force_legacy", None)
    changed = {flag: value for flag, value in taken.items() if value != getattr(flow, flag)}
    return FlaggedSettings(flow.model_copy(update=changed), changed, refused)


class FlagEvaluator:
    """Evaluates a flow's flags and puts them in place of the file's values.

    `names` are the flags that are evaluated.
    """

    def __init__(
        self, source: FlagSource, names: tuple[str, ...], monotonic: Callable[[], float]
    ) -> None:
        self.lookup = BoundedLookup("flags", "the file's values are in force", monotonic)
        self.source = source
        self.names = names
        self._monotonic = monotonic
        self._applied: OrderedDict[tuple[str, str, str], tuple[FlaggedSettings, str]] = (
            OrderedDict()
        )
        self._refused: dict[str, tuple[str, float]] = {}

    @property
    def fault(self) -> str | None:
        """What is wrong: the source does not answer, or some of its values cannot be used."""
        if self.lookup.fault is not None:
            return self.lookup.fault
        since = self._monotonic() - REPORTED_SECONDS
        refused = [why for why, seen in self._refused.values() if seen > since]
        return "; ".join([*refused, self.lookup.consequence]) if refused else None

    async def settle(
        self, targeting: Targeting, flow: FlowSettings, version: str
    ) -> tuple[FlowSettings, str]:
        """Return the settings for one request, and their version. Never raises.

        The file's values are in force where the source does not answer, or with a value that
        cannot be used. Nothing is evaluated where the file switches the graph stack off: a
        rollback by the file holds, whatever a source returns.
        """
        if not flow.enable_langgraph:
            return flow, version
        wanted = defaults(flow, self.names)
        values = await self.lookup.call(lambda: self.source.values(targeting, wanted))
        if not values:
            return flow, version
        applied, changed = self._apply(targeting.flow, flow, version, values)
        self._report(applied.refused)
        return applied.flow, changed

    async def aclose(self) -> None:
        """Cancel all lookups; the owner of the source closes it."""
        await self.lookup.aclose()

    def _apply(
        self, name: str, flow: FlowSettings, version: str, values: Mapping[str, Any]
    ) -> tuple[FlaggedSettings, str]:
        # Few combinations are in force at a time, and building settings costs more than all else.
        key = (name, version, repr(values))
        known = self._applied.get(key)
        if known is None:
            applied = apply(name, flow, values)
            known = self._applied[key] = (applied, _version(version, applied.changed))
            if len(self._applied) > _MOST:
                self._applied.popitem(last=False)
        return known

    def _report(self, refused: Mapping[str, str]) -> None:
        now = self._monotonic()
        for key, why in refused.items():
            _, seen = self._refused.get(key, ("", float("-inf")))
            if now - seen > REPORTED_SECONDS:
                log.error("%s; %s", why, self.lookup.consequence)
            self._refused[key] = (why, now)


def _version(version: str, changed: Mapping[str, Any]) -> str:
    """Return the file's version with a digest of what the flags changed of it."""
    if not changed:
        return version
    values = {name: plain(value) for name, value in sorted(changed.items())}
    digest = blake2b(repr(values).encode(), digest_size=_VERSION_BYTES).hexdigest()
    return f"{version}+{digest}"
