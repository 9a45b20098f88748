"""The router: assigns, serves, mirrors and records exchanges. Knows no flow by name."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

from contract.flow import Request
from contract.records import VERSION, ErrorRecord, FeedbackRecord
from effects.exchange import Deadlines, Exchange
from effects.tape import Budget, Tape
from router.admission import Admission
from router.assigning import Assigner
from router.courtesy import Courtesy
from router.driving import Drive, Ending
from router.ledger import Ledger
from router.observers import Observers
from router.plan import Plan
from router.recording import Header, account, run_record
from router.rollout import shadowed
from router.serving import LETS_GO, Serving
from router.shadow import Job, Shadows
from router.shadow_budget import ShadowBudget
from router.ticket import Counts, Ticket
from router.traces import Traces

if TYPE_CHECKING:
    from collections.abc import Iterable

    import msgspec

    from contract.flow import FlowSpec
    from router.admission import Admitted
    from router.driving import Incoming
    from router.flow_settings import FlowSettings
    from router.ledger import Line
    from router.parts import Parts
    from router.rollout import Assignment
    from router.settings import Settings
    from router.stacks import Stack

log = logging.getLogger(__name__)

_STOPPING = Ending("failed", "world", ErrorRecord("stopping"))

_REMEMBERED = 100_000
"""How many past exchanges feedback can still be joined to in the serving process."""


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
        self._assigner = Assigner(parts, self.counts)
        self._budget = Budget(settings.limits.total_bytes)
        self._courtesy = Courtesy(parts.monotonic)
        self.shadow_budget = ShadowBudget(lambda: parts.settings().shadow, parts.price, parts.wall)
        self._shadows = Shadows(
            self.ledger,
            settings.shadow.queue,
            self._courtesy,
            self.shadow_budget,
            at_once=_shadows_at_once(parts.stacks.values(), settings),
        )
        self._remembered: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._open: dict[str, Ticket] = {}
        self._unsettled: dict[str, Ticket] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def shadows_waiting(self) -> int:
        """How many exchanges wait for their shadow."""
        return self._shadows.waiting

    @property
    def shadow_lag(self) -> float:
        """Seconds for which the shadow that runs now has been due; 0 where none is."""
        return self._shadows.lag

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
        body: msgspec.Struct,
        qa_header: str | None,
        incoming: Incoming | None = None,
    ) -> Ticket:
        """Take a request: assign it, open its exchange and its ledger account.

        `incoming` is the request as it came, for stacks that are asked over the wire. Raises
        `Problem` 429 or 503 where it is not taken.
        """
        self.admission.knock(spec, body)
        decided = await self._assigner.decide(spec, body, qa_header, incoming)
        settings, flow, assignment = decided.settings, decided.flow, decided.assignment
        admitted = self._admit(spec, flow, assignment)
        exchange_id = uuid.uuid4().hex
        try:
            exchange = self._exchange(exchange_id, body, settings)
        except BaseException:
            admitted.over(None)
            raise
        plan = Plan(
            spec=spec,
            request=Request(body, flow.options),
            assignment=assignment,
            assigned=self.parts.stacks[assignment.stack],
            fallback=admitted.choice.fallback,
            stall_seconds=settings.limits.stall_seconds,
            unsent_bytes=settings.limits.unsent_bytes,
            incoming=incoming,
            instead=admitted.choice.instead,
            exchange=exchange_id,
        )
        ticket = Ticket(
            exchange=exchange_id,
            spec=spec,
            serving=Serving(plan, exchange),
            admitted=admitted,
            config=decided.version,
            began=int(self.parts.wall() * 1_000_000),
        )
        self.counts.requests += 1
        self.counts.spared += plan.instead is not None
        self.ledger.begin(exchange_id, spec.name)
        ticket.job = self._job(ticket, flow, settings)
        ticket.serving.replacing = partial(_replaced, ticket)
        self._open[exchange_id] = self._unsettled[exchange_id] = ticket
        self.traces.note(exchange_id, incoming.headers if incoming else ())
        return ticket

    def ticket(self, exchange: str) -> Ticket | None:
        """Give an exchange that is not over yet: being served, or waiting for its shadow."""
        return self._unsettled.get(exchange)

    def opened(self, ticket: Ticket) -> None:
        """The stream is about to go out: a shadow that tails may begin."""
        job = ticket.job
        if job is not None and self.parts.settings().shadow.mode == "tail":
            self._shadows.tail(job)

    def conclude(self, ticket: Ticket) -> None:
        """Nothing more will be sent: end the exchange, mirror and record it, in the background.

        Idempotent: an exchange is concluded once.
        """
        if self._open.pop(ticket.exchange, None) is None:
            return
        ticket.ended = ticket.serving.exchange.stamp()
        task = asyncio.get_running_loop().create_task(
            self._conclude(ticket),
            name=f"conclude {ticket.exchange}",
            context=ticket.serving.exchange.context(),
        )
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def feedback(self, exchange: str, score: Any, comment: str | None) -> None:  # noqa: ANN401
        """Keep what a user thought, joined to the assigned stack where it is still known."""
        assigned, served = self._remembered.get(exchange, (None, None))
        self.parts.captures.feedback(
            FeedbackRecord(
                v=VERSION,
                exchange=exchange,
                score=score,
                at=int(self.parts.wall() * 1_000_000),
                comment=comment,
                assigned=assigned,
                served=served,
            )
        )

    def cut(self) -> None:
        """End every stream that is still open, now, in its flow's failure frames."""
        for ticket in self._open.values():
            drives = ticket.serving.drives
            if drives and not drives[-1].complete:
                drives[-1].dismiss(_STOPPING)

    async def aclose(self, seconds: float) -> None:
        """Finish what has begun, shadows included, within so many seconds."""
        self.draining = True
        self.cut()
        loop = asyncio.get_running_loop()
        # Also those whose stack does not let go are to be written down.
        deadline = loop.time() + max(seconds, 2 * LETS_GO)
        # Whoever was sending has been cancelled, but may not have had its turn to say so.
        await asyncio.sleep(0)
        while self._closing and loop.time() < deadline:
            await asyncio.wait(set(self._closing), timeout=deadline - loop.time())
        await self._shadows.aclose(max(deadline - loop.time(), 0))

    def _admit(self, spec: FlowSpec, flow: FlowSettings, assignment: Assignment) -> Admitted:
        stand_in = self._fallback(flow, assignment)
        return self.admission.admit(spec.name, self.parts.stacks[assignment.stack], stand_in)

    def _fallback(self, flow: FlowSettings, assignment: Assignment) -> Stack | None:
        if assignment.stack == "graph":
            return self.parts.stacks.get("legacy") if flow.langgraph_fallback else None
        # The switch goes before everything: with it off, nothing reaches the graph stack.
        to_graph = flow.enable_langgraph and flow.fallback_to_graph
        return self.parts.stacks.get("graph") if to_graph else None

    def _exchange(self, name: str, body: msgspec.Struct, settings: Settings) -> Exchange:
        exchange = Exchange(
            self.parts.live(body),
            Tape(limit=settings.limits.exchange_bytes, budget=self._budget),
            deadlines=Deadlines(settings.limits.write_seconds),
            monotonic=self._courtesy.clock,
        )
        exchange.belong_to(name)
        return exchange

    def _job(self, ticket: Ticket, flow: FlowSettings, settings: Settings) -> Job | None:
        if not shadowed(flow, settings.rollout.salt, ticket.exchange):
            return None
        first = ticket.serving.plan.first
        other = self.parts.stacks.get("legacy" if first.name == "graph" else "graph")
        if other is None or not other.powers.shadows_beside(first.powers):
            ticket.unshadowed = "cannot"
            return None

        def done(drive: Drive | None) -> None:
            self._shadowed(ticket, drive)

        return Job(ticket.exchange, ticket.serving, other, settings.shadow.seconds, done)

    async def _conclude(self, ticket: Ticket) -> None:
        try:
            await ticket.serving.finish()
        finally:
            ticket.admitted.over(_first_ending(ticket))
            _tell(ticket)
            self._count(ticket)
            recorded = self._record(ticket)
            self.observers.concluded(ticket)
            if recorded:
                self._mirror(ticket)

    def _record(self, ticket: Ticket) -> bool:
        """Write the served runs down; where that fails the exchange is settled as our own fault."""
        try:
            for drive in ticket.serving.drives:
                self._write_down(ticket, drive)
        except Exception:
            log.exception("the records of %s failed", ticket.exchange)
            ticket.runs, ticket.accounts = [], []
            if ticket.job is not None:
                self._shadows.fail(ticket.job)
                return False
        return True

    def _write_down(self, ticket: Ticket, drive: Drive) -> None:
        spent = account(drive, self.parts.price)
        ticket.runs.append(run_record(self._header(ticket), ticket.serving, drive, spent))
        ticket.accounts.append(spent)

    def _mirror(self, ticket: Ticket) -> None:
        """Settle the ledger, now or when the shadow has run; the capture follows."""
        serving, job = ticket.serving, ticket.job
        if job is None:
            self.ledger.settle(ticket.exchange, "not_sampled", ticket.unshadowed)
            self._write(ticket)
        elif serving.left:
            self._shadows.cancel(job, "client_left")
        elif not serving.drives:
            self._shadows.cancel(job, "not_served")
        elif serving.drive.ending is _STOPPING:
            self._shadows.cancel(job, "stopping")
        elif len(serving.drives) > 1:
            self._shadows.cancel(job, "takeover" if serving.drive.sent else "fallback")
        else:
            self._shadows.offer(job)

    def _shadowed(self, ticket: Ticket, drive: Drive | None) -> None:
        try:
            if drive is not None:
                self._write_down(ticket, drive)
        finally:
            self._write(ticket)
            # They know each other: a whole exchange would wait for the garbage collector.
            ticket.job = None

    def _settled(self, exchange: str, line: Line) -> None:
        self.traces.forget(exchange)
        self.observers.settled(self._unsettled.pop(exchange), line)

    def _write(self, ticket: Ticket) -> None:
        try:
            if ticket.runs:
                self.parts.captures.put(ticket.runs)
        except Exception:
            # Records serve the migration; they must not cost the books their balance.
            log.exception("the records of %s are lost", ticket.exchange)
        finally:
            ticket.serving.exchange.tape.free()

    def _count(self, ticket: Ticket) -> None:
        serving = ticket.serving
        self.counts.client_left += serving.left
        self.counts.client_unread += serving.unread
        if len(serving.drives) > 1:
            self.counts.takeovers += bool(serving.drive.sent)
            self.counts.fallbacks += not serving.drive.sent
        self._remembered[ticket.exchange] = (serving.plan.assigned.name, serving.served.name)
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def _header(self, ticket: Ticket) -> Header:
        return Header(
            exchange=ticket.exchange,
            config=ticket.config,
            began=ticket.began,
            fingerprints={name: stack.fingerprint for name, stack in self.parts.stacks.items()},
        )


def _shadows_at_once(stacks: Iterable[Stack], settings: Settings) -> int:
    """Say how many shadows may run side by side: one that computes here, or many that wait."""
    return 1 if all(stack.powers.taped for stack in stacks) else settings.shadow.streams


def _replaced(ticket: Ticket) -> None:
    """Another stack steps in: the failure counts now, and the tape is no longer the shadow's."""
    stand_in = ticket.serving.plan.fallback
    if stand_in is not None:
        ticket.admitted.replaced(_first_ending(ticket), stand_in.name)
    if ticket.job is not None:
        ticket.job.evict()


def _first_ending(ticket: Ticket) -> Ending | None:
    """Give the end of the stack that was tried first, None where it has none."""
    drives = ticket.serving.drives
    return drives[0].ending if drives else None


def _tell(ticket: Ticket) -> None:
    """Log what the world outside failed a flow with; a stack's own failures are logged by it."""
    drive = ticket.serving.drives[-1] if ticket.serving.drives else None
    if drive is None or drive.ending is None or drive.ending.blame != "world":
        return
    fault, error = drive.run.fault, drive.ending.error
    log.warning(
        "%s exchange %s failed: %s %s",
        ticket.spec.name,
        ticket.exchange,
        error.code if error else drive.ending.outcome,
        dict(fault.data) if fault else "",
    )
