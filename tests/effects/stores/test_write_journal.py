"""The journal of exchanges' writes: every store passes one suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from effects.stores import MemoryWriteJournal, SqlWriteJournal, StoredWrite, WriteJournal
from tests.support.postgres import PLACES, empty_place

NOW = 1_790_000_000.0


@pytest.fixture(params=["memory", *PLACES])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WriteJournal]:
    """Return an empty journal."""
    if request.param == "memory":
        yield MemoryWriteJournal()
        return
    async with empty_place(request, tmp_path) as place, SqlWriteJournal.open(place) as journal:
        yield journal


def write(exchange: str, seq: int, began: float = NOW) -> StoredWrite:
    """Make a write that may take a minute."""
    return StoredWrite(exchange, seq, "chat", "tools.run pay", "begun", began, began + 60.0)


async def test_a_write_without_a_result_is_known_once_its_time_is_over(
    journal: WriteJournal,
) -> None:
    """With the other writes of its exchange, once; those of others stay."""
    for one in (write("a", 1), write("a", 2), write("b", 1, NOW + 1.0), write("c", 1)):
        await journal.begin(one)
    await journal.end("a", 1, "done")
    await journal.end("c", 1, "failed")
    assert await journal.abandoned(NOW + 59.0) == ()
    found = await journal.abandoned(NOW + 60.0)
    assert [(one.exchange, one.seq, one.state) for one in found] == [
        ("a", 1, "done"),
        ("a", 2, "begun"),
    ]
    assert found[1] == write("a", 2)
    assert await journal.abandoned(NOW + 60.0) == ()
    assert [one.exchange for one in await journal.abandoned(NOW + 61.0)] == ["b"]


async def test_the_writes_of_an_exchange_that_never_ended_are_known_after_a_day(
    journal: WriteJournal,
) -> None:
    """Also where all of them have results."""
    await journal.begin(write("a", 1))
    await journal.end("a", 1, "done")
    assert await journal.abandoned(NOW + 86_399.0) == ()
    (found,) = await journal.abandoned(NOW + 86_400.0)
    assert found.state == "done"


async def test_what_an_exchange_leaves_in_doubt_is_known_though_it_has_ended(
    journal: WriteJournal,
) -> None:
    """By itself, when its time is over."""
    await journal.begin(write("a", 1))
    await journal.begin(write("a", 2))
    await journal.end("a", 1, "done")
    await journal.end("a", 2, "in_doubt")
    await journal.close("a")
    assert await journal.abandoned(NOW + 59.0) == ()
    (found,) = await journal.abandoned(NOW + 60.0)
    assert (found.seq, found.state) == (2, "in_doubt")
    assert await journal.abandoned(NOW + 86_400.0) == ()


async def test_an_exchange_that_ended_leaves_nothing(journal: WriteJournal) -> None:
    """Neither do results that come for it afterwards."""
    await journal.begin(write("a", 1))
    await journal.close("a")
    await journal.end("a", 1, "done")
    assert await journal.abandoned(NOW + 86_400.0) == ()
