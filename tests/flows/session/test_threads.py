"""What the engine's threads hold of a conversation, in each store; what a session learns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract.flows.session import SessionOptions, SessionRequest
from contract.model import Chunk
from contract.stores import DataSubject, MemoryEntry, Recall, Revision
from effects.memory import InMemoryMemory
from graph_impl.threads import opened_threads
from tests.support.flow_runs import FOREVER, STACKS, begin, play, record
from tests.support.postgres import own_schema
from tests.support.session_turns import (
    SECRET,
    SESSION_ID,
    House,
    Place,
    Saying,
    graph,
    hold,
    said,
    shown,
    turn,
)

FACTS = (
    '{"facts":["tea",{"text":"tea at five","confidence":0.29},'
    '{"text":"green tea","confidence":0.3},{"text":"no tea","confidence":"high"}]}'
)
ALL = {"tea", "tea at five", "green tea", "no tea"}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sockets)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Return an empty place."""
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
        assert await said(threads, SESSION_ID) == shown(house.conversations.turns)


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
    other = Saying(
        body=SessionRequest(message="of another", session_id="s-2"),
        options=SessionOptions(unknown_session="create"),
    )
    async with opened_threads(place.address) as threads:
        await hold(threads, House(), 3)
        await record(graph(threads), other)
        await threads.forget(SESSION_ID)
        assert await said(threads, SESSION_ID) is None
        assert await said(threads, "s-2") is not None
        assert SECRET.encode() not in place.everything()
        assert SECRET.encode() not in files(tmp_path)
        await threads.forget("s-2")
        assert set(place.rows().values()) == {0}


def files(folder: Path) -> bytes:
    """Return the files of the threads."""
    return b"".join(path.read_bytes() for path in folder.glob("threads.db*"))


async def test_what_was_learnt_too_late_is_not_kept() -> None:
    """A session deleted while facts are extracted from it leaves none."""
    written: list[int] = []

    class Noticing(InMemoryMemory):
        """Notices when something is written."""

        async def write(
            self, site: str, entries: tuple[MemoryEntry, ...], revision: Revision | None = None
        ) -> int:
            """Remember."""
            written.append(len(entries))
            return await super().write(site, entries, revision)

    house = House(memory=Noticing())
    for name in ("legacy", "graph"):
        saying = replace(turn(house, 1, learns=True), learnt=(Chunk(text='["too late"]'),))
        exchange = saying.world().exchange()
        drive = begin(STACKS[name], saying, exchange)
        while not drive.complete:
            await drive.changed.wait()
        await house.conversations.erase(DataSubject("chat", SESSION_ID))
        assert await drive.wait_stopped(FOREVER)
        await exchange.close()
    assert written == []


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("least", "learnt"), [(0.3, {"tea", "green tea"}), (1.0, {"tea"}), (0.0, ALL)]
)
async def test_what_is_unsure_is_not_learnt(stack: str, least: float, learnt: set[str]) -> None:
    """A fact without a confidence is certain; a confidence that is no number is 0."""
    saying = Saying(
        body=SessionRequest(message="I like tea", user_id="u"),
        begins="s",
        options=SessionOptions(extract_from=1, least_confidence=least),
        answers=((Chunk(text="Good."),),),
        learnt=(Chunk(text=FACTS),),
    )
    assert SessionOptions().least_confidence == 0.3
    await play(stack, saying)
    found = await saying.house.memory.recall("test", Recall(user_id="u", query="tea", limit=9))
    assert {entry.text for entry in found} == learnt
