"""Stores of conversations in trouble: faults with codes, never a library's exception."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.errors import EffectFailed, Fault
from contract.ports import Conversations
from contract.stores import Recall, Turn
from effects.memory import open_memory
from effects.stores import HttpConversations, MemoryConversations, SqlConversations, SqlLeases
from effects.stores.http import LARGEST_BODY, conversation_service
from effects.stores.postgres import PostgresDatabase
from effects.stores.sqlite import SqliteDatabase
from effects.stores.tables import CONVERSATIONS, StoreNotOpened
from tests.support.asgi import served
from tests.support.deployment import until
from tests.support.patience import PATIENCE_S
from tests.support.postgres import execute

TURN = Turn(message_id="m1", role="user", content="你好", chat_id="c1")


async def faults(store: Conversations) -> list[Fault]:
    """Try every operation; give the faults."""
    seen: list[Fault] = []
    for call in (
        store.find("message", "m1"),
        store.put("message", TURN),
        store.history("history", "c1", before="m1", limit=5),
    ):
        with pytest.raises(EffectFailed) as failed:
            await call
        seen.append(failed.value.fault)
    return seen


def answering(status: int, body: bytes = b"") -> ASGIApp:
    """Make an application that answers everything alike."""
    return answered_by(lambda _: _given(Response(body, status)))


async def _given(response: Response) -> Response:
    return response


def answered_by(answer: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """Make an application of one function."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await answer(Request(scope, receive))
        await response(scope, receive, send)

    return app


async def test_a_silent_service_costs_one_call_its_limit() -> None:
    """It is hung up on; calls after it fail before they wait for anything, until it speaks."""
    speaks, left = asyncio.Event(), asyncio.Event()

    async def answer(request: Request) -> Response:
        if not speaks.is_set():
            async with asyncio.timeout(PATIENCE_S):
                while (await request.receive())["type"] != "http.disconnect":
                    pass
            left.set()
        return Response(status_code=404)

    async with (
        served(answered_by(answer)) as url,
        HttpConversations.open(url, limit=0.05) as store,
    ):
        with pytest.raises(EffectFailed) as first:
            await store.find("message", "m1")
        assert first.value.fault == Fault("store_unavailable", retryable=True)
        assert store.fault is not None
        with pytest.raises(EffectFailed) as next_one:
            store.find("message", "m1").send(None)  # to the first thing it waits for
        assert next_one.value.fault == first.value.fault
        await left.wait()
        speaks.set()
        await until(lambda: store.fault is None)


async def test_a_broken_table_is_a_fault_without_text(tmp_path: Path) -> None:
    """SQLite's sentence stays out of the fault; its code is in it."""
    path = tmp_path / "turns.db"
    async with SqlConversations.open(path) as store:
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE turns")
        connection.close()
        assert (
            await faults(store)
            == [Fault("store_failed", data={"sqlite": sqlite3.SQLITE_ERROR})] * 3
        )


async def test_a_full_disk_can_be_asked_again(tmp_path: Path) -> None:
    """Trouble of the machine is `store_unavailable`, and reading goes on."""
    path = tmp_path / "turns.db"
    async with SqliteDatabase.open(path, CONVERSATIONS) as database:
        store = SqlConversations(database)
        await database.run(_fill)  # no disk here is full
        big = Turn(message_id="big", role="user", content="x" * 1_000_000)
        with pytest.raises(EffectFailed) as failed:
            await store.put("message", big)
        assert failed.value.fault.code == "store_unavailable"
        assert failed.value.fault.retryable
        assert await store.find("message", "big") is None


def _fill(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA max_page_count = 1")


CLOSED: list[tuple[Callable[[str], AbstractAsyncContextManager[Any]], Any, str]] = [
    (SqlConversations.open, lambda store: store.find("message", "m1"), "store_unavailable"),
    (SqlLeases.open, lambda leases: leases.hold("k", "token", 60_000), "lock_unavailable"),
    (
        open_memory,
        lambda memory: memory.recall("recall", Recall(user_id="u1", query="tea")),
        "memory_unavailable",
    ),
]


@pytest.mark.parametrize(("opened", "call", "code"), CLOSED, ids=["turns", "locks", "memory"])
async def test_a_closed_store_is_a_fault(
    place: str,
    opened: Callable[[str], AbstractAsyncContextManager[Any]],
    call: Callable[[Any], Awaitable[object]],
    code: str,
) -> None:
    """Closing twice is fine, calling afterwards is not; the code is the store's own."""
    async with opened(place) as store:
        await store.aclose()
        await store.aclose()
        with pytest.raises(EffectFailed) as failed:
            await call(store)
    assert failed.value.fault.code == code


async def test_newer_tables_are_not_opened(place: str) -> None:
    """Old code must not write into tables it does not know."""
    async with SqlConversations.open(place):
        pass
    execute(place, "UPDATE schema_versions SET version = 99")
    with pytest.raises(StoreNotOpened, match="'conversations' is version 99"):
        await SqlConversations.open(place).__aenter__()


async def test_what_is_no_database_is_not_opened(tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "turns.db"
    path.write_text("this is a letter, not a database\n" * 100)
    with pytest.raises(StoreNotOpened, match=r"turns\.db"):
        await SqlConversations.open(path).__aenter__()


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (500, "store_unavailable", True),
        (503, "store_unavailable", True),
        (429, "store_unavailable", True),
        (401, "store_failed", False),
        (302, "store_failed", False),
    ],
)
async def test_a_bad_status_is_a_fault(status: int, code: str, *, retryable: bool) -> None:
    """The status is a fact in it; the service's words are not."""
    app = answering(status, b"secret words")
    async with served(app) as url, HttpConversations.open(url) as store:
        for fault in await faults(store):
            assert (fault.code, fault.retryable) == (code, retryable)
            assert fault.data == {"status": status}


@pytest.mark.sockets
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"turns": 1}', b'{"message_id": "m1"}', b"\xff"]
)
async def test_an_answer_that_breaks_the_promise_is_a_fault(body: bytes) -> None:
    """A body that is no turn is never half-believed."""
    async with served(answering(200, body)) as url, HttpConversations.open(url) as store:
        with pytest.raises(EffectFailed) as failed:
            await store.find("message", "m1")
        assert failed.value.fault == Fault("store_failed", data={"reason": "answer"})


class KnownOnly(MemoryConversations):
    """Answers none before a message that it does not know, or has lost."""

    lost = ""

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up."""
        return None if message_id == self.lost else await super().find(site, message_id)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read turns."""
        if before and await self.find(site, before) is None:
            return ()
        return await super().history(site, chat_id, before=before, limit=limit)


class Forgetful(MemoryConversations):
    """A service of the protocol's first version: it stores no data."""

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn without its data."""
        return await super().put(site, replace(turn, data=None))


@pytest.mark.sockets
@pytest.mark.parametrize(("kind", "loses"), [(Forgetful, True), (MemoryConversations, False)])
async def test_a_service_that_loses_data_is_a_fault(
    kind: type[MemoryConversations], *, loses: bool
) -> None:
    """Found out where the first data is stored, in whichever flow, and asked once."""
    service, asked = conversation_service(kind()), list[str]()

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope.get("method", ""))
        await service(scope, receive, send)

    async with served(counted) as url, HttpConversations.open(url) as store:
        assert await store.of("chat").put("message", TURN)
        for name in ("m2", "m3"):
            put = store.of("ops").put("reply", replace(TURN, message_id=name, data={"rows": 2}))
            if not loses:
                assert await put
                continue
            with pytest.raises(EffectFailed) as failed:
                await put
            assert failed.value.fault == Fault("store_failed", data={"reason": "data_lost"})
    calls = ["PUT", "PUT", "GET", "PUT"]
    assert [one for one in asked if one] == ([*calls, "GET"] if loses else calls)


@pytest.mark.sockets
async def test_a_service_that_knows_nothing_before_a_new_message_is_a_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A conversation would be lost silently; a new chat and its first message have no history."""
    known = KnownOnly()
    service = conversation_service(known)
    async with served(service) as url, HttpConversations.open(url) as store:
        assert await store.history("history", "c1", before="m1", limit=5) == ()
        first = Turn(message_id="m1", role="user", content="x", chat_id="c1", at=1)
        assert await store.put("message", first)
        assert await store.history("history", "c1", before="m1", limit=5) == ()
        assert await store.history("history", "c1", before="m2", limit=0) == ()
        assert await store.history("history", "c1", before="", limit=5) == (first,)
        other = Turn(message_id="m2", role="user", content="x", chat_id="c2")
        assert await store.put("message", other)
        known.lost = "m2"  # the client knows it as stored, and asks for what came before it
        with pytest.raises(EffectFailed) as failed:
            await store.history("history", "c1", before="m2", limit=5)
    assert failed.value.fault == Fault("store_failed", data={"reason": "unknown_before"})
    assert url in caplog.text


@pytest.mark.sockets
async def test_a_service_is_not_asked_what_came_before_a_message_it_does_not_have() -> None:
    """Whatever it would answer to that: it is asked for the latest turns, without `before`."""
    asked: list[tuple[str, str]] = []
    service = conversation_service(KnownOnly())

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked.append((scope["path"], scope["query_string"].decode()))
        await service(scope, receive, send)

    first = Turn(message_id="m1", role="user", content="x", chat_id="c1", at=1)
    async with served(noting) as url:
        async with HttpConversations.open(url) as store:
            assert await store.put("message", first)
            asked.clear()
            assert await store.history("history", "c1", before="new", limit=5) == (first,)
            assert sorted(asked) == [("/chats/c1/messages", "limit=5"), ("/messages/new", "")]
            assert await store.put("message", replace(first, message_id="m2"))
            asked.clear()
            assert await store.history("history", "c1", before="m2", limit=5) == (first,)
            assert asked == [("/chats/c1/messages", "before=m2&limit=5")]
        # Another process does not know that it is stored: it asks, and then for the turns before.
        async with HttpConversations.open(url) as other:
            assert await other.history("history", "c1", before="m2", limit=5) == (first,)


@pytest.mark.sockets
async def test_a_token_is_sent_with_every_call_and_is_in_no_fault_or_line(
    caplog: pytest.LogCaptureFixture, unused_port: int
) -> None:
    """A service that wants another one refuses; the fault has the status alone."""
    caplog.set_level(logging.DEBUG)
    app = conversation_service(MemoryConversations(), "t0ken-of-the-service")
    first = Turn(message_id="m1", role="user", content="x", chat_id="c1", at=1)
    async with served(app) as url:
        async with HttpConversations.open(url, token="t0ken-of-the-service") as store:
            assert await store.put("message", first)
            assert await store.history("history", "c1", before="later", limit=5) == (first,)
        for wrong in ("", "wr0ng-token"):
            async with HttpConversations.open(url, token=wrong) as store:
                for fault in await faults(store):
                    assert fault == Fault("store_failed", data={"status": 401})
    async with HttpConversations.open(f"http://127.0.0.1:{unused_port}", token="t0ken") as store:
        for fault in await faults(store):
            assert fault == Fault("store_unavailable", retryable=True)
        assert "t0ken" not in repr(vars(store))
    assert "t0ken" not in caplog.text
    assert "wr0ng" not in caplog.text


@pytest.mark.sockets
async def test_a_service_out_of_reach_is_a_fault(unused_port: int) -> None:
    """So is one whose connections were closed."""
    async with HttpConversations.open(f"http://127.0.0.1:{unused_port}") as store:
        assert {fault.code for fault in await faults(store)} == {"store_unavailable"}
        await store.aclose()
        await store.aclose()
        assert {fault.code for fault in await faults(store)} == {"store_unavailable"}


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/messages/m1", b"{}", 422),
        ("/messages/m1", b"no json", 422),
        ("/messages/other", b'{"message_id":"m1","role":"user","content":"x"}', 422),
        ("/messages/m1", b" " * (LARGEST_BODY + 1), 413),
        ("/messages/m1", b'{"message_id":"m1","role":"user","content":"a\\u0000"}', 500),
        ("/messages/m1", b'{"message_id":"m1","role":"user","content":"x"}', 204),
    ],
    ids=["empty", "no json", "other id", "too large", "nul", "good"],
)
async def test_the_service_checks_what_it_is_sent(path: str, body: bytes, status: int) -> None:
    """Only a whole turn under its own id is stored."""
    memory = MemoryConversations()
    async with (
        served(conversation_service(memory)) as url,
        aiohttp.ClientSession() as client,
        client.put(url + path, data=BytesIO(body)) as answer,
    ):
        assert answer.status == status
    assert len(memory.turns) == (status == 204)


@pytest.mark.sockets
@pytest.mark.parametrize("limit", ["-1", "x", "٣", "1.5", "", "9" * 5_000])
async def test_the_service_refuses_a_limit_that_is_no_number(limit: str) -> None:
    """A bad query is the caller's fault."""
    async with (
        served(conversation_service(MemoryConversations())) as url,
        aiohttp.ClientSession() as client,
        client.get(f"{url}/chats/c1/messages", params={"before": "m", "limit": limit}) as answer,
    ):
        assert answer.status == 422


@pytest.mark.sockets
async def test_a_database_out_of_reach_is_a_fault(unused_port: int) -> None:
    """Opening says so within its limit."""
    dsn = f"postgresql://user@127.0.0.1:{unused_port}/nothing"
    with pytest.raises(EffectFailed) as failed:
        await PostgresDatabase.open(dsn, limit=0.1).__aenter__()
    assert failed.value.fault == Fault("store_unavailable", retryable=True)
