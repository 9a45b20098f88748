"""The open world, and the small stores: clock, ids, audit, feedback, encryption."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ArgumentError

from cutover import Exchange
from effects.database import Database
from effects.workers import audit
from effects.workers.audit import AuditEntry
from effects.world import EffectSettings, WorldClosed, current, new_id, open_world, read_clock
from tests.effects.conftest import MovableClock, taped
from tests.support.databases import audit_lines

MEMORY = "sqlite+aiosqlite://"


async def test_the_world_opened_last_is_current() -> None:
    """Closing restores the former one; effects without a world say what to do."""
    with pytest.raises(WorldClosed, match="open_world"):
        current()
    async with open_world(EffectSettings(database=MEMORY)) as outer:
        async with open_world(EffectSettings(database=MEMORY)) as inner:
            assert current() is inner
        assert current() is outer
    with pytest.raises(WorldClosed):
        await read_clock()


async def test_a_driver_that_blocks_is_refused() -> None:
    """`sqlite:` alone names Python's own driver: an error when the world opens."""
    with pytest.raises(ArgumentError, match="asyncio"):
        async with open_world(EffectSettings(database="sqlite://")):
            pass


@pytest.mark.parametrize(
    ("zone", "now"),
    [
        ("UTC", "2023-11-14T22:13:20.000+00:00"),
        ("Asia/Shanghai", "2023-11-15T06:13:20.000+08:00"),
        ("America/St_Johns", "2023-11-14T18:43:20.000-03:30"),
    ],
)
async def test_the_time_is_that_of_the_configured_zone(zone: str, now: str) -> None:
    """ISO 8601 with the zone's offset."""
    async with open_world(EffectSettings(database=MEMORY, zone=zone), MovableClock()):
        assert await read_clock() == now


async def test_ids_are_found_by_kind() -> None:
    """Stacks that draw ids in another order get the same id for the same purpose."""
    async with Exchange() as exchange:
        with taped(exchange):
            session, message = await new_id("session"), await new_id("message")
        with taped(exchange, "play"):
            assert (await new_id("message"), await new_id("session")) == (message, session)
    assert session != message
    assert len(message) == 32


@pytest.mark.usefixtures("world")
async def test_audit_lines_come_back_in_order() -> None:
    """Of one session, the oldest first, with all that was written, each line once."""
    base: dict[str, Any] = {"session_id": "s", "who": "ann", "worker": "system", "action": "clean"}
    base["at"] = "2026-01-31"
    lines = [
        AuditEntry(**base, id="1", what="approved", args={"path": "tmp/文"}),
        AuditEntry(**base, id="2", what="executed", ok=True, message="3 files"),
        AuditEntry(**base, id="3", what="outcome_unknown", ok=None),
    ]
    for line in (*lines, lines[0]):
        await audit.write(line)
    await audit.write(AuditEntry(**(base | {"session_id": "t"}), id="4", what="rejected"))
    assert await audit_lines("s") == lines


async def test_processes_may_create_the_tables_at_once(database_url: str) -> None:
    """Five open the empty database at the same time, and five more the full one."""

    async def once() -> None:
        async with Database.open(database_url):
            pass

    for _ in range(2):
        await asyncio.gather(*(once() for _ in range(5)))


async def test_sqlite_keeps_a_log_and_waits_for_its_lock(tmp_path: Path) -> None:
    """WAL, and a busy timeout of five seconds."""
    async with (
        Database.open(f"sqlite+aiosqlite:///{tmp_path}/a.db") as database,
        database.engine.connect() as connection,
    ):
        assert (await connection.execute(text("PRAGMA journal_mode"))).scalar() == "wal"
        assert (await connection.execute(text("PRAGMA busy_timeout"))).scalar() == 5000


async def test_a_key_of_the_wrong_size_is_refused() -> None:
    """A key that AES does not take is an error at once, not at the first pause."""
    pytest.importorskip("cryptography")
    with pytest.raises(ValueError, match="AESGCM key"):
        async with Database.open(MEMORY, base64.b64encode(b"short").decode()):
            pass
