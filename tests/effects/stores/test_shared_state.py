"""Boards: one suite for those in memory, in SQLite and in Redis."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.errors import EffectFailed
from effects.stores import (
    NO_SPENDING,
    BreakerNote,
    MemorySharedState,
    NoteUpdate,
    SharedState,
    Spending,
    SqlSharedState,
)
from effects.stores.redis import RedisSharedState
from effects.stores.shared_state import NOTE_SECONDS
from tests.effects.stores.shared import KINDS, Clock, Makers, Shared, keys_in_redis, opened

KEY = "graph:chat"
OPEN = BreakerNote("a:1", "open", 15.0)
OTHER = BreakerNote("b:1", "open", 15.0)
DAY = 20_717
BOARDS = Makers[SharedState](MemorySharedState, SqlSharedState.open, RedisSharedState)


@pytest.fixture(params=KINDS)
async def shared(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Shared[SharedState]]:
    """Give an empty board of each kind."""
    async with opened(request, tmp_path / "board.sqlite", BOARDS) as boards:
        yield boards


async def test_a_note_is_read_by_others(shared: Shared[SharedState]) -> None:
    """With what is left of its time by the board's own clock."""
    assert await shared.store.update_notes([]) == {}
    put = await shared.store.update_notes([NoteUpdate(KEY, BreakerNote("a:1", "probing", 15.0, 2))])
    read = await shared.other.update_notes([])
    for found in (put[KEY], read[KEY]):
        assert (found.mark, found.phase, found.well) == ("a:1", "probing", 2)
        assert 10.0 < found.left <= 15.0
    if shared.clock is not None:
        shared.clock.now += 12.0
        assert (await shared.other.update_notes([]))[KEY].left == 3.0
        shared.clock.now += 12.0
        assert (await shared.other.update_notes([]))[KEY].left == 0.0


async def test_only_what_is_expected_is_replaced(shared: Shared[SharedState]) -> None:
    """Who comes too late is told what is up; whoever expects anything is never too late."""
    await shared.store.update_notes([NoteUpdate(KEY, OPEN)])
    late = await shared.other.update_notes([NoteUpdate(KEY, OTHER)])
    assert late[KEY].mark == "a:1"
    after = await shared.other.update_notes([NoteUpdate(KEY, OTHER, "a:1")])
    assert after[KEY].mark == "b:1"
    assert (await shared.store.update_notes([NoteUpdate(KEY, OPEN, "a:0")]))[KEY].mark == "b:1"
    closed = BreakerNote("a:2", "closed")
    assert (await shared.store.update_notes([NoteUpdate(KEY, closed, None)]))[KEY].phase == "closed"


async def test_of_many_at_once_one_goes_up(shared: Shared[SharedState]) -> None:
    """Twenty claims for one place; all are told whose it is."""
    await shared.store.update_notes([NoteUpdate(KEY, OPEN)])
    boards = (shared.store, shared.other)
    claims = [NoteUpdate(KEY, BreakerNote(f"{n}:1", "probing", 15.0), "a:1") for n in range(20)]
    told = await asyncio.gather(
        *(boards[n % 2].update_notes([one]) for n, one in enumerate(claims))
    )
    assert len({notes[KEY].mark for notes in told}) == 1


async def test_the_same_again_changes_nothing(shared: Shared[SharedState]) -> None:
    """Whose answer was lost posts again, whatever it expects; its time does not begin anew."""
    await shared.store.update_notes([NoteUpdate(KEY, OPEN)])
    for expected in ("", "a:1", None):
        again = NoteUpdate(KEY, BreakerNote("a:1", "open", 1_000.0), expected)
        assert (await shared.store.update_notes([again]))[KEY].left <= 15.0


async def test_flows_and_stacks_do_not_touch_each_other(shared: Shared[SharedState]) -> None:
    """Any text is a key; several go up at once."""
    keys = ["graph:会话", "legacy:会话", "graph:a b"]
    await shared.store.update_notes(
        [NoteUpdate(key, BreakerNote(f"a:{n}", "open", 1.0)) for n, key in enumerate(keys)]
    )
    found = await shared.other.update_notes([])
    assert {key: note.mark for key, note in found.items()} == dict(
        zip(keys, ("a:0", "a:1", "a:2"), strict=True)
    )


async def test_what_is_spent_is_added_up(shared: Shared[SharedState]) -> None:
    """Each says all it has spent; saying it twice costs nothing, another day is another sum."""
    assert await shared.store.report_spending(DAY, "a", NO_SPENDING) == NO_SPENDING
    assert await shared.store.report_spending(DAY, "a", Spending(3, 0.5)) == Spending(3, 0.5)
    for _ in range(2):
        assert await shared.other.report_spending(DAY, "b", Spending(4, 0.25)) == Spending(7, 0.75)
    assert await shared.store.report_spending(DAY, "a", Spending(10, 1.0)) == Spending(14, 1.25)
    assert await shared.store.report_spending(DAY + 1, "a", NO_SPENDING) == NO_SPENDING


async def test_notes_are_forgotten_in_the_end(tmp_path: Path) -> None:
    """An hour after their time; then their place is empty."""
    clock = Clock()
    async with SqlSharedState.open(tmp_path / "board.sqlite", clock) as file:
        boards: list[SharedState] = [MemorySharedState(clock), file]
        for board in boards:
            await board.update_notes([NoteUpdate(KEY, OPEN)])
        clock.now += NOTE_SECONDS + 15.0
        for board in boards:
            assert await board.update_notes([]) == {}
            assert (await board.update_notes([NoteUpdate(KEY, OTHER)]))[KEY].mark == "b:1"


async def test_days_are_forgotten_in_the_end(tmp_path: Path) -> None:
    """A file keeps yesterday, which a router may still be in, and no day before."""
    path = tmp_path / "board.sqlite"
    async with SqlSharedState.open(path) as board:
        for day in range(4):
            await board.report_spending(DAY + day, "a", Spending(1))
    connection = sqlite3.connect(path)
    days = [day for (day,) in connection.execute("SELECT DISTINCT day FROM board_spent")]
    connection.close()
    assert sorted(days) == [DAY + 1, DAY + 2, DAY + 3]


async def test_a_file_is_only_written_where_there_is_news(tmp_path: Path) -> None:
    """Looking waits for no writer: a second one may hold the file meanwhile."""
    path = tmp_path / "board.sqlite"
    async with SqlSharedState.open(path) as board:
        await board.report_spending(DAY, "a", Spending(1))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert await board.update_notes([]) == {}
        assert await board.report_spending(DAY, "a", Spending(1)) == Spending(1)
        other.close()


@pytest.mark.sockets
async def test_what_is_none_of_the_boards_is_a_fault(redis_url: str) -> None:
    """Somebody else wrote it; it opens no breaker and spends nothing."""
    async with keys_in_redis(redis_url) as keys:
        await keys.client.hset(f"{keys.prefix}notes", KEY, '["a:1","shut",1,0]')
        await keys.client.hset(f"{keys.prefix}spent:{DAY}", "b", "much")
        board = RedisSharedState(redis_url, prefix=keys.prefix)
        for asked in (board.update_notes([]), board.report_spending(DAY, "a", NO_SPENDING)):
            with pytest.raises(EffectFailed) as failed:
                await asked
            assert failed.value.fault.code == "store_failed"
        await keys.client.delete(f"{keys.prefix}notes", f"{keys.prefix}spent:{DAY}")
        await board.aclose()
