"""A run: one stack handling one request, in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from contract.errors import (
    EffectFailed,
    Fenced,
    GrammarViolated,
    Paused,
    Refused,
    TapeCut,
    TapeMiss,
)
from contract.flow import Event, FlowSpec, Request
from contract.records import ErrorRecord, Role
from effects.tape import Signal, TapeSession, TooManyCalls
from effects.tasks import ANYTHING, CANCELLED
from router.serving.backpressure import Backpressure, RanAway
from router.stack import Headers, IncomingRequest, RunOutcome, StackName

log = logging.getLogger(__name__)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """An event, its bytes on the wire, and the stamp at which it was produced."""

    at: int
    data: bytes
    event: Event


_DROPPED = Frame(0, b"", msgspec.Struct())
"""Stands in the place of a frame whose bytes were dropped."""


class RunRequest(msgspec.Struct, frozen=True):
    """What one run is to do: a flow on a stack, for a request, in a role.

    `exchange` is the id that remote stacks are told. `unsent_limit` is how many bytes of frames may
    wait to be taken, None where they are not taken one by one; `total_limit` returns how many there
    may be in all.
    """

    spec: FlowSpec
    stack: StackName
    request: Request[Any, Any]
    role: Role
    incoming: IncomingRequest | None = None
    exchange: str = ""
    unsent_limit: int | None = None
    total_limit: Callable[[], int] | None = None


class Run(ABC):
    """Runs a stack to its end and keeps its frames; cancelled, never closed from outside.

    Subclasses produce the frames: from a flow in this process, or from a remote stream.

    `headers` are the stack's own for the response, known with its first frame. `began` and `ended`
    are stamps. `sent` is how many frames the client had when this run took over, `skipped` how many
    of its own the client did not get because of that, `before_pause` how many were sent before the
    pause this exchange resumes from. `reported`: the stream itself reports a failure. `on_frames`
    is offered frames that came together; it returns whether it has taken them.
    """

    def __init__(self, request: RunRequest, session: TapeSession) -> None:
        self.request = request
        self.spec = request.spec
        self.role = request.role
        self.stack = request.stack
        self.session = session
        self.frames: list[Frame] = []
        self.changed = Signal()
        self.backpressure = Backpressure(session, request.unsent_limit, request.total_limit)
        self.outcome: RunOutcome | None = None
        self.sent = self.skipped = self.before_pause = 0
        self.dropped = 0
        self.reported = False
        self.headers: Headers = ()
        self.began, self.ended = session.touched, 0
        self.on_frames: Callable[[], bool] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the flow in its own task, with a context of its own."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"{self.role} {self.stack}", context=self.session.context()
        )

    def finish(self, outcome: RunOutcome) -> None:
        """Set the outcome, unless there is one already."""
        if self.outcome is None:
            self.outcome = outcome
            self.ended = self.session.stamp()
            self.changed.wake()

    def fence(self, outcome: RunOutcome) -> None:
        """Refuse its further calls, set its outcome and cancel its task, without waiting."""
        self.session.fence()
        self.finish(outcome)
        self._cancel()

    def drop(self, position: int) -> None:
        """Drop the bytes of the frames before `position`: the client has them."""
        for index in range(self.dropped, position):
            self.frames[index] = _DROPPED
        self.dropped = max(self.dropped, position)

    @property
    def stopped(self) -> bool:
        """Whether its task has ended, or was never started."""
        return self._task is None or self._task.done()

    async def wait_stopped(self, seconds: float) -> bool:
        """Wait until its task has ended, at most so long; returns whether it has."""
        if self._task is None or self._task.done():
            return True
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        return bool(done)

    @property
    def complete(self) -> bool:
        """Whether the terminal frame has been produced."""
        return bool(self.frames) and self.is_terminal(self.frames[-1])

    def is_terminal(self, frame: Frame) -> bool:
        """Whether a frame ends the stream."""
        return self.spec.name_of(frame.event) in self.spec.grammar.terminal

    def text_of(self, frame: Frame) -> str | None:
        """Return the text a frame carries, if any."""
        return self.spec.text_of(frame.event)

    def last_event(self, frame: Frame) -> Event:
        """Return the event of a sent frame, or an event of no flow where that is unknown."""
        return frame.event

    async def _run(self) -> None:
        # Whatever happens becomes an outcome: nothing awaits this task.
        try:
            await self._produce()
        except CANCELLED:
            self.finish(self._cancelled())
            raise
        except ANYTHING as error:
            self.finish(self._failed(error))
        else:
            self.finish(self._returned())

    @abstractmethod
    async def _produce(self) -> None:
        """Produce frames to the end: pass each to `_accept`, and heed `backpressure`."""

    def _accept(self, event: Event, data: bytes) -> None:
        session = self.session
        session.touch()
        if not session.fenced:
            size = len(data)
            self.backpressure.add(size)
            self.frames.append(Frame(self.session.stamp(), data, event))
            session.add_frame(size)
            self.changed.wake()

    def _accept_all(self, frames: Sequence[Frame]) -> None:
        """Accept frames that came together."""
        self.session.touch()
        if not self.session.fenced:
            size = sum([len(frame.data) for frame in frames])
            self.backpressure.add(size)
            self.session.add_frame(size)
            self.frames += frames
            if self.on_frames is None or not self.on_frames():
                self.changed.wake()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _cancelled(self) -> RunOutcome:
        task = asyncio.current_task()
        if self.session.fenced or task is None or task.cancelling():
            return RunOutcome("cancelled")
        # Not requested: a task inside the stack was cancelled, and took the stack with it.
        log.error("%s %s cancelled itself", self.stack, self.spec.name)
        return RunOutcome("failed", "stack", ErrorRecord("crash", "CancelledError"))

    def _returned(self) -> RunOutcome:
        if not self.complete:
            return RunOutcome("truncated", "stack", ErrorRecord("truncated"))
        if self.reported:
            fault = self.session.fault
            return RunOutcome("failed", "world", ErrorRecord(fault.code if fault else "reported"))
        return RunOutcome("completed")

    def _failed(self, error: BaseException) -> RunOutcome:
        match error:
            case Refused() if not self.frames:
                return RunOutcome("refused", error=ErrorRecord(error.code), refusal=error)
            case Paused():
                return RunOutcome("paused")
            case TapeCut() | Fenced():
                return RunOutcome("cancelled")
            case EffectFailed():
                return RunOutcome("failed", "world", ErrorRecord(error.fault.code))
            case TapeMiss():
                record = ErrorRecord(error.code, "TapeMiss")
            case RanAway() | TooManyCalls():
                log.error("%s %s: %s", self.stack, self.spec.name, error)
                record = ErrorRecord("runaway")
            case GrammarViolated():
                log.error("%s %s: %s", self.stack, self.spec.name, error)
                record = ErrorRecord("grammar", error.got)
            case _:
                log.error("%s %s crashed", self.stack, self.spec.name, exc_info=error)
                record = ErrorRecord("crash", type(error).__name__)
        return RunOutcome("failed", "stack", record)
