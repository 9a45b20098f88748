"""What the operations API shows: frozen shapes, and how they are made from a router."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from effects.stores import PinCount
from router.admin.audit import Change, now
from router.config.schema import Stage
from router.routing.shares import FlowShare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from effects.model import ModelEntry, Provider, ProviderBreakerState
    from router.config.schema import ProviderSettings, Settings
    from router.context import ExchangeContext, LedgerLine
    from router.router import Router


Percent = Annotated[float, Meta(ge=0, le=100, description="In steps of 0.001.")]


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    """A body of the API."""


class Share(_Page, frozen=True, forbid_unknown_fields=True):
    """A new percentage; `enable` also switches the graph stack on or off."""

    percent: Percent
    enable: bool | None = None


Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+\Z")]
ModelId = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9@][A-Za-z0-9._:/@+-]*\Z")
]


class NewProvider(_Page, frozen=True, forbid_unknown_fields=True):
    """A provider as in the configuration; `key_env` names the variable with its key."""

    name: Name
    base_url: Annotated[
        str,
        Meta(pattern=r"^https?://[^\s?#@]+\Z", description="Without user, password and query."),
    ]
    key_env: str | None = None
    connect_seconds: float | None = None
    first_byte_seconds: float | None = None
    first_token_seconds: float | None = None
    idle_seconds: float | None = None
    total_seconds: float | None = None


class NewModel(_Page, frozen=True, forbid_unknown_fields=True):
    """A model as in the configuration, whole; `provider` is a known one's name, or described."""

    id: ModelId
    provider: Name | NewProvider
    model: str | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    input_price: float | None = None
    output_price: float | None = None
    fallbacks: list[ModelId] | None = None
    first_token_seconds: float | None = None


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
    """A breaker in this process; `seconds` until it is probed, `reported` by another router."""

    stack: Literal["legacy", "graph"]
    state: Literal["closed", "open", "probing"]
    seconds: float
    reported: bool


class LedgerCount(_Page, frozen=True):
    """How many exchanges of a flow had their shadow end in a state."""

    state: str
    reason: str
    count: int


class FlowPage(_Page, frozen=True):
    """A flow: its stage, its settings, and what this process does for it.

    `share` is the share of graph: as configured, and as served.
    """

    flow: str
    path: str
    stage: Stage
    share: FlowShare
    settings: FlowSwitches
    breakers: list[BreakerPage]
    open_streams: int
    ledger: list[LedgerCount]


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
    streams: dict[str, int]
    shadow: dict[str, float]


class ProviderBreakerPage(_Page, frozen=True):
    """A provider's breaker for one of its models, by its own name; `seconds` until it is probed.

    `calls` and `failures` are those of its window, `refused` are all calls it refused.
    """

    model: str
    state: Literal["closed", "open", "probing"]
    wait: float = msgspec.field(name="seconds")
    calls: int
    failures: int
    refused: int


class ProviderPage(_Page, frozen=True):
    """A provider: where it is, its limits in seconds, its breakers in this process; no key.

    `key_env` is the variable its key is from, "" where the configuration names none.
    """

    name: str
    address: str
    has_key: bool
    key_env: str
    limits: dict[str, Any]
    breakers: list[ProviderBreakerPage]


class ModelPage(_Page, frozen=True):
    """A model: who serves it, under which name; prices per million tokens."""

    id: str
    model: str
    provider: str
    context_tokens: int | None
    max_output_tokens: int
    input_price: float | None
    output_price: float | None
    fallbacks: list[str]
    first_token_seconds: float | None


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
    """Open pauses, the oldest first; without question and answer."""

    pauses: list[PausePage]


class FlowPins(_Page, frozen=True):
    """How many conversations of a flow are pinned to each stack; `percent` is its share of graph.

    That is 0 where graph is switched off.
    """

    flow: str
    percent: float
    legacy: int
    graph: int


class PinsPage(_Page, frozen=True):
    """The pins of the flows that have some, or make some."""

    flows: list[FlowPins]


class ReleasedPins(_Page, frozen=True):
    """How many conversations of a flow were released from each stack.

    `moving` of them have their next turn on the other stack, by the share `percent` of graph:
    exactly at 0 and 100, about as many in between. `losing` of those lose their history, where each
    stack stores its own: at most, as some of them may have been mirrored whole.
    """

    flow: str
    percent: float
    legacy: int
    graph: int
    moving: int
    losing: int


def pins_page(settings: Settings, counts: Mapping[str, PinCount]) -> PinsPage:
    """Return pins that were counted."""
    return PinsPage(
        flows=[
            FlowPins(
                flow=name, percent=flow.configured_share, legacy=found.legacy, graph=found.graph
            )
            for name, flow in settings.flows.items()
            if (found := counts.get(name, PinCount())) != PinCount()
            or (flow.enable_langgraph and flow.sticky == "conversation")
        ]
    )


def released_pins(settings: Settings, name: str, released: PinCount) -> ReleasedPins:
    """Return pins of a flow that were released."""
    flow = settings.flows[name]
    percent = flow.configured_share
    moving = round((released.legacy * percent + released.graph * (100 - percent)) / 100)
    return ReleasedPins(
        flow=name,
        percent=percent,
        legacy=released.legacy,
        graph=released.graph,
        moving=moving,
        losing=moving if flow.history == "own" else 0,
    )


def pins_released(who: str, page: ReleasedPins) -> Change:
    """Return the release of pins as a change for the audit."""
    before = {"legacy": page.legacy, "graph": page.graph}
    after = dict.fromkeys(before, 0)
    return Change(
        at=now(), who=who, what="pins released", flow=page.flow, before=before, after=after
    )


def flows_page(router: Router, fault: str | None) -> FlowsPage:
    """Return all flows and counts; `fault` is that of the configuration's file."""
    settings, open_streams = router.settings(), router.admission.streams
    _, spent = router.shadows.budget.spent()
    return FlowsPage(
        version=settings.version,
        fault=fault,
        flags=settings.flags.provider,
        flows=[flow_page(router, name) for name in settings.flows],
        counts=asdict(router.counts),
        shed=dict(router.admission.shed),
        streams={
            "open": open_streams.total,
            **{name: n for name, n in open_streams.stacks.items() if n},
        },
        shadow={
            "waiting": router.shadows.waiting,
            "requests_today": spent.requests,
            "tokens_today": spent.tokens,
            "cost_today": spent.cost,
        },
    )


def flow_page(router: Router, name: str) -> FlowPage:
    """Return one flow."""
    flow, breakers = router.settings().flows[name], router.admission.breakers
    now = breakers.monotonic()
    known = [(stack, breakers.of(name, stack)) for stack in router.stacks]
    switches = msgspec.convert(flow, FlowSwitches, from_attributes=True)
    share = router.shares.of(name)
    return FlowPage(
        flow=name,
        path=router.flows[name].path,
        stage=share.stage,
        share=share,
        settings=msgspec.structs.replace(
            switches,
            force_graph=sorted(switches.force_graph),
            force_legacy=sorted(switches.force_legacy),
        ),
        breakers=[
            BreakerPage(
                stack=stack,
                state=breaker.circuit.state(now),
                seconds=breaker.circuit.wait(now),
                reported=breaker.reported,
            )
            for stack, breaker in known
        ],
        open_streams=router.admission.streams.flows[name],
        ledger=[
            LedgerCount(state=line.state, reason=line.reason, count=count)
            for line, count in sorted(router.ledger.counts.items(), key=str)
            if line.flow == name
        ],
    )


def models_page(
    entries: Mapping[str, ModelEntry],
    breakers: Sequence[ProviderBreakerState],
    configured: Mapping[str, ProviderSettings],
) -> ModelsPage:
    """Return what is registered, without secrets."""
    providers = {entry.provider.name: entry.provider for entry in entries.values()}
    return ModelsPage(
        providers=[
            _provider(provider, breakers, configured[name].key_env if name in configured else "")
            for name, provider in sorted(providers.items())
        ],
        models=[_model(entry) for _, entry in sorted(entries.items())],
    )


def _provider(
    provider: Provider, breakers: Sequence[ProviderBreakerState], key_env: str
) -> ProviderPage:
    return ProviderPage(
        name=provider.name,
        address=bare_address(provider.base_url),
        has_key=bool(provider.key.reveal()),
        key_env=key_env,
        limits=asdict(provider.limits),
        breakers=[
            msgspec.convert(one, ProviderBreakerPage, from_attributes=True)
            for one in breakers
            if one.provider == provider.name
        ],
    )


def _model(entry: ModelEntry) -> ModelPage:
    prices = entry.prices
    return ModelPage(
        id=entry.model_id,
        model=entry.model,
        provider=entry.provider.name,
        context_tokens=entry.context_tokens,
        max_output_tokens=entry.max_output_tokens,
        input_price=prices.prompt if prices else None,
        output_price=prices.completion if prices else None,
        fallbacks=list(entry.fallbacks),
        first_token_seconds=entry.first_token,
    )


def bare_address(address: str) -> str:
    """Return an address without user, password and query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


MOST_EXCHANGES = 1_000


class RecentExchanges:
    """Remembers the outcomes of the last exchanges, never their content."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, ExchangePage] = OrderedDict()

    def last(self, count: int) -> list[ExchangePage]:
        """Return the last ones, the latest first."""
        return list(islice(reversed(self._pages.values()), count))

    def refused(self, flow: str, status: int, code: str) -> None:
        """A request that never became an exchange is not remembered."""

    def finished(self, context: ExchangeContext) -> None:
        """Remember an exchange, and forget the oldest."""
        self._pages[context.exchange] = _exchange_page(context)
        if len(self._pages) > MOST_EXCHANGES:
            self._pages.popitem(last=False)

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Note where its shadow ended."""
        page = self._pages.get(context.exchange)
        if page is not None:
            shadow = f"{line.state}({line.reason})" if line.reason else line.state
            self._pages[context.exchange] = msgspec.structs.replace(page, shadow=shadow)


def _exchange_page(context: ExchangeContext) -> ExchangePage:
    outcome = context.outcome
    return ExchangePage(
        id=context.exchange,
        flow=context.spec.name,
        assigned=context.assignment.stack,
        served=context.served,
        reason=context.reason,
        outcome=outcome.kind if outcome else "cancelled",
        error=(outcome and outcome.code) or None,
        began=context.began,
        first_frame=context.first_frame,
        ended=context.ended,
        lost=context.lost_us,
    )
