"""Writes that stream: progress as it comes, the result once it is journalled, run to their end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import EffectFailed, Fault, Fenced, TapeCut
from contract.external import ExternalCall
from contract.human import AwaitAnswer, HumanAnswer
from contract.operations import EXTERNAL_RUN, HUMAN_ANSWER
from contract.workers import WorkerCall, WorkerResult, WorkerUpdate
from effects.model import Fail, Hang, Wait
from effects.tape import Tape, canonical, interrupted_tape, read_paused, reopened, unknown_outcomes
from effects.testing import VirtualLoop, World
from effects.workers import ScriptedWorkers, WorkerStep
from tests.effects.tape.pausing import REQUEST
from tests.support.tape_calls import live, turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.ports import Effects
    from effects.tape import Entry

BUILD: Final = WorkerCall("deploy", "build", {"folder": "web"})
BUILT: Final = WorkerResult(ok=True, message="built", data={"release": "r-1"})
BROKEN: Final = Fault("worker_unavailable", retryable=True)
DEADLINE: Final = 4.05
"""Seconds, between two of the moments at which workers here do anything."""
STORING: Final = 0.01
"""Seconds in which a journal stores anything."""

End = Literal["result", "fails", "hangs", "no result"]
ENDS: Final[dict[End, list[WorkerStep]]] = {
    "result": [BUILT, "never shown"],
    "fails": [Fail(BROKEN)],
    "hangs": [Hang()],
    "no result": [],
}


@dataclass(frozen=True)
class Build:
    """What a worker does: lines of progress, each after some tenths of a second, and its end."""

    lines: list[tuple[str, int]]
    end: End

    def workers(self) -> ScriptedWorkers:
        """Make workers that do so."""
        steps = [step for line, tenths in self.lines for step in (Wait(tenths / 10), line)]
        return ScriptedWorkers({"deploy.build": [*steps, *ENDS[self.end]]})

    def expected(self) -> tuple[list[WorkerUpdate], Fault | None]:
        """Return the items there are by its deadline, their stamps to the tenth, and its fault."""
        at, items = 0, list[WorkerUpdate]()
        for line, tenths in self.lines:
            at += tenths
            if at / 10 > DEADLINE - STORING:
                return items, Fault("deadline", data={"seconds": DEADLINE})
            items.append(WorkerUpdate(line, at=at))
        match self.end:
            case "result":
                return [*items, WorkerUpdate(result=BUILT, at=at)], None
            case "fails":
                return items, BROKEN
            case "hangs":
                return items, Fault("deadline", data={"seconds": DEADLINE})
            case "no result":
                return items, Fault("adapter_failed", data={"kind": "NoResult"})


@dataclass(eq=False)
class Reader:
    """A run that reads the build: what it got, and the fault or error it ended in."""

    effects: Effects
    got: list[WorkerUpdate] = field(default_factory=list)
    end: Fault | type[Exception] | None = None

    async def read(self) -> None:
        """Read to the end."""
        try:
            async for update in self.effects.workers.run("execute", BUILD):
                self.got.append(update)
        except EffectFailed as failure:
            self.end = failure.fault
        except (Fenced, TapeCut) as error:
            self.end = type(error)

    @property
    def rounded(self) -> list[WorkerUpdate]:
        """What it got, stamps in tenths of a second: a journal takes hundredths."""
        return [WorkerUpdate(it.progress, it.result, it.at // 100_000) for it in self.got]


@dataclass(eq=False)
class SlowJournal:
    """Takes a moment, and looks at what was made and what was read by then."""

    workers: ScriptedWorkers
    readers: list[Reader] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)

    async def begin(self, _entry: Entry, /) -> bool:
        """Store the call, which was not made yet."""
        assert self.workers.calls == []
        await asyncio.sleep(STORING)
        assert self.workers.calls == []
        self.stored.append("begun")
        return True

    async def end(self, entry: Entry, /) -> None:
        """Store the result, which no run has read yet; progress was read as it came."""
        await asyncio.sleep(STORING)
        assert all(update.result is None for one in self.readers for update in one.got)
        self.stored.append(entry.known_end)


builds = st.builds(
    Build,
    st.lists(st.tuples(st.text(max_size=4), st.integers(1, 12)), max_size=5),
    st.sampled_from(list(ENDS)),
)
moments = st.integers(0, 60).map(lambda tenths: tenths / 10 + 0.05)


@given(builds, moments, moments, st.integers(0, 1))
def test_a_build_runs_to_its_end_whatever_becomes_of_its_readers(
    build: Build, fenced: float, left: float, successor: int
) -> None:
    """One call, all items with their stamps, one end: for a successor, a replay and the record.

    Its first run is fenced, and its client leaves, at any moment; a successor may go on or not.
    """
    workers = build.workers()
    items, fault = build.expected()
    journal = SlowJournal(workers)

    async def scene() -> None:
        async with live(World(workers=workers), write=DEADLINE, journal=journal) as it:
            first, second = Reader(it.effects), Reader(it.other().effects())
            journal.readers += [first, second]
            reading = asyncio.create_task(first.read())
            await turns()
            asyncio.get_running_loop().call_later(left, it.exchange.cancel)
            await asyncio.sleep(fenced)
            it.run.fence()
            had = list(first.got)
            if successor:
                await second.read()
                assert (second.rounded, second.end) == (items, fault)
            await it.exchange.close()
            await reading
            assert first.got == had
            assert first.rounded == items[: len(had)]
            assert first.end is Fenced or (first.rounded, first.end) == (items, fault)
        played = World()
        recorded = Tape.load(it.exchange.tape.record())
        third = Reader(played.run(played.exchange(recorded), "fail").effects())
        await third.read()
        assert (third.rounded, third.end) == (items, fault)
        assert played.made == []

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scene())
    assert workers.calls == [BUILD]
    assert journal.stored == ["begun", "complete" if fault is None else "error"]


@given(builds, moments)
def test_a_killed_build_is_never_run_again(build: Build, killed: float) -> None:
    """Its tape as stored at any moment resumes with its result, or with an unknown one.

    The lines of progress that were stored are played again.
    """
    items, fault = build.expected()

    async def until_killed() -> bytes:
        tape = Tape()
        answer = tape.add(HUMAN_ANSWER, "ask", canonical(AwaitAnswer("h1")), 0)
        answer.append(HumanAnswer("approve"))
        answer.close("complete", 0)
        workers = build.workers()
        journal = SlowJournal(workers)
        async with live(World(workers=workers), tape, write=DEADLINE, journal=journal) as it:
            reading = asyncio.create_task(Reader(it.effects).read())
            await asyncio.sleep(killed)
            stored = interrupted_tape(REQUEST, tape, answer)
            await reading
        return stored

    async def resumed(stored: bytes) -> tuple[Reader, World]:
        world = World()
        exchange = world.exchange(reopened(read_paused(stored), limit=1 << 20))
        reader = Reader(world.run(exchange).effects())
        await reader.read()
        await exchange.close()
        return reader, world

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        stored = runner.run(until_killed())
        reader, world = runner.run(resumed(stored))
    unknown = unknown_outcomes(read_paused(stored))
    assert world.made == []
    if unknown:
        assert unknown == ("deploy.build",)
        *progress, last = reader.got
        assert last.result == WorkerResult(ok=False, message="", code="outcome_unknown")
        assert progress == reader.got[: len(progress)]
        assert reader.rounded[:-1] == [it for it in items if it.result is None][: len(progress)]
        assert len(progress) == sum(it.at / 10 <= killed and it.result is None for it in items)
    else:
        assert (reader.rounded, reader.end) == (items, fault)


def test_an_effect_of_a_service_is_unknown_by_its_name() -> None:
    """The audit and the log say which one it was that a killed router had begun."""
    tape = Tape()
    answer = tape.add(HUMAN_ANSWER, "ask", canonical(AwaitAnswer("h1")), 0)
    answer.append(HumanAnswer("approve"))
    answer.close("complete", 0)
    tape.add(
        EXTERNAL_RUN, "orders.insert", canonical(ExternalCall({"item": "tea"})), 1
    ).begun = True
    paused = read_paused(interrupted_tape(REQUEST, tape, answer))
    assert unknown_outcomes(paused) == ("orders.insert",)


@pytest.mark.virtual
async def test_a_lock_is_held_as_long_as_a_build_goes_on() -> None:
    """The client has left; the next turn of its session must not begin before the build's end."""
    workers = ScriptedWorkers({"deploy.build": ["compiling", Wait(20.0), BUILT]})
    async with live(World(workers=workers)) as it:
        await it.effects.locks.acquire("session", "key", 60.0)
        reading = asyncio.create_task(Reader(it.effects).read())
        await turns()
        reading.cancel()
        it.exchange.cancel()
        closing = asyncio.create_task(it.exchange.close())
        await asyncio.sleep(19.0)
        assert not await it.world.live().locks.acquire("other", "key", 60.0)
        await closing
    assert workers.ended == [BUILD]
    assert await it.world.live().locks.acquire("other", "key", 60.0)


class StubbornWorkers:
    """Workers that have their result and fail, or hang, when they are then closed."""

    def __init__(self, *, hangs: bool) -> None:
        self._hangs = hangs

    async def run(self, *_: object) -> AsyncIterator[WorkerUpdate]:
        """Result, then trouble."""
        try:
            yield WorkerUpdate(result=BUILT)
        finally:
            if self._hangs:
                await asyncio.sleep(3_600.0)
            raise OSError


@pytest.mark.virtual
@pytest.mark.parametrize("hangs", [False, True])
async def test_what_goes_wrong_after_the_result_does_not_lose_it(
    *, hangs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; a worker that does not come to its end is cut off at its deadline."""
    world = World()
    stubborn = world.live(workers=StubbornWorkers(hangs=hangs))
    async with live(world, live=stubborn, write=3.0) as it:
        reader = Reader(it.effects)
        await reader.read()
        assert (reader.got, reader.end) == ([WorkerUpdate(result=BUILT)], None)
        assert asyncio.get_running_loop().time() == (3.0 if hangs else 0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "workers.run failed after its result"
    ]


@pytest.mark.virtual
async def test_a_build_is_not_held_up_by_a_run_that_does_not_read() -> None:
    """On an overflowed tape the oldest lines go unread; the result is there in time."""
    lines = [f"{number:0100}" for number in range(5_000)]
    workers = ScriptedWorkers({"deploy.build": [*lines, Wait(1.0), BUILT]})
    async with live(World(workers=workers), Tape(limit=1_000)) as it:
        stream = it.effects.workers.run("execute", BUILD)
        got = [await anext(stream)]
        await asyncio.sleep(2.0)
        assert workers.ended == [BUILD]
        [entry] = it.exchange.tape.entries
        assert sum(item is not None for item in entry.items) <= 1_024
        got += [update async for update in stream]
        assert [update.progress for update in got[:-1]] == lines[1 - len(got) :]
        assert got[-1].result == BUILT


class DeafWorkers:
    """Workers that go on after their end, silent or not, for forty seconds."""

    def __init__(self, line: str, every: float) -> None:
        self._line = line
        self._every = every

    async def run(self, *_: object) -> AsyncIterator[WorkerUpdate]:
        """Say the line again and again, cancelled or not; at last the result."""
        now = asyncio.get_running_loop().time
        until = now() + 40.0
        while now() < until:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(min(self._every, until - now()))
            yield WorkerUpdate(self._line)
        yield WorkerUpdate(result=BUILT)


@pytest.mark.virtual
@pytest.mark.parametrize("every", [0.5, 60.0])
async def test_a_worker_that_ignores_its_end_is_left_behind(
    every: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Its readers get the fault and the exchange ends, five seconds after the deadline."""
    world = World()
    deaf = world.live(workers=DeafWorkers("on", every))
    async with live(world, live=deaf, write=3.0) as it:
        await it.effects.locks.acquire("session", "key", 60.0)
        reader = Reader(it.effects)
        await reader.read()
        await it.exchange.close()
        assert reader.end == Fault("deadline", data={"seconds": 3.0})
        assert asyncio.get_running_loop().time() == pytest.approx(8.0)
        held = it.exchange.tape.record()
    assert await world.live().locks.acquire("other", "key", 60.0)
    await asyncio.sleep(60.0)
    assert it.exchange.tape.record() == held
    assert [record.getMessage() for record in caplog.records] == [
        "workers.run ignores its deadline, and is left behind"
    ]
