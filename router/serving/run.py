"""A run: one stack handling one request, in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, Final

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
from effects.loop_time import limit
from effects.tape import Signal, TapeSession, TooManyCalls
from effects.tasks import ANYTHING, CANCELLED
from router.serving.frames import Backpressure, Frame, FrameFlood, RanAway
from router.stack import FIELDS, Headers, IncomingRequest, RunOutcome, StackName

log = logging.getLogger(__name__)

RUNAWAY: Final = ErrorRecord("runaway")
_FAILURES: Final = frozenset({"failed", "truncated", "timeout"})
_MOST_LINES: Final = 12
"""Lines of a crash that are logged, the innermost first."""
_LIBRARIES: Final = "site-packages"
_DROPPED = Frame(0, b"", msgspec.Struct())
"""Stands in the place of a frame whose bytes were dropped."""


class RunRequest(msgspec.Struct, frozen=True):
    """What one run is to do: a flow on a stack, for a request, in a role.

    `exchange` is the id that remote stacks receive. `unsent_limit` is how many bytes of frames may
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
    pause this exchange resumes from. `complete`: the terminal frame is there. `reported`: the
    stream itself reports a failure, `failure`: with which code. `on_frames` is offered frames that
    came together; it returns whether it has taken them. `flood` detects a stack in a loop,
    `in_stretch`: between two results from the tape. `why` is what is logged of a failure beside its
    code: facts, never a text of the stack.
    """

    def __init__(
        self, request: RunRequest, session: TapeSession, *, in_stretch: bool = False
    ) -> None:
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
        self.complete = self.reported = False
        self.failure = self.why = ""
        self.headers: Headers = ()
        self.began, self.ended = session.touched, 0
        self.on_frames: Callable[[], bool] | None = None
        whole = self.spec.dialect.framing != "text"
        self.flood = FrameFlood(in_stretch=in_stretch, whole=whole)
        self._task: asyncio.Task[None] | None = None
        self._failure_logged = False

    def start(self) -> None:
        """Start the flow in its own task, with a context of its own."""
        self._task = asyncio.get_running_loop().create_task(
            self.session.steps(self._run),
            name=f"{self.role} {self.stack}",
            context=self.session.context(),
        )
        self._task.add_done_callback(self._drop_task)

    def _drop_task(self, _: asyncio.Task[None]) -> None:
        # A cycle otherwise: a cancelled task holds its error, that the frames, and they this run.
        self._task = None

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
        if self._task is not None and not self._task.done():
            with suppress(TimeoutError):
                async with limit(seconds):
                    await asyncio.wait({self._task})
        return self.stopped

    async def wait_finished(self, seconds: float) -> bool:
        """Wait as `wait_stopped`, and once more as long as writes then under way may take."""
        stopped = await self.wait_stopped(seconds)
        return stopped or await self.wait_stopped(self.session.write_seconds_left)

    def text_of(self, frame: Frame) -> str | None:
        """Return the text a frame carries, if any."""
        return self.spec.text_of(frame.event)

    def last_event(self, position: int) -> Event:
        """Return the last event up to a frame that was sent; one of no flow where it is unknown."""
        return self.frames[position].event

    def closing_frames(self, outcome: RunOutcome, last: Event | None, at: int) -> list[Frame]:
        """Return the frames that end a stream whose stack has not, after its `last` event."""
        spec, options = self.spec, self.request.request.options
        if outcome.kind == "paused":
            events = spec.pausing.suspended(options, last) if spec.pausing else ()
        else:
            code = (outcome.blame == "world" and outcome.code) or "internal"
            events = spec.failure(options, code, last)
        return [Frame(at, spec.encode(event), event) for event in events]

    def log_failure(self, then: str = "") -> None:
        """Log once that it failed, if it has; `then` is what followed for the client.

        A refusal is logged where `why` is set: that of a stack behind an address, which may be a
        wrong path or a proxy's. Its code is that stack's text, and left out.
        """
        outcome, fault = self.outcome, self.session.fault
        if outcome is None or self._failure_logged:
            return
        refused = outcome.kind == "refused" and bool(self.why)
        if outcome.kind not in _FAILURES and not refused:
            return
        self._failure_logged = True
        error = outcome.error or ErrorRecord("")
        facts = {
            "exchange": self.request.exchange,
            "flow": self.spec.name,
            "stack": self.stack,
            "role": self.role,
            "outcome": outcome.kind,
            "reason": "" if refused else error.code,
            "status": error.status,
            "blame": outcome.blame if outcome.blame != "none" else "",
            "kind": error.kind if error.kind != self.why else "",
            "why": self.why,
            "fault": dict(fault.data) if fault and fault.code == error.code else {},
            "frames": len(self.frames),
            "then": then,
        }
        level, event = (logging.INFO, "refused") if refused else (logging.WARNING, "failed")
        known = {name: fact for name, fact in facts.items() if fact or name == "frames"}
        log.log(level, "run %s", event, extra={FIELDS: known})

    def close(self, frames: Sequence[Frame]) -> None:
        """End the stream in frames that its stack has not produced."""
        self.frames += frames
        if frames:
            self.complete = self.spec.name_of(frames[-1].event) in self.spec.grammar.terminal

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
            well = self.complete and not self.reported
            self.finish(RunOutcome("completed") if well else self._unfinished())

    @abstractmethod
    async def _produce(self) -> None:
        """Produce frames to the end: pass each to `_accept`, and heed `backpressure`."""

    def _accept(self, frames: Sequence[Frame], size: int, *, last: bool) -> None:
        """Take frames that came together, of so many bytes; with the `last` the stream ends."""
        self.session.touch()
        if not self.session.fenced:
            self.backpressure.add(size)
            prompted, position = not self.session.unprompted, len(self.frames)
            self.session.add_frames(len(frames), size)
            self.frames += frames
            self.complete = last
            if not last and self.role != "shadow":
                age, position = self.session.touched - self.began, position - self.sent
                self.flood.add(frames, position, age, prompted=prompted)
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
        self.why = "it cancelled itself"
        return RunOutcome("failed", "stack", ErrorRecord("crash", "CancelledError"))

    def _unfinished(self) -> RunOutcome:
        if not self.complete:
            return RunOutcome("truncated", "stack", ErrorRecord("truncated"))
        fault = self.session.fault
        code = self.failure or (fault.code if fault else "reported")
        return RunOutcome("failed", "world", ErrorRecord(code))

    def _failed(self, error: BaseException) -> RunOutcome:
        match error:
            case Refused() if not self.frames:
                record = ErrorRecord(error.code, status=error.status, detail=error.detail)
                return RunOutcome("refused", error=record, refusal=error)
            case Paused():
                return RunOutcome("paused")
            case TapeCut() | Fenced():
                return RunOutcome("cancelled")
            case EffectFailed():
                return RunOutcome("failed", "world", ErrorRecord(error.fault.code))
            case TapeMiss():
                record = ErrorRecord(error.code, "TapeMiss")
            case RanAway() | TooManyCalls():
                record, self.why = RUNAWAY, str(error)
            case GrammarViolated():
                record, self.why = ErrorRecord("grammar", error.got), str(error)
            case _:
                lines = crash_lines(error)
                record = ErrorRecord("crash", type(error).__name__, where=lines[0] if lines else "")
                # The exception's text may quote what a user wrote: it is for developers alone.
                self.why = f"at {' < '.join(lines[:_MOST_LINES])}"
                level = logging.ERROR if self.role == "replay" else logging.DEBUG
                log.log(level, "%s %s crashed", self.stack, self.spec.name, exc_info=error)
        return RunOutcome("failed", "stack", record)


def crash_lines(error: BaseException) -> list[str]:
    """Return where a stack crashed, as `package/module.py:line`, and from where it was called.

    Lines of libraries are left out, unless there are no others: what a library refuses was called
    by the first.
    """
    lines = [(frame.f_code.co_filename, frame, at) for frame, at in walk_tb(error.__traceback__)]
    own = [line for line in lines if _LIBRARIES not in line[0]]
    return [_line(Path(file), frame, at) for file, frame, at in reversed(own or lines)]


def _line(file: Path, frame: FrameType, at: int) -> str:
    depth = str(frame.f_globals.get("__name__", "")).count(".") + 1 + (file.name == "__init__.py")
    return f"{'/'.join(file.parts[-depth:])}:{at}"
