"""Serving: a stream out of one run, or of two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing

from cutover.errors import (
    Completed,
    CutoverError,
    Failed,
    Left,
    Pause,
    Refusal,
    Refused,
    outcome_of,
)
from cutover.flow import Event, Frame, Framer
from cutover.grammar import GrammarCheck
from cutover.tape import Run
from router.exchange import Candidate, Served, ServedRun
from router.takeover import Due, PrefixMismatch

STALL_SECONDS = 10.0
"""How long a stack may owe a frame while it waits for nothing on the tape."""
STREAM_BYTES = 16 << 20
"""Bytes of one run's stream: a stack in a loop is stopped."""
TURN_EVERY = 16
"""Frames after which the event loop turns, whatever a stack and a socket do."""
_STRIKES = 4


class NotServed(CutoverError):
    """Nothing was sent: the request ends with an error status. `failed` says why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(f"not served: {failed.code}")
        self.failed = failed


class Stalled(CutoverError):
    """A stack owes a frame and waits for nothing."""


class Runaway(CutoverError):
    """A stack's stream outgrew its limit."""


StorePause = Callable[[Served, str, Sequence[Frame]], Awaitable[None]]
"""Stores a paused exchange: its question and the question's frames. Raises where it cannot."""


async def serve(
    exchange: Served,
    candidates: Sequence[Candidate],
    store_pause: StorePause,
    *,
    same_provider: bool = True,
) -> AsyncGenerator[bytes, None]:
    """Yield the frames of one request: of its stack, and of the next one where that fails.

    The frames that a client has are checked and skipped when another stack goes on. A failure of
    the world ends the stream where the other stack would ask the same provider (`same_provider`).
    Raises `Refused` and `NotServed` before the first frame or never.
    """
    flow, sent = exchange.flow, exchange.sent
    began = bool(sent)  # a resumed exchange: its client has the beginning
    questions = flow.pausing.questions if flow.pausing else frozenset()
    for candidate in candidates:
        if exchange.runs and exchange.tape.overflowed:
            break
        served = exchange.begin(candidate)
        run, framer = served.run, Framer(flow)
        due = Due(sent, framer)
        run.behind = lambda due=due: due.behind  # type: ignore[misc]
        check = GrammarCheck(flow.grammar)
        held: list[Frame] = []  # a question goes out when the pause is stored, or answered
        if len(exchange.runs) > 1 and sent:
            yield f": served-by {candidate.name} {exchange.id}\n\n".encode()
        try:
            with run.current():
                served.events = candidate.stack(exchange.request)
            async with aclosing(within(served)) as events:
                async for event in events:
                    frame = framer.frame(event)
                    check.event(frame.name)
                    _count(served, frame)
                    for question in held:
                        sent.add(question)
                        yield question.raw
                    held.clear()
                    new = due.feed(event, frame)
                    if new is not None and frame.name in questions:
                        held.append(new)
                    elif new is not None:
                        sent.add(new)
                        if frame.name in flow.grammar.terminal:
                            exchange.outcome, exchange.rest = Completed(), served
                        yield new.raw
                    if exchange.rest is not None:
                        return
            run.end(Failed("truncated"))
        except GeneratorExit:
            _left(exchange, served)
            raise
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                _left(exchange, served)
                raise
            run.end(Failed("stack_failed", detail=f"the stack cancelled itself: {error!r}"))
        except SystemExit as error:
            run.end(Failed("stack_failed", detail=f"SystemExit({error.code!r})"))
        except Stalled:
            run.end(Failed("stalled"))
        except Runaway:
            run.end(Failed("runaway"))
        except PrefixMismatch as error:
            run.end(Failed("prefix_mismatch", detail=str(error)))
        except Exception as error:  # noqa: BLE001 - whatever a stack raises ends its run
            run.end(outcome_of(error))
        ended = exchange.outcome = run.ended or Failed("stack_failed")
        if isinstance(ended, Pause):
            async for raw in _paused(exchange, served, ended, held, store_pause):
                yield raw
            return
        run.fence()
        exchange.close_soon(served)
        match ended:
            case Refusal() if not sent:
                raise Refused(ended.status, ended.code, ended.detail)
            case Failed(blame="world") if same_provider:
                break
            case _:
                pass
    failed = exchange.outcome
    if not isinstance(failed, Failed):
        failed = exchange.outcome = Failed("refused_late")
    if not (sent or began):
        raise NotServed(failed)
    for raw in failure(exchange, failed.code):
        yield raw


def failure(exchange: Served, code: str) -> list[bytes]:
    """Return the frames that end a stream honestly."""
    flow, framer = exchange.flow, Framer(exchange.flow)
    framer.texts = dict(exchange.sent.texts)
    frames = [
        framer.frame(event)
        for event in flow.failure(exchange.request.options, code, exchange.sent.last)
    ]
    for frame in frames:
        exchange.sent.add(frame)
    return [frame.raw for frame in frames]


async def _paused(
    exchange: Served,
    served: ServedRun,
    pause: Pause,
    held: Sequence[Frame],
    store_pause: StorePause,
) -> AsyncIterator[bytes]:
    """Settle the tape and store it, then let the question out."""
    await exchange.tape.pause()
    exchange.close_soon(served)
    try:
        await store_pause(exchange, pause.question, held)
    except Exception as error:  # noqa: BLE001 - whatever the store raises, the client is told
        exchange.outcome = Failed("pause_not_stored", "world", f"{type(error).__name__}: {error}")
        for raw in failure(exchange, "pause_not_stored"):
            yield raw
        return
    for frame in held:
        exchange.sent.add(frame)
        yield frame.raw
    assert exchange.flow.pausing is not None  # noqa: S101 - only a flow with questions pauses
    framer = Framer(exchange.flow)
    for event in exchange.flow.pausing.suspended(exchange.request.options):
        frame = framer.frame(event)
        exchange.sent.add(frame)
        yield frame.raw


def _left(exchange: Served, served: ServedRun) -> None:
    """Note that the client has left; behind the terminal event it is no cancellation."""
    if exchange.rest is None:
        exchange.outcome = Left()
        served.run.end(exchange.outcome)
        exchange.close_soon(served)


def _count(served: ServedRun, frame: Frame) -> None:
    served.frames.append((served.run.now, frame.raw))
    served.size += len(frame.raw)
    if served.size > STREAM_BYTES:
        raise Runaway


async def within(served: ServedRun, seconds: float = STALL_SECONDS) -> AsyncGenerator[Event, None]:
    """Yield a run's events; raises `Stalled` where it owes one, and waits for nothing, too long.

    The events are pulled in the caller's task: a task for each would lose the contexts and time
    limits that a stack keeps across its yields.
    """
    events = served.events
    assert events is not None  # noqa: S101 - set where the run began
    watch = _Watch(served.run, seconds)
    count = 0
    while True:
        try:
            async with asyncio.timeout(None) as limit:
                watch.arm(limit)
                with served.run.current():
                    event = await anext(events, None)
        except TimeoutError as error:
            if watch.stalled:
                raise Stalled from error
            raise
        finally:
            watch.disarm()
        if event is None:
            return
        count += 1
        if count % TURN_EVERY == 0:
            await asyncio.sleep(0)
        yield event


class _Watch:
    """Ends a pull after several checks in a row, each on time, in which the run waited for nothing.

    A process that stood still, or a loop that something else blocked, checks late: the stack is not
    to blame.
    """

    def __init__(self, run: Run, seconds: float) -> None:
        self._run, self._every = run, seconds / _STRIKES
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._limit: asyncio.Timeout | None = None
        self._strikes = 0
        self.stalled = False

    def arm(self, limit: asyncio.Timeout) -> None:
        self._limit, self._strikes = limit, 0
        if self._handle is None:
            self._next()

    def disarm(self) -> None:
        self._limit = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _next(self) -> None:
        due = self._loop.time() + self._every
        self._handle = self._loop.call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        if self._limit is None:
            return
        late = self._loop.time() - due > self._every / 2
        self._strikes = 0 if late or self._run.waiting else self._strikes + 1
        if self._strikes >= _STRIKES:
            self.stalled = True
            self._limit.reschedule(self._loop.time())
        else:
            self._next()


__all__ = ["NotServed", "failure", "serve", "within"]
