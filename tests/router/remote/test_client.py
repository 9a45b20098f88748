"""The client of a stack, on real sockets: connections are kept, dropped, and never shared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from ssl import SSLContext

import pytest
from yarl import URL

from effects.loop_time import counted_loop_time
from effects.testing import VirtualLoop
from router.config.schema import RemoteStackSettings
from router.remote import http1
from router.remote.endpoint import Endpoint
from router.remote.http1 import Client, ConnectTimedOut, Response, ResponseLost, Unreachable
from router.stack import IncomingRequest
from tests.support.certificates import certified
from tests.support.clocks import now
from tests.support.deployment import until
from tests.support.patience import PATIENCE_S
from tests.support.scripted_service import Asked, Service, Stream, says, serving

pytestmark = pytest.mark.sockets

REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
GREETING = says(200, b"hello")


@asynccontextmanager
async def house() -> AsyncIterator[tuple[Service, Client]]:
    """Open a client of a service that greets."""
    async with (
        serving(GREETING) as service,
        aclosing(Client(URL(service.url), PATIENCE_S)) as client,
    ):
        yield service, client


async def said(answer: Response) -> bytes:
    """Read an answer of a few bytes."""
    return await answer.read(100)


async def test_a_connection_is_asked_again_once_it_is_free() -> None:
    """One after the other on one, side by side on two."""
    async with house() as (service, client):
        for _ in range(3):
            assert await said(await client.request(REQUEST)) == b"hello"
        assert service.connections == 1
        both = await asyncio.gather(client.request(REQUEST), client.request(REQUEST))
        assert [await said(one) for one in both] == [b"hello"] * 2
        assert service.connections == 2


async def test_the_connection_used_last_is_asked_first() -> None:
    """The other one grows old meanwhile."""

    async def port(asked: Asked, stream: Stream) -> None:
        _, number = stream.writer.get_extra_info("peername")
        await says(200, b"%d" % number)(asked, stream)

    async with house() as (service, client):
        service.answer = port
        both = await asyncio.gather(client.request(REQUEST), client.request(REQUEST))
        assert len({await said(one) for one in both}) == 2
        assert len({await said(await client.request(REQUEST)) for _ in range(3)}) == 1


async def test_a_connection_that_was_idle_for_long_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its service may be closing it; it is closed here."""
    monkeypatch.setattr(http1, "KEEP_ALIVE_SECONDS", 0.0)
    async with house() as (service, client):
        for _ in range(2):
            assert await said(await client.request(REQUEST)) == b"hello"
        assert service.connections == 2
        await until(lambda: not client.connections)


async def test_a_connection_the_service_closes_is_not_asked_again() -> None:
    """Whether it said so or not."""

    async def closing(_: Asked, stream: Stream) -> None:
        await says(200, b"bye")(_, stream)
        stream.writer.close()

    async with house() as (service, client):
        for answer in (closing, says(200, b"bye", b"connection: close"), GREETING):
            service.answer = answer
            assert await said(await client.request(REQUEST)) in (b"bye", b"hello")
            if answer is not GREETING:
                await until(lambda: not client.connections)
        assert service.connections == 3


async def test_what_a_listener_raises_reaches_whoever_waits() -> None:
    """The loop hears nothing of it; the connection is dropped."""

    def refuse(_: bytes) -> None:
        message = "of the listener"
        raise ValueError(message)

    async def goes_on(_: Asked, stream: Stream) -> None:
        await stream.head()
        await stream.send(b"a")
        await stream.hang()

    async with house() as (service, client):
        service.answer = goes_on
        answer = await client.request(REQUEST)
        answer.listen(refuse)
        while not answer.ended:
            await answer.changed.wait()
        with pytest.raises(ValueError, match="of the listener"):
            answer.check()
        await service.gone.wait()


async def test_a_service_that_says_nothing_or_nonsense_is_lost() -> None:
    """Before the head, and within the body."""

    async def silent(_: Asked, stream: Stream) -> None:
        stream.reset()

    async def nonsense(_: Asked, stream: Stream) -> None:
        await stream.raw(b"nonsense\r\n\r\n")

    async with house() as (service, client):
        for service.answer in (silent, nonsense):
            with pytest.raises(ResponseLost):
                await client.request(REQUEST)

        async def short(_: Asked, stream: Stream) -> None:
            await stream.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")
            stream.writer.close()

        service.answer = short
        with pytest.raises(ResponseLost):
            await said(await client.request(REQUEST))


async def test_an_answer_that_is_drained_frees_its_connection() -> None:
    """The rest of it is dropped."""
    goes_on = asyncio.Event()

    async def slow(_: Asked, stream: Stream) -> None:
        await stream.head()
        await stream.send(b"a")
        await goes_on.wait()
        await stream.send(b"b")
        await stream.end()

    async with house() as (service, client):
        service.answer = slow
        answer = await client.request(REQUEST)
        answer.drain()
        goes_on.set()
        while not answer.ended:
            await answer.changed.wait()
        service.answer = GREETING
        assert await said(await client.request(REQUEST)) == b"hello"
        assert service.connections == 1


async def test_nothing_that_goes_on_outlives_the_client() -> None:
    """Connections in use are dropped, too."""

    async def hang(_: Asked, stream: Stream) -> None:
        await stream.head()
        await stream.hang()

    async with house() as (service, client):
        service.answer = hang
        answer = await client.request(REQUEST)
        await client.aclose()
        await service.gone.wait()
        with pytest.raises(ResponseLost):
            answer.check()


@pytest.mark.virtual
async def test_a_loop_that_stands_still_blames_no_service() -> None:
    """While it connects: the connection was taken in time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    with counted_loop_time(now):
        async with house() as (_, client):
            asking = asyncio.create_task(client.request(REQUEST))
            await asyncio.sleep(0)
            loop.stand_still(PATIENCE_S + 1)
            assert await said(await asking) == b"hello"


async def test_nobody_listens() -> None:
    """And the server does not accept in time."""
    async with house() as (service, client):
        service.close()
        with pytest.raises(Unreachable, match=r"cannot connect to '127"):
            await client.request(REQUEST)
        async with aclosing(Client(URL(service.url), 0.0)) as hasty:
            with pytest.raises(ConnectTimedOut, match="within 0 s"):
                await hasty.request(REQUEST)


async def test_a_connection_with_half_a_request_on_it_is_not_asked_again() -> None:
    """Its service answered before it had read everything, and may never read the rest."""

    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        await dropped.wait()
        writer.transport.abort()

    dropped = asyncio.Event()
    server = await asyncio.start_server(hasty, "127.0.0.1", 0, limit=1_024)
    port = server.sockets[0].getsockname()[1]
    body = b"x" * 16_000_000
    large = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    async with server, aclosing(Client(URL(f"http://127.0.0.1:{port}/"), PATIENCE_S)) as client:
        assert await said(await client.request(large)) == b"hello"
        await until(lambda: not client.connections)
        dropped.set()


@pytest.mark.parametrize(("user", "sent"), [("", ["Bearer client"]), ("desk", ["Basic ZGVzazo="])])
async def test_a_request_has_one_authorization(user: str, sent: list[str]) -> None:
    """The address's where it names a user, else the client's: two are read as one pleases."""
    incoming = IncomingRequest(b"", ((b"authorization", b"Bearer client"),))
    async with house() as (service, client):
        url = URL(service.url).with_user(user or None)
        endpoint = Endpoint(client, url, RemoteStackSettings(url=str(url)))
        assert await said(await endpoint.request(incoming, "e1", "serving")) == b"hello"
        (asked,) = service.asked
        assert asked.header("authorization") == sent


HERE = "127.0.0.1"


async def asked(secured: SSLContext) -> bytes:
    """Ask a service twice; returns what it said, from one connection."""
    async with (
        serving(says(200, b"hello"), secured) as service,
        aclosing(Client(URL(service.url), PATIENCE_S)) as client,
    ):
        both = [await (await client.request(REQUEST)).read(100) for _ in range(2)]
        assert service.connections == 1
        return b" ".join(both)


async def test_a_stack_that_is_trusted_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the certificates the system trusts: `SSL_CERT_FILE` names others."""
    certificate, secured = certified(tmp_path, HERE)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert await asked(secured) == b"hello hello"


@pytest.mark.parametrize("address", [HERE, "127.0.0.2"])
async def test_a_stack_that_proves_nothing_is_not_reached(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown authority, or another host name."""
    certificate, secured = certified(tmp_path, address)
    if address != HERE:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(Unreachable, match="SSLCertVerificationError"):
        await asked(secured)
