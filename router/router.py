"""The router: assigns requests to stacks, serves, mirrors and records them. Knows no flow by name.

The path of a request: an endpoint in `router.http` calls `Router.open`, which assigns and admits it
(`router.routing`) and returns its stream (`router.serving`); when nothing more is sent, `close`
ends the exchange, records it and lets its shadow run.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from contract.flow import Body, FlowSpec, Request, value_in
from contract.human import HumanAnswer
from contract.operations import WriteLimits
from contract.ports import Effects
from contract.records import Score
from effects.model import resolving_effects
from effects.stores import WriteJournal
from effects.tape import Budget, Entry, Exchange, Journal, PauseOrigin, Tape
from evidence.outcomes import TEXT_FRAMES
from router.capture.recorder import ExchangeRecorder, request_record
from router.config.schema import Settings
from router.context import ExchangeContext, LedgerLine, Observer, RouterCounts, Traces, notify
from router.exchange_ids import ExchangeIds
from router.problems import Problem
from router.resume.pauses import Pauses, ResumedPause
from router.resume.remainders import Remainders, store_remainder
from router.resume.writes import ExchangeWrites
from router.routing.admission import Admission, Admitted
from router.routing.assignment import Assigner, Decision
from router.routing.histories import STORING, ConversationTurn
from router.routing.shares import FlowShares, ShareWindow
from router.serving.run import Run
from router.serving.stack import Stack
from router.serving.stream import CLAIM_LOST, STOP_SECONDS, STOPPING, ServedStream
from router.serving.write_patience import WritePatience
from router.shadow.sessions import IdleGate
from router.shadow.shadows import Ledger, Shadows
from router.stack import FIELDS, IncomingRequest, StackName

log = logging.getLogger(__name__)

_UNKNOWN = "no such exchange was served; its id is the response header x-cutover-exchange"


class FeedbackLine(NamedTuple):
    """What feedback is counted by."""

    flow: str
    assigned: StackName
    score: Score


@dataclass(slots=True, eq=False)
class _OpenExchange:
    stream: ServedStream
    admitted: Admitted
    decision: Decision
    window: ShareWindow


@dataclass(slots=True, eq=False)
class Router:
    """Serves requests of `flows` by one of `stacks`.

    `live` makes the live ports for one request's body. `settings` returns those in force now.
    `debugged` are ids of exchanges, messages or sessions whose steps are logged.
    """

    flows: Mapping[str, FlowSpec]
    stacks: Mapping[StackName, Stack]
    settings: Callable[[], Settings]
    live: Callable[[str, Body], Effects]
    assigner: Assigner
    admission: Admission
    shadows: Shadows
    recorder: ExchangeRecorder
    gate: IdleGate
    pauses: Pauses | None = None
    observers: Sequence[Observer] = ()
    exchange_ids: ExchangeIds = field(default_factory=ExchangeIds)
    debugged: frozenset[str] = frozenset()
    wall: Callable[[], float] = time.time
    traces: Traces = field(default_factory=Traces)
    write_journal: WriteJournal | None = None
    draining: bool = field(default=False, init=False)
    feedbacks: Counter[FeedbackLine] = field(default_factory=Counter, init=False)
    write_patience: WritePatience = field(init=False)
    counts: RouterCounts = field(init=False)
    """What was done since the start."""
    shares: FlowShares = field(init=False)
    _budget: Budget = field(init=False)
    _open: dict[str, _OpenExchange] = field(default_factory=dict, init=False)
    _unsettled: dict[str, _OpenExchange] = field(default_factory=dict, init=False)
    _writes: dict[str, ExchangeWrites] = field(default_factory=dict, init=False)
    _remainders: Remainders | None = field(default=None, init=False)
    _closing: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.counts = self.assigner.counts
        self.shares = FlowShares(self.settings, self.assigner.pins, self.gate.monotonic)
        self.write_patience = WritePatience(lambda: self.settings().server.drain_write_seconds)
        self._budget = Budget(self.settings().limits.total_bytes)
        self.ledger.on_settled = self._settled

    @property
    def served_flows(self) -> dict[str, FlowSpec]:
        """The flows that some stack has."""
        stacks = self.stacks.values()
        return {
            name: spec
            for name, spec in self.flows.items()
            if any(stack.serves(spec) for stack in stacks)
        }

    @property
    def local_flows(self) -> frozenset[str]:
        """The flows that some stack of this process has."""
        local = [stack for stack in self.stacks.values() if stack.powers.taped]
        specs = self.flows.values()
        return frozenset(spec.name for spec in specs if any(one.serves(spec) for one in local))

    @property
    def ledger(self) -> Ledger:
        """Where the shadow of each request ended."""
        return self.shadows.ledger

    @property
    def bytes_left(self) -> int:
        """How many bytes all tapes together may still hold."""
        return self._budget.left

    async def open(
        self,
        spec: FlowSpec,
        body: Body,
        qa_header: str | None = None,
        incoming: IncomingRequest | None = None,
        *,
        path: str = "",
    ) -> ServedStream:
        """Assign and admit a request, and open its exchange; raises `Problem` 429 or 503.

        `incoming` is the request as it came, for remote stacks; `path` which of the flow's further
        paths it came to.
        """
        session = (
            uuid.uuid4().hex if spec.opens_sessions and spec.conversation(body) is None else ""
        )
        self.admission.check(spec, body, session)
        decision = await self.assigner.decide(spec, body, qa_header, incoming, session)
        request = Request(body, decision.flow.options, path, session)
        exchange = self.exchange_ids.new(spec.name, decision.assignment.stack)
        stream = self._begin(spec, exchange, request, decision, incoming)
        self.shadows.started(exchange)
        return stream

    async def resume(
        self,
        spec: FlowSpec,
        hitl_id: str,
        qa_header: str | None = None,
        incoming: IncomingRequest | None = None,
    ) -> ServedStream:
        """Resume an answered pause, as an exchange of its own; raises `Problem`.

        The stack that is assigned now serves it, wherever it was paused.
        """
        pauses, digits = self._pauses(), self.exchange_ids.draw()
        limit = self.settings().limits.exchange_bytes
        resumed = await pauses.resume(spec, hitl_id, digits, limit)
        try:
            request = resumed.request
            self.admission.check(spec, request.body, request.session)
            decision = await self.assigner.decide(
                spec, request.body, qa_header, incoming, request.session
            )
            exchange = self.exchange_ids.signed(digits, spec.name, decision.assignment.stack)
            stream = self._begin(spec, exchange, request, decision, incoming, resumed)
            pauses.resumed(resumed, exchange)
        except BaseException:
            await asyncio.shield(resumed.claim.release())
            raise
        resumed.claim.on_lost = partial(stream.abort, CLAIM_LOST)
        try:
            await pauses.lock(resumed, stream.exchange)
        except BaseException:
            self.close(stream)
            raise
        self.shadows.started(exchange)
        return stream

    async def respond(self, spec: FlowSpec, hitl_id: str, answer: HumanAnswer) -> None:
        """Store the answer to a question; raises `Problem` 404, 409, 410, 422 or 503."""
        await self._pauses().respond(spec, hitl_id, answer)

    def refused(self, flow: str, problem: Problem) -> None:
        """Report a request that was refused before it became an exchange."""
        notify(self.observers, "refused", flow, problem.status, problem.code)

    def close(self, stream: ServedStream) -> None:
        """Nothing more is sent: end, record and mirror the exchange, in the background.

        Idempotent.
        """
        one = self._open.pop(stream.context.exchange, None)
        if one is None:
            return
        self.gate.open = len(self._open)
        stream.context.ended = stream.exchange.stamp()
        loop, context = asyncio.get_running_loop(), stream.exchange.context()
        # `aclose` awaits tasks, not callbacks: while the router drains, all are tasks.
        pausable = self.pauses is not None and stream.context.spec.pausing is not None
        awaits = pausable or stream.context.exchange in self._writes
        if not awaits and not self.draining and stream.close_now():
            loop.call_soon(self._finished, one, context=context)
            return
        name = f"close {stream.context.exchange}"
        task = loop.create_task(self._close(one), name=name, context=context)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def runs(self, exchange: str) -> Sequence[Run] | None:
        """Return the runs of an unsettled exchange, its shadow's last; None where it is unknown."""
        one = self._unsettled.get(exchange)
        if one is None:
            return None
        shadow = self.shadows.run_of(exchange)
        return [*one.stream.runs, *([shadow] if shadow is not None else [])]

    def feedback(self, exchange: str, score: Score, comment: str | None) -> None:
        """Count and record a user's feedback, by the flow and the assigned stack of its receipt.

        Raises `Problem` 404 where the id has none of a key of this router, 429 beyond the rate.
        """
        receipt = self.exchange_ids.receipt(exchange, self.flows)
        if receipt is None:
            raise Problem(404, "unknown_exchange", _UNKNOWN)
        self.admission.check_feedback(exchange)
        self.feedbacks[FeedbackLine(*receipt, score)] += 1
        self.recorder.feedback(exchange, receipt, score, comment, int(self.wall() * 1_000_000))

    async def finish_remainders(self) -> None:
        """Finish what killed routers left of exchanges after their ends; call it periodically.

        Raises `EffectFailed`.
        """
        if self.pauses is None or self.write_journal is None or self.draining:
            return
        self._remainders = Remainders(
            self.pauses, self.flows, self.stacks, self.settings, self.live, self.gate.clock
        )
        for exchange in await self._remainders.finish_all(self.exchange_ids.draw()):
            await self.write_journal.close(exchange)

    def cut(self) -> None:
        """End every open stream now, in its flow's failure frames."""
        for one in self._open.values():
            one.stream.abort(STOPPING)

    async def cut_after_writes(self) -> None:
        """End every open stream, one with a write under way when that has ended.

        Its flow learns what it has done, as far as `[server] drain_write_seconds` allow that.
        """
        while (left := self._write_seconds_left()) > 0:
            for one in self._open.values():
                if not one.stream.exchange.writes:
                    one.stream.abort(STOPPING)
            await self.write_patience.wait(asyncio.sleep, left)
        self.cut()

    async def aclose(self, seconds: float) -> None:
        """Finish what has begun, shadows included, within so many seconds; writes may take more.

        A write that is cut off is logged.
        """
        self.draining = True
        self.cut()
        if self._remainders is not None:
            self._remainders.close()
        # Exchanges whose run does not stop are recorded, too.
        left = max(seconds, 2 * STOP_SECONDS)
        await asyncio.sleep(0)  # senders have been cancelled, and need a turn to close
        while self._closing and (most := max(left, self._write_seconds_left())) > 0:
            left -= await self.write_patience.wait(self._one_closed, most)
        for one in self._unsettled.values():
            for write in one.stream.exchange.writes:
                _log_cut_write(one.stream, write)
        await self.shadows.aclose(max(left, 0))

    async def _one_closed(self, seconds: float) -> None:
        await asyncio.wait(set(self._closing), timeout=seconds)

    def _write_seconds_left(self) -> float:
        return self.write_patience.seconds_left(
            [one.stream.exchange for one in self._unsettled.values()]
        )

    def _pauses(self) -> Pauses:
        if self.pauses is None:
            raise Problem(404, "unknown_pause", "nothing is paused here")
        return self.pauses

    def _begin(
        self,
        spec: FlowSpec,
        exchange: str,
        request: Request[Any, Any],
        decision: Decision,
        incoming: IncomingRequest | None,
        resumed: ResumedPause | None = None,
    ) -> ServedStream:
        """Take a slot for a request and open its exchange; raises `Problem` 503."""
        limits, began = decision.settings.limits, self.wall()
        pause = resumed.claim.pause if resumed else None
        context = ExchangeContext(
            exchange=exchange,
            spec=spec,
            request=request,
            assignment=decision.assignment,
            config=decision.version,
            began=int(began * 1_000_000),
            tape=resumed.tape if resumed else Tape(limit=limits.exchange_bytes),
            incoming=incoming,
            resumes=pause.exchange if pause else "",
            paused_us=int((began - pause.created_at) * 1_000_000) if pause else 0,
            start=resumed.tape.last_stamp if resumed else 0,
            own_histories=bool(decision.conversation),
        )
        if self.debugged:
            context.debugged = not self.debugged.isdisjoint((exchange, *context.ids.values()))
        admitted = self._admit(context, decision)
        try:
            taped = self._exchange(context, decision.settings.writes, resumed)
        except BaseException:
            admitted.release(None)
            raise
        primary, fallback = admitted.choice.primary, admitted.choice.fallback
        stream = ServedStream(
            context,
            taped,
            self.stacks[primary],
            self.stacks[fallback] if fallback else None,
            limits,
            answer=resumed.answer if resumed else None,
            turn=self._begin_turn(spec, decision, primary),
        )
        context.turn = stream.turn.known_number if stream.turn is not None else 0
        one = _OpenExchange(stream, admitted, decision, self.shares.window(spec.name))
        if primary != (decision.left or decision.assignment.stack):
            self._move_conversation(one, primary, stream.reason or decision.assignment.why)
        stream.on_fallback = partial(self._fell_back, one)
        if self.pauses is not None and spec.pausing is not None:
            # Pauses of the same session have been passed by once this turn is answered.
            stream.on_first_frame = partial(self.pauses.expire_others, context)
        if exchange in self._writes and spec.grace_seconds:
            stream.on_last_frame = partial(self._store_remainder, stream)
        self._open[exchange] = self._unsettled[exchange] = one
        self.gate.open = len(self._open)
        self.counts.requests += 1
        self.counts.bypassed += primary != decision.assignment.stack
        if decision.settings.gateway.enabled:
            self.traces.note(exchange, incoming.headers if incoming else ())
        self.shadows.begin(context, stream, decision)
        return stream

    def _admit(self, context: ExchangeContext, decision: Decision) -> Admitted:
        """Take a slot, with the other stack as fallback where settings and stacks allow it."""
        spec, flow, assigned = context.spec, decision.flow, decision.assignment.stack
        if not self.stacks[assigned].serves(spec):
            raise Problem(503, "not_served", f"{assigned} does not have this service")
        if context.resumes and not self.stacks[assigned].powers.taped:  # it would begin anew
            raise Problem(503, "not_served", f"{assigned} cannot resume what is paused here")
        fallback: StackName = "legacy"
        allowed = flow.langgraph_fallback
        if assigned == "legacy":
            allowed = flow.enable_langgraph and flow.fallback_to_graph and not spec.other_format
            fallback = "graph"
        stack = self.stacks.get(fallback) if allowed else None
        able = (
            stack is not None and stack.serves(spec) and (stack.powers.taped or not context.resumes)
        )
        return self.admission.admit(spec.name, assigned, fallback if able else None)

    def _exchange(
        self, context: ExchangeContext, limits: WriteLimits, resumed: ResumedPause | None
    ) -> Exchange:
        """Make the exchange of a request: its tape, and its live ports."""
        spec, request, tape = context.spec, context.request, context.tape
        tape.usage.charge(self._budget)  # only now: a request that is refused frees nothing
        effects = resolving_effects(self.live(spec.name, request.body), request.body)
        if self.pauses is not None and spec.pausing is not None:
            origin = PauseOrigin(
                exchange=context.exchange,
                flow=spec.name,
                stack=context.assignment.stack,
                request=request_record(request),
                user_id=value_in(request.body, "user_id"),
            )
            effects = replace(effects, human=self.pauses.human(origin, tape))
        journal: Journal | None = resumed.claim if resumed else None
        if journal is None and self.write_journal is not None:
            journal = self._writes[context.exchange] = ExchangeWrites(
                self.write_journal, context.exchange, spec.name, self.wall, limits
            )
        return Exchange(
            effects,
            tape,
            exchange_id=context.exchange,
            limits=limits,
            journal=journal,
            monotonic=self.gate.clock,
            after=context.start,
        )

    def _begin_turn(
        self, spec: FlowSpec, decision: Decision, primary: StackName
    ) -> ConversationTurn | None:
        """Begin a turn of a conversation that each stack stores itself; None for any other."""
        if not decision.conversation:
            return None
        return self.assigner.histories.begin_turn(spec.name, decision.conversation, primary)

    def _move_conversation(self, one: _OpenExchange, to: StackName, why: str) -> None:
        """Pin a conversation to the stack that serves it from now on, and count what it loses."""
        stream, decision = one.stream, one.decision
        if stream.turn is None:
            return
        flow, seconds = stream.context.spec.name, decision.settings.rollout.pin_seconds
        stream.turn.move(to)
        self.assigner.pins.move(flow, decision.conversation, to, decision.version, seconds)
        if stream.turn.number > 1:
            known = stream.turn.known_to(to)
            self.counts.conversations_moved += 1
            self.counts.histories_lost += not known
            facts = {"exchange": stream.context.exchange, "flow": flow, "to": to, "reason": why}
            facts["history"] = "stored" if known else "lost"
            log.warning("conversation moved", extra={FIELDS: facts})

    def _fell_back(self, one: _OpenExchange, fallback: Stack) -> None:
        """The fallback starts: the failure counts now, and the tape is no longer the shadow's."""
        one.admitted.fell_back(one.stream.run.outcome, fallback.name)
        if not one.stream.ended:  # one that finishes what is left after the end serves no turn
            self._move_conversation(one, fallback.name, one.stream.reason)
        self.shadows.evict(one.stream.context.exchange)

    async def _store_remainder(self, stream: ServedStream) -> None:
        """The stream ends: what its flow still does must outlive this process."""
        context = stream.context
        if self.pauses is not None and stream.served_by.powers.taped:
            storing = store_remainder(
                self.pauses.store, stream, request_record(context.request), self.wall()
            )
            task = asyncio.create_task(storing, name="store remainder")
            self._writes[context.exchange].remainder = task
            await asyncio.shield(task)

    async def _close(self, one: _OpenExchange) -> None:
        try:
            await one.stream.close()
            if self.pauses is not None:
                context = one.stream.context
                context.pause_bytes = await self.pauses.settle(context.exchange, one.stream)
            if writes := self._writes.pop(one.stream.context.exchange, None):
                await writes.close()
        finally:
            self._finished(one)

    def _finished(self, one: _OpenExchange) -> None:
        """Nothing of an exchange runs any more: count it, record it, mirror it."""
        stream, context, counts = one.stream, one.stream.context, self.counts
        one.admitted.release(stream.runs[0].outcome if stream.runs else None)
        _set_facts(context, stream)
        if stream.runs:
            self.shares.add(one.window, context, stream.primary.name)
        counts.disconnected += stream.disconnected
        counts.slow_clients += stream.slow_client
        counts.fallbacks += context.fallback == "fallback"
        counts.takeovers += context.fallback == "takeover"
        for run in stream.runs:
            run.log_failure()  # after its stream, or where that has reported it
        if context.fallback == "takeover" and context.outcome and context.outcome.kind in STORING:
            facts = {"exchange": context.exchange, "flow": context.spec.name, "to": context.served}
            facts |= {"reason": context.reason, "lost_ms": str(context.lost_us // 1_000)}
            log.info("takeover completed", extra={FIELDS: facts})  # one that fails is a failed run
        if stream.turn is not None and context.outcome and context.outcome.kind in STORING:
            stream.turn.store(context.served)
        recorded = self.recorder.record_served(context, stream.runs)
        notify(self.observers, "finished", context)
        self.shadows.finished(context, stream, recorded=recorded)
        if context.exchange in self._unsettled:  # a kill must not cost it: see decision 0036
            self.recorder.await_shadow(context)

    def _settled(self, exchange: str, line: LedgerLine) -> None:
        one = self._unsettled.pop(exchange)
        if one.decision.settings.gateway.enabled:
            self.traces.forget(exchange)
        notify(self.observers, "settled", one.stream.context, line)
        self.recorder.hand_over(one.stream.context, line)


def _set_facts(context: ExchangeContext, stream: ServedStream) -> None:
    """Set how the stream went, as its client saw it."""
    context.served = stream.served_by.name
    context.reason = stream.reason or context.assignment.why
    context.lost_us = stream.lost_us
    context.outcome = stream.run.outcome if stream.runs else None
    context.committed = stream.committed
    context.client_left = stream.disconnected
    if len(stream.runs) > 1:
        context.fallback = "takeover" if stream.run.sent else "fallback"
    elif stream.reason:
        context.fallback = "breaker"
    for position, (run, frame) in enumerate(islice(stream.sent_frames(), TEXT_FRAMES)):
        if not position:
            context.first_frame = frame.at
        if run.text_of(frame):
            context.first_text = frame.at
            break


def _log_cut_write(stream: ServedStream, write: Entry) -> None:
    """Log a write that had begun, and that the router does not wait for any longer."""
    context, operation = stream.context, write.operation
    log.warning(
        "cut off: flow=%s exchange=%s write=%s begun %.1f s ago; its outcome is unknown",
        context.spec.name,
        context.exchange,
        operation.call_name(write.args, write.site),
        (stream.exchange.stamp() - write.at) / 1_000_000,
    )
