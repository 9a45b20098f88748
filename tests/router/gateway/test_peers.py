"""Finding the worker whose exchange a call belongs to; ones that die over it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from effects.model import ModelRegistry, RescuingModel
from router.gateway import Entrance, Gateway
from router.gateway.peers import WorkerPeers
from router.http.app import create_app
from tests.support.gateways import MOST_BYTES
from tests.support.router_world import House, Rules
from tests.support.tool_replies import CASE

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sockets

TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CLIENT = ("127.0.0.1", 50_000)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder whose path is short: that of a socket has some hundred bytes."""
    with TemporaryDirectory() as made:
        yield Path(made)


def scope(*headers: tuple[bytes, bytes], client: object = CLIENT, **path: str) -> dict[str, Any]:
    """Make a call's scope."""
    url = "/v1/chat/completions"
    return {"headers": headers, "client": client, "path_params": path, "path": url}


def test_the_worker_stands_in_the_id_of_an_exchange(folder: Path) -> None:
    """Of as many digits as any; ids of no worker here are searched nowhere."""
    with WorkerPeers.joined(folder) as one, WorkerPeers.joined(folder) as two:
        mine, theirs = one.exchange_id(), two.exchange_id()
        assert [len(mine), len(theirs)] == [32, 32]
        assert one.candidates(scope(exchange=mine)) == []
        assert [path.name for path in one.candidates(scope(exchange=theirs))] == [theirs[:6]]
        assert one.candidates(scope((b"x-cutover-exchange", theirs.encode())))
        for odd in ("", "gone", "../..", "f" * 32):
            assert one.candidates(scope(exchange=odd)) == []
        assert len(one.candidates(scope((b"traceparent", TRACEPARENT)))) == 1
        assert one.candidates(scope()) == []
    assert list(folder.iterdir()) == []


def test_who_cannot_look_for_others_is_alone(folder: Path) -> None:
    """What clears temporary folders must not end the calls of what is open here."""
    below = folder / "below"
    below.mkdir()
    with WorkerPeers.joined(below) as one:
        rmtree(below)
        assert one.candidates(scope(exchange="a" * 32)) == []
        assert one.candidates(scope((b"traceparent", TRACEPARENT))) == []


async def test_a_worker_that_has_died_is_passed_over(folder: Path) -> None:
    """Its socket stays behind, without a listener."""
    with WorkerPeers.joined(folder) as one:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / "aaaaaa"))
        assert not await one.answer(scope(exchange="a" * 32), b"{}", unsent)


async def test_a_call_of_another_worker_goes_no_further(folder: Path) -> None:
    """A worker without the exchange says so to the one that asks, which asks the others itself."""
    sent: list[Any] = []
    bodies = [b'{"model":"m","messages":[{}]}']

    async def receive() -> dict[str, Any]:
        if not bodies:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": bodies.pop()}

    async def send(message: Any) -> None:
        sent.append(message)

    models = ModelRegistry(())
    async with House(CASE, Rules()) as house:
        with WorkerPeers.joined(folder) as one:
            entrance = Entrance(house.router, b"", MOST_BYTES, one)
            gateway = Gateway(entrance, RescuingModel(models), models)
            async with await dying(folder / "aaaaaa", b"HTTP/1.1 200 OK\r\n\r\n{}"):
                call = scope((b"traceparent", TRACEPARENT), client=None)
                await gateway({**call, "app": create_app(house.router, dict)}, receive, send)
    assert [message.get("status") for message in sent] == [421, None]


async def unsent(_: object) -> None:
    """Fail where anything is sent."""
    pytest.fail("no worker has answered")


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\n"])
async def test_a_worker_that_dies_before_its_answer(folder: Path, said: bytes) -> None:
    """Nothing was sent: the call can still be answered here."""
    with WorkerPeers.joined(folder) as one:
        async with await dying(folder / "aaaaaa", said):
            assert await one.answer(scope(exchange="a" * 32), b"{}", unsent) is False


async def test_a_worker_that_dies_over_its_answer(folder: Path) -> None:
    """An error behind what was sent: no client takes it for a whole answer."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    with WorkerPeers.joined(folder) as one:
        async with await dying(folder / "aaaaaa", head + b"\r\n9\r\ndata: {}\n\r\n"):
            assert await one.answer(scope(exchange="a" * 32), b"{}", send)
    begin, *pieces = sent
    assert begin["headers"] == [(b"content-type", b"text/event-stream")]
    body = b"".join(piece["body"] for piece in pieces)
    assert body.startswith(b"data: {}\n")
    assert b'"code":"model_unavailable"' in body
    assert b"[DONE]" not in body
    assert not pieces[-1].get("more_body")


async def dying(path: Path, said: bytes) -> asyncio.Server:
    """Serve what says so much to everybody and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, str(path))
