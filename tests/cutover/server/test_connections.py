"""Connections take no more than requests consist of; nothing beyond is stored."""

from __future__ import annotations

import asyncio
import socket
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from cutover.server.connections import (
    AT_ONCE,
    MOST_HEAD,
    MOST_HEADERS,
    MOST_WAITING,
    CorkedTransport,
    ServerConnection,
)
from router.http.connection import ON_DISCONNECT, WRITE_NOW
from tests.support.collector import without_collector
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets

GET = b"GET / HTTP/1.1\r\nhost: h\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"


async def reading(_scope: object, receive: Any, send: Any) -> None:
    """Read the body and say that it was read."""
    while (await receive()).get("more_body"):
        pass
    head = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b"read"})


@asynccontextmanager
async def listening(
    app: Any = reading, protocol: type[ServerConnection] = ServerConnection
) -> AsyncIterator[int]:
    """Serve `reading`, or another application, on loopback; gives the port."""
    config = uvicorn.Config(app, log_config=None, lifespan="off", proxy_headers=False)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    served = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    try:
        yield served.sockets[0].getsockname()[1]
    finally:
        served.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks)


async def answer(sent: bytes) -> bytes:
    """Send bytes and read what comes until the other side closes."""
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


LAST = b"connection: close\r\n\r\n"
MANY = b"".join(b"x-%d: y\r\n" % number for number in range(MOST_HEADERS - 3))


@pytest.mark.parametrize(
    "sent",
    [
        GET + LAST,
        GET + MANY + LAST,
        GET + b"x: " + b"y" * (MOST_HEAD - 200) + b"\r\n" + LAST,
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 300000\r\n" + LAST + b"x" * 300_000,
        CHUNKED.replace(b"\r\n\r\n", b"\r\n" + LAST) + b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n",
        (GET + b"\r\n") * MOST_WAITING + GET + LAST,
    ],
    ids=["plain", "headers", "long header", "body", "chunks", "several"],
)
async def test_what_requests_are_made_of_is_taken(sent: bytes) -> None:
    """Heads of some size, bodies of any, several requests at once."""
    assert (await answer(sent)).endswith(b"read")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="none"),
        pytest.param(GET + b"host: other\r\n\r\n", id="two"),
        pytest.param(GET + b"host: h\r\n\r\n", id="twice the same"),
    ],
)
async def test_a_request_names_one_host(head: bytes) -> None:
    """Else two servers of a chain may read different ones."""
    said = await answer(head)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"read" not in said


async def test_an_old_request_may_name_no_host() -> None:
    """HTTP/1.0 knows none."""
    assert (await answer(b"GET / HTTP/1.0\r\n\r\n")).endswith(b"read")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * MOST_HEAD,
        b"GET /" + b"x" * MOST_HEAD + b" HTTP/1.1\r\nhost: h\r\n\r\n",
        GET + b"x: " + b"y" * MOST_HEAD + b"\r\n\r\n",
        GET + b"x: " + b"y" * 50_000 + b"\r\nz: " + b"y" * 50_000 + b"\r\n\r\n",
        GET + b"x: " + b"y" * MOST_HEAD,
        GET + MANY + b"a: b\r\n" * 10,
        CHUNKED + b"0\r\nx: " + b"y" * MOST_HEAD,
        CHUNKED + b"0\r\n" + MANY + b"a: b\r\n" * 10,
        CHUNKED + b"1;" + b"y" * MOST_HEAD,
    ],
    ids=[
        "line",
        "whole line",
        "whole",
        "two headers",
        "header",
        "headers",
        "trailer",
        "trailers",
        "chunk",
    ],
)
async def test_a_head_without_end_is_refused(sent: bytes) -> None:
    """Also behind a body; the parser alone would keep all of it.

    Just too long: what is not read when a connection is closed costs the client the answer.
    """
    said = await answer(sent)
    assert said.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", GET, GET + b"\r\n" + b"G", CHUNKED + b"0\r\n\r\n" + GET],
    ids=["nothing", "a letter", "half a head", "a letter of the next", "half of the next"],
)
async def test_who_does_not_end_a_head_is_dropped(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such connections cost a client nothing, and would add up until no file can be opened."""
    monkeypatch.setattr("cutover.server.connections.HEAD_SECONDS", 0.05)
    async with asyncio.timeout(PATIENCE_S):
        await answer(sent)


async def refusing(_scope: object, _receive: object, send: Any) -> None:
    """Answer at once, whatever is still to come."""
    head = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 413, "headers": head})
    await send({"type": "http.response.body", "body": b"read"})


@pytest.mark.parametrize(
    ("app", "sent", "behind"),
    [(reading, GET + b"\r\n", b"\r\n"), (refusing, CHUNKED, b"1\r\n")],
    ids=["empty lines", "a body that is not read"],
)
async def test_who_is_answered_and_begins_no_head_is_dropped(
    app: Callable[..., object], sent: bytes, behind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty lines before a head are passed over (RFC 9112, 2.2), and so are refused bodies."""
    monkeypatch.setattr("cutover.server.connections.HEAD_SECONDS", 0.05)
    async with asyncio.timeout(PATIENCE_S), listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await reader.readuntil(b"read")
        writer.write(behind)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    ("app", "head", "piece", "status"),
    [
        (
            refusing,
            CHUNKED.replace(b"\r\n\r\n", b"\r\n" + LAST),
            b"10000\r\n%b\r\n" % (b"x" * 65_536),
            413,
        ),
        (reading, GET + b"x: ", b"y" * 65_536, 431),
    ],
    ids=["refused by its head", "a head without end"],
)
def test_who_is_answered_early_can_read_the_answer_late(
    app: Callable[..., object],
    head: bytes,
    piece: bytes,
    status: int,
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Having sent all it has: a connection that is closed over unread bytes is reset."""

    async def asked() -> bytes:
        async with asyncio.timeout(PATIENCE_S), listening(app) as port:
            return await asyncio.to_thread(late, port, head, piece)

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(asked()).startswith(b"HTTP/1.1 %d " % status)


def late(port: int, head: bytes, piece: bytes) -> bytes:
    """Send a head, and four MiB behind it; then read."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(head)
        for _ in range(64):
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65_536), b""))


async def test_who_never_stops_sending_is_read_on_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the connection is dropped all the same."""
    monkeypatch.setattr("cutover.server.connections.LINGER_SECONDS", 0.05)
    async with asyncio.timeout(PATIENCE_S), listening(refusing) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED.replace(b"\r\n\r\n", b"\r\n" + LAST))
        assert (await reader.read()).endswith(b"read")
        with suppress(ConnectionError):
            while True:
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
        writer.close()


async def test_nobody_is_dropped_who_is_being_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the next head may have come: there is time for the rest until this one is over."""
    began = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        began.set()
        for _ in range(200):
            await asyncio.sleep(0)
        await reading(scope, receive, send)

    async with listening(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        await began.wait()
        monkeypatch.setattr("cutover.server.connections.HEAD_SECONDS", 0.0)
        writer.write(GET)
        assert (await reader.readuntil(b"read")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_requests_far_ahead_of_their_answers_are_not_kept() -> None:
    """The connection is dropped."""
    assert b"read" not in await answer((GET + b"\r\n") * 5_000)


async def test_what_is_no_request_is_refused_as_ever() -> None:
    """As uvicorn does."""
    assert (await answer(b"\x00\x01\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_who_wants_to_know_is_told_that_a_client_left() -> None:
    """Also where it subscribes too late; not after it unsubscribes."""
    told: list[str] = []
    began, over = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, _send: object) -> None:
        while (await receive()).get("more_body"):
            pass
        tell = scope["extensions"][ON_DISCONNECT]["call"]
        tell(lambda: told.append("unsubscribed"))
        tell(None)
        tell(lambda: told.append("in time"))
        began.set()
        await receive()
        tell(lambda: told.append("late"))
        over.set()

    async with listening(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        await began.wait()
        writer.close()
        await over.wait()
    assert told == ["in time", "late"]


WISH = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n"
POST = b"POST / HTTP/1.1\r\nhost: h\r\n"
WISHED = {
    "a length": POST + b"content-length: 5\r\n" + WISH + b"\r\nhello",
    "chunks": POST + b"transfer-encoding: chunked\r\n" + WISH + b"\r\n5\r\nhello\r\n0\r\n\r\n",
    "nothing": POST + b"content-length: 0\r\n" + WISH + b"\r\n",
    "no body": GET + WISH + b"\r\n",
}


async def echoing(_scope: object, receive: Any, send: Any) -> None:
    """Return the body back, in brackets."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body")
    head = [(b"content-length", b"%d" % (len(body) + 2))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b"[" + body + b"]"})


@pytest.mark.parametrize(
    "head",
    [
        POST + WISH.replace(b"Upgrade", b"close, Upgrade", 1),
        POST.replace(b"1.1", b"1.0") + WISH,
    ],
    ids=["closing", "HTTP/1.0"],
)
async def test_a_wish_behind_which_the_connection_closes(head: bytes) -> None:
    """Its body is read all the same."""
    async with listening(echoing) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"content-length: 5\r\n\r\nhello")
        assert (await reader.read()).endswith(b"\r\n\r\n[hello]")
        writer.close()


@pytest.mark.parametrize("size", [1, 7, 1_000], ids=["bytes", "pieces", "whole"])
@pytest.mark.parametrize("body", WISHED)
async def test_a_wish_for_another_protocol_costs_no_body(body: str, size: int) -> None:
    """As the JDK's client sends it with each request: it is not granted, and all is read.

    However the bytes come, and so is the next request on the connection.
    """
    sent = WISHED[body] + POST + b"content-length: 4\r\n" + LAST + b"next"
    async with listening(echoing) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await writer.drain()
        said = await reader.read()
        writer.close()
    first, second = said.split(b"HTTP/1.1 200 OK")[1:]
    assert first.endswith(b"[hello]" if "hello" in str(WISHED[body]) else b"[]")
    assert second.endswith(b"[next]")


async def streaming(scope: Any, receive: Any, send: Any) -> None:
    """Answer in two pieces, without a length; the first is passed on."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    passing = scope["extensions"][WRITE_NOW]["call"]
    if not passing(b"one,"):
        await send({"type": "http.response.body", "body": b"one,", "more_body": True})
    await send({"type": "http.response.body", "body": b"two"})


@pytest.mark.parametrize("more", [b"", b"connection: keep-alive\r\n"])
async def test_who_knows_no_chunks_gets_none(more: bytes) -> None:
    """The body of an answer to HTTP/1.0 ends with the connection."""
    async with listening(streaming) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n" + more + b"\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert body == b"one,two"
    assert b"transfer-encoding" not in head


async def test_lengths_are_told_to_whoever_knows_no_chunks() -> None:
    """An answer in one piece is as it is for others."""
    said = await answer(b"GET / HTTP/1.0\r\n\r\n")
    assert b"content-length: 4\r\n" in said
    assert said.endswith(b"\r\n\r\nread")


class Wire(asyncio.Transport):
    """Notes what is written, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []
        self.ends: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Note it."""
        self.calls.append(bytes(data))

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return bool(self.ends)

    def close(self) -> None:
        """Note it."""
        self.ends.append("close")

    def abort(self) -> None:
        """Note it."""
        self.ends.append("abort")


async def test_one_turn_is_one_write() -> None:
    """In the order in which it was written."""
    wire = Wire()
    corked = CorkedTransport(wire)
    corked.write(b"a")
    corked.write(b"b")
    assert not wire.calls
    await asyncio.sleep(0)
    corked.write(b"c")
    await asyncio.sleep(0)
    assert wire.calls == [b"ab", b"c"]


async def test_nothing_overtakes_what_is_held() -> None:
    """What is written now takes it along; alone it goes as it is."""
    wire = Wire()
    corked = CorkedTransport(wire)
    corked.write_now(b"a")
    corked.write(b"b")
    corked.write_now(b"c")
    await asyncio.sleep(0)
    assert wire.calls == [b"a", b"bc"]


async def test_much_is_not_held() -> None:
    """Its writer has to notice a slow client in time."""
    wire = Wire()
    CorkedTransport(wire).write(b"a" * AT_ONCE)
    assert [len(one) for one in wire.calls] == [AT_ONCE]


async def test_closing_writes_first_and_dropping_does_not() -> None:
    """As without a cork."""
    for end, calls in (("close", [b"a"]), ("abort", [])):
        wire = Wire()
        corked = CorkedTransport(wire)
        corked.write(b"a")
        getattr(corked, end)()
        await asyncio.sleep(0)
        assert (wire.calls, wire.ends, corked.is_closing()) == (calls, [end], True)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        pytest.param(GET + LAST, True, id="answered"),
        pytest.param(GET + b"\r\n", True, id="kept open"),
        pytest.param((GET + b"\r\n") * 3, False, id="several"),
        pytest.param(CHUNKED + b"1\r\n", False, id="left in its body"),
        pytest.param(b"no request\r\n\r\n", False, id="refused"),
        pytest.param(GET, False, id="left in its head"),
    ],
)
def test_a_lost_connection_is_freed_at_once(
    sent: bytes,
    *,
    answered: bool,
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """It is freed at once, with its requests: the next collection is thousands of them away."""
    gone: list[weakref.ref[ServerConnection]] = []
    lost = asyncio.Event()

    class Observed(ServerConnection):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
            super().connection_made(transport)
            gone.append(weakref.ref(self))

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    async def served() -> None:
        async with asyncio.timeout(PATIENCE_S), listening(protocol=Observed) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            if answered:
                await reader.readuntil(b"read")
            writer.close()
            await lost.wait()

    with without_collector(), asyncio.Runner(loop_factory=factory) as runner:
        runner.run(served())
        assert [one() for one in gone] == [None]
