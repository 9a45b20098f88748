"""A worker and its deliveries: how each ends, and which stay on the stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from contract.errors import EffectFailed, Fault
from contract.records import RunRecord
from cutover.shadow_worker.candidates import Candidates, CannotRun, ShadowPair
from cutover.shadow_worker.worker import TRIES, ShadowWorker, Stored, StoredPairs
from effects.stores.shadow_stream import RouterStream
from router.shadow.workers import ShadowTold, encode_handed
from tests.support.records import a_run
from tests.support.shadow_streams import AT_ONCE, Place, Reading, own_stream

pytestmark = pytest.mark.sockets

SERVED = a_run("e-1")
SHADOW = msgspec.structs.replace(
    SERVED, role="shadow", stack="graph", frames=((1, "data: 1\n\n"),), run_us=7
)


@dataclass
class Scripted:
    """Candidates that do what they are told: give this judgement, or raise."""

    does: Any = "equal"
    ran: int = 0

    async def pair(self, runs: tuple[RunRecord, ...]) -> ShadowPair:
        """Run one."""
        self.ran += 1
        if isinstance(self.does, BaseException):
            raise self.does
        return ShadowPair(runs, SHADOW, self.does)


@dataclass
class Written:
    """Captures that note what is stored, or refuse it."""

    stores: Stored = "stored"
    runs: list[RunRecord] = field(default_factory=list)

    async def aclose(self) -> None:
        """Close."""

    async def store(self, runs: Sequence[RunRecord]) -> Stored:
        """Store runs."""
        self.runs += runs
        return self.stores


@dataclass
class Bench:
    """A router's end, a worker that reads, and what it does with what it has read."""

    router: RouterStream
    reading: Reading
    place: Place
    candidates: Scripted = field(default_factory=Scripted)
    written: Written = field(default_factory=Written)

    def worker(self) -> ShadowWorker:
        """Return a worker as it is after a start."""
        parts = cast("Candidates", self.candidates), cast("StoredPairs", self.written)
        return ShadowWorker(self.reading.stream, *parts)

    async def handed(self) -> None:
        """Hand the exchange over, and let a worker take it."""
        await self.router.send(encode_handed(self.router.router, [SERVED]))
        await self.take()

    async def take(self) -> None:
        """Let a worker see what comes next to its end."""
        worker = self.worker()
        await worker.take(await self.reading.read())
        await worker.ended()

    async def told(self) -> list[ShadowTold]:
        """Return what the router is told."""
        return [msgspec.json.decode(one, type=ShadowTold) for one in await self.router.told()]


@pytest.fixture
async def bench(redis_url: str) -> AsyncIterator[Bench]:
    """Make a stream with a router and a worker."""
    async with (
        own_stream(redis_url) as place,
        aclosing(place.router()) as router,
        place.worker(AT_ONCE) as reading,
    ):
        yield Bench(router, reading, place)


@pytest.mark.parametrize("judgement", ["equal", "different"])
async def test_a_pair_is_written_and_told(bench: Bench, judgement: str) -> None:
    """The router gets what it counts of the shadow, and nothing else of it."""
    bench.candidates.does = judgement
    await bench.handed()
    facts = msgspec.structs.replace(SHADOW, frames=())
    assert await bench.told() == [
        ShadowTold("e-1", "compared", judgement, captured=True, run=facts)
    ]
    assert bench.written.runs == [SERVED, SHADOW]
    assert await bench.place.left() == 0


async def test_one_that_was_taken_back_is_written_by_its_router(bench: Bench) -> None:
    """The worker leaves it alone, though it has run it, and tells nobody."""
    await bench.router.send(encode_handed(bench.router.router, [SERVED]))
    bench.candidates.pair = _claimed_meanwhile(bench)  # type: ignore[method-assign]
    await bench.take()
    assert (await bench.told(), bench.written.runs, await bench.place.left()) == ([], [], 0)


def _claimed_meanwhile(bench: Bench) -> Any:
    async def pair(runs: tuple[RunRecord, ...]) -> ShadowPair:
        assert await bench.router.take_back({"e-1": ""}) == {"e-1"}
        return ShadowPair(runs, SHADOW, "equal")

    return pair


async def test_what_the_captures_drop_comes_back(bench: Bench) -> None:
    """The router writes it down itself."""
    bench.written.stores = "dropped"
    await bench.handed()
    assert await bench.told() == [ShadowTold("e-1", "dropped", "captures")]


async def test_what_the_captures_may_have_dropped_is_not_written_again(bench: Bench) -> None:
    """Of a piece some are stored, and which is not known."""
    bench.written.stores = "unclear"
    await bench.handed()
    assert await bench.told() == [ShadowTold("e-1", "failed", "captures", captured=True)]


async def test_what_cannot_be_run_is_told(bench: Bench) -> None:
    """A worker of another version may not have the flow."""
    bench.candidates.does = CannotRun("stack 'graph' has no flow 'chat' in this process")
    await bench.handed()
    assert await bench.told() == [ShadowTold("e-1", "failed", "cannot")]


async def test_one_that_fails_again_and_again_is_set_aside(bench: Bench) -> None:
    """After three tries, and its router is told then."""
    bench.candidates.does = ValueError("a fault of ours")
    await bench.handed()
    for _ in range(TRIES - 1):
        assert (await bench.told(), await bench.place.left()) == ([], 1)
        await bench.take()
    await bench.take()
    assert await bench.told() == [ShadowTold("e-1", "dropped", "set_aside")]
    assert (bench.candidates.ran, await bench.place.left()) == (TRIES, 0)
    assert await bench.place.redis.xlen(bench.place.prefix + "aside") == 1


@pytest.mark.parametrize(
    "message", [b"", b"router\n{}\n", b"router\nnothing", b'\xff\n{"v":"\xff"}']
)
async def test_what_is_no_exchange_is_set_aside(bench: Bench, message: bytes) -> None:
    """At once: it will not be one later."""
    await bench.router.send(message)
    await bench.take()
    assert (await bench.told(), await bench.place.left()) == ([], 0)
    assert await bench.place.redis.xlen(bench.place.prefix + "aside") == 1


async def test_an_end_that_cannot_be_told_is_told_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pair is written once; a worker that stops leaves it to the router."""
    monkeypatch.setattr("cutover.shadow_worker.worker._AGAIN_SECONDS", 0.0)
    done, away = bench.reading.stream.done, [True, True]

    async def unsure(*arguments: Any) -> None:
        if away:
            away.pop()
            raise EffectFailed(Fault("store_unavailable"))
        await done(*arguments)

    monkeypatch.setattr(bench.reading.stream, "done", unsure)
    await bench.handed()
    assert [one.state for one in await bench.told()] == ["compared"]
    assert len(bench.written.runs) == 2
    away.append(True)
    await bench.router.send(
        encode_handed(bench.router.router, [msgspec.structs.replace(SERVED, exchange="e-2")])
    )
    worker = bench.worker()
    await worker.take(await bench.reading.read())
    worker.stopping.set()
    await worker.ended()
    assert (await bench.told(), await bench.place.left()) == ([], 1)


async def test_a_worker_that_stops_begins_nothing_more(bench: Bench) -> None:
    """What it has read is another's at once."""
    await bench.router.send(encode_handed(bench.router.router, [SERVED]))
    worker = bench.worker()
    delivery = await bench.reading.read()
    worker.stopping.set()
    await worker.take(delivery)
    await worker.aclose(0.0)
    assert (bench.candidates.ran, await bench.place.left()) == (0, 1)
    async with bench.place.worker(AT_ONCE) as other:
        assert await other.read() == delivery


async def test_many_that_come_together_are_stored_in_one_piece() -> None:
    """And the next ones in another; what is dropped meanwhile is of that one."""
    writer = Writer()
    pairs = StoredPairs(cast("Any", writer), 0.0)
    assert await asyncio.gather(*(pairs.store([SERVED]) for _ in range(3))) == ["stored"] * 3
    assert (writer.puts, writer.flushes) == (3, 1)
    writer.drops = 2
    assert await asyncio.gather(*(pairs.store([SERVED]) for _ in range(2))) == ["dropped"] * 2
    writer.drops = 1
    assert await asyncio.gather(*(pairs.store([SERVED]) for _ in range(2))) == ["unclear"] * 2
    assert await pairs.store([SERVED]) == "stored"
    assert (writer.puts, writer.flushes) == (8, 4)


async def test_what_an_object_store_refuses_is_stored_before_a_delivery_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits in the memory of the worker, which may end; what is lost in the end is a drop."""
    monkeypatch.setattr("cutover.shadow_worker.worker._AGAIN_SECONDS", 0.0)
    writer = Writer(refuses=3)
    pairs = StoredPairs(cast("Any", writer), 0.0)
    assert await pairs.store([SERVED]) == "stored"
    assert writer.flushes == 3
    writer.refuses, writer.drops = 3, 1
    assert await pairs.store([SERVED]) == "dropped"
    assert writer.flushes == 4


async def test_at_its_end_a_worker_waits_for_no_place_that_refuses() -> None:
    """What is not stored by then is dropped, and so is what comes later."""
    writer = Writer(refuses=1_000)
    pairs = StoredPairs(cast("Any", writer), 60.0)
    early = asyncio.create_task(pairs.store([SERVED]))
    await asyncio.sleep(0)
    await pairs.aclose()
    assert await early == "dropped"
    assert await pairs.store([SERVED]) == "dropped"


@dataclass
class Writer:
    """A writer of captures that counts."""

    puts: int = 0
    flushes: int = 0
    drops: int = 0
    refuses: int = 0
    closed: bool = False
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> Any:
        """What it has dropped."""
        return self

    def put(self, runs: Sequence[RunRecord]) -> None:
        """Take runs."""
        del runs
        self.puts += 1
        if self.drops or self.closed:
            self.drops = max(self.drops - 1, 0)
            self.dropped["disk"] = self.dropped.get("disk", 0) + 1

    async def flush(self) -> bool:
        """Store them, unless they are refused."""
        self.flushes += 1
        self.refuses -= self.refuses > 0
        return not self.refuses

    async def aclose(self) -> int:
        """Store what is left; what a place refuses remains."""
        self.closed = True
        return int(self.refuses > 0)
