"""The port flags come through, and its fake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Targeting:
    """Whom a flag is asked for: `key` is the route key; "" is unknown."""

    flow: str
    key: str
    user: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """Stands where a value would: the source has one, and it cannot be used."""

    code: str


Changed = Callable[["Sequence[str] | None"], None]
"""Told of the flags that changed, by `flow.flag`; None where the source does not say which."""


class FlagSource(Protocol):
    """A service that knows flags."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def on_change(self, changed: Changed) -> None:
        """Call `changed` on this loop whenever flags have changed, where the service tells."""
        ...

    async def values(self, who: Targeting, defaults: Mapping[str, Any]) -> Mapping[str, object]:
        """Give the values of a flow's flags, without those the source does not know.

        `defaults` names the flags that are asked for, each with its value in the file. Raises
        `NoAnswer`.
        """
        ...


@dataclass(slots=True)
class FixedFlags:
    """Flags by `flow.flag`, the same for everybody: the fake in tests; counts its calls."""

    flags: dict[str, object] = field(default_factory=dict)
    asked: list[tuple[Targeting, Sequence[str]]] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)
    name: str = "fixed"

    def on_change(self, changed: Changed) -> None:
        """Keep whom to tell."""
        self.changed.append(changed)

    async def values(self, who: Targeting, defaults: Mapping[str, Any]) -> Mapping[str, object]:
        """Give what is there for the flow."""
        self.asked.append((who, tuple(defaults)))
        found = {name: self.flags.get(f"{who.flow}.{name}") for name in defaults}
        return {name: value for name, value in found.items() if value is not None}
