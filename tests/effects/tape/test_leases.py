"""Effects that the caller performs: on the tape without a task, at most once, in bounded time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from contract.errors import EffectFailed, Fault
from contract.external import IN_DOUBT, ExternalResult, ExternalUpdate
from contract.operations import EXTERNAL_READ, EXTERNAL_RUN, WriteLimits
from effects.tape import Entry, Exchange, Lease, LentCall, TapeSession
from effects.testing import World

pytestmark = pytest.mark.virtual

DONE = ExternalUpdate(result=ExternalResult(7))


@dataclass
class Notes:
    """A journal that notes what it is told; `held` before each answer."""

    allows: bool = True
    held: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[str] = field(default_factory=list)

    async def begin(self, entry: Entry, /) -> bool:
        """Note a write."""
        assert entry.end == "open"
        self.told.append("begin")
        await self.held.wait()
        return self.allows

    async def end(self, entry: Entry, /) -> None:
        """Note how it ended; no run has read it yet."""
        assert entry.end == "open"
        await self.held.wait()
        self.told.append(entry.known_end)


async def lent(
    exchange: Exchange, seconds: float | None = None, *, read: bool = False
) -> tuple[Lease, Entry]:
    """Begin an effect that was not made before."""
    lease = Lease(seconds)
    call = LentCall.made({"order": len(exchange.tape.entries)}, "", lease)
    operation = EXTERNAL_READ if read else EXTERNAL_RUN
    _, entry = await TapeSession(exchange, "run").begin(operation, "insert", call)
    return lease, entry


def ending(entry: Entry) -> tuple[str, Fault | None]:
    """Return how an entry has ended."""
    return entry.end, entry.fault


@pytest.mark.parametrize("read", [False, True])
async def test_what_is_reported_is_on_the_tape_at_once(*, read: bool) -> None:
    """Values as they come and the result; the exchange has nothing left to wait for."""
    exchange = World().exchange()
    lease, entry = await lent(exchange, read=read)
    assert not lease.take([ExternalUpdate(1), ExternalUpdate(2)])
    assert ([item.value for item in entry.items], ending(entry)) == ([1, 2], ("open", None))
    assert lease.take([DONE])
    await lease.settle()
    assert (ending(entry), lease.ended) == (("complete", None), "reported")
    assert await TapeSession(exchange, "other").outcome(entry) == entry.items
    await asyncio.sleep(0)
    assert exchange.close_if_idle()


async def test_a_journal_has_it_before_and_after() -> None:
    """It is lent once that is stored; the result is, too, where the reporter leaves."""
    notes = Notes()
    exchange = World().exchange(journal=notes)
    beginning = asyncio.create_task(lent(exchange))
    await asyncio.sleep(1)
    assert (notes.told, beginning.done()) == (["begin"], False)
    notes.held.set()
    lease, entry = await beginning
    assert entry.begun
    notes.held.clear()
    lease.take([DONE])
    reporting = asyncio.create_task(lease.settle())
    await asyncio.sleep(1)
    assert entry.end == "open"
    reporting.cancel()
    await asyncio.sleep(1)
    notes.held.set()
    await asyncio.wait({reporting})
    assert (reporting.cancelled(), ending(entry)) == (True, ("complete", None))
    assert notes.told == ["begin", "complete"]
    await exchange.close()


@pytest.mark.parametrize("allowed", [False, True])
async def test_what_the_journal_has_not_is_not_lent(*, allowed: bool) -> None:
    """It refuses, or who asked is gone by then: nothing has been performed."""
    notes = Notes(allows=False)
    exchange = World().exchange(journal=notes)
    beginning = asyncio.create_task(lent(exchange))
    await asyncio.sleep(1)
    if allowed:
        beginning.cancel()
        await asyncio.wait({beginning})
    else:
        notes.held.set()
        lease, _ = await beginning
        assert lease.ended == "expired"
        assert not lease.take([])
    [entry] = exchange.tape.entries
    assert (ending(entry), entry.begun) == (("cut", None), False)
    await exchange.close()


@pytest.mark.parametrize("journal", [None, Notes()])
async def test_an_abandoned_effect_is_in_doubt(journal: Notes | None) -> None:
    """Whatever is reported later is not taken; the exchange ends once the journal knows."""
    exchange = World().exchange(journal=journal)
    if journal is not None:
        journal.held.set()
    lease, entry = await lent(exchange)
    if journal is not None:
        journal.held.clear()
    lease.abandon()
    assert lease.ended == "expired"
    lease.take([DONE])
    lease.abandon()
    closing = asyncio.create_task(exchange.close())
    await asyncio.sleep(1)
    if journal is not None:
        assert entry.end == "open"
        journal.held.set()
    await closing
    assert (ending(entry), entry.items) == (("error", Fault(IN_DOUBT)), [])
    if journal is not None:
        assert journal.told == ["begin", "error"]


async def test_leases_end_by_silence_and_by_their_deadline() -> None:
    """One timer looks after all; signs of life put the end of one off, to the deadline at most."""
    exchange = World().exchange(write=WriteLimits(20.0))
    loop = asyncio.get_running_loop()
    slow, first = await lent(exchange)
    silent, second = await lent(exchange, 3.0)
    alive, third = await lent(exchange, 3.0)
    began = loop.time()
    ended: dict[int, int] = {}
    while len(ended) < 3:
        await asyncio.sleep(1)
        if not alive.ended:
            alive.take([])
        for entry in (first, second, third):
            if entry.end != "open":
                ended.setdefault(entry.seq, round(loop.time() - began))
    assert ended == {0: 20, 1: 3, 2: 20}
    assert second.fault == Fault(IN_DOUBT, data={"seconds": 3.0})
    assert first.fault == third.fault == Fault("deadline", data={"seconds": 20.0})
    assert {slow.ended, silent.ended} == {"expired"}
    with pytest.raises(EffectFailed):
        await TapeSession(exchange, "other").outcome(second)
    await exchange.close()


async def test_a_read_ends_with_its_exchange_and_a_write_does_not() -> None:
    """The exchange waits for the write's report; nothing more is lent."""
    exchange = World().exchange()
    reading, read = await lent(exchange, read=True)
    writing, written = await lent(exchange)
    closing = asyncio.create_task(exchange.close())
    await asyncio.sleep(1)
    assert (ending(read), reading.ended) == (("cut", None), "expired")
    assert (written.end, exchange.writes) == ("open", (written,))
    late, refused = await lent(exchange)
    assert (late.ended, refused.end) == ("expired", "cut")
    writing.take([DONE])
    await writing.settle()
    await closing
    assert ending(written) == ("complete", None)
