"""Flow settings with flags from a source outside, which is never waited for long."""

from __future__ import annotations

import logging
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from router.routing.flags.values import apply, defaults, plain
from router.routing.lookup import Neighbour

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.config import FlowSettings
    from router.routing.flags.source import FlagSource, Targeting
    from router.routing.flags.values import Applied

log = logging.getLogger(__name__)

TOLD_SECONDS = 60.0
"""How long a refused value is told after it was last seen."""

_MOST = 256
_VERSION_BYTES = 4


class Flagged:
    """Asks a source for a flow's flags and puts them in the place of the file's values.

    `names` are the flags that are asked for.
    """

    def __init__(
        self, source: FlagSource, names: tuple[str, ...], monotonic: Callable[[], float]
    ) -> None:
        self.neighbour = Neighbour("flags", "the file's values are in force", monotonic)
        self.source = source
        self.names = names
        self._monotonic = monotonic
        self._applied: OrderedDict[tuple[str, str, str], tuple[Applied, str]] = OrderedDict()
        self._refused: dict[str, tuple[str, float]] = {}

    @property
    def fault(self) -> str | None:
        """What is wrong: the source does not answer, or some of its values cannot be used."""
        if self.neighbour.fault is not None:
            return self.neighbour.fault
        since = self._monotonic() - TOLD_SECONDS
        told = [why for why, seen in self._refused.values() if seen > since]
        return "; ".join([*told, self.neighbour.meanwhile]) if told else None

    async def settle(
        self, who: Targeting, flow: FlowSettings, version: str
    ) -> tuple[FlowSettings, str]:
        """Give the settings for one request, and their version.

        Where the source does not answer, or with something that cannot be used, the file's values
        are in force. Nothing is asked where the file switches the graph stack off: a rollback by
        the file holds, whatever a source says. Never raises.
        """
        if not flow.enable_langgraph:
            return flow, version
        found: list[Mapping[str, object]] = []
        asked = defaults(flow, self.names)

        async def ask() -> Mapping[str, object]:
            return await self.source.values(who, asked)

        await self.neighbour.ask(ask, found.append)
        if not found or not found[0]:
            return flow, version
        applied, changed = self._apply(who.flow, flow, version, found[0])
        self._tell(applied.refused)
        return applied.flow, changed

    async def aclose(self) -> None:
        """Ask no more; whoever opened the source closes it."""
        await self.neighbour.aclose()

    def _apply(
        self, name: str, flow: FlowSettings, version: str, values: Mapping[str, Any]
    ) -> tuple[Applied, str]:
        # Few combinations are in force at a time, and building settings costs more than all else.
        key = (name, version, repr(values))
        known = self._applied.get(key)
        if known is None:
            applied = apply(name, flow, values)
            known = self._applied[key] = (applied, _version(version, applied.changed))
            if len(self._applied) > _MOST:
                self._applied.popitem(last=False)
        return known

    def _tell(self, refused: Mapping[str, str]) -> None:
        if not refused:
            return
        now = self._monotonic()
        for key, why in refused.items():
            _, seen = self._refused.get(key, ("", float("-inf")))
            if now - seen > TOLD_SECONDS:
                log.error("%s; %s", why, self.neighbour.meanwhile)
            self._refused[key] = (why, now)


def _version(version: str, changed: Mapping[str, Any]) -> str:
    """Name settings by the file's version and what the flags changed of it."""
    if not changed:
        return version
    values = {name: plain(value) for name, value in sorted(changed.items())}
    digest = blake2b(repr(values).encode(), digest_size=_VERSION_BYTES).hexdigest()
    return f"{version}+{digest}"
