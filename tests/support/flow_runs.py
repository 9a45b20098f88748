"""Running a request on a stack: recording it, and playing the tape to the other one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import pytest

from contract.flows.chat import Send, ToolFeedback
from contract.model import ModelCall
from contract.records import EntryRecord, Role
from cutover.selftest.cases import FOREVER, Answer, Case, Scene, by_round
from effects.tape import Exchange, Policy, Tape, TapeSession
from effects.testing import World
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.serving.run import Run, RunRequest
from router.serving.stack import LocalStack

STACKS: Mapping[str, LocalStack] = {
    "legacy": LocalStack("legacy", LEGACY, "l1"),
    "graph": LocalStack("graph", GRAPH, "g1"),
}
DIRECTIONS = [("legacy", "graph"), ("graph", "legacy")]

__all__ = [
    "DIRECTIONS",
    "FOREVER",
    "STACKS",
    "Answer",
    "Case",
    "Played",
    "Scene",
    "begin",
    "by_round",
    "drawn_conversations",
    "play",
    "record",
    "replay",
    "same_on_both",
]


def drawn_conversations(
    count: int, *, per_test: int, traced: Collection[int]
) -> pytest.MarkDecorator:
    """Parametrize a test with the `seeds` of so many conversations, `per_test` at a time.

    `traced` are the first seeds of the tests whose turns go every way there is.
    """
    return pytest.mark.parametrize(
        "seeds",
        [
            pytest.param(
                range(first, first + per_test),
                id=str(first),
                marks=[] if first in traced else pytest.mark.untraced,
            )
            for first in range(0, count, per_test)
        ],
    )


@dataclass(frozen=True)
class Played:
    """A stack that has run to its end."""

    run: Run
    exchange: Exchange
    world: World

    @property
    def frames(self) -> list[bytes]:
        """The bytes it produced, frame by frame."""
        return [frame.data for frame in self.run.frames]

    @property
    def wire(self) -> str:
        """The bytes as one text."""
        return b"".join(self.frames).decode()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The frames' JSON, decoded."""
        return [msgspec.json.decode(data[6:]) for data in self.frames]

    @property
    def sends(self) -> list[tuple[float, str, str]]:
        """Every SEND: seconds, content, and `tool status` where there is feedback."""
        found = []
        for frame in self.run.frames:
            if isinstance(frame.event, Send):
                news = frame.event.tool_call_feedback
                said = f"{news.tool} {news.status}" if isinstance(news, ToolFeedback) else ""
                found.append((frame.at / 1_000_000, frame.event.content, said))
        return found

    @property
    def asked(self) -> list[ModelCall]:
        """The calls of the model, in order."""
        return [call for _, call in self.world.model.calls]

    @property
    def calls(self) -> list[tuple[str, str, bytes]]:
        """Every effect call in order: label, site and argument bytes."""
        return [(it.operation.label, it.site, it.args) for it in self.run.session.plays]

    @property
    def hows(self) -> set[str]:
        """How its calls were answered."""
        return {play.how for play in self.run.session.plays}

    @cached_property
    def tape(self) -> tuple[EntryRecord, ...]:
        """The tape as it is written down."""
        return self.exchange.tape.record()

    @property
    def ended(self) -> tuple[object, ...]:
        """Outcome, code, and what a refusal says."""
        ending = self.run.outcome
        assert ending is not None
        refusal = ending.refusal
        said = (refusal.status, refusal.code, refusal.detail) if refusal else None
        return ending.kind, ending.error and ending.error.code, said

    @property
    def unplayed(self) -> list[str]:
        """Calls on the tape this run did not play."""
        played = {play.entry.seq for play in self.run.session.plays if play.entry is not None}
        return [it.label for it in self.exchange.tape.entries if it.seq not in played]


def begin(
    stack: LocalStack,
    case: Scene,
    exchange: Exchange,
    role: Role = "serving",
    policy: Policy = "live",
) -> Run:
    """Start a stack on an exchange."""
    session = TapeSession(exchange, f"{role} {stack.name}", policy)
    run = stack.new_run(RunRequest(case.spec, stack.name, case.request, role), session)
    run.start()
    return run


async def record(
    stack: LocalStack, case: Scene, *, tail: LocalStack | None = None
) -> tuple[Played, Played | None]:
    """Run a case for real, with another stack reading the tape at the same time if wanted."""
    world = case.world()
    if case.taken:
        assert await world.live().locks.acquire("other", case.taken, FOREVER)
    exchange = world.exchange(Tape(), live=world.live())
    run = begin(stack, case, exchange)
    reader = begin(tail, case, exchange, "shadow", "nearest") if tail else None
    assert await run.wait_stopped(FOREVER)
    await exchange.close()
    if reader is None:
        return Played(run, exchange, world), None
    assert await reader.wait_stopped(FOREVER)
    return Played(run, exchange, world), Played(reader, exchange, world)


async def replay(stack: LocalStack, case: Scene, tape: tuple[EntryRecord, ...]) -> Played:
    """Play a tape that was written down, at full speed, with nothing live behind it."""
    world = World()
    exchange = world.exchange(Tape.load(tape))
    run = begin(stack, case, exchange, "replay", "nearest")
    assert await run.wait_stopped(FOREVER)
    await exchange.close()
    assert world.made == []
    return Played(run, exchange, world)


async def same_on_both(
    case: Scene, first: str, second: str, stacks: Mapping[str, LocalStack] = STACKS
) -> Played:
    """Record on one stack; tail and replay on the other; everything must be equal."""
    served, tailed = await record(stacks[first], case, tail=stacks[second])
    assert tailed is not None
    replayed = await replay(stacks[second], case, served.tape)
    again = await replay(stacks[first], case, served.tape)
    for other in (tailed, replayed, again):
        assert other.frames == served.frames
        assert other.calls == served.calls
        assert other.ended == served.ended
        assert other.hows <= {"exact"}
        assert other.unplayed == []
    assert served.hows <= {"live"}
    return served


async def play(stack: str, case: Scene) -> Played:
    """Run a case for real on one stack."""
    return (await record(STACKS[stack], case))[0]
