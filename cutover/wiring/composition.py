"""The composition root: from settings to a router that stands on real adapters."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contract.ports import Effects
from cutover.flows import flows_of
from cutover.stores import (
    CONVERSATIONS,
    MEMORY,
    PAUSES,
    Locks,
    open_conversations,
    open_locks,
    open_memory,
    open_pauses,
    open_pins,
    pauses_sealing,
)
from cutover.wiring.addresses import ALONE, Crew, shared
from cutover.wiring.embeddings import open_embedder
from cutover.wiring.flags import open_flags
from cutover.wiring.following import following
from cutover.wiring.meters import Meters, open_meters
from cutover.wiring.models import KEY, model_entries, prices, rescue_policy
from cutover.wiring.news import open_news
from cutover.wiring.sessions import KeptSessions
from cutover.wiring.shadow_model import ShadowModel
from cutover.wiring.stacks import open_stacks, refuse_gaps
from cutover.wiring.telemetry import open_tracing
from cutover.wiring.tools import open_tool_servers, tool_servers
from effects.clock import SystemClock
from effects.human import NoHuman
from effects.ids import RandomIds
from effects.model import ModelRegistry, RescuingModel
from effects.stores.shadow_replies import ShadowReplies
from effects.tape import NodeTimes
from effects.tools import ToolRegistry, builtin_tools
from router.admin.recent import Recent
from router.capture.writer import CaptureWriter
from router.config import powers_of
from router.parts import Parts
from router.resume.pauses import Pausing
from router.router import Router
from router.routing.pins import Pins
from router.telemetry.access_log import ExchangeLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from contract.flow import FlowSpec
    from contract.ports import Conversations, Memory, Model
    from effects.model import ModelEntry
    from effects.tools.mcp import McpServer
    from router.config import Settings, StoreSettings
    from router.context import Observer
    from router.news import News
    from router.stack import Stack, StackName

CLOCK = SystemClock()
IDS = RandomIds()

log = logging.getLogger(__name__)


@dataclass(slots=True)
class House:
    """A router and what it stands on."""

    router: Router
    models: ModelRegistry
    model: RescuingModel
    tools: ToolRegistry
    memory: Memory
    captures: CaptureWriter
    locks: Locks
    faults: dict[str, str]
    meters: Meters | None
    recent: Recent
    shadow_model: ShadowModel
    kept: Mapping[str, object]
    news: News | None = None


@asynccontextmanager
async def opened(
    settings: Callable[[], Settings],
    environ: Mapping[str, str],
    stacks: Mapping[StackName, Stack] | None = None,
    crew: Crew = ALONE,
) -> AsyncIterator[House]:
    """Open everything a router needs, and close it in the right order; `crew` shares its stores.

    `settings` gives those in force now; stores, locks and captures are those of the first call.
    """
    first = settings()
    stores = shared(first.stores, environ, crew.workers)
    # What can be wrong with the configuration comes before anything is made on disk.
    entries = model_entries(first, environ)
    servers = tool_servers(first.tools, environ)
    async with AsyncExitStack() as stack:
        traces = open_tracing(first.tracing, environ, stack)
        known = stacks or await open_stacks(first.stacks, stack, stores.checkpoints)
        flows = _flows(first, known)
        models, model, shadow_model = _models(entries, first, stack)
        memory = await _memory(stores, first, environ, stack)
        live = await _live(stores, model, memory, _tools(memory, first, servers, stack), stack)
        pausing = await _pausing(stores, first, environ, stack)
        own_replies = await _own_replies(live.conversations, stack)
        captures = _captures(first, environ, stack)
        meters, recent = open_meters(models) if first.metrics.enabled else None, Recent()
        parts = Parts(
            specs=flows,
            stacks=known,
            live=live,
            captures=captures,
            settings=settings,
            shadow_model=shadow_model.port,
            qa_key=environ.get(first.server.qa_key_env, "").encode(),
            price=prices(models),
            pins=await _pins(stores, stack),
            observers=[*traces, *_observers(first, recent, meters)],
            flags=open_flags(settings, environ, stack),
            exchange_id=crew.exchange_id,
            pausing=pausing,
            sessions=KeptSessions(live, known, pausing.store, own_replies),
            own_replies=own_replies,
        )
        router = Router(parts)
        try:
            places = live.tools, memory, captures, live.locks, _faults(entries, first)
            more = shadow_model, _kept(live, pausing), await open_news(stores.board, router, stack)
            yield House(router, models, model, *places, meters, recent, *more)
        finally:
            await router.aclose(settings().server.drain_seconds)


def _kept(live: Live, pausing: Pausing) -> dict[str, object]:
    """Give the stores that may be away, by what is kept there."""
    return {CONVERSATIONS: live.conversations, MEMORY: live.memory, PAUSES: pausing.store}


def _flows(settings: Settings, stacks: Mapping[StackName, Stack]) -> dict[str, FlowSpec]:
    """Give the flows, none of which is to be served by who has it not."""
    flows = flows_of(settings)
    refuse_gaps(settings, flows, stacks)
    return flows


def _models(
    entries: Sequence[ModelEntry], settings: Settings, stack: AsyncExitStack
) -> tuple[ModelRegistry, RescuingModel, ShadowModel]:
    """Open the models: for those who are served, at once, and for shadows, when they ask."""
    models, policy = ModelRegistry(entries), rescue_policy(settings.rescue)
    stack.push_async_callback(models.aclose)
    models.warm()
    shadow_model = ShadowModel.of(entries, policy, settings.shadow.model_calls)
    stack.push_async_callback(shadow_model.registry.aclose)
    return models, RescuingModel(models, policy), shadow_model


def _observers(settings: Settings, recent: Recent, meters: Meters | None) -> list[Observer]:
    """Give those who are wanted: each costs every exchange a little."""
    wanted: list[Observer] = [meters.exchanges] if meters else []
    if settings.log.format == "json":
        wanted.append(ExchangeLog())
    return [*wanted, recent] if settings.admin.token_env else wanted


def _faults(entries: Sequence[ModelEntry], settings: Settings) -> dict[str, str]:
    faults = model_faults(entries, settings)
    for part, fault in faults.items():
        log.warning("%s: %s", part, fault)
    return faults


def model_faults(entries: Sequence[ModelEntry], settings: Settings) -> dict[str, str]:
    """Say what is wrong with the models, as `/readyz` tells it; stacks elsewhere ask their own."""
    here = any(powers.taped for powers in powers_of(settings.stacks).values())
    if not entries and (here or settings.gateway.enabled):
        return {"models": f"none is configured, and {KEY} is not set"}
    if not here:
        return {}
    known = {entry.model_id for entry in entries}
    missing = [
        f"flows.{name}.options.{field} = {model_id!r} is none of them"
        for name, flow in settings.flows.items()
        for field in ("model_id", "vision_model_id")
        if (model_id := getattr(flow.options, field, None)) is not None and model_id not in known
    ]
    return {"models": "; ".join(missing)} if missing else {}


@dataclass(frozen=True, slots=True)
class Live:
    """Makes the live ports of one exchange; `locks` gives each its own owner."""

    model: Model
    tools: ToolRegistry
    memory: Memory
    conversations: Conversations
    locks: Locks

    def __call__(self, body: Any) -> Effects:
        """Bundle the ports for one request."""
        return Effects(
            model=self.model,
            tools=self.tools.for_user(getattr(body, "user_id", None)),
            memory=self.memory,
            conversations=self.conversations,
            locks=self.locks.for_exchange(),
            clock=CLOCK,
            ids=IDS,
            human=NoHuman(),
            trace=NodeTimes(),
        )


async def _memory(
    stores: StoreSettings, settings: Settings, environ: Mapping[str, str], stack: AsyncExitStack
) -> Memory:
    embedder = await open_embedder(settings.embeddings, environ, stack)
    least = settings.embeddings.least_similarity
    return await open_memory(stores.memory, stack, embedder, least)


async def _live(
    stores: StoreSettings, model: Model, memory: Memory, tools: ToolRegistry, stack: AsyncExitStack
) -> Live:
    """Open what the live ports stand on beside these."""
    conversations = await open_conversations(stores.conversations, stack)
    return Live(model, tools, memory, conversations, await open_locks(stores.locks, stack))


def _tools(
    memory: Memory, settings: Settings, servers: Sequence[McpServer], stack: AsyncExitStack
) -> ToolRegistry:
    """Open the tools; each may take so long, and say so much."""
    tools = ToolRegistry(
        builtin_tools(CLOCK, memory),
        longest=settings.limits.tool_seconds,
        characters=settings.limits.tool_characters,
        sources=open_tool_servers(servers, stack),
    )
    stack.push_async_callback(tools.aclose)
    return tools


async def _pausing(
    stores: StoreSettings, settings: Settings, environ: Mapping[str, str], stack: AsyncExitStack
) -> Pausing:
    pauses = settings.pauses
    store = await open_pauses(stores.pauses, stack, pauses_sealing(pauses, environ))
    return Pausing(store, pauses.keep_seconds, time.time)


async def _own_replies(conversations: Conversations, stack: AsyncExitStack) -> ShadowReplies:
    replies = ShadowReplies()
    await stack.enter_async_context(following(replies, conversations))
    return replies


async def _pins(stores: StoreSettings, stack: AsyncExitStack) -> Pins:
    pins = Pins(await open_pins(stores.pins, stack), time.monotonic, time.time)
    stack.push_async_callback(pins.aclose)
    return pins


def _captures(
    settings: Settings, environ: Mapping[str, str], stack: AsyncExitStack
) -> CaptureWriter:
    captures = settings.captures
    key = environ.get(captures.pseudonym_key_env, "").encode()
    writer = CaptureWriter(captures, flows_of(settings), salt=settings.rollout.salt, key=key)
    stack.push_async_callback(writer.aclose)
    return writer
