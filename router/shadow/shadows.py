"""Shadows: which exchanges get one, a bounded queue, a few at a time, and where each ends.

A shadow is dropped rather than waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial

from contract.equality import Judge
from contract.errors import CutoverError
from contract.ports import Model
from contract.records import ErrorRecord
from effects.model import resolving
from effects.stores import ShadowConversation, ShadowReplies
from router.config.schema import Settings
from router.context import Account, ExchangeContext, LedgerLine, LedgerState
from router.routing.assignment import Decision, shadowed
from router.routing.histories import STORING
from router.serving.frames import candidate_limit
from router.serving.run import Run, RunRequest
from router.serving.stack import Stack
from router.serving.stream import CLAIM_LOST, STOPPING, ServedStream
from router.shadow.budget import ShadowBudget
from router.shadow.sessions import IdleGate, shadow_session
from router.shadow.workers import ShadowTold, ShadowWorkers
from router.stack import RunOutcome, StackName

log = logging.getLogger(__name__)

_TIMED_OUT = RunOutcome("timeout", "stack", ErrorRecord("shadow_timeout"))
_EVICTED = RunOutcome("cancelled", error=ErrorRecord("evicted"))
_SHED = RunOutcome("cancelled", error=ErrorRecord("shed"))
"""It held the loop while requests were being served."""
_STOP_SECONDS = 1.0


class AlreadySettled(CutoverError):
    """A request was to be settled twice, or was never opened."""

    def __init__(self, exchange: str) -> None:
        super().__init__(f"exchange {exchange!r} is not open in the ledger")


class Ledger:
    """Counts where the shadow of each request ended; `on_settled` is called with each line."""

    def __init__(self) -> None:
        self.on_settled: Callable[[str, LedgerLine], object] | None = None
        self.counts: Counter[LedgerLine] = Counter()
        self._open: dict[str, str] = {}

    @property
    def open(self) -> int:
        """How many requests are not settled yet."""
        return len(self._open)

    def begin(self, exchange: str, flow: str) -> None:
        """Open the account of a request."""
        self._open[exchange] = flow

    def settle(self, exchange: str, state: LedgerState, reason: str = "") -> None:
        """Close it; raises `AlreadySettled` where it is not open."""
        flow = self._open.pop(exchange, None)
        if flow is None:
            raise AlreadySettled(exchange)
        line = LedgerLine(flow, state, reason)
        self.counts[line] += 1
        if self.on_settled is not None:
            self.on_settled(exchange, line)

    def total(self, state: LedgerState | None = None) -> int:
        """Return how many requests ended in a state, or at all."""
        return sum(n for line, n in self.counts.items() if state in {None, line.state})


@dataclass(slots=True, eq=False)
class ShadowJob:
    """One exchange to be shadowed by a stack; its run once that has started.

    `due` is when its exchange had ended, in seconds of the router's clock. `side` is the
    candidate's own side of a `conversation`, where it has one.
    """

    context: ExchangeContext
    stream: ServedStream
    stack: Stack
    seconds: float
    run: Run | None = None
    due: float = 0.0
    conversation: str = ""
    side: ShadowConversation | None = None

    @property
    def exchange(self) -> str:
        """The exchange it belongs to."""
        return self.context.exchange

    @property
    def lacks_history(self) -> bool:
        """Whether one of both stacks lacks a turn that the other may have; see histories."""
        turn = self.stream.turn
        return turn is not None and not (
            turn.known_to(self.stack.name) and turn.known_to(self.stream.primary.name)
        )


class ConversationOrder:
    """Lets the shadows of one conversation run in the order in which its exchanges began.

    A later turn reads what an earlier one answered. Jobs of no conversation never wait.
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[ShadowJob]] = {}
        self.waiting: list[ShadowJob] = []
        """The jobs that could run, and whose turn has not come."""

    def expect(self, job: ShadowJob) -> None:
        """Put a job at the end of its conversation: its exchange has begun."""
        if job.conversation:
            self._lines.setdefault(job.conversation, deque()).append(job)

    def is_next(self, job: ShadowJob) -> bool:
        """Whether a job need not wait for those before it."""
        line = self._lines.get(job.conversation)
        return not line or job not in line or line[0] is job

    def wait(self, job: ShadowJob) -> bool:
        """Let a job that could run wait for those before it; returns False where there are none."""
        if self.is_next(job):
            return False
        self.waiting.append(job)
        return True

    def remove(self, job: ShadowJob) -> ShadowJob | None:
        """Take a job out, wherever it stands; returns the one whose turn has come by that."""
        if job in self.waiting:
            self.waiting.remove(job)
        line = self._lines.get(job.conversation)
        if line is None:
            return None
        if job in line:
            line.remove(job)
        if not line:
            del self._lines[job.conversation]
            return None
        if line[0] in self.waiting:
            self.waiting.remove(line[0])
            return line[0]
        return None


@dataclass(slots=True)
class Shadows:
    """Runs shadows, some side by side, and settles each exchange in the ledger exactly once.

    `record` writes a compared run down, `judge` decides whether it equals the served one. `model`
    is asked by shadows in mode `live`; `replies` are the answers of those that hold conversations
    of their own. With `workers` shadows run there that need nothing but the records of an exchange.
    """

    settings: Callable[[], Settings]
    stacks: Mapping[StackName, Stack]
    gate: IdleGate
    budget: ShadowBudget
    record: Callable[[ExchangeContext, Run], object]
    judge: Judge
    model: Model | None = None
    replies: ShadowReplies = field(default_factory=ShadowReplies)
    workers: ShadowWorkers | None = None
    ledger: Ledger = field(default_factory=Ledger, init=False)
    requests: Counter[tuple[str, StackName, str]] = field(default_factory=Counter, init=False)
    """Shadow requests sent to services, by flow, stack and how their runs ended."""
    _jobs: dict[str, ShadowJob | None] = field(default_factory=dict, init=False)
    """By exchange, from its beginning until it is settled; None where no stack can shadow it."""
    _queue: asyncio.Queue[ShadowJob] = field(init=False)
    _order: ConversationOrder = field(default_factory=ConversationOrder, init=False)
    _workers: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _tailing: dict[str, ShadowJob] = field(default_factory=dict, init=False)
    _running: dict[str, ShadowJob] = field(default_factory=dict, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._queue = asyncio.Queue(self.settings().shadow.queue)
        if self.workers is not None:
            self.workers.on_told = self._told

    @property
    def lag(self) -> float:
        """Seconds for which the oldest shadow has been due that runs, or is with a worker."""
        due = min((job.due for job in self._running.values()), default=None)
        here = 0.0 if due is None else self.gate.monotonic() - due
        return here if self.workers is None else max(here, self.workers.lag)

    @property
    def waiting(self) -> int:
        """How many exchanges wait for their shadow."""
        return self._waiting_here + (0 if self.workers is None else self.workers.waiting)

    @property
    def _waiting_here(self) -> int:
        return self._queue.qsize() + len(self._order.waiting)

    def begin(self, context: ExchangeContext, stream: ServedStream, decision: Decision) -> None:
        """Open the account of an exchange, and note whether it is to have a shadow."""
        self.ledger.begin(context.exchange, context.spec.name)
        settings = decision.settings
        # A stack that stores its own history is of use only if it is sent whole conversations.
        if not shadowed(
            decision.flow, settings.rollout.salt, decision.conversation or context.exchange
        ):
            return
        candidate = self._candidate(context, stream.primary)
        if candidate is None:
            self._jobs[context.exchange] = None
            return
        job = ShadowJob(context, stream, candidate, settings.shadow.seconds)
        self._jobs[context.exchange] = job
        request = context.request
        conversation = context.spec.conversation(request.body, request.session)
        shadow = self.settings().shadow
        taped = candidate.powers.taped
        own = shadow.history == "own" and shadow.mode == "live" and self.model is not None
        if conversation is not None and taped and own:
            job.side = self.replies.of(candidate.name, context.spec.name)
        if conversation is not None and (job.side or decision.conversation or not taped):
            job.conversation = f"{context.spec.name}:{conversation}"
            self._order.expect(job)

    def started(self, exchange: str) -> None:
        """The stream is about to go out: in mode `tail` its shadow begins, if it may now."""
        job = self._jobs.get(exchange)
        if job is None or self.settings().shadow.mode != "tail":
            return
        busy = self._closed or self.budget.exhausted
        busy = busy or (job.stack.powers.taped and self.gate.used_up)
        busy = busy or not self._order.is_next(job) or job.lacks_history
        if len(self._tailing) < self._at_once and not busy:
            self._tailing[exchange] = job
            self._start(job)

    def evict(self, exchange: str) -> None:
        """Another stack serves: what is on the tape is no longer the shadow's; stop its run."""
        run = self.run_of(exchange)
        if run is not None:
            run.fence(_EVICTED)

    def run_of(self, exchange: str) -> Run | None:
        """Return the shadow's run of an exchange, if it has started."""
        job = self._jobs.get(exchange)
        return None if job is None else job.run

    def finished(self, context: ExchangeContext, stream: ServedStream, *, recorded: bool) -> None:
        """Settle an exchange that has ended, or let its shadow run.

        It gets none where its served runs were not `recorded`: there is nothing to compare with;
        it is dropped where too many wait.
        """
        exchange = context.exchange
        job = self._jobs.get(exchange)
        if job is None:
            reason = "cannot" if exchange in self._jobs else ""
            self._jobs.pop(exchange, None)
            self.ledger.settle(exchange, "not_sampled", reason)
        elif not recorded:
            self._settle(job, "failed", "harness")
        elif reason := self._cancelled(stream):
            self._settle(job, "cancelled", reason)
        elif reason := self._dropped(job):
            self._settle(job, "dropped", reason)
        elif self.workers is not None and self._suits_workers(job):
            context.with_workers = True
            context.tape.usage.release()
            self.workers.send(exchange, context.records)
        elif exchange in self._tailing or not self._order.wait(job):
            self._enqueue(job)

    async def aclose(self, seconds: float) -> None:
        """Finish what waits, for so many seconds; the rest is dropped."""
        self._closed = True
        if self.workers is not None:
            began = self.gate.monotonic()
            await self.workers.aclose(seconds)
            seconds = max(seconds - (self.gate.monotonic() - began), 0.0)
        stopped: list[Run] = []
        if workers := self._alive():
            _, late = await asyncio.wait(workers, timeout=seconds)
            stopped = [job.run for job in self._running.values() if job.run is not None]
            for worker in late:
                worker.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for job in tuple(self._order.waiting):
            self._settle(job, "dropped", "stopping")
        while not self._queue.empty():
            self._settle(self._queue.get_nowait(), "dropped", "stopping")
        await asyncio.gather(*(run.wait_stopped(_STOP_SECONDS) for run in stopped))

    def _candidate(self, context: ExchangeContext, primary: Stack) -> Stack | None:
        """Return the stack that can shadow the one that serves."""
        other = self.stacks.get("legacy" if primary.name == "graph" else "graph")
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
        live = self.settings().shadow.mode == "live"
        # A live shadow would be answered by the model where the tape breaks off.
        return "world_failed" if live and outcome and outcome.blame == "world" else ""

    def _dropped(self, job: ShadowJob) -> str:
        """Return why the shadow of a finished exchange may not run; "" where it may."""
        if job.context.tape.overflowed:
            return "size"
        if self._closed:
            return "stopping"
        if job.run is None and self.budget.exhausted:
            return "budget"
        if self.workers is not None and self._suits_workers(job):
            return "queue_full" if self.workers.full else ""
        full = self._waiting_here >= self._queue.maxsize and job.exchange not in self._tailing
        return "queue_full" if full else ""

    def _suits_workers(self, job: ShadowJob) -> bool:
        """Whether the records of an exchange are all that its shadow needs."""
        context = job.context
        return (
            self.settings().shadow.mode == "replay"
            and job.run is None
            and job.stack.powers.taped
            and job.stream.turn is None
            and not context.resumes
            and not context.debugged
        )

    def _told(self, told: ShadowTold) -> None:
        """Settle an exchange as its worker tells it, or as one that came back."""
        job = self._jobs.get(told.exchange)
        if job is None:
            return
        job.context.with_workers = told.captured
        if told.run is not None:
            job.context.records.append(told.run)
            job.context.accounts.append(Account(0, told.run.run_us, ()))
        self._settle(job, told.state, told.reason)

    def _settle(self, job: ShadowJob, state: LedgerState, reason: str = "") -> None:
        """Settle an exchange in the ledger; a run that is not compared is stopped."""
        self._jobs.pop(job.exchange, None)
        self._tailing.pop(job.exchange, None)
        compared = state == "compared"
        if job.run is not None:
            job.run.log_failure()
        if job.run is not None and not compared:
            job.run.fence(_EVICTED)
        try:
            if job.run is not None:
                job.run.session.fence()  # it holds nothing open
                self.budget.charge(job.context.tape, job.run, taped=job.stack.powers.taped)
                if not job.stack.powers.taped:
                    result = job.run.outcome.kind if job.run.outcome else "cancelled"
                    self.requests[job.context.spec.name, job.stack.name, result] += 1
                if compared:
                    self.record(job.context, job.run)
                    reason = self.judge(job.context.records)
        except Exception:
            log.exception("the shadow's record of %s failed", job.exchange)
            state, reason = "failed", "harness"
        self.ledger.settle(job.exchange, state, reason)
        if (following := self._order.remove(job)) is not None:
            self._enqueue(following)

    @property
    def _at_once(self) -> int:
        """How many may run side by side: one that computes here, or many that wait."""
        settings = self.settings().shadow
        if not all(stack.powers.taped for stack in self.stacks.values()):
            return settings.streams
        return settings.model_calls if settings.mode == "live" else 1

    def _enqueue(self, job: ShadowJob) -> None:
        job.due = self.gate.monotonic()
        try:
            self._queue.put_nowait(job)
        except asyncio.QueueFull:
            self._settle(job, "cancelled", "queue_full")
            return
        workers = self._workers = self._alive()
        if not self._closed and len(workers) < self._at_once:
            loop = asyncio.get_running_loop()
            workers.add(loop.create_task(self._work(), name="shadows", context=Context()))

    def _alive(self) -> set[asyncio.Task[None]]:
        return {worker for worker in self._workers if not worker.done()}

    async def _work(self) -> None:
        """Run what waits, then end: an idle router has no shadow task."""
        while not self._queue.empty():
            job = self._queue.get_nowait()
            self._running[job.exchange] = job
            try:
                await self._run(job)
            except asyncio.CancelledError:
                self._settle(job, "dropped", "stopping")
                raise
            except Exception:
                log.exception("shadow of %s failed", job.exchange)
                self._settle(job, "failed", "harness")
            finally:
                del self._running[job.exchange]

    async def _run(self, job: ShadowJob) -> None:
        if job.run is None and job.lacks_history:
            self._settle(job, "dropped", "no_history")
            return
        if job.run is None and self.budget.exhausted:
            self._settle(job, "dropped", "budget")
            return
        if job.run is None and job.stack.powers.taped and self.gate.used_up:
            self._settle(job, "dropped", "loop_busy")
            return
        if job.stack.powers.taped:  # a remote stack computes elsewhere
            await self.gate.wait()
        run = job.run or self._start(job)
        await finish(run, job.seconds)
        outcome = run.outcome
        if outcome is _SHED:
            self._settle(job, "dropped", "loop_busy")
            return
        turn, served = job.stream.turn, job.stream.run.outcome
        both = {one.kind for one in (served, outcome) if one is not None}
        if turn is not None and len(both) == 1 and both <= STORING:
            turn.store(job.stack.name)
        self._settle(job, "compared")

    def _start(self, job: ShadowJob) -> Run:
        context, name = job.context, f"shadow {job.stack.name}"
        model = self.model if self.settings().shadow.mode == "live" else None
        asked = model and resolving(model, context.request.body)
        session = shadow_session(job.stream.exchange, name, self.gate, asked, job.side)
        if job.context.debugged:
            session.trace.watch(session.stamp)
        request = RunRequest(
            spec=context.spec.sent_by(job.stack.name),
            stack=job.stack.name,
            request=context.request,
            role="shadow",
            incoming=context.incoming,
            exchange=context.exchange,
            total_limit=partial(_size_limit, job.stream),
        )
        # Not strict: what a candidate does wrong is to be seen whole, not cut off.
        job.run = run = job.stack.new_run(request, session, strict=False)
        if job.stack.powers.taped:  # another computes elsewhere
            session.on_used_up = partial(run.fence, _SHED)
        if not job.stack.powers.taped or model is not None:
            self.budget.count_request()
        run.start()
        return run


async def finish(run: Run, seconds: float) -> None:
    """Wait for the end of a shadow, or end it after so many seconds."""
    if not await run.wait_stopped(seconds):
        run.fence(_TIMED_OUT)
        await run.wait_stopped(_STOP_SECONDS)
    outcome = run.outcome
    if outcome is not None and outcome.kind == "paused":
        # Its stream ends as the served one did, which waits for a human, too.
        last = run.last_event(len(run.frames) - 1) if run.frames else None
        stamp = run.frames[-1].at if run.frames else run.began
        run.close(run.closing_frames(outcome, last, stamp))


def _size_limit(stream: ServedStream) -> int:
    served = stream.run.backpressure.produced if stream.runs else 0
    return candidate_limit(served, stream.exchange.tape.usage.limit)
