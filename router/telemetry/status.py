"""What this process serves at this moment, as metrics, `/readyz` and the status route show it."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from router.breaker import Breaker
from router.captures import Captures
from router.endpoint import FlowSettings, Streams
from router.exchange import Served
from router.shadow import Shadows

LOOP_SECONDS = 15
"""How far back the event loop's delay is looked at; a scrape sees each delay once at least."""


Edit = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Changes a flow's switches and shares; returns what is in force. Raises `Refused`."""


@dataclass(frozen=True, slots=True)
class Operating:
    """What operators are shown, and what they may change.

    `ready` returns why requests cannot be served, "" where they can. Without a `token` nothing can
    be changed, and the status is shown to loopback peers alone.
    """

    ready: Callable[[], Awaitable[str]]
    refused: Callable[[], str]
    """Why the newest settings are refused, "" where they are in force."""
    edit: Edit | None = None
    observers: Sequence[Callable[[Served], None]] = ()
    """Told of each exchange that has ended, beside the metrics."""
    token: str = ""
    metrics: bool = True
    version: str = ""
    uncorrelated: Counter[str] = field(default_factory=Counter)
    """Calls at the gateway that belong to no run, by reason."""


@dataclass(slots=True, eq=False)
class Process:
    """The parts of a serving process that operators look at."""

    flows: Mapping[str, Callable[[], FlowSettings]]
    breakers: Mapping[str, Mapping[str, Breaker]]
    """By flow and stack."""
    streams: Streams
    shadows: Shadows
    operating: Operating
    captures: Captures | None = None
    _late: deque[float] = field(default_factory=lambda: deque([0.0], maxlen=LOOP_SECONDS))

    @property
    def late(self) -> float:
        """The longest delay of the event loop in the last `LOOP_SECONDS`, in seconds."""
        return max(self._late)

    async def watch_loop(self) -> None:
        """Measure the event loop's delay once a second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 1
            await asyncio.sleep(1)
            self._late.append(loop.time() - due)

    def graph_percent(self, flow: str) -> float:
        """Return the share that graph really gets: 0 while the switch is off or graph rests."""
        settings, graph = self.flows[flow](), self.breakers[flow].get("graph")
        rests = settings.fallback and graph is not None and graph.state == "open"
        return settings.shares.percent if settings.shares.enabled and not rests else 0.0

    def report(self) -> dict[str, Any]:
        """Return the whole as JSON."""
        return {
            "version": self.operating.version,
            "configuration_refused": self.operating.refused(),
            "draining": self.streams.draining,
            "streams": {"open": self.streams.open, "limit": self.streams.limit},
            "loop_late_seconds": round(self.late, 3),
            "flows": {name: self._flow(name) for name in self.flows},
            "shadows": dict(self.shadows.ledger),
            "captures": None
            if self.captures is None
            else {"written": self.captures.written, "dropped": dict(self.captures.dropped)},
            "uncorrelated": dict(self.operating.uncorrelated),
        }

    def _flow(self, name: str) -> dict[str, Any]:
        settings = self.flows[name]()
        return {
            "enable_langgraph": settings.shares.enabled,
            "langgraph_percent": settings.shares.percent,
            "langgraph_fallback": settings.fallback,
            "shadow_percent": settings.shadow_percent,
            "effective_percent": self.graph_percent(name),
            "versions": dict(settings.versions),
            "breakers": {stack: one.state for stack, one in self.breakers[name].items()},
        }
