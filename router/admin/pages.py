"""What the operations API answers and is asked: frozen shapes, described in the document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from router.config import Stage

Percent = Annotated[float, Meta(ge=0, le=100, description="In steps of 0.001.")]


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    """Something the API shows."""


class Share(_Page, frozen=True, forbid_unknown_fields=True):
    """Asks for a percentage; `enable` also switches the graph stack on or off."""

    percent: Percent
    enable: bool | None = None


class FlowSwitches(_Page, frozen=True):
    """The settings of a flow in force, named as in the configuration."""

    enable_langgraph: bool
    langgraph_percent: float
    langgraph_fallback: bool
    fallback_to_graph: bool
    shadow_percent: float
    max_streams: int
    when_open: str
    route_key: str
    sticky: str
    force_graph: list[str]
    force_legacy: list[str]


class BreakerPage(_Page, frozen=True):
    """A breaker, in this process; `seconds` until it is probed, `told` where another opened it."""

    stack: Literal["legacy", "graph"]
    state: Literal["closed", "open", "probing"]
    seconds: float
    told: bool


class LedgerLine(_Page, frozen=True):
    """How many exchanges of a flow had their shadow end so."""

    state: str
    reason: str
    count: int


class FlowPage(_Page, frozen=True):
    """A flow: its stage, its settings, and what this process does for it."""

    flow: str
    path: str
    stage: Stage
    settings: FlowSwitches
    breakers: list[BreakerPage]
    open_streams: int
    ledger: list[LedgerLine]


class FlowsPage(_Page, frozen=True):
    """All flows, and what this process has done since it started.

    `flags` is the provider whose values go before the settings shown, "" where there is none.
    """

    version: str
    fault: str | None
    flags: str
    flows: list[FlowPage]
    counts: dict[str, int]
    shed: dict[str, int]
    places: dict[str, int]
    shadow: dict[str, float]


class ProviderBreakerPage(_Page, frozen=True):
    """A provider's breaker for one of its models, by its own name; `seconds` until it is probed.

    `calls` and `failures` are those of its window, `spared` are all calls it kept away.
    """

    model: str
    state: Literal["closed", "open", "probing"]
    seconds: float
    calls: int
    failures: int
    spared: int


class ProviderPage(_Page, frozen=True):
    """A provider: where it is, its limits in seconds, its breakers in this process; no key."""

    name: str
    address: str
    has_key: bool
    limits: dict[str, Any]
    breakers: list[ProviderBreakerPage]


class ModelPage(_Page, frozen=True):
    """A model: who serves it, under which name; prices per million tokens."""

    id: str
    model: str
    provider: str
    context_tokens: int
    max_output_tokens: int
    input_price: float | None
    output_price: float | None
    fallbacks: list[str]


class ModelsPage(_Page, frozen=True):
    """The registry as it is now."""

    providers: list[ProviderPage]
    models: list[ModelPage]


class ExchangePage(_Page, frozen=True):
    """An exchange that has ended; `began` in microseconds since the Unix epoch, the rest since.

    `shadow` is where its shadow ended, None as long as that is open.
    """

    id: str
    flow: str
    assigned: str
    served: str
    reason: str
    outcome: str
    error: str | None
    began: int
    first_frame: int | None
    ended: int
    lost: int
    shadow: str | None = None


class ExchangesPage(_Page, frozen=True):
    """The last exchanges of this process, the latest first."""

    exchanges: list[ExchangePage]


class PausePage(_Page, frozen=True):
    """An exchange that waits for a human; times in seconds, `size` of its tape in bytes."""

    id: str
    flow: str
    stack: str
    session: str | None
    state: str
    age: float
    expires_in: float
    size: int


class PausesPage(_Page, frozen=True):
    """What waits for a human, the oldest first; nothing that was said, asked or answered."""

    pauses: list[PausePage]
