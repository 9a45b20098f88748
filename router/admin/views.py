"""What a router looks like to who operates it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from router.admin.pages import (
    BreakerPage,
    FlowPage,
    FlowsPage,
    FlowSwitches,
    LedgerLine,
    ModelPage,
    ModelsPage,
    ProviderBreakerPage,
    ProviderPage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from effects.model import ModelEntry, Provider, ProviderBreakerState
    from router.config import FlowSettings
    from router.router import Router


def flows_page(router: Router, fault: str | None) -> FlowsPage:
    """Show all flows and the books; `fault` is what is wrong with the configuration's file."""
    settings, streams = router.settings(), router.admission.streams
    return FlowsPage(
        version=settings.version,
        fault=fault,
        flags=settings.flags.provider,
        flows=[flow_page(router, name) for name in settings.flows],
        counts=asdict(router.counts),
        shed=dict(router.admission.shed),
        places={"open": streams.total, **{name: n for name, n in streams.stacks.items() if n}},
        shadow={
            "waiting": router.shadows.scheduler.waiting,
            "tokens_today": router.shadows.scheduler.budget.tokens,
            "cost_today": router.shadows.scheduler.budget.cost,
        },
    )


def flow_page(router: Router, name: str) -> FlowPage:
    """Show one flow."""
    flow = router.settings().flows[name]
    return FlowPage(
        flow=name,
        path=router.flows[name].path,
        stage=flow.stage,
        settings=_switches(flow),
        breakers=_breakers(router, name),
        open_streams=router.admission.streams.flows[name],
        ledger=[
            LedgerLine(state=line.state, reason=line.reason, count=count)
            for line, count in sorted(router.ledger.counts.items(), key=str)
            if line.flow == name
        ],
    )


def models_page(
    entries: Mapping[str, ModelEntry], breakers: Sequence[ProviderBreakerState]
) -> ModelsPage:
    """Show what is registered, without anything that opens it."""
    providers = {entry.provider.name: entry.provider for entry in entries.values()}
    return ModelsPage(
        providers=[_provider(provider, breakers) for _, provider in sorted(providers.items())],
        models=[_model(entry) for _, entry in sorted(entries.items())],
    )


def _switches(flow: FlowSettings) -> FlowSwitches:
    same = {name: getattr(flow, name) for name in FlowSwitches.__struct_fields__}
    return FlowSwitches(
        **same
        | {
            "langgraph_percent": float(flow.langgraph_percent),
            "shadow_percent": float(flow.shadow_percent),
            "force_graph": sorted(flow.force_graph),
            "force_legacy": sorted(flow.force_legacy),
        }
    )


def _breakers(router: Router, flow: str) -> list[BreakerPage]:
    now = router.admission.breakers.monotonic()
    breakers = {stack: router.admission.breakers.of(flow, stack) for stack in router.stacks}
    return [
        BreakerPage(
            stack=stack,
            state=breaker.circuit.state(now),
            seconds=breaker.circuit.wait(now),
            told=breaker.reported,
        )
        for stack, breaker in breakers.items()
    ]


def _provider(provider: Provider, breakers: Sequence[ProviderBreakerState]) -> ProviderPage:
    return ProviderPage(
        name=provider.name,
        address=bare(provider.base_url),
        has_key=bool(provider.key.reveal()),
        limits=asdict(provider.limits),
        breakers=[_provider_breaker(one) for one in breakers if one.provider == provider.name],
    )


def _provider_breaker(known: ProviderBreakerState) -> ProviderBreakerPage:
    return ProviderBreakerPage(
        model=known.model,
        state=known.state,
        seconds=known.wait,
        calls=known.calls,
        failures=known.failures,
        spared=known.refused,
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
    )


def bare(address: str) -> str:
    """Give an address without what may open it: user, password, query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
