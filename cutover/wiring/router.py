"""Putting a router together: each part is given what it needs, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from compare.comparison import FlowComparers
from compare.rules import NO_RULES, Rules
from contract.flow import Body, FlowSpec
from contract.ports import Effects, Model
from effects.stores import MemoryPins, ShadowReplies, WriteJournal
from router.capture.recorder import Captures, ExchangeRecorder
from router.config.schema import Settings
from router.context import Observer, Price
from router.exchange_ids import ExchangeIds
from router.resume.pauses import Pauses
from router.router import Router
from router.routing.admission import Admission
from router.routing.assignment import Assigner
from router.routing.flags import FlagEvaluator
from router.routing.pins import Pins
from router.serving.stack import Stack
from router.shadow.budget import ShadowBudget
from router.shadow.sessions import IdleGate
from router.shadow.shadows import Shadows
from router.shadow.workers import ShadowWorkers
from router.stack import StackName


def assemble_router(
    *,
    flows: Mapping[str, FlowSpec],
    stacks: Mapping[StackName, Stack],
    live: Callable[[str, Body], Effects],
    captures: Captures,
    settings: Callable[[], Settings],
    rules: Rules = NO_RULES,
    shadow_model: Model | None = None,
    replies: ShadowReplies | None = None,
    shadow_workers: ShadowWorkers | None = None,
    qa_key: bytes = b"",
    pins: Pins | None = None,
    flags: FlagEvaluator | None = None,
    pauses: Pauses | None = None,
    write_journal: WriteJournal | None = None,
    observers: Sequence[Observer] = (),
    price: Price = lambda _answered, _usage: None,
    exchange_ids: ExchangeIds | None = None,
    debugged: frozenset[str] = frozenset(),
    monotonic: Callable[[], float] = time.perf_counter,
    wall: Callable[[], float] = time.time,
) -> Router:
    """Return a router; `shadow_model` is the model of shadows in mode `live` alone.

    `rules` are what does not count when shadows are compared; `shadow_workers` run some of them.
    `live` makes the live ports for one request's body; `settings` returns those in force now.
    `debugged` are ids of exchanges, messages or sessions whose steps are logged.
    """
    gate = IdleGate(monotonic)
    fingerprints = {name: stack.fingerprint for name, stack in stacks.items()}
    recorder = ExchangeRecorder(captures, price, fingerprints)
    shadows = Shadows(
        settings=settings,
        stacks=stacks,
        gate=gate,
        budget=ShadowBudget(lambda: settings().shadow, price, wall),
        record=recorder.record,
        judge=FlowComparers(flows, rules=rules).judge,
        model=shadow_model,
        replies=replies or ShadowReplies(),
        workers=shadow_workers,
    )
    assigner = Assigner(
        tuple(stacks),
        settings,
        pins or Pins(MemoryPins(), time.monotonic, time.time),
        wall,
        flags,
        qa_key,
    )
    return Router(
        flows=flows,
        stacks=stacks,
        settings=settings,
        live=live,
        assigner=assigner,
        admission=Admission(settings, monotonic),
        shadows=shadows,
        recorder=recorder,
        gate=gate,
        pauses=pauses,
        write_journal=write_journal,
        observers=observers,
        exchange_ids=exchange_ids or ExchangeIds(),
        debugged=debugged,
        wall=wall,
    )
