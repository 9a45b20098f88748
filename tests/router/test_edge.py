"""What the edge does for clients that wait, for slow ones, and for pages of other origins."""

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI

from harness import root
from harness.config import parse
from harness.live import LiveSettings
from loadtests.simulator import Answer, Silence
from tests.support.client import Client
from tests.support.stage import Stage, staged

pytestmark = pytest.mark.virtual

CHAT = {"message_id": "m", "content": "What is 12 * 7?"}
KEEP_ALIVE = b": keep-alive\n\n"


def application(stage: Stage, *origins: str) -> FastAPI:
    """Return the application over a stage's world."""
    settings = parse({"flows": {"chat": {}}, "server": {"origins": list(origins)}})
    return root.application(LiveSettings(settings), stage.world)


async def test_a_silent_stream_is_kept_alive(stage: Stage) -> None:
    """By a comment every 15 seconds, which changes nothing of what is said."""
    stage.sim.script([Answer(text="a b c d e f g h", fault=Silence(6))])
    client = Client(application(stage))
    posting = asyncio.create_task(client.post("/chat/sse", CHAT))
    await asyncio.sleep(50)
    client.leave()
    await posting
    assert client.pieces.count(KEEP_ALIVE) == 3
    assert client.pieces[-3:] == [KEEP_ALIVE] * 3


async def test_a_stream_that_goes_on_needs_no_comment() -> None:
    """However long it takes."""
    async with staged(chunk_ms=1_000) as slow:
        slow.sim.script([Answer(text="a b c d " * 10)])
        client = Client(application(slow))
        body = await client.post("/chat/sse", CHAT)
    assert body.endswith(b'data: {"step":"END"}\n\n')
    assert asyncio.get_running_loop().time() > 30
    assert KEEP_ALIVE not in client.pieces


async def test_a_client_that_reads_nothing_is_left(stage: Stage) -> None:
    """After 30 seconds; its place is free, and the model's call ends."""
    stage.sim.script([Answer(text="a b c d e f g h " * 50)])
    client = Client(application(stage), leaves_after=4, how="stalls")
    began = asyncio.get_running_loop().time()
    await client.post("/chat/sse", CHAT)
    assert 30 <= asyncio.get_running_loop().time() - began < 31
    assert len(client.pieces) == 4


async def test_a_client_that_sends_no_body_takes_no_place(stage: Stage) -> None:
    """For others are served meanwhile; after a minute it is told, and left."""
    settings = parse({"flows": {"chat": {}}, "limits": {"streams": 1}})
    app = root.application(LiveSettings(settings), stage.world)
    stage.sim.script([Answer(text="a")])
    slow, quick = Client(app, sends_body=False), Client(app)
    waiting = asyncio.create_task(slow.post("/chat/sse", CHAT))
    await asyncio.sleep(1)
    await quick.post("/chat/sse", CHAT)
    assert json.loads(await waiting)["code"] == "body_too_slow"
    assert (slow.status, quick.status) == (408, 200)
    assert slow.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("origins", "origin", "status", "shown"),
    [
        ((), None, 200, None),
        ((), "http://test", 200, None),
        ((), "https://evil.example", 403, None),
        ((), "http://[", 403, None),
        *(((), one, 403, None) for one in ("null", "file://", "http://test.evil.example", "x")),
        (("https://app.example",), "https://app.example", 200, "https://app.example"),
        (("https://app.example",), "https://app.example.evil.example", 403, None),
        (("*",), "https://any.example", 200, "*"),
    ],
)
async def test_a_page_of_another_origin_posts_nothing(
    stage: Stage, origins: tuple[str, ...], origin: str | None, status: int, shown: str | None
) -> None:
    """Unless it is configured; then it may read the answer, too."""
    client = Client(application(stage, *origins), sends={"host": "test"})
    client.sends |= {"origin": origin} if origin else {}
    body = await client.post("/chat/sse", CHAT)
    assert client.status == status
    assert client.headers.get("access-control-allow-origin") == shown
    if status == 403:
        assert json.loads(body)["code"] == "foreign_origin"
        assert not stage.sim.requests


@pytest.mark.parametrize(
    ("origin", "allowed"), [("https://app.example", True), ("https://evil.example", False)]
)
async def test_a_preflight_is_answered(stage: Stage, origin: str, allowed: bool) -> None:
    """Browsers ask before a page of another origin sends JSON."""
    asks: dict[str, Any] = {"access-control-request-method": "POST", "origin": origin}
    asks["access-control-request-headers"] = "content-type"
    client = Client(application(stage, "https://app.example"), sends=asks)
    await client.post("/chat/sse", b"", method="OPTIONS")
    assert (client.status == 200) == allowed
    assert (client.headers.get("access-control-allow-origin") == origin) == allowed


async def test_a_disk_that_takes_no_write_is_not_ready(stage: Stage) -> None:
    """Reading would still work; it recovers by itself."""
    client, again = (Client(application(stage)) for _ in range(2))
    async with stage.world.database.engine.connect() as connection:
        await connection.exec_driver_sql("PRAGMA query_only = 1")
    await client.post("/readyz", b"", method="GET")
    async with stage.world.database.engine.connect() as connection:
        await connection.exec_driver_sql("PRAGMA query_only = 0")
    await again.post("/readyz", b"", method="GET")
    assert (client.status, again.status) == (503, 200)
