"""Terms of shadows, as they are now: how many may run side by side, and whom they ask."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from contract.records import ErrorRecord
from contract.wire.sse import is_comment
from effects.model import resolving
from router.serving.failure import closing_frames
from router.serving.run import RunOutcome
from router.shadow.sessions import shadow_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.ports import Model
    from effects.stores.shadow_replies import ShadowConversation
    from router.parts import Parts
    from router.serving.run import Run
    from router.serving.stream import Serving
    from router.shadow.budget import ShadowBudget
    from router.shadow.idle_gate import IdleGate
    from router.shadow.ledger import Ledger, State
    from router.stack import Stack


@dataclass(frozen=True, slots=True)
class ShadowTerms:
    """What a router's parts and the settings in force say of its shadows."""

    parts: Parts

    @property
    def at_once(self) -> int:
        """How many may run side by side: one that computes here, or many that wait."""
        settings = self.parts.settings().shadow
        if not all(stack.powers.taped for stack in self.parts.stacks.values()):
            return settings.streams
        return settings.model_calls if settings.mode == "live" else 1

    @property
    def model(self) -> Model | None:
        """Whom they ask; None where they play what was answered."""
        live = self.parts.settings().shadow.mode == "live"
        return self.parts.shadow_model if live else None

    def side(self, stack: Stack) -> ShadowConversation | None:
        """Open a stack's own side of a conversation; None where it is told what was served."""
        own = self.parts.settings().shadow.history == "own"
        free = own and self.model is not None and stack.powers.taped
        return self.parts.own_replies.of(stack.name) if free else None


class Turn(Protocol):
    """What waits for its turn in a conversation; "" is none, and never waits."""

    @property
    def exchange(self) -> str:
        """The exchange it belongs to."""
        ...

    @property
    def conversation(self) -> str:
        """The conversation it belongs to."""
        ...


T = TypeVar("T", bound=Turn)


class InTurn(Generic[T]):
    """Who comes when in each conversation; those that were opened first come first."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[str]] = {}
        self._waiting: dict[str, T] = {}

    @property
    def waiting(self) -> tuple[T, ...]:
        """Those whose turn has not come."""
        return tuple(self._waiting.values())

    def expect(self, turn: T) -> None:
        """Put one at the end of its conversation's line: it has begun, and may run later."""
        if turn.conversation:
            self._lines.setdefault(turn.conversation, deque()).append(turn.exchange)

    def wait(self, turn: T) -> bool:
        """Let one that could run wait if others come before it; False where none does."""
        line = self._lines.get(turn.conversation)
        if not line or turn.exchange not in line or line[0] == turn.exchange:
            return False
        self._waiting[turn.exchange] = turn
        return True

    def leave(self, turn: T) -> T | None:
        """Take one out of its line, wherever it stood; gives the one whose turn has come."""
        self._waiting.pop(turn.exchange, None)
        line = self._lines.get(turn.conversation)
        if line is None:
            return None
        if turn.exchange in line:
            line.remove(turn.exchange)
        if not line:
            del self._lines[turn.conversation]
            return None
        return self._waiting.pop(line[0], None)


log = logging.getLogger(__name__)

_HUNG = RunOutcome("timeout", "stack", ErrorRecord("shadow_timeout"))
_TIMES = 4
"""How much more than was served a candidate may produce; past that it has run away."""
_EVICTED = RunOutcome("cancelled", "nobody", ErrorRecord("evicted"))


@dataclass(slots=True)
class Job:
    """One exchange to be shadowed, and who is told of the finished run (None: there is none).

    `due` is the moment its exchange had ended, in seconds of the router's clock. `side` is that of
    a candidate with a `conversation` of its own.
    """

    exchange: str
    serving: Serving
    stack: Stack
    seconds: float
    done: Callable[[Run | None], None]
    drive: Run | None = None
    due: float = 0.0
    conversation: str = ""
    side: ShadowConversation | None = None

    def evict(self) -> None:
        """Stop the run, if there is one, without waiting for it."""
        if self.drive is not None:
            self.drive.dismiss(_EVICTED)


class Shadows:
    """Runs shadows, some side by side; settles each in the ledger exactly once."""

    def __init__(
        self,
        ledger: Ledger,
        size: int,
        courtesy: IdleGate,
        budget: ShadowBudget,
        terms: ShadowTerms,
    ) -> None:
        self._ledger = ledger
        self._budget = budget
        self._courtesy = courtesy
        self._queue: asyncio.Queue[Job] = asyncio.Queue(size)
        self._terms = terms
        self._in_turn: InTurn[Job] = InTurn()
        self._workers: set[asyncio.Task[None]] = set()
        self._tailing: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._closed = False

    @property
    def lag(self) -> float:
        """Seconds the oldest shadow that runs has been due; those that wait are younger."""
        due = min((job.due for job in self._running.values()), default=None)
        return 0.0 if due is None else self._courtesy.monotonic() - due

    @property
    def waiting(self) -> int:
        """How many exchanges wait for their shadow."""
        return self._queue.qsize() + len(self._in_turn.waiting)

    def expect(self, job: Job, conversation: str | None) -> None:
        """An exchange begins; in a conversation of its own, its shadow comes after those before."""
        if conversation is not None:
            job.side = self._terms.side(job.stack)
        if job.side is not None and conversation is not None:
            job.conversation = conversation
            self._in_turn.expect(job)

    def tail(self, job: Job) -> bool:
        """Start a shadow beside the serving run; False when that may not be now."""
        if len(self._tailing) >= self._terms.at_once or self._closed or self._budget.exhausted:
            return False
        self._tailing[job.exchange] = job
        self._start(job)
        return True

    def offer(self, job: Job) -> None:
        """Take a finished exchange; drops it when too many wait."""
        tape = job.serving.exchange.tape
        if tape.overflowed:
            self._settle(job, "dropped", "size")
        elif self._closed:
            self._settle(job, "dropped", "stopping")
        elif job.exchange in self._tailing:
            self._enqueue(job)
        elif self.waiting >= self._queue.maxsize:
            self._settle(job, "dropped", "queue_full")
        elif not self._in_turn.wait(job):
            self._enqueue(job)

    def cancel(self, job: Job, reason: str) -> None:
        """Give an exchange's shadow up, running or not."""
        self._settle(job, "cancelled", reason)

    def fail(self, job: Job) -> None:
        """Give it up because of a fault of our own."""
        self._settle(job, "failed", "harness")

    async def aclose(self, seconds: float) -> None:
        """Finish what waits, for so long; the rest is dropped."""
        self._closed = True
        if workers := self._alive():
            _, late = await asyncio.wait(workers, timeout=seconds)
            for worker in late:
                worker.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for job in self._in_turn.waiting:
            self._settle(job, "dropped", "stopping")
        while not self._queue.empty():
            self._settle(self._queue.get_nowait(), "dropped", "stopping")

    def _enqueue(self, job: Job) -> None:
        job.due = self._courtesy.monotonic()
        try:
            self._queue.put_nowait(job)
        except asyncio.QueueFull:
            self.cancel(job, "queue_full")
            return
        workers = self._workers = self._alive()
        if not self._closed and len(workers) < self._terms.at_once:
            workers.add(
                asyncio.get_running_loop().create_task(
                    self._work(), name="shadows", context=Context()
                )
            )

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
                self.fail(job)
            finally:
                del self._running[job.exchange]

    async def _run(self, job: Job) -> None:
        if job.drive is None and self._budget.exhausted:
            self._settle(job, "dropped", "budget")
            return
        if job.stack.powers.taped:  # one behind an address computes elsewhere
            await self._courtesy.stand_back()
        drive = job.drive or self._start(job)
        if not await drive.gone(job.seconds):
            drive.dismiss(_HUNG)
            await drive.gone(1.0)
        _suspend(drive)
        self._settle(job, "compared", "equal" if _equal(job) else "different")

    def _start(self, job: Job) -> Run:
        exchange, plan = job.serving.exchange, job.serving.plan
        model = self._terms.model
        asked = model and resolving(model, plan.request.body)
        run = shadow_run(exchange, f"shadow {job.stack.name}", self._courtesy, asked, job.side)
        order = plan.order(job.stack, "shadow", most=partial(_allowed, job.serving))
        # Not strict: what a candidate does wrong is to be seen whole, not cut off.
        job.drive = drive = job.stack.drive(order, run, run.stamp, strict=False)
        drive.start()
        return drive

    def _settle(self, job: Job, state: State, reason: str) -> None:
        """Close the books of one exchange; a run that is not compared is sent home."""
        self._tailing.pop(job.exchange, None)
        compared = state == "compared"
        if not compared:
            job.evict()
        try:
            if job.drive is not None:
                job.drive.run.fence()  # it holds nothing open
                self._budget.charge(job.serving, job.drive)
            job.done(job.drive if compared else None)
        except Exception:
            log.exception("the records of %s failed", job.exchange)
            state, reason = "failed", "harness"
        self._ledger.settle(job.exchange, state, reason)
        if (following := self._in_turn.leave(job)) is not None:
            self._enqueue(following)


def _suspend(drive: Run) -> None:
    """End the stream of a candidate that waits for a human as that of the served stack ended."""
    if drive.ending is None or drive.ending.outcome != "paused":
        return
    spec, last = drive.spec, drive.last_event(drive.frames[-1]) if drive.frames else None
    stamp = drive.frames[-1].at if drive.frames else drive.began
    drive.frames += closing_frames(spec, drive.order.request, drive.ending, last, stamp)


def _allowed(serving: Serving) -> int:
    """Tell how many bytes of frames a candidate may produce."""
    served = serving.drive.pace.made if serving.drives else 0
    return max(_TIMES * served, serving.exchange.tape.usage.limit)


def _equal(job: Job) -> bool:
    """Whether bytes and calls are the same; what differs is found out offline."""
    served, shadow = job.serving.drive, job.drive
    if shadow is None or served.ending is None or shadow.ending is None:
        return False
    return (
        _same(served, shadow)
        and served.ending.outcome == shadow.ending.outcome
        and (not job.stack.powers.taped or _played_all(job, shadow))
    )


def _played_all(job: Job, shadow: Run) -> bool:
    entries = {play.entry.seq for play in shadow.run.plays if play.entry is not None}
    exact = all(play.how == "exact" for play in shadow.run.plays)
    return exact and len(entries) == len(job.serving.exchange.tape.entries)


def _same(served: Run, shadow: Run) -> bool:
    """Whether both said the same, but for comments: those are only looked for where it differs."""
    one, other = ([frame.data for frame in drive.frames] for drive in (served, shadow))
    return one == other or _words(one) == _words(other)


def _words(frames: list[bytes]) -> list[bytes]:
    return [data for data in frames if not is_comment(data)]
