"""Driving a stack: one stack handling one request, in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

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
from contract.records import ErrorRecord
from effects.tape import Signal, TooManyCalls
from effects.tasks import ANYTHING, CANCELLED
from router.serving.backpressure import Pace, RanAway

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from contract.flow import Event, FlowSpec, Request
    from contract.records import Outcome, Role
    from effects.tape import TapeSession
    from router.stack import Stack

log = logging.getLogger(__name__)

Headers = tuple[tuple[bytes, bytes], ...]
"""Of a message over HTTP: names in lower case."""

Blame = Literal["nobody", "stack", "world"]
"""Whose fault an ending is: only the stack's own failures are worth another stack's try."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """An event, its bytes on the wire, and the stamp at which it was produced."""

    at: int
    data: bytes
    event: Event


_GONE = Frame(0, b"", msgspec.Struct())
"""Stands where a frame was that has been let go of."""


class RunOutcome(msgspec.Struct, frozen=True):
    """How a drive ended."""

    outcome: Outcome
    blame: Blame = "nobody"
    error: ErrorRecord | None = None
    refusal: Refused | None = None


class Incoming(msgspec.Struct, frozen=True):
    """A request as it came over HTTP: its body, its headers in lower case, its query.

    `peer` is the address it came from, `proxies` are those whose word is believed of who asked.
    """

    body: bytes
    headers: Headers = ()
    query: bytes = b""
    peer: str = ""
    scheme: str = "http"
    proxies: tuple[str, ...] = ()


class Order(msgspec.Struct, frozen=True):
    """What is to be driven: a flow of a stack, for a request, in a role.

    `incoming` is the request as it came, for stacks that are asked over the wire, and `exchange`
    the id they are told. `unsent` is how many bytes of frames may wait for whoever takes them, None
    where nobody does; `most` tells how many there may be in all.
    """

    spec: FlowSpec
    stack: Stack
    request: Request[Any, Any]
    role: Role
    incoming: Incoming | None = None
    exchange: str = ""
    unsent: int | None = None
    most: Callable[[], int] | None = None


class Run(ABC):
    """Drives a stack to its end and keeps its frames; never closed from outside, only cancelled.

    What produces the frames is the subclass's: a flow in this process, or a stream from another.
    `headers` are what the stack wants said in the head of the response, known with its first frame.
    `passing`, where somebody has set it, is told of frames that came together first: where it gives
    True it has taken them, and nobody is woken. `began` and `ended` are stamps; `sent` is how many
    frames the client had when it took over, and `skipped` how many of its own the client did not
    get because of them; `old` are those that were said before a pause.
    """

    def __init__(self, order: Order, run: TapeSession, stamp: Callable[[], int]) -> None:
        self.order = order
        self.run = run
        self.frames: list[Frame] = []
        self.changed = Signal()
        self.pace = Pace(run, order.unsent, order.most)
        self.ending: RunOutcome | None = None
        self.sent = self.skipped = self.old = 0
        self.dropped = 0
        self.reported = False
        self.headers: Headers = ()
        self.began, self.ended = run.touched, 0
        self.passing: Callable[[], bool] | None = None
        self._stamp = stamp
        self._task: asyncio.Task[None] | None = None

    @property
    def spec(self) -> FlowSpec:
        """The flow that is driven."""
        return self.order.spec

    @property
    def role(self) -> Role:
        """What the run is for."""
        return self.order.role

    @property
    def stack(self) -> str:
        """Name of the stack."""
        return self.order.stack.name

    def start(self) -> None:
        """Start the flow in its own task, with a context of its own."""
        self._task = asyncio.get_running_loop().create_task(
            self._drive(), name=f"{self.role} {self.stack}", context=self.run.context()
        )

    def finish(self, ending: RunOutcome) -> None:
        """Set how it ended; the first word counts."""
        if self.ending is None:
            self.ending = ending
            self.ended = self._stamp()
            self.changed.wake()

    def dismiss(self, ending: RunOutcome) -> None:
        """Fence the run, end it as said and cancel its task, without waiting for it."""
        self.run.fence()
        self.finish(ending)
        self._stop()

    def _stop(self) -> None:
        """Cancel the task, without waiting for it."""
        if self._task is not None:
            self._task.cancel()

    def drop(self, position: int) -> None:
        """Let go of the frames before `position`: the client has them, and they grow too heavy."""
        for index in range(self.dropped, position):
            self.frames[index] = _GONE
        self.dropped = max(self.dropped, position)

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._task is None or self._task.done()

    async def gone(self, seconds: float) -> bool:
        """Wait until the task has ended, at most so long; gives whether it has."""
        if self._task is None or self._task.done():
            return True
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        return bool(done)

    @property
    def complete(self) -> bool:
        """Whether the terminal frame has been produced."""
        return bool(self.frames) and self.ends(self.frames[-1])

    def ends(self, frame: Frame) -> bool:
        """Whether a frame is the terminal one."""
        return self.spec.name_of(frame.event) in self.spec.grammar.terminal

    def text_of(self, frame: Frame) -> str | None:
        """Give the text a frame carries, if it carries some."""
        return self.spec.text_of(frame.event)

    def last_event(self, frame: Frame) -> Event:
        """Give the event of a frame that was sent; where nobody can tell, one of no flow."""
        return frame.event

    async def _drive(self) -> None:
        # `Ending` for whatever happens: a drive reports, it never raises.
        try:
            await self._produce()
        except CANCELLED:
            self.finish(self._cancelled())
            raise
        except ANYTHING as error:
            self.finish(self._ending_of(error))
        else:
            self.finish(self._natural_ending())

    @abstractmethod
    async def _produce(self) -> None:
        """Produce frames to the end; hands each to `_accept`, and keeps the pace."""

    def _accept(self, event: Event, data: bytes) -> None:
        self.run.touch()
        if not self.run.fenced:
            self.pace.make(len(data))
            frame = Frame(self._stamp(), data, event)
            self.run.add_frame(len(data))
            self.frames.append(frame)
            self.changed.wake()

    def _accept_all(self, frames: Sequence[Frame]) -> None:
        """Accept frames that came together."""
        self.run.touch()
        if not self.run.fenced:
            size = sum([len(frame.data) for frame in frames])
            self.pace.make(size)
            self.run.add_frame(size)
            self.frames += frames
            if self.passing is None or not self.passing():
                self.changed.wake()

    def _cancelled(self) -> RunOutcome:
        task = asyncio.current_task()
        if self.run.fenced or task is None or task.cancelling():
            return RunOutcome("cancelled")
        # Nobody asked for it: a task inside the stack was lost, and the stack with it.
        log.error("%s %s cancelled itself", self.stack, self.spec.name)
        return RunOutcome("failed", "stack", ErrorRecord("crash", "CancelledError"))

    def _natural_ending(self) -> RunOutcome:
        if not self.complete:
            return RunOutcome("truncated", "stack", ErrorRecord("truncated"))
        if self.reported:
            fault = self.run.fault
            return RunOutcome("failed", "world", ErrorRecord(fault.code if fault else "reported"))
        return RunOutcome("completed")

    def _ending_of(self, error: BaseException) -> RunOutcome:
        match error:
            case Refused() if not self.frames:
                ending = RunOutcome("refused", error=ErrorRecord(error.code), refusal=error)
            case Paused():
                ending = RunOutcome("paused")
            case TapeCut() | Fenced():
                ending = RunOutcome("cancelled")
            case EffectFailed():
                ending = RunOutcome("failed", "world", ErrorRecord(error.fault.code))
            case TapeMiss():
                ending = RunOutcome("failed", "stack", ErrorRecord(error.code, "TapeMiss"))
            case RanAway() | TooManyCalls():
                log.error("%s %s: %s", self.stack, self.spec.name, error)
                ending = RunOutcome("failed", "stack", ErrorRecord("runaway"))
            case GrammarViolated():
                log.error("%s %s: %s", self.stack, self.spec.name, error)
                ending = RunOutcome("failed", "stack", ErrorRecord("grammar", error.got))
            case _:
                log.error("%s %s crashed", self.stack, self.spec.name, exc_info=error)
                ending = RunOutcome("failed", "stack", ErrorRecord("crash", type(error).__name__))
        return ending
