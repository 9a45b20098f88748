"""Handing exchanges to workers: each is told of once, whatever its stream does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from contract.errors import EffectFailed, Fault
from router.config.schema import ShadowSettings
from router.shadow.workers import (
    ShadowTold,
    ShadowWorkers,
    decode_handed,
    encode_handed,
    encode_told,
)
from tests.support.records import a_run

pytestmark = pytest.mark.virtual

AWAY = EffectFailed(Fault("store_unavailable", retryable=True))
LATE = 60.0


@dataclass
class Stream:
    """A stream whose worker does what it is told; out of reach while it is `away`."""

    router: str = "r"
    away: bool = False
    sent: list[str] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    asked: list[dict[str, str]] = field(default_factory=list)
    loses_reply: bool = False

    async def send(self, message: bytes) -> str:
        """Take an exchange; one whose reply is lost is taken, too."""
        if self.loses_reply:
            self.sent += [run.exchange for run in decode_handed(message).runs]
            raise AWAY
        await self._answer()
        self.sent += [run.exchange for run in decode_handed(message).runs]
        return f"place of {self.sent[-1]}"

    async def told(self) -> Sequence[bytes]:
        """Return what is to be told."""
        await asyncio.sleep(0.5)
        await self._answer()
        answers, self.answers = self.answers, []
        return answers

    async def take_back(self, places: Mapping[str, str]) -> frozenset[str]:
        """Take exchanges off, and those back that nobody has claimed."""
        self.asked.append(dict(places))
        await self._answer()
        return frozenset(places) - self.claimed

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise AWAY


@dataclass
class Handing:
    """A stream, what hands exchanges to it, and what was told of them."""

    stream: Stream
    workers: ShadowWorkers
    told: list[ShadowTold] = field(default_factory=list)

    def hand(self, *exchanges: str) -> None:
        """Hand exchanges over."""
        for one in exchanges:
            self.workers.send(one, [a_run(one)])


@asynccontextmanager
async def handing(queue: int = 256) -> AsyncIterator[Handing]:
    """Hand exchanges to a stream."""
    stream, settings = Stream(), ShadowSettings(queue=queue, worker_seconds=LATE)
    workers = ShadowWorkers(stream, lambda: settings, asyncio.get_running_loop().time)
    made = Handing(stream, workers)
    workers.on_told = made.told.append
    async with workers.running():
        yield made


def test_an_exchange_comes_as_it_was_handed_over() -> None:
    """With all its runs, and the router to tell."""
    runs = (a_run("e"), a_run("e"))
    assert decode_handed(encode_handed("r", runs)) == ("r", runs)


async def test_each_is_told_of_once() -> None:
    """A second word of it, or one of an exchange nobody knows, is passed over."""
    async with handing() as it:
        it.hand("a", "b")
        assert (it.workers.waiting, it.workers.lag) == (2, 0.0)
        a = ShadowTold("a", "compared", "equal", captured=True)
        unknown = ShadowTold("x", "compared", "equal", captured=True)
        it.stream.answers = [b"of no version", *map(encode_told, (a, a, unknown))]
        await asyncio.sleep(1.0)
        assert (it.stream.sent, it.told, it.workers.waiting) == (["a", "b"], [a], 1)
        assert it.workers.lag == 1.0


async def test_a_queue_has_its_length() -> None:
    """What is told of makes room."""
    async with handing(queue=2) as it:
        it.hand("a", "b")
        assert it.workers.full
        it.stream.answers = [encode_told(ShadowTold("a", "failed", "cannot"))]
        await asyncio.sleep(1.0)
        assert not it.workers.full


async def test_a_stream_out_of_reach_gives_all_back_at_once() -> None:
    """And says so until it is back."""
    async with handing() as it:
        it.stream.away = True
        it.hand("a", "b", "c")
        await asyncio.sleep(1.0)
        # That the first was not sent is not known; the others never were.
        assert it.told == [ShadowTold(one, "dropped", "broker") for one in "bc"]
        fault = it.workers.fault
        assert fault == "nothing can be sent: effect failed with 'store_unavailable'"
        it.stream.away = False
        it.hand("d")
        await asyncio.sleep(2.0)
        assert it.stream.sent == ["d"]
        assert it.told[2:] == [ShadowTold("a", "dropped", "broker")]
        assert it.workers.fault is None


async def test_one_whose_reply_is_lost_is_not_written_twice() -> None:
    """A worker may have it: who has claimed it writes it down, and nobody else."""
    async with handing() as it:
        it.stream.loses_reply = True
        it.stream.claimed.add("b")
        it.hand("a")
        await asyncio.sleep(1.0)
        it.hand("b")
        await asyncio.sleep(1.0)
        assert it.stream.sent == ["a", "b"]
        assert it.told == [
            ShadowTold("a", "dropped", "broker"),
            ShadowTold("b", "failed", "broker", captured=True),
        ]


async def test_a_stream_that_stays_away_does_not_hold_what_is_in_doubt() -> None:
    """Twice in the captures it would count once."""
    async with handing() as it:
        it.stream.away = True
        it.hand("a")
        await asyncio.sleep(29.0)
        assert it.told == []
        await asyncio.sleep(4.0)
        assert it.told == [ShadowTold("a", "dropped", "broker")]


async def test_at_its_end_a_stream_that_hangs_is_asked_once() -> None:
    """However many wait: a router has seconds to stop."""
    async with handing() as it:
        it.hand(*map(str, range(50)))
        await asyncio.sleep(1.0)
        it.stream.away = True
        await it.workers.aclose(0.0)
        assert len(it.stream.asked) == 1
        assert it.told == [ShadowTold(str(one), "dropped", "stopping") for one in range(50)]


async def test_what_is_told_too_late_is_not_waited_for() -> None:
    """One that a worker has claimed is its own; of one that nobody can be asked about, too."""
    async with handing() as it:
        it.hand("a", "b")
        it.stream.claimed.add("b")
        await asyncio.sleep(LATE + 1.0)
        assert it.told == [
            ShadowTold("a", "dropped", "unanswered"),
            ShadowTold("b", "failed", "unanswered", captured=True),
        ]
        it.hand("c")
        await asyncio.sleep(LATE / 2)
        it.stream.away = True
        await asyncio.sleep(LATE / 2 + 2.0)
        assert it.told[2:] == [ShadowTold("c", "dropped", "unanswered")]


async def test_at_its_end_it_waits_and_takes_back_the_rest() -> None:
    """As long as it may."""
    async with handing() as it:
        it.hand("a", "b")
        await asyncio.sleep(0)
        it.stream.answers = [encode_told(ShadowTold("a", "compared", "equal", captured=True))]
        began = asyncio.get_running_loop().time()
        await it.workers.aclose(5.0)
        assert asyncio.get_running_loop().time() == began + 5.0
        assert [one.state for one in it.told] == ["compared", "dropped"]
        await it.workers.aclose(5.0)
        assert asyncio.get_running_loop().time() == began + 5.0
