"""An exchange as the router sees it: what is served, by which runs, and its one end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cutover.errors import Failed, Outcome
from cutover.flow import Flow, Request
from cutover.normal_form import TokenUsage, model_of, usage
from cutover.tape import Entry, Exchange, Run
from router.driver import Candidate, Driver
from router.takeover import Sent

log = logging.getLogger("cutover.exchange")

AFTER_END_SECONDS = 60.0
"""What a stack may go on doing behind its terminal event."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request to a model on the tape: what it asked for, and what it cost."""

    entry: Entry
    model: str
    usage: TokenUsage


def _now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True, eq=False)
class Served:
    """One request being served; `runs` are in the order in which they took over."""

    id: str
    flow: Flow
    request: Request[Any, Any]
    tape: Exchange
    assigned: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """The settings and the code in force."""
    why: str = ""
    """Why it was assigned so."""
    sent: Sent = field(default_factory=Sent)
    runs: list[Driver] = field(default_factory=list)
    outcome: Outcome = field(default_factory=lambda: Failed("not_served"))
    ending: list[bytes] = field(default_factory=list)
    """Frames of the router's own, by which it ended the stream in its last run's place."""
    ended_by: Driver | None = None
    """The run whose terminal event has gone out: what it does after that is awaited by `finish`."""
    storing: asyncio.Task[None] | None = None
    """Stores the pause of this exchange, also when its client leaves meanwhile."""
    stopping: bool = False
    """The server stops: no further run begins."""
    began: float = field(default_factory=_now)
    """When the request had been read, in the loop's time."""
    first_text: float | None = None
    """When the client had the first text."""
    ended: float | None = None
    """When the client had the last frame."""
    model_calls: list[ModelCall] = field(default_factory=list)
    """What was asked of models; known when the exchange has ended."""
    closing: list[asyncio.Task[None]] = field(default_factory=list)
    """What closes its runs in the background."""

    def begin(self, candidate: Candidate) -> Driver:
        """Begin a run of a stack; any but the first is a fallback."""
        role = "fallback" if self.runs else "serving"
        framer = self.flow.framer(self.runs[-1].framer if self.runs and self.sent else None)
        driver = Driver(candidate, Run(self.tape, candidate.name, role), self.request, framer)
        driver.began = self.tape.stamp()
        self.runs.append(driver)
        return driver

    def close(self, outcome: Outcome) -> list[bytes]:
        """End the stream in its last run's place; return the frames, which count as sent."""
        frames = self.sent.close(self.flow, self.request, outcome)
        self.ending += frames
        return frames

    def stop(self) -> None:
        """End the stream honestly and soon: the server stops."""
        self.stopping = True
        if self.runs:
            self.runs[-1].stop()

    @property
    def size(self) -> int:
        """Bytes of its tape and of its runs' frames."""
        return self.tape.size + sum(one.size for one in self.runs)

    @property
    def served(self) -> str:
        """The stack that served last."""
        return self.runs[-1].candidate.name if self.runs else self.assigned

    @property
    def taken_over(self) -> list[tuple[Driver, Failed]]:
        """The runs that another one took over from, and why."""
        return [
            (one, one.run.ended if isinstance(one.run.ended, Failed) else Failed("refused_late"))
            for one in self.runs[:-1]
        ]

    def close_soon(self, driver: Driver) -> None:
        """Close a run in the background: it must hold up neither its successor nor the client."""
        if (task := driver.cancel()) is not None:
            self.closing.append(task)


async def finish(exchange: Served, then: Callable[[Served], Awaitable[None]] | None = None) -> None:
    """End an exchange: settle its tape, close its runs, say in one line what came of it."""
    exchange.ended = _now()
    if exchange.storing is not None:
        await asyncio.wait({exchange.storing})
    if exchange.ended_by is not None:
        await _await_end(exchange.ended_by)
    for driver in exchange.runs:
        driver.run.end(exchange.outcome)
    await exchange.tape.aclose()
    if exchange.closing:
        await asyncio.wait(exchange.closing)
    exchange.model_calls = [_model_call(one) for one in exchange.tape.entries if one.call.model]
    _log(exchange, exchange.ended)
    if then is not None:
        await then(exchange)


def _model_call(entry: Entry) -> ModelCall:
    items = (item for _, item in entry.items if isinstance(item, bytes))
    return ModelCall(entry, model_of(entry.call.canonical), usage(items))


def _log(exchange: Served, ended: float) -> None:
    last = exchange.runs[-1].run if exchange.runs else None
    first = exchange.first_text
    spent = [one.usage for one in exchange.model_calls]
    log.info(
        "exchange=%s flow=%s assigned=%s served=%s outcome=%s code=%s ms=%.1f ttft_ms=%s "
        "frames=%d bytes=%d calls=%d model=%s input_tokens=%d output_tokens=%d taken_over=%s "
        "nodes_ms=%s",
        exchange.id,
        exchange.flow.name,
        exchange.assigned,
        exchange.served,
        type(exchange.outcome).__name__.lower(),
        getattr(exchange.outcome, "code", ""),
        (ended - exchange.began) * 1000,
        "" if first is None else round((first - exchange.began) * 1000, 1),
        sum(len(one.frames) for one in exchange.runs),
        sum(one.size for one in exchange.runs),
        len(exchange.tape.entries),
        ",".join(dict.fromkeys(one.model for one in exchange.model_calls)),
        sum(one.input or 0 for one in spent),
        sum(one.output or 0 for one in spent),
        ",".join(why.code for _, why in exchange.taken_over),
        _nodes(last.nodes) if last else "",
    )


def _nodes(spent: Mapping[str, float]) -> str:
    """Return the milliseconds of each node, and its share of those of all nodes."""
    total = sum(spent.values()) or 1.0
    return ",".join(f"{n}:{s * 1000:.1f}({s / total:.1%})" for n, s in spent.items())


async def _await_end(driver: Driver) -> None:
    """Let a stack go on behind its terminal event, such as to learn from what was said."""
    driver.patient = True
    events = 0
    try:
        async with asyncio.timeout(AFTER_END_SECONDS):
            while (frame := await driver.pull()) is not None:
                events += bool(frame.raw)
    except TimeoutError:
        log.warning(
            "stack=%s not done %g s after its end", driver.candidate.name, AFTER_END_SECONDS
        )
    except Exception:
        log.exception("stack=%s failed behind its terminal event", driver.candidate.name)
    if events:
        log.warning("stack=%s events=%d behind its terminal event", driver.candidate.name, events)
    if (closing := driver.cancel()) is not None:
        await closing
