"""An exchange as the router sees it: what is served to whom, by which runs, and its one end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from cutover.errors import Failed, Outcome
from cutover.flow import Event, FlowSpec, Request, Stack
from cutover.tape import Exchange, Run
from router.takeover import Sent

log = logging.getLogger("cutover.exchange")

CLOSING_SECONDS = 30.0
"""What a stack may take to close after it was fenced, before it is left behind."""

REST_SECONDS = 60.0
"""What a stack may go on doing behind its terminal event."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stack that may serve: its name and what it runs."""

    name: str
    stack: Stack


@dataclass(slots=True, eq=False)
class Served:
    """One request being served; `runs` are in the order in which they took over."""

    id: str
    flow: FlowSpec
    request: Request[Any, Any]
    tape: Exchange
    assigned: str
    sent: Sent = field(default_factory=Sent)
    runs: list[ServedRun] = field(default_factory=list)
    outcome: Outcome = field(default_factory=lambda: Failed("not_served"))
    rest: ServedRun | None = None
    """The run whose terminal event has gone out: what it does after that is awaited by `finish`."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def begin(self, candidate: Candidate) -> ServedRun:
        """Begin a run of a stack; any but the first is a fallback."""
        role = "fallback" if self.runs else "serving"
        run = ServedRun(candidate, Run(self.tape, candidate.name, role))
        self.runs.append(run)
        return run

    @property
    def served(self) -> str:
        """The stack that served last."""
        return self.runs[-1].run.stack if self.runs else self.assigned

    def close_soon(self, run: ServedRun) -> None:
        """Close a run's generator in the background, within its own context.

        A stack that swallows cancellation must not hold its successor, or the client.
        """
        task = asyncio.get_running_loop().create_task(_close(run))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


@dataclass(slots=True, eq=False)
class ServedRun:
    """A run that serves: its stack's generator, and the frames it has made, with their stamps."""

    candidate: Candidate
    run: Run
    events: AsyncIterator[Event] | None = None
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    size: int = 0


async def _drain(served: ServedRun) -> None:
    """Run a stack on behind its terminal event, such as to learn from what was said."""
    assert served.events is not None  # noqa: S101 - it has sent a terminal event
    try:
        async with asyncio.timeout(REST_SECONDS):
            with served.run.current():
                async for _ in served.events:
                    log.warning("stack=%s event behind its terminal event", served.run.stack)
    except TimeoutError:
        log.warning("stack=%s was not done %g s after its end", served.run.stack, REST_SECONDS)
    except Exception:
        log.exception("stack=%s failed behind its terminal event", served.run.stack)
    await _close(served)


async def _close(served: ServedRun) -> None:
    close = getattr(served.events, "aclose", None)
    if close is None:
        return
    with served.run.current():
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await close()
        except TimeoutError:
            log.warning("stack=%s did not close within its limit", served.run.stack)
        except Exception:
            log.exception("stack=%s failed while it closed", served.run.stack)


async def finish(exchange: Served, then: Callable[[Served], Awaitable[None]] | None = None) -> None:
    """End an exchange: settle its tape, close its runs, say in one line what came of it."""
    if exchange.rest is not None:
        await _drain(exchange.rest)
    for served in exchange.runs:
        served.run.end(exchange.outcome)
    await exchange.tape.aclose()
    if exchange.tasks:
        await asyncio.wait(set(exchange.tasks))
    last = exchange.runs[-1] if exchange.runs else None
    log.info(
        "exchange=%s flow=%s assigned=%s served=%s outcome=%s code=%s frames=%d bytes=%d calls=%d "
        "taken_over=%s nodes_ms=%s",
        exchange.id,
        exchange.flow.name,
        exchange.assigned,
        exchange.served,
        type(exchange.outcome).__name__.lower(),
        getattr(exchange.outcome, "code", ""),
        sum(len(one.frames) for one in exchange.runs),
        sum(one.size for one in exchange.runs),
        len(exchange.tape.entries),
        len(exchange.runs) > 1,
        {n: round(s * 1000, 1) for n, s in last.run.nodes.items()} if last else {},
    )
    if then is not None:
        await then(exchange)
