"""The audit log of instructions: appended to once, never changed, and anonymous once erased."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from contract.errors import EffectFailed
from contract.ports import Audit
from contract.stores import DataSubject
from contract.workers import AuditEntry
from effects.stores import SqlAudit
from effects.workers import MemoryAudit
from tests.support.postgres import PLACES, empty_place, execute

ANN = DataSubject("user", "ann")
CHANGES = ("UPDATE audit_entries SET ok = NULL", "DELETE FROM audit_entries")
_REST = "at, session, event, worker, action, args, risk, who, code, ok"
_AGAIN = f"INTO audit_entries (entry_id, {_REST}) SELECT entry_id, {_REST} FROM audit_entries"
OWN_CHANGES = {
    "sqlite": (
        f"REPLACE INTO audit_entries SELECT seq, 'e-9', {_REST} FROM audit_entries",
        f"REPLACE INTO audit_entries SELECT 9, entry_id, {_REST} FROM audit_entries",
        f"REPLACE {_AGAIN}",
    ),
    "postgresql": (
        "TRUNCATE audit_entries",
        f"INSERT {_AGAIN} ON CONFLICT (entry_id) DO UPDATE SET ok = NULL",
    ),
}


def entry(number: int, **changes: Any) -> AuditEntry:
    """Make an entry of a session, decided by ann."""
    made = AuditEntry(
        entry_id=f"e-{number}",
        at=f"2026-01-01T00:00:{number:02}Z",
        session_id="hers",
        event="executed",
        worker="system",
        action="delete_temporary",
        args={"path": "a.log", "count": 1},
        risk="high",
        by="ann",
        ok=True,
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
async def log(place: str) -> AsyncIterator[SqlAudit]:
    """Return an empty log in a database."""
    async with SqlAudit.open(place) as opened:
        yield opened


@pytest.fixture(params=["memory", *PLACES])
async def audit(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Audit]:
    """Return an empty log, wherever it can be."""
    if request.param == "memory":
        yield MemoryAudit()
        return
    async with empty_place(request, tmp_path) as place, SqlAudit.open(place) as opened:
        yield opened


async def entries(audit: Audit) -> list[AuditEntry]:
    """Return what a log holds, oldest first."""
    if isinstance(audit, SqlAudit):
        return [*reversed(await audit.read())]
    assert isinstance(audit, MemoryAudit)
    return [*audit.entries]


async def test_an_entry_is_there_once(audit: Audit) -> None:
    """However often it is appended, and as it was first."""
    for one in (entry(1), entry(2, by="", ok=None, args={}), entry(1), entry(1, by="ben")):
        await audit.append("audit", one)
    assert await entries(audit) == [entry(1), entry(2, by="", ok=None, args={})]


async def test_entries_are_read_by_session_person_and_page(log: SqlAudit) -> None:
    """Newest first."""
    for number in range(1, 7):
        whose = {"session_id": "his", "by": "ben"} if number % 2 else {}
        await log.append("audit", entry(number, **whose))

    async def read(**filters: Any) -> list[str]:
        return [one.entry_id for one in await log.read(**filters)]

    assert await read(limit=2) == ["e-6", "e-5"]
    assert await read(before="e-3") == ["e-2", "e-1"]
    assert await read(session_id="hers") == ["e-6", "e-4", "e-2"]
    assert await read(by="ben", before="e-5", limit=1) == ["e-3"]
    assert await read(by="nobody") == await read(before="nothing") == []


async def test_nothing_in_the_log_can_be_changed(log: SqlAudit, place: str) -> None:
    """The database refuses it, of whichever program."""
    await log.append("audit", entry(1))
    for change in (*CHANGES, *OWN_CHANGES[place.partition(":")[0]]):
        with pytest.raises((sqlite3.Error, psycopg.Error), match="append-only"):
            execute(place, change)
    assert await log.read() == (entry(1),)


async def test_an_earlier_log_is_closed_to_replacing_too(tmp_path: Path) -> None:
    """When it is opened; SQLite runs no trigger on what `REPLACE` deletes."""
    place = f"sqlite:///{tmp_path}/log.sqlite"
    async with SqlAudit.open(place) as log:
        await log.append("audit", entry(1))
    execute(place, "DROP TRIGGER audit_entries_REPLACE")
    execute(place, "UPDATE schema_versions SET version = 1 WHERE store = 'audit'")
    async with SqlAudit.open(place) as log:
        with pytest.raises(sqlite3.Error, match="append-only"):
            execute(place, f"REPLACE {_AGAIN}")
        assert await log.read() == (entry(1),)


@pytest.mark.parametrize(
    ("subject", "left"),
    [
        (ANN, {"session_id": "hers"}),
        (DataSubject("chat", "hers"), {"by": "ann"}),
    ],
)
async def test_an_erased_name_leaves_a_pseudonym(
    log: SqlAudit, place: str, subject: DataSubject, left: dict[str, str]
) -> None:
    """Equal in all entries there were, and nothing leads back from it; the log stays."""
    await log.append("audit", entry(1))
    await log.append("audit", entry(2))
    assert "ann" not in repr(execute(place, "SELECT * FROM audit_entries"))
    assert await log.erase(subject) == 1
    assert await log.erase(subject) == 0
    second, first = await log.read()
    erased = "by" if subject.kind == "user" else "session_id"
    pseudonym = getattr(first, erased)
    assert pseudonym == getattr(second, erased) != getattr(entry(1), erased)
    assert first == msgspec.structs.replace(entry(1), **{erased: pseudonym})
    assert {key: getattr(first, key) for key in left} == left
    for name, found in ((subject.value, ()), (pseudonym, (second, first))):
        by, session_id = (name, "") if erased == "by" else ("", name)
        assert await log.read(by=by, session_id=session_id) == found
    tables = [execute(place, f"SELECT * FROM audit_{name}") for name in ("entries", "pseudonyms")]
    assert subject.value not in repr(tables)


async def test_appending_again_names_no_one_who_was_erased(log: SqlAudit, place: str) -> None:
    """A new entry has a new pseudonym, which is not that of the old ones."""
    await log.append("audit", entry(1))
    await log.erase(ANN)
    await log.append("audit", entry(1))
    assert execute(place, "SELECT name FROM audit_pseudonyms WHERE kind = 'person'") == []
    await log.append("audit", entry(2))
    new, old = await log.read()
    assert (new.by, old.by.partition("-")[0]) == ("ann", "person")


async def test_a_message_names_no_one_here(log: SqlAudit) -> None:
    """Entries hold no message id."""
    await log.append("audit", entry(1))
    assert await log.erase(DataSubject("message", "ann")) == 0


async def test_routers_that_append_at_once_agree_on_pseudonyms(place: str) -> None:
    """Each name has one, whichever of them was first."""
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(SqlAudit.open(place)) for _ in range(3)]
        await asyncio.gather(
            *(log.append("audit", entry(number)) for number in range(1, 5) for log in logs)
        )
        found = await logs[0].read(by="ann", session_id="hers")
    assert sorted(one.entry_id for one in found) == ["e-1", "e-2", "e-3", "e-4"]
    assert len(execute(place, "SELECT DISTINCT who, session FROM audit_entries")) == 1


async def test_what_cannot_be_stored_is_a_fault(log: SqlAudit) -> None:
    """Of the port: the flow does not go on as if it were in the log."""
    for broken in ({"by": "a\x00"}, {"session_id": "\ud800"}, {"entry_id": "\x00"}):
        with pytest.raises(EffectFailed, match="'audit_unavailable'"):
            await log.append("audit", entry(1, **broken))
    assert await log.read() == ()
    await log.aclose()
    with pytest.raises(EffectFailed, match="'audit_unavailable'"):
        await log.append("audit", entry(1))
