"""The mirror: which exchanges get a shadow, when it may begin, and why others have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.records import ErrorRecord
from router.resume.pauses import suits
from router.routing.rollout import shadowed
from router.serving.run import RunOutcome
from router.shadow.budget import ShadowBudget
from router.shadow.scheduler import Job, Shadows, ShadowTerms

if TYPE_CHECKING:
    from router.capture.recorder import ExchangeRecorder
    from router.context import ExchangeContext
    from router.parts import Parts
    from router.routing.assignment import Decision
    from router.serving.run import Run
    from router.serving.stream import Serving
    from router.shadow.idle_gate import IdleGate
    from router.shadow.ledger import Ledger

STOPPING = RunOutcome("failed", "world", ErrorRecord("stopping"))
"""How a stream ends that the router cuts off because it stops."""
LOST = RunOutcome("failed", "world", ErrorRecord("claim_lost"))
"""How one ends that goes on from a pause others may have gone on from."""


class Mirror:
    """Hands exchanges to their shadows; the ledger settles each, its capture follows."""

    def __init__(
        self, parts: Parts, ledger: Ledger, courtesy: IdleGate, chronicle: ExchangeRecorder
    ) -> None:
        self.budget = ShadowBudget(lambda: parts.settings().shadow, parts.price, parts.wall)
        self._parts = parts
        self._ledger = ledger
        self._chronicle = chronicle
        size = parts.settings().shadow.queue
        self._shadows = Shadows(ledger, size, courtesy, self.budget, ShadowTerms(parts))

    @property
    def waiting(self) -> int:
        """How many exchanges wait for their shadow."""
        return self._shadows.waiting

    @property
    def lag(self) -> float:
        """Seconds for which the shadow that runs now has been due; 0 where none is."""
        return self._shadows.lag

    def job(self, ticket: ExchangeContext, decided: Decision) -> Job | None:
        """Give an exchange that begins its job, if it is to have a shadow."""
        settings = decided.settings
        if not shadowed(decided.flow, settings.rollout.salt, ticket.exchange):
            return None
        first = ticket.serving.plan.first
        other = self._parts.stacks.get("legacy" if first.name == "graph" else "graph")
        if (
            other is None
            or not other.serves(ticket.spec)
            or not other.powers.shadows_beside(first.powers)
            or not suits(other, ticket.resumed)
        ):
            ticket.unshadowed = "cannot"
            return None

        def done(drive: Run | None) -> None:
            self._done(ticket, drive)

        job = Job(ticket.exchange, ticket.serving, other, settings.shadow.seconds, done)
        asked = ticket.serving.plan.request
        self._shadows.expect(job, ticket.spec.conversation(asked.body, asked.session))
        return job

    def opened(self, ticket: ExchangeContext) -> None:
        """The stream is about to go out: a shadow that tails may begin."""
        job = ticket.job
        if job is not None and self._parts.settings().shadow.mode == "tail":
            self._shadows.tail(job)

    def concluded(self, ticket: ExchangeContext) -> None:
        """Settle the ledger, now or when the shadow has run; the capture follows."""
        serving, job = ticket.serving, ticket.job
        if job is None:
            self._ledger.settle(ticket.exchange, "not_sampled", ticket.unshadowed)
            self._chronicle.close(ticket)
        elif serving.left:
            self._shadows.cancel(job, "client_left")
        elif not serving.drives:
            self._shadows.cancel(job, "not_served")
        elif serving.drive.ending is STOPPING:
            self._shadows.cancel(job, "stopping")
        elif serving.drive.ending is LOST:
            self._shadows.cancel(job, "claim_lost")
        elif len(serving.drives) > 1:
            self._shadows.cancel(job, "takeover" if serving.drive.sent else "fallback")
        elif self._leads_nowhere(serving):
            self._shadows.cancel(job, "world_failed")
        else:
            self._shadows.offer(job)

    def fail(self, job: Job) -> None:
        """Give a shadow up because of a fault of our own."""
        self._shadows.fail(job)

    async def aclose(self, seconds: float) -> None:
        """Finish what waits, for so long; the rest is dropped."""
        await self._shadows.aclose(seconds)

    def _leads_nowhere(self, serving: Serving) -> bool:
        """Whether a shadow would be answered by the model where the tape breaks off."""
        live, ending = self._parts.settings().shadow.mode == "live", serving.drive.ending
        return live and ending is not None and ending.blame == "world"

    def _done(self, ticket: ExchangeContext, drive: Run | None) -> None:
        try:
            if drive is not None:
                self._chronicle.write(ticket, drive)
        finally:
            self._chronicle.close(ticket)
            # They know each other: a whole exchange would wait for the garbage collector.
            ticket.job = None
