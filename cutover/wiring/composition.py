"""The composition root: from settings to a router and the services it uses."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.ports import Audit, Effects, Memory, Model, Workers
from cutover.flows import flows_of, rules_at
from cutover.stores import (
    Locks,
    conversations_token,
    open_audit,
    open_conversations,
    open_locks,
    open_memory,
    open_pauses,
    open_pins,
    open_shared_state,
    open_write_journal,
    pause_encryption,
)
from cutover.wiring.addresses import SINGLE_WORKER, WorkerGroup, store_addresses
from cutover.wiring.flags import open_flags
from cutover.wiring.models import (
    KEY,
    ShadowModel,
    model_entries,
    open_embedder,
    rescue_policy,
)
from cutover.wiring.periodic import finishing, following, following_pins, reporting_writes
from cutover.wiring.router import assemble_router
from cutover.wiring.sessions import StoredSessions
from cutover.wiring.stacks import open_stacks, prompt_folders, refuse_missing_flows
from cutover.wiring.telemetry import Metrics, open_metrics, open_tracing
from cutover.wiring.tools import ConfiguredTools, configured_tools, open_tool_servers, open_workers
from effects.local import CallerPerforms, NoAudit, NoHuman, NoWorkers, RandomIds, SystemClock
from effects.loop_time import counted_loop_time
from effects.memory.embeddings import Embedder
from effects.model import ModelEntry, ModelRegistry, RescuingModel
from effects.stores import ConversationStore, StoredWrite
from effects.stores.shadow_replies import ShadowReplies
from effects.tape import NodeTimes
from effects.tools import ToolRegistry, builtin_tools
from effects.workers import AuditedWorkers
from router.admin.audit import Change, now, write_audit
from router.admin.pages import RecentExchanges
from router.capture.writer import CaptureWriter
from router.config.addresses import resolve_address
from router.config.capabilities import default_models, powers_of
from router.config.schema import CaptureSettings, Settings, StoreSettings
from router.context import Observer
from router.exchange_ids import (
    ExchangeIds,
    default_receipt_key,
    new_exchange_id,
    read_receipt_keys,
)
from router.resume.pauses import Pauses
from router.router import Router
from router.routing.pins import Pins
from router.serving.stack import Stack
from router.shadow.workers import ShadowWorkers
from router.stack import StackName
from router.state_sync import StateSync
from router.telemetry.access_log import AccessLog

if TYPE_CHECKING:
    from effects.tools.mcp import McpConnection

CLOCK = SystemClock()
IDS = RandomIds()
NO_WORKERS, NO_AUDIT = NoWorkers(), NoAudit()

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Services:
    """A router and the services it was built from; `faults` are those found at the start."""

    router: Router
    live: LivePorts
    models: ModelRegistry
    model: RescuingModel
    shadow_model: ShadowModel
    captures: CaptureWriter
    faults: dict[str, str]
    metrics: Metrics | None
    recent: RecentExchanges
    stores: Mapping[str, object]
    sessions: StoredSessions
    state_sync: StateSync | None


@dataclass(frozen=True, slots=True)
class LivePorts:
    """Makes the live ports of one exchange; `locks` gives each its own owner."""

    model: Model
    tools: ToolRegistry
    memory: Memory
    conversations: ConversationStore
    locks: Locks
    workers: Workers = NO_WORKERS
    audit: Audit = NO_AUDIT
    servers: Sequence[McpConnection] = ()

    def __call__(self, flow: str, body: Any) -> Effects:
        """Return the ports for one request of a flow, whose conversations and locks are its own."""
        return Effects(
            model=self.model,
            tools=self.tools.for_user(getattr(body, "user_id", None)),
            memory=self.memory,
            conversations=self.conversations.of(flow),
            locks=self.locks.for_exchange(flow),
            clock=CLOCK,
            ids=IDS,
            human=NoHuman(),
            workers=AuditedWorkers(self.workers, self.audit, CLOCK),
            audit=self.audit,
            external=CallerPerforms(),
            trace=NodeTimes(),
        )


@asynccontextmanager
async def open_services(
    settings: Callable[[], Settings],
    environ: Mapping[str, str],
    stacks: Mapping[StackName, Stack] | None = None,
    workers: WorkerGroup = SINGLE_WORKER,
    debugged: frozenset[str] = frozenset(),
) -> AsyncIterator[Services]:
    """Open everything a router needs, and close it in the right order.

    `settings` returns those in force now; stores, locks and captures are those of the first call.
    `debugged` are ids of exchanges, messages or sessions whose steps are logged.
    """
    first = settings()
    stores = store_addresses(first, environ, workers.workers)
    # Errors of the configuration come before anything is created on disk.
    entries = model_entries(first, environ)
    tools = configured_tools(first, environ)
    token = conversations_token(first.conversations, environ)
    receipt_keys = configured_receipt_keys(first, environ)
    rules = rules_at(None, first)
    async with AsyncExitStack() as stack:
        stack.enter_context(counted_loop_time())
        ops_workers = open_workers(first.workers, environ, stack)
        spans = open_tracing(first.tracing, environ, stack)
        known = stacks or await open_stacks(
            first.stacks, stack, stores.checkpoints, prompt_folders(first)
        )
        flows = flows_of(first)
        refuse_missing_flows(first, flows, known)
        models, policy = ModelRegistry(entries), rescue_policy(first.rescue)
        stack.push_async_callback(models.aclose)
        models.clients.warm()
        shadow_model = ShadowModel.of(entries, policy, first.shadow.model_calls)
        stack.push_async_callback(shadow_model.registry.aclose)
        model = RescuingModel(models, policy)
        embedder = await open_embedder(first.embeddings, environ, stack)
        live = await _open_live_ports(
            first, stores, model, embedder, tools, token, ops_workers, stack
        )
        sealing = pause_encryption(first.pauses, environ)
        pauses = await open_pauses(stores.pauses, stack, sealing)
        write_journal = None
        if first.exchanges.journal:
            write_journal = await open_write_journal(stores.pauses, stack)
            report = partial(_audit_writes, first)
            await stack.enter_async_context(reporting_writes(write_journal, report))
        shadow_workers = await _open_shadow_workers(settings, environ, stack)
        replies = ShadowReplies()
        await stack.enter_async_context(following(replies, live.conversations))
        key = environ.get(first.captures.pseudonym_key_env, "").encode()
        neighbours = workers.neighbours  # an exchange's id names its worker
        draw = neighbours.exchange_id if neighbours else new_exchange_id
        captures = CaptureWriter(first.captures, flows, salt=first.rollout.salt, key=key)
        stack.push_async_callback(captures.aclose)
        metrics = open_metrics(models, spans) if first.metrics.enabled else None
        recent, access_log = RecentExchanges(), AccessLog(captures.redactor.body_value)
        pins = Pins(await open_pins(stores.pins, stack), time.monotonic, time.time)
        stack.push_async_callback(pins.aclose)
        await stack.enter_async_context(following_pins(pins, settings))
        router = assemble_router(
            flows=flows,
            stacks=known,
            live=live,
            captures=captures,
            settings=settings,
            rules=rules,
            shadow_model=shadow_model.port,
            qa_key=environ.get(first.server.qa_key_env, "").encode(),
            price=models.price,
            pins=pins,
            observers=[access_log, *_observers(first, recent, metrics, spans)],
            flags=open_flags(settings, environ, stack),
            debugged=debugged,
            exchange_ids=ExchangeIds(
                receipt_keys or (default_receipt_key(first.captures.path, key),), draw
            ),
            pauses=Pauses(
                pauses, first.pauses.keep_seconds, time.time, partial(_audit_unknown, first)
            ),
            write_journal=write_journal,
            replies=replies,
            shadow_workers=shadow_workers,
        )
        if write_journal is not None:
            await stack.enter_async_context(finishing(router.finish_remainders))
        try:
            yield Services(
                router=router,
                live=live,
                models=models,
                model=model,
                shadow_model=shadow_model,
                captures=captures,
                faults=_model_faults(entries, first, router.local_flows),
                metrics=metrics,
                recent=recent,
                stores={
                    "conversations": live.conversations,
                    "memory": live.memory,
                    "pauses": pauses,
                    "audit": live.audit,
                },
                sessions=StoredSessions(live, known, pauses, replies),
                state_sync=await _open_state_sync(stores.shared_state, router, stack),
            )
        finally:
            await router.aclose(settings().server.drain_seconds)


async def _open_live_ports(
    settings: Settings,
    stores: StoreSettings,
    model: Model,
    embedder: Embedder | None,
    configured: ConfiguredTools,
    token: str,
    workers: Workers,
    stack: AsyncExitStack,
) -> LivePorts:
    """Open the stores and tools that stacks reach; `stores` are their addresses, looked up.

    `token` is that of a service that stores conversations.
    """
    servers = open_tool_servers(configured.servers, stack)
    conversations = await open_conversations(stores.conversations, stack, token)
    least = settings.embeddings.least_similarity
    memory = await open_memory(stores.memory, stack, embedder, least)
    tools = ToolRegistry(
        [*builtin_tools(CLOCK, memory), *configured.own],
        longest=settings.limits.tool_seconds,
        limits=settings.limits.tools,
        characters=settings.limits.tool_characters,
        sources=servers,
    )
    stack.push_async_callback(tools.aclose)
    locks = await open_locks(stores.locks, stack)
    audit = await open_audit(stores.audit, stack)
    return LivePorts(model, tools, memory, conversations, locks, workers, audit, servers)


async def _open_state_sync(address: str, router: Router, stack: AsyncExitStack) -> StateSync | None:
    """Synchronise with the other routers until `stack` closes; None where no state is shared."""
    state = await open_shared_state(address, stack)
    if state is None:
        return None
    breakers, budget = router.admission.breakers, router.shadows.budget
    sync = StateSync(state, breakers, budget, lambda: router.flows)
    await stack.enter_async_context(sync.running())
    return sync


async def _open_shadow_workers(
    settings: Callable[[], Settings], environ: Mapping[str, str], stack: AsyncExitStack
) -> ShadowWorkers | None:
    """Open the way to the workers of shadows, closed with `stack`; None where there are none."""
    broker = resolve_address(settings().shadow.broker, environ)
    if not broker:
        return None
    stream = import_module("effects.stores.shadow_stream").RouterStream(broker)
    stack.push_async_callback(stream.aclose)
    workers = ShadowWorkers(stream, lambda: settings().shadow, time.monotonic)
    await stack.enter_async_context(workers.running())
    return workers


def _audit_unknown(settings: Settings, flow: str, hitl_id: str, tool: str) -> None:
    """Record in the audit that a killed router left the outcome of a tool unknown."""
    change = Change(
        at=now(),
        who="cutover",
        what="outcome unknown",
        flow=flow,
        before={tool: "begun", "pause": hitl_id},
        after={tool: "outcome_unknown", "pause": hitl_id},
    )
    write_audit(Path(settings.admin.audit_path), change)


def _audit_writes(settings: Settings, writes: tuple[StoredWrite, ...]) -> None:
    """Record in the audit what a killed router wrote in one exchange, or what one left in doubt."""
    states = {"begun": "outcome_unknown", "in_doubt": "outcome_unknown"}
    ended = all(one.state == "in_doubt" for one in writes)
    change = Change(
        at=now(),
        who="cutover",
        what="outcome unknown" if ended else "exchange without end",
        flow=writes[0].flow,
        before={"exchange": writes[0].exchange},
        after={f"{one.seq} {one.what}": states.get(one.state, one.state) for one in writes},
    )
    write_audit(Path(settings.admin.audit_path), change)


def _observers(
    settings: Settings,
    recent: RecentExchanges,
    metrics: Metrics | None,
    spans: Observer | None,
) -> list[Observer]:
    """Return the observers that are configured: each costs every exchange a little."""
    observers: list[Observer] = [spans] if spans is not None else []
    observers += [metrics.exchanges] if metrics else []
    return [*observers, recent] if settings.admin.token_env else observers


def _model_faults(
    entries: Sequence[ModelEntry], settings: Settings, flows: Container[str]
) -> dict[str, str]:
    faults = model_faults(entries, settings, flows)
    for part, fault in faults.items():
        log.warning("%s: %s", part, fault)
    return faults


def model_faults(
    entries: Sequence[ModelEntry], settings: Settings, flows: Container[str]
) -> dict[str, str]:
    """Return what is wrong with the models, as `/readyz` shows it; remote stacks have their own.

    `flows` are those that a stack of this process has: of the others no default is asked for.
    """
    local = any(powers.taped for powers in powers_of(settings.stacks).values())
    if not entries and (local or settings.gateway.enabled):
        return {"models": f"none is configured, and {KEY} is not set"}
    known = {entry.model_id for entry in entries}
    missing = [
        f"{key} = {model_id!r} is none of them"
        for key, model_id in default_models(settings)
        if model_id not in known and key.split(".")[1] in flows
    ]
    return {"models": "; ".join(missing)} if missing else {}


def configured_receipt_keys(settings: Settings, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the keys of receipts that are configured, if any; raises `ReceiptKeysUnusable`."""
    variable = settings.server.receipt_key_env
    return read_receipt_keys(environ.get(variable, ""), variable) if variable else ()


def unsearchable(captures: CaptureSettings, environ: Mapping[str, str]) -> str:
    """Return why `cutover forget` will not find pseudonyms, "" where it will; no fault."""
    variable = captures.pseudonym_key_env
    if environ.get(variable):
        return ""
    why = f"{variable!r} is not set" if variable else "[captures] pseudonym_key_env names no key"
    return f"{why}: `cutover forget` refuses, or with --plain finds plain ids alone"
