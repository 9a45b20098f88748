"""Asking a service once, on real sockets: what is sent, what comes, and what may go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from yarl import URL

from cutover import probe
from cutover.probe import (
    BodyRefused,
    HeaderRefused,
    NoAnswer,
    ProbeRequest,
    ask,
    body_of,
    headers_of,
)
from cutover.recognition import Answer
from router.config.schema import RemoteStackSettings
from tests.support.certificates import certified
from tests.support.patience import PATIENCE_S
from tests.support.scripted_service import Asked, Stream, says, serving, streams

pytestmark = pytest.mark.sockets

REQUEST = ProbeRequest(b'{"q":1}', ((b"authorization", b"Bearer s3cret"),), PATIENCE_S)
FRAMES = (b"data: a\n\n", b"data: b\n\n")


async def answered(url: str, request: ProbeRequest = REQUEST) -> Answer:
    """Ask a service at its path."""
    place = f"{url}/ask?key=k"
    return await ask(RemoteStackSettings(url=place), URL(place), request)


async def test_a_service_is_asked_as_a_shadow_and_its_pieces_have_times() -> None:
    """With the headers given, and the usual ones of a client that sends JSON."""
    async with serving(streams(*FRAMES)) as service:
        answer = await answered(service.url)
        (asked,) = service.asked
    assert asked.line == "POST /ask?key=k HTTP/1.1"
    assert asked.body == REQUEST.body
    for name, values in {
        "x-cutover-role": ["shadow"],
        "authorization": ["Bearer s3cret"],
        "content-type": ["application/json"],
        "accept-encoding": ["identity"],
    }.items():
        assert asked.header(name) == values
    assert (answer.status, answer.media_type, answer.end) == (200, "text/event-stream", "complete")
    assert answer.body == b"".join(FRAMES)
    times = [at for at, _ in answer.pieces]
    assert times == sorted(times)
    assert 0 < times[-1] <= answer.ended


async def test_a_given_header_takes_the_place_of_a_usual_one() -> None:
    """Some services stream only to those who accept it."""
    given = ProbeRequest(b"{}", headers_of(["Accept: text/event-stream"]), PATIENCE_S)
    async with serving(streams(*FRAMES)) as service:
        await answered(service.url, given)
        assert service.asked[0].header("accept") == ["text/event-stream"]


async def test_a_stream_that_does_not_end_is_read_to_the_limit() -> None:
    """In seconds; its connection is closed."""

    async def endless(_: Asked, stream: Stream) -> None:
        await stream.head()
        await stream.send(*FRAMES)
        await stream.hang()

    async with serving(endless) as service:
        answer = await answered(service.url, ProbeRequest(b"{}", (), 0.2))
        await service.gone.wait()
    assert (answer.end, answer.body) == ("unended", b"".join(FRAMES))


async def test_a_stream_of_too_many_bytes_is_read_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However fast they come."""
    monkeypatch.setattr(probe, "MOST_BYTES", 1_000)

    async def endless(_: Asked, stream: Stream) -> None:
        await stream.head()
        while not stream.writer.is_closing():
            await stream.send(b"data: x\n\n" * 100)

    async with serving(endless) as service:
        answer = await answered(service.url)
        await service.gone.wait()
    assert answer.end == "unended"
    assert len(answer.body) > 1_000


async def test_a_connection_that_breaks_leaves_what_had_come() -> None:
    """As the answer of a service that crashed."""

    async def broken(_: Asked, stream: Stream) -> None:
        await stream.head()
        await stream.send(FRAMES[0])
        stream.reset()

    async with serving(broken) as service:
        answer = await answered(service.url)
    assert (answer.end, answer.status) == ("lost", 200)


async def test_a_service_that_says_nothing_in_time_did_not_answer() -> None:
    """Not even the head of a response."""

    async def silent(_: Asked, stream: Stream) -> None:
        await stream.hang()

    async with serving(silent) as service:
        with pytest.raises(NoAnswer) as caught:
            await answered(service.url, ProbeRequest(b"{}", (), 0.2))
    assert caught.value.why == "no response within 0.2 s"
    assert "--seconds" in caught.value.advice


@asynccontextmanager
async def plain_server() -> AsyncIterator[str]:
    """Start a server that answers whatever comes, as one of HTTP does; yields host and port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_what_cannot_be_reached_is_told_apart(
    unused_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server, no HTTP, no TLS, a certificate that proves nothing; no query is shown."""

    async def failed(url: str) -> str:
        with pytest.raises(NoAnswer) as caught:
            await answered(url)
        assert "key=k" not in str(caught.value)
        return str(caught.value)

    assert f"no server listens at 127.0.0.1:{unused_port}; is the service started" in await failed(
        f"http://127.0.0.1:{unused_port}"
    )
    assert "there is no host" in await failed("http://nowhere.invalid")

    async def greeting(_: Asked, stream: Stream) -> None:
        await stream.raw(b"SSH-2.0\r\n\r\n")
        stream.reset()

    async with serving(greeting) as service:
        assert "is no HTTP/1.1" in await failed(service.url)
    async with plain_server() as place:
        assert "does not speak TLS; is it http://" in await failed(f"https://{place}")
    _, context = certified(tmp_path, "127.0.0.1")
    async with serving(says(200), context) as service:
        why = await failed(service.url)
        assert "its certificate is not trusted: self-signed certificate" in why
        assert "SSL_CERT_FILE" in why
    certificate, context = certified(tmp_path, "127.0.0.2")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with serving(says(200), context) as service:
        why = await failed(service.url)
        assert "mismatch" in why
        assert "it needs a certificate that is valid for this host" in why


@pytest.mark.parametrize("text", ["", "{", "[1]", '"text"', "null"])
def test_a_body_is_a_json_object(text: str) -> None:
    """The router serves no other requests."""
    with pytest.raises(BodyRefused):
        body_of(text)


@pytest.mark.parametrize(
    "header",
    ["x", ": v", "a b: c", "x: s3\ncret", "x: s3crét", "Host: h", "X-Cutover-Role: serving"],
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(header: str) -> None:
    """It may be a secret."""
    with pytest.raises(HeaderRefused) as caught:
        headers_of([header])
    assert "s3" not in str(caught.value)
