"""The router: assigns, serves, mirrors and records exchanges. Knows no flow by name."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from contract.flow import Request
from effects.tape import Budget
from router.capture.recorder import ExchangeRecorder
from router.context import Counts, ExchangeContext, Observers
from router.http.body import Bodies
from router.opening import IncomingExchange, Opener
from router.problems import Problem
from router.resume.pauses import Resumed, settle_pauses
from router.routing.admission import Admission
from router.routing.assignment import Assigner
from router.serving.completion import LETS_GO
from router.serving.failure import first_ending, tell
from router.shadow.idle_gate import IdleGate
from router.shadow.ledger import Ledger
from router.shadow.selection import LOST, STOPPING, Mirror
from router.traces import Traces

if TYPE_CHECKING:
    from contract.flow import Body, FlowSpec
    from contract.human import HumanAnswer
    from router.parts import Parts
    from router.routing.assignment import Decision
    from router.serving.run import Incoming
    from router.shadow.ledger import Line


_PIECE = 0.25
"""Seconds of a wait that are counted together."""


class Router:
    """Hands requests to stacks and keeps the books."""

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings()
        self.parts = parts
        self.observers = Observers(parts.observers)
        self.ledger = Ledger(self._settled)
        self.counts = Counts()
        self.draining = False
        self.traces = Traces()
        self.admission = Admission(parts.settings, parts.monotonic)
        self.bodies = Bodies(lambda: parts.settings().limits, self.admission.turn_away)
        self._assigner = Assigner(parts, self.counts)
        self._budget = Budget(settings.limits.total_bytes)
        self._courtesy = IdleGate(parts.monotonic)
        self._chronicle = ExchangeRecorder(parts)
        self._mirror = Mirror(parts, self.ledger, self._courtesy, self._chronicle)
        self.shadow_budget = self._mirror.budget
        self._opener = Opener(parts, self.admission, self._budget, self._courtesy)
        self._open: dict[str, ExchangeContext] = {}
        self._unsettled: dict[str, ExchangeContext] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def served(self) -> dict[str, FlowSpec]:
        """The flows some stack has."""
        stacks = self.parts.stacks.values()
        return {
            name: spec
            for name, spec in self.parts.specs.items()
            if any(stack.serves(spec) for stack in stacks)
        }

    @property
    def shadows_waiting(self) -> int:
        """How many exchanges wait for their shadow."""
        return self._mirror.waiting

    @property
    def shadow_lag(self) -> float:
        """Seconds for which the shadow that runs now has been due; 0 where none is."""
        return self._mirror.lag

    @property
    def open_streams(self) -> Counter[str]:
        """How many exchanges are being served, by flow."""
        return Counter(ticket.spec.name for ticket in self._open.values())

    @property
    def bytes_left(self) -> int:
        """What all tapes together may still hold."""
        return self._budget.left

    async def begin(
        self,
        spec: FlowSpec,
        body: Body,
        qa_header: str | None,
        incoming: Incoming | None = None,
        *,
        path: str = "",
    ) -> ExchangeContext:
        """Take a request: assign it, open its exchange and its ledger account.

        `incoming` is the request as it came, for stacks that are asked over the wire; `path` which
        of the flow's further paths it came to. Raises `Problem` 429 or 503 where it is not taken.
        """
        session = (
            uuid.uuid4().hex if spec.opens_sessions and spec.conversation(body) is None else ""
        )
        self.admission.knock(spec, body, session)
        decided = await self._assigner.decide(spec, body, qa_header, incoming, session)
        asked = Request(body, decided.flow.options, path, session)
        return self._take(
            IncomingExchange(spec, asked, self.parts.exchange_id(), incoming), decided
        )

    async def resume(
        self,
        spec: FlowSpec,
        hitl_id: str,
        qa_header: str | None,
        incoming: Incoming | None = None,
    ) -> ExchangeContext:
        """Go on from an answered pause, as a request of its own; raises `Problem`.

        Whoever is assigned now goes on, wherever it was paused.
        """
        pausing, exchange = self.parts.pausing, self.parts.exchange_id()
        if pausing is None:
            raise Problem(404, "unknown_pause", "nothing is paused here")
        claim = await pausing.claim(spec, hitl_id, exchange)
        try:
            limit = self.parts.settings().limits.exchange_bytes
            resumed = Resumed.load(spec, claim, limit)
            asked = resumed.request
            self.admission.knock(spec, asked.body, asked.session)
            decided = await self._assigner.decide(
                spec, asked.body, qa_header, incoming, asked.session
            )
            arrival = IncomingExchange(spec, asked, exchange, incoming, resumed)
            ticket = self._take(arrival, decided)
            claim.lost = partial(ticket.serving.dismiss, LOST)
        except BaseException:
            await asyncio.shield(claim.let_go())
            raise
        try:
            await resumed.hold(ticket.serving.exchange)
        except BaseException:
            self.conclude(ticket)
            raise
        return ticket

    def _take(self, arrival: IncomingExchange, decided: Decision) -> ExchangeContext:
        """Open an exchange and its ledger account; raises `Problem` 503."""
        ticket = self._opener.open(arrival, decided)
        ticket.job = self._mirror.job(ticket, decided)
        self._open_account(ticket)
        return ticket

    def _open_account(self, ticket: ExchangeContext) -> None:
        plan = ticket.serving.plan
        self.counts.requests += 1
        self.counts.spared += plan.instead is not None
        self.ledger.begin(ticket.exchange, ticket.spec.name)
        ticket.serving.replacing = partial(_replaced, ticket)
        self._open[ticket.exchange] = self._unsettled[ticket.exchange] = ticket
        self.traces.note(ticket.exchange, plan.incoming.headers if plan.incoming else ())

    def ticket(self, exchange: str) -> ExchangeContext | None:
        """Give an exchange that is not over yet: being served, or waiting for its shadow."""
        return self._unsettled.get(exchange)

    async def respond(self, spec: FlowSpec, hitl_id: str, answer: HumanAnswer) -> None:
        """Keep the answer to a question; raises `Problem` 404, 409, 410, 422 or 503."""
        if self.parts.pausing is None:
            raise Problem(404, "unknown_pause", "nothing is paused here")
        await self.parts.pausing.respond(spec, hitl_id, answer)

    async def answered(self, ticket: ExchangeContext) -> None:
        """A first frame is there: whatever waited in this session has been passed by."""
        pausing, spec = self.parts.pausing, ticket.spec
        if pausing is None or spec.continue_endpoint is None or ticket.resumed is not None:
            return
        asked = ticket.serving.plan.request
        session = spec.conversation(asked.body, asked.session)
        if session is not None:
            await pausing.expire(spec, session, ticket.exchange)

    def opened(self, ticket: ExchangeContext) -> None:
        """The stream is about to go out: a shadow that tails may begin."""
        self._mirror.opened(ticket)

    def conclude(self, ticket: ExchangeContext) -> None:
        """Nothing more will be sent: end the exchange, mirror and record it, in the background.

        Idempotent: an exchange is concluded once.
        """
        if self._open.pop(ticket.exchange, None) is None:
            return
        ticket.ended = ticket.serving.exchange.stamp()
        loop, context = asyncio.get_running_loop(), ticket.serving.exchange.context()
        unclaimed = ticket.human is None and ticket.resumed is None
        # Nobody waits for a callback: while the router closes, all are tasks.
        if unclaimed and not self.draining and ticket.serving.finished():
            loop.call_soon(self._concluded, ticket, context=context)
            return
        name = f"conclude {ticket.exchange}"
        task = loop.create_task(self._conclude(ticket), name=name, context=context)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def feedback(self, exchange: str, score: Any, comment: str | None) -> None:
        """Keep what a user thought, joined to the assigned stack where it is still known."""
        self._chronicle.feedback(exchange, score, comment)

    def cut(self) -> None:
        """End every stream that is still open, now, in its flow's failure frames."""
        for ticket in self._open.values():
            ticket.serving.dismiss(STOPPING)

    async def aclose(self, seconds: float) -> None:
        """Finish what has begun, shadows included, within so many seconds."""
        self.draining = True
        self.cut()
        loop = asyncio.get_running_loop()
        # Also those whose stack does not let go are to be written down.
        left = max(seconds, 2 * LETS_GO)
        # Whoever was sending has been cancelled, but may not have had its turn to say so.
        await asyncio.sleep(0)
        while self._closing and left > 0:
            # In pieces, of which none counts for more than it was to be: while the machine stands
            # still nobody has had any of that time.
            piece, began = min(left, _PIECE), loop.time()
            await asyncio.wait(set(self._closing), timeout=piece)
            left -= min(loop.time() - began, piece)
        await self._mirror.aclose(max(left, 0))

    async def _conclude(self, ticket: ExchangeContext) -> None:
        try:
            await ticket.serving.finish()
            await settle_pauses(ticket)
        finally:
            self._concluded(ticket)

    def _concluded(self, ticket: ExchangeContext) -> None:
        """Nothing of an exchange runs any more: count it, write it down, mirror it."""
        ticket.admitted.over(first_ending(ticket))
        tell(ticket)
        self._count(ticket)
        failed = None if self._chronicle.write_served(ticket) else ticket.job
        if failed is not None:
            self._mirror.fail(failed)
        self.observers.concluded(ticket)
        if failed is None:
            self._mirror.concluded(ticket)

    def _settled(self, exchange: str, line: Line) -> None:
        self.traces.forget(exchange)
        self.observers.settled(self._unsettled.pop(exchange), line)

    def _count(self, ticket: ExchangeContext) -> None:
        serving = ticket.serving
        self.counts.client_left += serving.left
        self.counts.client_unread += serving.unread
        if len(serving.drives) > 1:
            self.counts.takeovers += bool(serving.drive.sent)
            self.counts.fallbacks += not serving.drive.sent
        self._chronicle.remember(ticket)


def _replaced(ticket: ExchangeContext) -> None:
    """Another stack steps in: the failure counts now, and the tape is no longer the shadow's."""
    stand_in = ticket.serving.plan.fallback
    if stand_in is not None:
        ticket.admitted.replaced(first_ending(ticket), stand_in.name)
    if ticket.job is not None:
        ticket.job.evict()
