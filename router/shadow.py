"""Shadows: the other stack on an exchange's finished tape, while the event loop has time for it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

from cutover.errors import Failed, Left, Outcome, outcome_of
from cutover.flow import Flow, Request
from cutover.tape import Exchange, Fork, Run, Signal
from router.driver import Candidate, Driver
from router.exchange import Served
from router.takeover import Sent

log = logging.getLogger("cutover.shadow")

QUEUE, QUEUE_BYTES = 256, 64 << 20
"""Exchanges that wait for their shadows, and bytes that these hold; more are dropped."""
OVERHEAD_BYTES = 16 << 10
"""What an exchange holds beside its tape and its frames."""
SHADOW_SECONDS = 60.0
"""What a shadow may take."""
SERVICES = 8
"""Shadows of services that run at the same time."""
REST_SECONDS = 60.0
"""How long a stack has no shadows after one that kept the loop busy."""
TICK_SECONDS = 0.005
LATE_SECONDS = 0.01
"""How late a timer may come on a loop that is idle enough."""
FRESH_SECONDS = 0.1
"""How long a measurement counts."""
PATIENCE_SECONDS = 10.0
"""How long to wait for an idle loop."""
POLL_SECONDS = 0.001
TURN_SECONDS = 0.5
"""How long work lets clients go first, at most, each time it has a turn."""
BURDEN_SECONDS = 0.5
"""How late all timers together may come because of one piece of work; then it is stopped."""

Dropped = Literal[
    "client_left",
    "daily_limit",
    "loop_busy",
    "not_served",
    "overflowed",
    "queue_full",
    "stopping",
    "unsafe",
]
"""Why an exchange is not compared."""
State = Literal["equal", "different", "failed"] | Dropped
"""How a shadow ends; `failed`: it took too long, or could not be compared."""


@dataclass(slots=True, eq=False)
class Played:
    """How a stack told the client of a recorded exchange: its stream, its run, how it ended."""

    sent: Sent
    driver: Driver
    outcome: Outcome
    frames: list[bytes]
    """The whole stream, with the events by which the router ends it."""

    @property
    def run(self) -> Run:
        """The run on the tape."""
        return self.driver.run


async def play(
    tape: Exchange,
    flow: Flow,
    request: Request[object, object],
    candidate: Candidate,
    turn: Callable[[], Awaitable[object]] | None = None,
    fork: Fork | None = None,
) -> Played:
    """Run a stack on a tape with policy play, or `fork`, to its end; others go first at `turn`."""
    run = Run(tape, candidate.name, "shadow", "fork" if fork else "play")
    run.turn, run.fork = turn, fork or run.fork
    driver, sent = Driver(candidate, run, request, flow.framer()), Sent()
    reported: Failed | None = None
    try:
        while (frame := await driver.pull()) is not None:
            sent.add(frame)
            reported = reported or driver.reported(frame)
        run.end(reported or driver.ending)
    except Exception as error:  # noqa: BLE001 - whatever a stack raises ends its run
        run.end(outcome_of(error))
    finally:
        run.end(Failed("cancelled"))
        if (closing := driver.cancel()) is not None:
            await closing
    outcome = run.ended or Failed("stack_failed")
    frames = [raw for _, raw in driver.frames]
    if reported is None and (sent or not isinstance(outcome, Failed)):
        frames += sent.close(flow, request, outcome)
    return Played(sent, driver, outcome, frames)


Compare = Callable[[Served, Played], bool]
"""Whether a shadow is equal to what was served; called in a thread, raises where it cannot say."""
Keep = Callable[[Served, Played], object]
"""Takes a shadow that has been played, such as into captures."""


def _today() -> date:
    return datetime.now(UTC).date()


def _starved() -> float:
    """Return how long this thread has waited for a processor; 0 where the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


@dataclass(slots=True, eq=False)
class IdleGate:
    """Measures how late timers come while streams, or one piece of work, keep the loop busy.

    if await gate.opens():
        async with asyncio.timeout(60) as limit:
            with gate.watch(limit):     # at an end, too, where clients wait too long for it
                await work()
    """

    hurried: Callable[[], bool] = lambda: False
    """Whether a client waits for its first text, also where its model is what it waits for."""
    starved: Callable[[], float] = _starved
    """How long this thread has waited for a processor, in seconds: that is not the work's fault."""
    late: float = 0.0
    """How late the newest timer came, in seconds."""
    delay: float = 0.0
    """How late the timers came together during the newest work, and because of it, in seconds."""
    _measured: float = float("-inf")

    @property
    def burdened(self) -> bool:
        """Whether clients had to wait too long for the newest work."""
        return self.delay > BURDEN_SECONDS

    async def opens(self) -> bool:
        """Wait until the loop is idle enough; return False where it stays busy."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_SECONDS
        while loop.time() > self._measured + FRESH_SECONDS or self.late > LATE_SECONDS:
            if loop.time() > until:
                return False
            due = loop.time() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._measure(due)
        return True

    async def turn(self) -> None:
        """Let all that is ready go first, and clients that wait for their first text."""
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_SECONDS
        await asyncio.sleep(0)
        while self.hurried() and loop.time() < until:  # noqa: ASYNC110 - hurry is no event
            await asyncio.sleep(POLL_SECONDS)

    @contextmanager
    def watch(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Measure the delay of a piece of work; let its `limit` expire where that is too long."""
        loop, before = asyncio.get_running_loop(), self.starved()
        due, late = loop.time() + TICK_SECONDS, 0.0
        timer: asyncio.TimerHandle
        self.delay = 0.0

        def add() -> None:
            nonlocal late
            self._measure(due)
            if self.late > LATE_SECONDS:
                late += self.late
                self.delay = late - (self.starved() - before)

        def tick() -> None:
            nonlocal due, timer
            add()
            due = loop.time() + TICK_SECONDS
            if not self.burdened:
                timer = loop.call_at(due, tick)
            elif not limit.expired():
                limit.reschedule(loop.time())

        timer = loop.call_at(due, tick)
        try:
            yield
        finally:
            timer.cancel()
            add()

    def _measure(self, due: float) -> None:
        self._measured = asyncio.get_running_loop().time()
        self.late = self._measured - due


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A shadow that has no state yet."""

    served: Served
    candidate: Candidate
    conversation: tuple[str, str]
    keep: Keep | None
    size: int


@dataclass(slots=True, eq=False)
class Shadows:
    """Runs shadows behind what is served, and accounts for each: `ledger` counts how they ended.

        offered == ledger.total() + open        # always

    Shadows in this process run one after the other and only while its loop is idle; those of a
    service run side by side. Those of a conversation run in the order of its turns.
    `requests_a_day` are taken at most, None: any number; `queue_bytes` bound what they hold.
    """

    compare: Compare
    requests_a_day: int | None = None
    queue_bytes: int = QUEUE_BYTES
    ledger: Counter[State] = field(default_factory=Counter)
    offered: int = 0
    escaped: Counter[str] = field(default_factory=Counter)
    """What shadows did past the tape, by name."""
    gate: IdleGate = field(default_factory=IdleGate)
    today: Callable[[], date] = _today
    _waiting: list[_Waiting] = field(default_factory=list)
    _running: set[_Waiting] = field(default_factory=set)
    _held: int = 0
    _day: date | None = None
    _begun: int = 0
    """Shadows of that day."""
    _resting: dict[tuple[str, str], float] = field(default_factory=dict)
    """Until when the stacks of flows are left alone that kept the loop busy."""
    _stopped: bool = False
    _changed: Signal = field(default_factory=Signal)

    @property
    def open(self) -> int:
        """How many shadows have no state yet."""
        return len(self._waiting) + len(self._running)

    def offer(
        self, served: Served, candidate: Candidate, keep: Keep | None = None, conversation: str = ""
    ) -> None:
        """Queue the shadow of an exchange that has ended, or drop it; `keep` gets what it plays."""
        self.offered += 1
        size = served.size + OVERHEAD_BYTES
        if (reason := self._against(served, candidate, size)) is not None:
            self._end(reason)
            return
        self._begun += 1
        self._held += size
        turn = (served.flow.name, conversation)
        self._waiting.append(_Waiting(served, candidate, turn, keep, size))
        self._changed.notify()

    def _against(self, served: Served, candidate: Candidate, size: int) -> Dropped | None:
        """Return why an exchange gets no shadow."""
        if isinstance(served.outcome, Left):
            return "client_left"
        if self._stopped or getattr(served.outcome, "code", "") == "server_stopped":
            return "stopping"
        if not served.runs:
            return "not_served"
        if served.tape.overflowed:
            return "overflowed"
        if not candidate.shadow_safe:
            return "unsafe"
        if served.tape.loop.time() < self._resting.get((served.flow.name, candidate.name), 0.0):
            return "loop_busy"
        if len(self._waiting) >= QUEUE or self._held + size > self.queue_bytes:
            return "queue_full"
        if (today := self.today()) != self._day:
            self._day, self._begun = today, 0
        if self.requests_a_day is not None and self._begun >= self.requests_a_day:
            return "daily_limit"
        return None

    async def run(self) -> None:
        """Run the shadows that are offered, until cancelled; those left are dropped then."""
        try:
            async with asyncio.TaskGroup() as workers:
                for remote in (False, *[True] * SERVICES):
                    workers.create_task(self._work(remote=remote))
        finally:
            self._stopped = True
            for one in self._waiting:
                self._held -= one.size
                self._end("stopping")
            self._waiting.clear()
            counts = " ".join(f"{state}={count}" for state, count in sorted(self.ledger.items()))
            log.info("shadows ended offered=%d %s", self.offered, counts)

    async def _work(self, *, remote: bool) -> None:
        """Run shadows of services, or of stacks in this process, one after the other."""
        while True:
            if (one := self._next(remote=remote)) is None:
                await self._changed.wait()
                continue
            state: State = "stopping"
            try:
                state = await self._state(one)
            finally:
                self._running.discard(one)
                self._held -= one.size
                self._end(state)

    def _next(self, *, remote: bool) -> _Waiting | None:
        """Take the first shadow whose conversation has none before it."""
        before = {one.conversation for one in self._running}
        for one in self._waiting:
            free = not one.conversation[1] or one.conversation not in before
            if free and one.candidate.remote == remote:
                self._waiting.remove(one)
                self._running.add(one)
                return one
            before.add(one.conversation)
        return None

    async def _state(self, one: _Waiting) -> State:
        """Play a shadow and compare it."""
        served, candidate = one.served, one.candidate
        gate = None if candidate.remote else self.gate
        if gate is not None and not await gate.opens():
            log.warning("exchange=%s shadow dropped: loop_late_ms=%d", served.id, gate.late * 1e3)
            return "loop_busy"
        state: State = "failed"
        try:
            async with asyncio.timeout(SHADOW_SECONDS) as limit:
                with gate.watch(limit) if gate else nullcontext():
                    turn = gate.turn if gate else None
                    played = await play(served.tape, served.flow, served.request, candidate, turn)
            if one.keep is not None:
                one.keep(served, played)
            self.escaped.update(played.run.escaped)
            equal = await asyncio.to_thread(self.compare, served, played)
            state = "equal" if equal else "different"
        except Exception as error:
            if gate and gate.burdened and isinstance(error, TimeoutError):
                state = "loop_busy"
            else:
                log.exception("exchange=%s shadow=%s cannot be compared", served.id, candidate.name)
        else:
            log.info(
                "exchange=%s shadow=%s state=%s outcome=%s off_the_tape=%s",
                served.id,
                candidate.name,
                state,
                played.outcome,
                dict(played.run.escaped),
            )
        if gate and gate.burdened:
            self._rest(one, gate.delay)
        return state

    def _rest(self, one: _Waiting, delay: float) -> None:
        """Leave a stack alone for a while: it kept the loop busy, and clients waited."""
        flow, stack = one.served.flow.name, one.candidate.name
        self._resting[flow, stack] = asyncio.get_running_loop().time() + REST_SECONDS
        log.warning(
            "flow=%s shadow=%s kept the loop busy: delay_ms=%d rest_s=%d",
            flow,
            stack,
            delay * 1e3,
            REST_SECONDS,
        )

    def _end(self, state: State) -> None:
        self.ledger[state] += 1
        self._changed.notify()

    async def settled(self) -> None:
        """Wait until every shadow that was offered has ended."""
        while self.open:
            await self._changed.wait()
