"""Shadows: the other stack on the finished tape of an exchange, performing nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cutover.errors import Failed, Outcome, Pause, Paused, outcome_of
from cutover.flow import Event, Flow, Request, Texts
from cutover.tape import Exchange, Run
from router.driver import Candidate, Driver
from router.exchange import Served
from router.takeover import Sent

log = logging.getLogger("cutover.shadow")

QUEUE = 64
"""Exchanges that wait for their shadow; more are dropped, and counted."""

State = Literal["equal", "different", "failed", "dropped"]


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
    tape: Exchange, flow: Flow, request: Request[object, object], candidate: Candidate
) -> Played:
    """Run a stack on a tape with policy play, to its end."""
    run = Run(tape, candidate.name, "shadow", "play")
    driver, sent = Driver(candidate, run, request, flow.framer()), Sent()
    framer = driver.framer
    reported: Failed | None = None
    try:
        while (event := await driver.pull()) is not None:
            frame = framer.read(event)
            driver.keep(frame.raw)
            sent.add(frame)
            reported = reported or driver.reported(event)
        run.end(reported or driver.ending)
    except Exception as error:  # noqa: BLE001 - whatever a stack raises ends its run
        run.end(outcome_of(error))
    finally:
        run.end(Failed("cancelled"))
        if (closing := driver.cancel()) is not None:
            await closing
    outcome = run.ended or Failed("stack_failed")
    frames = [raw for _, raw in driver.frames]
    framer = flow.framer()
    framer.texts = Texts(sent.texts)
    for event in _closing(flow, request, outcome, sent) if reported is None else ():
        frame = framer.frame(event)
        sent.add(frame)
        frames.append(frame.raw)
    return Played(sent, driver, outcome, frames)


def _closing(
    flow: Flow, request: Request[object, object], outcome: Outcome, sent: Sent
) -> Sequence[Event]:
    """Return the events by which the router ends a stream that its stack does not end."""
    match outcome:
        case Pause() if flow.pausing is not None:
            return flow.pausing.suspended(request.options)
        case Failed(code=code) if sent:
            return flow.failure(request.options, code, sent.last)
        case _:
            return ()


def same(served: Served, played: Played) -> bool:
    """Whether a shadow told the client the same and asked the world the same, each call exactly."""
    if not played.sent.same(served.sent) or type(served.outcome) is not type(played.outcome):
        return False
    if any(play.how == "nearest" for play in played.run.plays):
        return False
    return _asked(played.run) == _asked(served.runs[-1].run)


def _asked(run: Run) -> Counter[bytes]:
    """Return what a run asked for; a question that is not answered yet leaves no entry."""
    made = (play for play in run.plays if not isinstance(play.entry.error, Paused))
    return Counter(play.call.place for play in made)


Keep = Callable[[Served, Played], object]
"""Takes a shadow that has been played, such as into captures."""


@dataclass(slots=True, eq=False)
class Shadows:
    """Runs shadows one after the other, behind what is served; `ledger` counts how each ended."""

    ledger: Counter[State] = field(default_factory=Counter)
    escaped: Counter[str] = field(default_factory=Counter)
    """What shadows did past the tape, by name."""
    _queue: asyncio.Queue[tuple[Served, Candidate, Keep | None]] = field(
        default_factory=lambda: asyncio.Queue(QUEUE)
    )

    def offer(self, served: Served, candidate: Candidate, keep: Keep | None = None) -> None:
        """Queue the shadow of an exchange that has ended; `keep` is to be given what it played."""
        try:
            self._queue.put_nowait((served, candidate, keep))
        except asyncio.QueueFull:
            self.ledger["dropped"] += 1

    async def run(self) -> None:
        """Run the shadows that are offered, until cancelled."""
        while True:
            served, candidate, keep = await self._queue.get()
            state: State = "failed"
            try:
                played = await play(served.tape, served.flow, served.request, candidate)
                if keep is not None:
                    keep(served, played)
                self.escaped.update(played.run.escaped)
                state = "equal" if same(served, played) else "different"
                log.info(
                    "exchange=%s shadow=%s state=%s outcome=%s off_the_tape=%s",
                    served.id,
                    candidate.name,
                    state,
                    played.outcome,
                    dict(played.run.escaped),
                )
            except Exception:
                log.exception("exchange=%s shadow=%s cannot be compared", served.id, candidate.name)
            finally:
                self.ledger[state] += 1
                self._queue.task_done()

    async def settled(self) -> None:
        """Wait until every shadow that was offered has ended."""
        await self._queue.join()
