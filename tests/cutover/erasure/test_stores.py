"""Rows of somebody are gone from the tables, sealed or not, in SQLite and in PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from contract.stores import Turn
from cutover.erasure import erase_rows
from cutover.stores import open_conversations, open_pauses
from effects.stores import Pause
from effects.stores.pauses.aes import AesEncryption
from effects.stores.values import DataSubject, SubjectKind
from router.config import StoreSettings
from tests.support.postgres import own_schema

ADDRESS = "PAUSES_ADDRESS"
IDS = "SELECT hitl_id FROM graph_checkpoints ORDER BY hitl_id"


@dataclass(frozen=True)
class Kept:
    """Stores at an address, and a look at the table of pauses behind their back."""

    address: str
    stores: StoreSettings

    def waiting(self) -> list[str]:
        """Give the ids of the rows there are."""
        if self.address.startswith("sqlite"):
            path = self.address.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path)) as connection:
                return [one for (one,) in connection.execute(IDS)]
        with psycopg.connect(self.address) as connection:
            return [one for (one,) in connection.execute(IDS)]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sockets)])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """Give stores in which ann has a chat, and pauses beside it; those are sealed."""
    async with AsyncExitStack() as stack:
        address = f"sqlite:///{tmp_path}/store.db"
        if request.param == "postgres":
            schema = own_schema(request.getfixturevalue("postgres_dsn"))
            address = await stack.enter_async_context(schema)
        conversations = await open_conversations(address, stack)
        turn = Turn(message_id="m1", role="user", content="?", chat_id="hers", user_id="ann")
        await conversations.put("message", turn)
        pauses = await open_pauses(address, stack, AesEncryption([bytes(32)]))
        for hitl_id, exchange, session, user in (
            ("of her exchange", "x1", None, None),
            ("of her chat", "x2", "hers", None),
            ("of her own", "x3", None, "ann"),
            ("of ben", "x4", "his", "ben"),
        ):
            pause = Pause(
                hitl_id=hitl_id,
                exchange=exchange,
                flow="companion",
                stack="graph",
                created_at=0.0,
                expires_at=2e9,
                session_id=session,
                user_id=user,
                tape=b"tape",
            )
            assert await pauses.open(pause)
        where = f"env:{ADDRESS}"
        yield Kept(address, StoreSettings(conversations=where, memory="memory://", pauses=where))


@pytest.mark.parametrize(
    ("kind", "value", "stays"),
    [
        ("user", "ann", ["of ben"]),
        ("chat", "hers", ["of ben", "of her own"]),
        ("message", "m1", ["of ben", "of her chat", "of her own"]),
    ],
)
async def test_pauses_of_somebody_are_gone(
    kept: Kept, kind: SubjectKind, value: str, stays: list[str]
) -> None:
    """By user, by session and by exchange; without the key that sealed them."""
    rows = await erase_rows(kept.stores, {ADDRESS: kept.address}, DataSubject(kind, value), {"x1"})
    assert (rows.turns, rows.pauses, rows.failures) == (1, 4 - len(stays), ())
    assert kept.waiting() == stays
