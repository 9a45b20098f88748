"""Which exchanges get a shadow, when it may begin, and why the others have none."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.context import ExchangeContext
from router.routing.assignment import Decision
from router.routing.rollout import shadowed
from router.serving.run import Run
from router.serving.stack import Stack
from router.serving.stream import CLAIM_LOST, STOPPING, ServedStream
from router.shadow.ledger import Ledger
from router.shadow.scheduler import ShadowJob, ShadowScheduler


@dataclass(slots=True)
class Shadows:
    """Hands exchanges to the scheduler, or settles them in the ledger without a shadow."""

    scheduler: ShadowScheduler
    _impossible: set[str] = field(default_factory=set, init=False)

    @property
    def ledger(self) -> Ledger:
        """Where each exchange is settled."""
        return self.scheduler.ledger

    def begin(self, context: ExchangeContext, stream: ServedStream, decision: Decision) -> None:
        """Open the account of an exchange, and note whether it is to have a shadow."""
        self.ledger.begin(context.exchange, context.spec.name)
        settings = decision.settings
        if not shadowed(decision.flow, settings.rollout.salt, context.exchange):
            return
        candidate = self._candidate(context, stream.primary)
        if candidate is None:
            self._impossible.add(context.exchange)
            return
        job = ShadowJob(context, stream, candidate, settings.shadow.seconds)
        self.scheduler.expect(job)

    def started(self, exchange: str) -> None:
        """The stream is about to go out: in mode `tail` its shadow begins."""
        job = self.scheduler.job(exchange)
        if job is not None and self.scheduler.settings().shadow.mode == "tail":
            self.scheduler.tail(job)

    def evict(self, exchange: str) -> None:
        """Another stack serves: what is on the tape is no longer the shadow's."""
        job = self.scheduler.job(exchange)
        if job is not None:
            self.scheduler.evict(job)

    def run_of(self, exchange: str) -> Run | None:
        """Return the shadow's run of an exchange, if it has started."""
        job = self.scheduler.job(exchange)
        return None if job is None else job.run

    def finished(self, context: ExchangeContext, stream: ServedStream, *, recorded: bool) -> None:
        """Settle an exchange that has ended, or let its shadow run.

        It gets none where its served runs were not `recorded`: there is nothing to compare with.
        """
        job = self.scheduler.job(context.exchange)
        if job is None:
            impossible = context.exchange in self._impossible
            self._impossible.discard(context.exchange)
            self.ledger.settle(context.exchange, "not_sampled", "cannot" if impossible else "")
        elif not recorded:
            self.scheduler.settle(job, "failed", "harness")
        elif reason := self._cancelled(stream):
            self.scheduler.settle(job, "cancelled", reason)
        else:
            self.scheduler.offer(job)

    async def aclose(self, seconds: float) -> None:
        """Finish what waits, for so many seconds; the rest is dropped."""
        await self.scheduler.aclose(seconds)

    def _candidate(self, context: ExchangeContext, primary: Stack) -> Stack | None:
        """Return the stack that can shadow the one that serves."""
        other = self.scheduler.stacks.get("legacy" if primary.name == "graph" else "graph")
        if other is None or not other.serves(context.spec):
            return None
        if context.resumes and not other.powers.taped:
            return None  # a remote stack would begin anew
        return other if other.powers.shadows_beside(primary.powers) else None

    def _cancelled(self, stream: ServedStream) -> str:
        """Return why an exchange cannot be compared; "" where it can."""
        if stream.disconnected:
            return "client_left"
        if not stream.runs:
            return "not_served"
        outcome = stream.run.outcome
        if outcome is STOPPING:
            return "stopping"
        if outcome is CLAIM_LOST:
            return "claim_lost"
        if len(stream.runs) > 1:
            return "takeover" if stream.run.sent else "fallback"
        live = self.scheduler.settings().shadow.mode == "live"
        # A live shadow would be answered by the model where the tape breaks off.
        return "world_failed" if live and outcome and outcome.blame == "world" else ""
