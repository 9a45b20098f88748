"""What the engine keeps of a conversation, in each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract.flows.session import SessionOptions, SessionRequest
from contract.model import Chunk
from contract.stores import MemoryEntry
from effects.memory import InMemoryMemory
from effects.stores.values import DataSubject
from graph_impl.threads import Threads, opened_threads
from tests.flows.playing import FOREVER, STACKS, begin, record
from tests.flows.session.conversing import House, Saying
from tests.flows.session.reading import said, shown
from tests.flows.session.threads import SECRET, SESSION, Place, graph, hold, turn
from tests.support.postgres import own_schema


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sockets)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Give a place with nothing in it."""
    if request.param == "sqlite":
        yield Place(f"sqlite:///{tmp_path}/threads.db")
        return
    async with own_schema(request.getfixturevalue("postgres_dsn")) as address:
        yield Place(address)


async def test_only_the_newest_state_is_kept(place: Place) -> None:
    """After any number of turns as many rows as after one, and the thread is the store's."""
    async with opened_threads(place.address) as threads:
        house = House()
        await hold(threads, house, 1)
        rows = place.rows()
        await hold(threads, house, 4)
        assert place.rows() == rows
        assert await said(threads, SESSION) == shown(house.conversations.turns)


async def test_only_what_was_said_is_kept(place: Place) -> None:
    """No system prompt, no memories, no tools and no answers of theirs, wherever one looks."""
    known = MemoryEntry(memory_id="k", user_id="u", text="likes MEDLARS", session_id="other")
    async with opened_threads(place.address) as threads:
        await hold(threads, House(memory=InMemoryMemory([known])), 2)
    kept = place.everything()
    assert SECRET.encode() in kept
    for word in (b"BRIEF", b"MEDLARS", b"pears", b"SIX", b"dice"):
        assert word not in kept


async def test_what_is_forgotten_is_nowhere(place: Place, tmp_path: Path) -> None:
    """Not in the tables, not in free pages, not in the log; other threads stay."""
    async with opened_threads(place.address) as threads:
        await hold(threads, House(), 3)
        await graph_of_another(threads)
        await threads.forget(SESSION)
        assert await said(threads, SESSION) is None
        assert await said(threads, "s-2") is not None
        assert SECRET.encode() not in place.everything()
        assert SECRET.encode() not in stored(tmp_path)
        await threads.forget("s-2")
        assert set(place.rows().values()) == {0}


def stored(folder: Path) -> bytes:
    """Give the files of the threads."""
    return b"".join(path.read_bytes() for path in folder.glob("threads.db*"))


async def graph_of_another(threads: Threads) -> None:
    """Hold a turn of another session."""
    body = SessionRequest(message="of another", session_id="s-2")
    options = SessionOptions(unknown_session="create")
    await record(graph(threads), Saying(body=body, options=options))


async def test_what_was_learnt_too_late_is_not_kept() -> None:
    """A session deleted while facts are drawn from it leaves none."""
    gone: list[int] = []

    class Forgetting(InMemoryMemory):
        """Notices when something is written."""

        async def write(self, site: str, entries: tuple[MemoryEntry, ...]) -> int:
            """Remember."""
            gone.append(len(entries))
            return await super().write(site, entries)

    house = House(memory=Forgetting())
    for name in ("legacy", "graph"):
        saying = replace(turn(house, 1, learns=True), learnt=(Chunk(text='["too late"]'),))
        world = saying.world()
        exchange = world.exchange()
        drive = begin(STACKS[name], saying, exchange)
        while not drive.complete:
            await drive.changed.wait()
        await house.conversations.erase(DataSubject("chat", SESSION))
        assert await drive.gone(FOREVER)
        await exchange.close()
    assert gone == []
