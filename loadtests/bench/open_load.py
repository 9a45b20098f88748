"""Open-loop load of one server for a few seconds, and the moments its answers began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.session import SESSION
from loadtests.arrivals import Poisson
from loadtests.bench.asking import QUESTIONS, bodies
from loadtests.bench.process import Server
from loadtests.messages import Messages
from loadtests.metrics import METRICS
from loadtests.open_loop import OpenLoop, OpenLoopPlan
from loadtests.rows import Row
from loadtests.targets import Target

MILLISECONDS = 1_000


class LoadBroken(CutoverError):
    """Streams of a measured load did not complete: the figures would be worthless."""

    def __init__(self, server: str, endings: Sequence[str]) -> None:
        super().__init__(f"{server!r} had streams that ended {sorted(set(endings))!r}")


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals: `rate` requests a second for so many seconds, drawn with a seed."""

    rate: float
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a flow; ids in the bodies are made fresh for every request."""

    spec: FlowSpec
    bodies: tuple[Mapping[str, Any], ...]


CHATS = Asked(CHAT, tuple(islice(bodies(), len(QUESTIONS))))
SESSIONS = Asked(
    SESSION,
    tuple({"session_id": f"s-{at}", "message": text} for at, text in enumerate(QUESTIONS)),
)
VISITS = Asked(
    COMPANION,
    tuple({"session_id": f"v-{at}", "message": text} for at, text in enumerate(QUESTIONS)),
)


async def load(server: Server, trace: Trace, asked: Asked = CHATS) -> list[Row]:
    """Send a trace and wait for the last answer; raises `LoadBroken` where one is not whole."""
    rows: list[Row] = []
    plan = OpenLoopPlan(
        flow=asked.spec.name,
        run=0,
        target=Target(stack=server.name, url=server.url),
        messages="",
        rows="",
        arrivals=Poisson(trace.rate, trace.seed),
        seconds=trace.seconds,
    )
    messages = Messages(asked.spec, [(asked.spec.path, dict(body)) for body in asked.bodies])
    await OpenLoop(plan, asked.spec, rows.append).drive(messages)
    broken = [row.ending for row in rows if row.ending != "complete"]
    if broken:
        raise LoadBroken(server.name, broken)
    return rows


def moments(rows: Sequence[Row], metric: str) -> list[float]:
    """Give a metric of all rows in milliseconds from the moment each was sent."""
    return [seconds * MILLISECONDS for seconds in METRICS[metric].sample(rows, "sent")]
