"""Drives a stack: one task for a whole run, which produces an event when a frame is asked for."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec

from cutover.errors import CutoverError, Failed, Outcome, StackFailed
from cutover.flow import Event, Frame, Framing, Request, Stack
from cutover.tape import Play, Run
from cutover.tape.transport import status_of

log = logging.getLogger(__name__)

STALL_SECONDS = 10.0
"""How long a stack may owe an event while it waits for nothing on the tape."""
CLOSING_SECONDS = 30.0
"""What a stack may take to close before it is left behind."""
STREAM_BYTES = 64 << 20
"""Bytes of one run's frames: a stack in a loop is stopped. Cumulative text counts each time."""
FRAME_BYTES = 256
"""What a frame counts for beside its bytes: events without content are a loop, too."""
_STRIKES = 4
_WORLD = frozenset({429, *range(500, 600)})
"""Statuses of a provider that is to blame itself."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stack that may serve: its name and what it runs.

    A `remote` one is a service: it keeps time limits of its own. A shadow asks it only where it is
    `shadow_safe`: what it does without the tape, it does once more.
    """

    name: str
    stack: Stack
    remote: bool = False
    shadow_safe: bool = True


class Runaway(StackFailed):
    """A stack's stream outgrew its limit."""

    def __init__(self) -> None:
        super().__init__("runaway", detail=f"more than {STREAM_BYTES} bytes")


class Stopping(StackFailed):
    """The server stops, and the stream has had its time."""

    def __init__(self) -> None:
        super().__init__("server_stopped", "world")


class Exited(CutoverError):
    """A stack raised `SystemExit`, or cancelled itself."""


def _model_failed(play: Play) -> bool:
    """Whether a call was for a model, and its provider did not answer it."""
    entry = play.entry
    if not entry.call.model:
        return False
    head = next((item for _, item in entry.items if isinstance(item, bytes)), b"")
    return entry.end == "failed" or (bool(head) and status_of(head) in _WORLD)


@dataclass(slots=True, eq=False)
class Driver:
    """One run of a stack, pulled event by event; nothing is produced that was not asked for.

    The task is the stack's own: contexts and time limits that it keeps across its events hold, and
    one that swallows its cancellation holds up nothing but itself.
    """

    candidate: Candidate
    run: Run
    request: Request[object, object]
    framer: Framing
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    """What the run has produced: the stamp of the newest item it had read, and the frame."""
    size: int = 0
    began: int = 0
    """When it began, in microseconds of its exchange."""
    patient: bool = False
    """Whether the stack may take its time: behind its terminal event it owes nothing."""
    _now: int = 0
    """Stamp of the newest item that had been read for the newest event."""
    _read: deque[Frame] = field(default_factory=deque)
    """Frames of the newest event that are still to be taken."""
    _task: asyncio.Task[None] | None = None
    _next: asyncio.Future[Event | None] | None = None
    """The event that is waited for."""
    _asked: asyncio.Future[None] | None = None
    """What the stack waits for until one is."""
    _watch: asyncio.TimerHandle | None = None
    _strikes: int = 0
    _stopping: bool = False
    _over: bool = False
    """Whether the stack's last event, or what it raised, has been delivered."""
    _cancelled: bool = False

    async def pull(self) -> Frame | None:
        """Return the next frame, None behind the last; raises what the stack raises.

        Raises `StackFailed` where the stack owes one too long, and the loop has turned in time
        meanwhile: a process that stood still, or a busy one, is not the stack's fault.
        """
        if self._stopping:
            raise Stopping
        while not self._read:
            if (event := await self._pull_event()) is None:
                return None
            self._read.extend(
                [self.framer.frame(event)] if self.patient else self.framer.read(event)
            )
        frame = self._read.popleft()
        self._keep(frame.raw)
        return frame

    async def _pull_event(self) -> Event | None:
        if self._over:
            return None
        loop = self.run.exchange.loop
        self._next, self._strikes = loop.create_future(), 0
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)
        if self._task is None:
            with self.run.current():
                self._task = loop.create_task(self._drive())
            self._watch_from(loop.time())
        return await self._next

    def _keep(self, frame: bytes) -> None:
        self.frames.append((self._now, frame))
        self.size += len(frame)
        if self.size + len(self.frames) * FRAME_BYTES > STREAM_BYTES:
            raise Runaway

    def reported(self, frame: Frame) -> Failed | None:
        """Return the failure that a frame tells the client of."""
        return frame.failed if frame.failed is None else self._believed(frame.failed)

    @property
    def ending(self) -> Outcome:
        """How the stream has ended, behind the stack's last event."""
        said = self.framer.ending
        return self._believed(said) if isinstance(said, Failed) else said

    def _believed(self, said: Failed) -> Failed:
        """Return a failure with its blame: a service's model, where the tape shows it."""
        if not self.candidate.remote or any(map(_model_failed, self.run.plays)):
            return said
        return msgspec.structs.replace(said, blame="stack") if said.blame == "world" else said

    def stop(self) -> None:
        """Have the next event be `Stopping`, and the one that is waited for."""
        self._stopping = True
        if self._next is not None and not self._next.done():
            self._next.set_exception(Stopping())

    def cancel(self) -> asyncio.Task[None] | None:
        """Cancel the stack; return a task that waits until it has closed, or `CLOSING_SECONDS`."""
        self._stop_watching()
        if self._task is None or self._task.done():
            return None
        self._cancelled = True
        self._task.cancel()
        return asyncio.get_running_loop().create_task(self._closed(self._task))

    async def _drive(self) -> None:
        events: AsyncIterator[Event] | None = None
        try:
            events = self.candidate.stack(self.request)
            await self._wanted()
            async for event in events:
                if self._cancelled:
                    return  # the stack swallowed its cancellation
                self._deliver(event)
                await self._wanted()
            self._deliver(None)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._fail(Exited("the stack cancelled itself"), error)
        except Exception as error:  # noqa: BLE001 - raised where the event was asked for
            self._fail(error)
        except BaseException as error:
            self._fail(Exited(f"the stack raised {error!r}"), error)
            if not isinstance(error, SystemExit):
                raise
        finally:
            self._stop_watching()
            close = getattr(events, "aclose", None)
            if close is not None:
                with contextlib.suppress(SystemExit):
                    await close()

    async def _wanted(self) -> None:
        if self._next is None or self._next.done():
            self._asked = self.run.exchange.loop.create_future()
            await self._asked

    def _deliver(self, event: Event | None) -> None:
        self._now, self._over = self.run.now, event is None
        if self._next is not None and not self._next.done():
            self._next.set_result(event)

    def _fail(self, error: Exception, cause: BaseException | None = None) -> None:
        self.run.keep_reads()
        self._over = True
        if cause is not None:
            error.__cause__ = cause
        if self._next is not None and not self._next.done():
            self._next.set_exception(error)
        else:
            log.error("stack=%s failed when it was no longer read", self.candidate.name)

    def _watch_from(self, now: float) -> None:
        due = now + STALL_SECONDS / _STRIKES
        self._watch = self.run.exchange.loop.call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        now = self.run.exchange.loop.time()
        late = now - due > STALL_SECONDS / _STRIKES / 2
        owes = self._next is not None and not self._next.done()
        waits = self.run.waiting or now < self.run.not_before
        idle = late or waits or not owes or self.patient or self.candidate.remote
        self._strikes = 0 if idle else self._strikes + 1
        if self._strikes < _STRIKES:
            self._watch_from(now)
        elif self._next is not None:
            detail = f"no event for {STALL_SECONDS:g} s"
            self._next.set_exception(StackFailed("stalled", detail=detail))

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    async def _closed(self, task: asyncio.Task[None]) -> None:
        for _ in range(_STRIKES):
            done, _left = await asyncio.wait({task}, timeout=CLOSING_SECONDS / _STRIKES)
            if done:
                break
            task.cancel()  # the stack swallowed the one before
        else:
            log.warning("stack=%s did not close in %g s", self.candidate.name, CLOSING_SECONDS)
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("stack=%s failed while it closed: %r", self.candidate.name, error)
