"""Shares of a flow: the one that is configured, and the one that graph really serves.

Pins, forced keys, open breakers and fallbacks let the two differ.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from effects.circuit_breaker import SlidingShare
from effects.stores import PinCount
from router.config.schema import FlowSettings, Settings, Stage
from router.context import ExchangeContext
from router.routing.pins import Pins
from router.stack import StackName

WINDOW_SECONDS = 900.0
"""The longest time over which the effective share is measured."""
_ROUTING = (
    "enable_langgraph",
    "langgraph_percent",
    "route_key",
    "sticky",
    "force_graph",
    "force_legacy",
)
"""The settings of a flow that decide which stack serves."""


class FlowShare(msgspec.Struct, frozen=True):
    """Who serves a flow: percentages of graph, and what they are measured on.

    `effective` is over `exchanges`, those of the last `seconds` in this process by the stack that
    served them; None where there are none. `pins` are those last counted, of all routers that share
    the store. `stage` is what all of these make of the configured one.
    """

    stage: Stage
    configured: float
    effective: float | None
    seconds: float
    exchanges: dict[StackName, int]
    pins: PinCount


class ShareWindow:
    """The latest exchanges of a flow since its routing changed; `now` in seconds."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._served = SlidingShare(WINDOW_SECONDS)
        self._sent = SlidingShare(WINDOW_SECONDS)

    def add(self, context: ExchangeContext, first: StackName, now: float) -> None:
        """Count an exchange that was sent to the stack `first`; not one that a QA header forced."""
        if context.assignment.why != "forced_header":
            self._served.add(now, marked=context.served == "graph")
            self._sent.add(now, marked=first == "graph")

    def served(self, now: float) -> dict[StackName, int]:
        """Return how many exchanges each stack served."""
        every, graph = self._served.totals(now)
        return {"legacy": every - graph, "graph": graph}

    def sent(self, now: float) -> set[StackName]:
        """Return the stacks that exchanges were sent to, whichever served them in the end."""
        every, graph = self._sent.totals(now)
        names: dict[StackName, int] = {"legacy": every - graph, "graph": graph}
        return {name for name, exchanges in names.items() if exchanges}

    def seconds(self, now: float) -> float:
        """Return how long the window is."""
        return min(now - self._since, WINDOW_SECONDS)


def _same_routing(one: FlowSettings | None, other: FlowSettings) -> bool:
    return one is other or all(getattr(one, name) == getattr(other, name) for name in _ROUTING)


class FlowShares:
    """The shares of all flows in this process; `monotonic` in seconds."""

    def __init__(
        self, settings: Callable[[], Settings], pins: Pins, monotonic: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._pins = pins
        self._monotonic = monotonic
        self._windows: dict[str, tuple[ShareWindow, FlowSettings, str | None]] = {}

    def window(self, flow: str) -> ShareWindow:
        """Return the window of a flow; a new one where its routing or its pins were changed.

        An exchange counts in the window that it began in.
        """
        settings, release = self._settings().flows[flow], self._pins.release_of(flow)
        window, before, released = self._windows.get(flow, (None, None, None))
        if window is None or released != release or not _same_routing(before, settings):
            window = ShareWindow(self._monotonic())
        if before is not settings or released != release:
            self._windows[flow] = window, settings, release
        return window

    def add(self, window: ShareWindow, context: ExchangeContext, first: StackName) -> None:
        """Count an exchange that has ended."""
        window.add(context, first, self._monotonic())

    def of(self, flow: str) -> FlowShare:
        """Return the shares of a flow now."""
        window, now = self.window(flow), self._monotonic()
        settings, pins = self._settings().flows[flow], self._pins.counts.get(flow, PinCount())
        served, serving = window.served(now), window.sent(now)
        if settings.sticky == "conversation":
            serving |= {name for name in served if getattr(pins, name)}
        if settings.force_legacy:
            serving.add("legacy")
        every = sum(served.values())
        return FlowShare(
            stage=settings.stage_with(serving),
            configured=settings.configured_share,
            effective=round(100 * served["graph"] / every, 3) if every else None,
            seconds=round(window.seconds(now), 1),
            exchanges=served,
            pins=pins,
        )
