"""The transport: requests of httpx and httpx2, asynchronous and blocking, on the tape."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import httpx
import httpx2
import pytest

from cutover import Exchange, Run, TapeTransport
from cutover.errors import Completed, PlayedOutside
from cutover.tape import outside, tape_record
from cutover.wire import MOST_BLOCK_BYTES, events
from tests.support.origin import Origin, Piece, Reply
from tests.support.tapes import ended, ends, play, start, turn, until, values

pytestmark = pytest.mark.sockets

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
EVENTS = (
    b'data: {"n":1}\n\n'
    b'event: named\r\ndata: {"n":2}\r\n\r\n'
    b'data: {"n":3}\r\r'
    b": comment\n\n"
    b"data: [DONE]\n\n"
)


@dataclass(frozen=True)
class Got:
    """An answer as a client read it."""

    status: int
    body: bytes
    headers: dict[str, str]


Ask = Callable[..., Coroutine[Any, Any, Got]]


def _asynchronous(library: Any) -> Ask:
    async def ask(url: str, method: str = "POST", transport: Any = None, **named: Any) -> Got:
        async with (
            library.AsyncClient(transport=transport or TapeTransport()) as client,
            client.stream(method, url, **named) as response,
        ):
            body = b"".join([piece async for piece in response.aiter_bytes()])
            return Got(response.status_code, body, dict(response.headers))

    return ask


def _blocking(library: Any) -> Ask:
    def ask(url: str, method: str = "POST", transport: Any = None, **named: Any) -> Got:
        with (
            library.Client(transport=transport or TapeTransport()) as client,
            client.stream(method, url, **named) as response,
        ):
            return Got(
                response.status_code, b"".join(response.iter_bytes()), dict(response.headers)
            )

    async def in_thread(*args: Any, **named: Any) -> Got:
        return await asyncio.to_thread(ask, *args, **named)

    return in_thread


CLIENTS = {
    "httpx": _asynchronous(httpx),
    "httpx2": _asynchronous(httpx2),
    "httpx blocking": _blocking(httpx),
    "httpx2 blocking": _blocking(httpx2),
}
any_client = pytest.mark.parametrize("ask", CLIENTS.values(), ids=CLIENTS.keys())


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    """A server."""
    async with Origin() as server:
        yield server


async def twice(ask: Ask, *args: Any, **named: Any) -> tuple[Got, Got, Exchange]:
    """Ask in a live run, and in one that plays."""
    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            first = await ask(*args, **named)
    run = play(exchange)
    with run.current():
        second = await ask(*args, **named)
    assert run.ended is None
    run.end(Completed())
    return first, second, exchange


@any_client
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_an_event_is_an_item_however_the_wire_cut_it(
    origin: Origin, ask: Ask, size: int
) -> None:
    """CR, LF and CRLF; the bytes that clients read are those of the wire."""
    pieces = [EVENTS[at : at + size] for at in range(0, len(EVENTS), size)]
    origin.script(Reply(pieces, "text/event-stream; charset=utf-8"))
    live, played, exchange = await twice(ask, f"{origin.url}/v1/chat/completions", json=CHAT)
    assert live.body == played.body == EVENTS
    [entry] = exchange.entries
    assert entry.call.name == "model.chat"
    assert [events(item)[0].data.decode() for item in values(entry)[1:] if b"data" in item] == [
        '{"n":1}',
        '{"n":2}',
        '{"n":3}',
        "[DONE]",
    ]
    assert len(values(entry)) == 1 + 5
    assert len(origin.asked) == 1


@any_client
@pytest.mark.parametrize(
    ("media", "pieces", "items"),
    [
        ("application/json", [b'{"a":', b"1}"], [b'{"a":1}']),
        ("application/problem+json", [b"{", b"}"], [b"{}"]),
        ("application/x-ndjson", [b'{"a":1}\n', 0.01, b'{"a":2}\n'], None),
        ("text/plain", [b"some ", 0.01, b"text"], None),
        ("application/octet-stream", [bytes(range(256))], None),
        ("application/json", [], []),
    ],
)
async def test_other_bodies(
    origin: Origin, ask: Ask, media: str, pieces: list[Piece], items: list[bytes] | None
) -> None:
    """JSON is one item; what streams otherwise is handed on as it comes."""
    origin.script(Reply(pieces, media))
    live, played, exchange = await twice(ask, f"{origin.url}/any", json={"a": 1})
    body = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    assert live.body == played.body == body
    assert live.headers["content-type"] == played.headers["content-type"] == media
    if items is not None:
        assert values(exchange.entries[0])[1:] == items


@any_client
async def test_a_body_that_is_encoded_all_the_same_is_decoded_before_it_is_cut(
    origin: Origin, ask: Ask
) -> None:
    """Requests ask for `identity`; a server that answers gzip is understood."""
    packed = gzip.compress(EVENTS)
    pieces = [packed[at : at + 9] for at in range(0, len(packed), 9)]
    headers = (("content-encoding", "gzip"),)
    origin.script(Reply(pieces, "text/event-stream", headers=headers))
    live, played, exchange = await twice(ask, f"{origin.url}/v1/chat/completions", json=CHAT)
    assert live.body == played.body == EVENTS
    assert len(values(exchange.entries[0])) == 1 + 5
    assert origin.asked[0].headers["accept-encoding"] == "identity"


@any_client
async def test_each_hop_of_a_redirect_is_a_call(origin: Origin, ask: Ask) -> None:
    """The location is kept, as it was sent, and the client follows it on the tape as well."""
    place = ("location", "/second?q=\xe9")
    origin.script(Reply(status=302, headers=(place,)))
    transport = TapeTransport()

    async def follow(url: str) -> Got:
        return await ask(url, "GET", transport=transport)

    live, played, exchange = await twice(follow, f"{origin.url}/first")
    assert live.status == played.status == 302
    assert live.headers["location"] == played.headers["location"]
    async with (
        Exchange() as again,
        httpx2.AsyncClient(transport=transport, follow_redirects=True) as client,
    ):
        origin.script(Reply(status=302, headers=(("location", "/second"),)), Reply([b'"here"']))
        for run in (Run(again, "legacy"), play(again)):
            with run.current():
                assert (await client.get(f"{origin.url}/first")).text == '"here"'
        assert [entry.call.name for entry in again.entries] == [
            "http GET /first",
            "http GET /second",
        ]
    assert len(exchange.entries) == 1


@any_client
async def test_a_played_refusal_is_not_waited_for(origin: Origin, ask: Ask) -> None:
    """Live answers keep `retry-after`; played ones ask for a millisecond. Two tries, two calls."""
    kept = (("retry-after", "20"), ("x-request-id", "r1"), ("set-cookie", "secret=1"))
    origin.script(*[Reply([b'{"error":{}}'], status=429, headers=kept)] * 2, Reply([b"{}"]))

    async def persistent(url: str) -> Got:
        refused = [await ask(url, json=CHAT) for _ in range(2)]
        assert [got.status for got in refused] == [429, 429]
        assert (await ask(url, json=CHAT)).status == 200
        return refused[1]

    live, played, exchange = await twice(persistent, f"{origin.url}/v1/chat/completions")
    assert live.headers["retry-after"] == "20"
    assert "retry-after-ms" not in live.headers
    assert "retry-after" not in played.headers
    assert played.headers["retry-after-ms"] == "1"
    assert live.headers["x-request-id"] == played.headers["x-request-id"] == "r1"
    assert "set-cookie" not in played.headers
    assert len(exchange.entries) == len(origin.asked) == 3


WAITS = {
    "seconds": (429, {"retry-after": "20"}, 20),
    "milliseconds first": (503, {"retry-after-ms": "30000", "retry-after": "5"}, 30),
    "a date, an hour on": (529, {"retry-after": formatdate(time.time() + 3600)}, 120),
    "longer than SDKs wait": (429, {"retry-after": "3600"}, 120),
    "no time": (429, {"retry-after": "soon", "retry-after-ms": "nan"}, 0),
    "a date that is none": (429, {"retry-after": "Mon, 01 Jan 0000 00:00:00 GMT"}, 0),
    "none": (500, {}, 0),
    "a status that is not retried": (400, {"retry-after": "20"}, 0),
    "no refusal": (200, {"retry-after": "20"}, 0),
}


@any_client
@pytest.mark.parametrize("case", WAITS)
async def test_a_run_knows_until_when_its_provider_told_it_to_wait(
    origin: Origin, ask: Ask, case: str
) -> None:
    """A live one; one that plays waits for nothing."""
    status, headers, seconds = WAITS[case]
    origin.script(Reply([b"{}"], status=status, headers=tuple(headers.items())))
    async with Exchange() as exchange:
        live, played = Run(exchange, "legacy"), play(exchange)
        for run in (live, played):
            with run.current():
                await ask(f"{origin.url}/v1/chat/completions", json=CHAT)
    waits = max(live.not_before - asyncio.get_running_loop().time(), 0)
    assert waits == pytest.approx(seconds, abs=10)
    assert played.not_before == 0


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", ["httpx2", "httpx blocking"])
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(before="reset"), ("ReadError", "RemoteProtocolError")),
        (
            Reply([b"data: 1\n\n", 0.01, "reset"], "text/event-stream"),
            ("ReadError", "RemoteProtocolError"),
        ),
    ],
    ids=["before the head", "within the body"],
)
async def test_errors_are_of_the_readers_family(
    origin: Origin, reader: str, writer: str, reply: Reply, kind: tuple[str, ...]
) -> None:
    """Recorded by one library and raised by the other: same kind, same message."""
    origin.script(reply)
    url = f"{origin.url}/v1/chat/completions"
    errors = []
    async with Exchange() as exchange:
        for name, run in ((writer, Run(exchange, "legacy")), (reader, play(exchange))):
            library = httpx2 if "httpx2" in name else httpx
            with run.current(), pytest.raises(library.RequestError) as raised:
                await CLIENTS[name](url, json=CHAT)
            assert type(raised.value).__module__.partition(".")[0] == library.__name__
            assert raised.value.request.url == url
            errors.append((type(raised.value).__name__, str(raised.value)))
        assert ends(exchange) == ["failed"]
    assert errors[0] == errors[1]
    assert errors[0][0] in kind


async def test_a_refused_connection_and_a_timeout_are_kept_by_their_kinds(origin: Origin) -> None:
    """SDKs tell them apart."""
    origin.script(Reply([b"data: 1\n\n", "hang"], "text/event-stream"))
    for url, kind in (("http://127.0.0.1:9", "ConnectError"), (origin.url, "ReadTimeout")):
        async with Exchange() as exchange:
            for library, run in ((httpx2, Run(exchange, "legacy")), (httpx, play(exchange))):
                with run.current(), pytest.raises(getattr(library, kind)):
                    await _asynchronous(library)(f"{url}/v1/x", "GET", timeout=0.05)


@pytest.mark.virtual
async def test_a_stream_closed_early_is_cut_and_its_connection_closed(origin: Origin) -> None:
    """A client that reads no further stops the provider within 100 ms."""
    origin.script(Reply([b"data: 1\n\n", "hang"], "text/event-stream"))
    loop = asyncio.get_running_loop()
    async with Exchange() as exchange, httpx2.AsyncClient(transport=TapeTransport()) as client:
        with Run(exchange, "legacy").current():
            async with client.stream("POST", f"{origin.url}/v1/chat/completions", json=CHAT) as got:
                async for _ in got.aiter_bytes():
                    break
        left = loop.time()
        await asyncio.sleep(0.1)
        assert ends(exchange) == ["cut"]
        assert origin.asked[0].left_at is not None
        assert origin.asked[0].left_at - left <= 0.1


@pytest.mark.virtual
@pytest.mark.parametrize("pieces", [[], [b"data: 1\n\n"]], ids=["before an item", "within"])
async def test_a_client_that_leaves_stops_the_providers_call(
    origin: Origin, pieces: list[Piece]
) -> None:
    """The stack is cancelled, the exchange closes: the connection is gone within 100 ms."""
    origin.script(Reply([*pieces, "hang"], "text/event-stream"))
    loop = asyncio.get_running_loop()
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        task = start(run, lambda: CLIENTS["httpx2"](f"{origin.url}/v1/chat/completions", json=CHAT))
        await asyncio.sleep(1)
        left = loop.time()
        task.cancel()
        await exchange.aclose()
        assert isinstance(await ended(task), asyncio.CancelledError)
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert ends(exchange) == ["cut"]
    assert origin.asked[0].left_at is not None
    assert origin.asked[0].left_at - left <= 0.1


@any_client
@pytest.mark.slow
async def test_an_event_without_end_is_a_failure_that_names_the_limit(
    origin: Origin, ask: Ask
) -> None:
    """A stream that never ends an event fills no memory."""
    piece = b"data: " + b"x" * 1_000_000
    count = MOST_BLOCK_BYTES // len(piece) + 2
    origin.script(Reply([b"data: 1\n\n", *[piece] * count, "hang"], "text/event-stream"))
    async with Exchange() as exchange:
        with (
            Run(exchange, "legacy").current(),
            pytest.raises(
                (httpx.TransportError, httpx2.TransportError), match=str(MOST_BLOCK_BYTES)
            ),
        ):
            await ask(f"{origin.url}/v1/chat/completions", json=CHAT)
        [entry] = exchange.entries
        assert entry.end == "failed"
        assert entry.fault is not None
        assert entry.fault.kind == "BlockTooLong"
        assert str(MOST_BLOCK_BYTES) in entry.fault.message


@any_client
async def test_a_form_is_found_whatever_its_boundary(origin: Origin, ask: Ask) -> None:
    """Each client makes a boundary of its own; the files are known by digest."""
    origin.script(Reply([b"{}"]))
    form = {"files": {"file": ("a.bin", b"\x00" * 5000)}, "data": {"purpose": "test"}}
    _, _, exchange = await twice(ask, f"{origin.url}/v1/files", **form)
    [entry] = exchange.entries
    assert entry.call.writes
    assert len(entry.call.canonical) < 1000


@any_client
async def test_credentials_never_enter_the_tape(origin: Origin, ask: Ask) -> None:
    """Neither those of headers nor those of a query; they do reach the provider."""
    origin.script(Reply([b"{}"], headers=(("set-cookie", "session=hidden-4"),)))
    url = f"{origin.url}/v1/chat/completions?api-key=hidden-1&v=2"
    headers = {"authorization": "Bearer hidden-2", "x-api-key": "hidden-3"}
    _, _, exchange = await twice(ask, url, json=CHAT, headers=headers)
    assert origin.asked[0].headers["authorization"] == "Bearer hidden-2"
    assert "hidden-1" in origin.asked[0].target
    record = repr(tape_record(exchange)).encode() + b"".join(values(exchange.entries[0]))
    assert b"hidden" not in record


@any_client
async def test_without_a_run_the_transport_is_its_inner_one(origin: Origin, ask: Ask) -> None:
    """No header is changed, and nothing is kept."""
    origin.script(Reply([b"{}"]), Reply([b"{}"], status=429, headers=(("retry-after", "9"),)))
    assert (await ask(f"{origin.url}/any", json={})).status == 200
    assert (await ask(f"{origin.url}/any", json={})).headers["retry-after"] == "9"
    assert origin.asked[0].headers["accept-encoding"] != "identity"


@any_client
async def test_while_a_tape_plays_a_write_without_a_run_is_refused(
    origin: Origin, ask: Ask
) -> None:
    """Models and GETs are counted, since they change nothing."""
    origin.script(Reply([b"{}"]), Reply([b"{}"]))
    outside.clear()
    async with Exchange() as exchange:
        run = play(exchange)
        with pytest.raises(PlayedOutside):
            await ask(f"{origin.url}/orders", json={})
        await ask(f"{origin.url}/orders", "GET")
        await ask(f"{origin.url}/v1/chat/completions", json=CHAT)
        run.end(Completed())
    assert [one.method for one in origin.asked] == ["GET", "POST"]
    assert outside == {"http GET /orders": 1, "model.chat": 1}
    outside.clear()


async def test_one_transport_serves_clients_of_both_libraries(origin: Origin) -> None:
    """Each has connections of its own library, on the same loop."""
    origin.script(*[Reply([b"{}"])] * 4)
    transport = TapeTransport()
    async with Exchange() as exchange:
        for name, ask in CLIENTS.items():
            with Run(exchange, name).current():
                got = await ask(
                    f"{origin.url}/{name.replace(' ', '-')}", "GET", transport=transport
                )
                assert got.body == b"{}"


def _ask_now(url: str) -> bytes:
    with httpx.Client(transport=TapeTransport()) as client:
        return client.post(url, json=CHAT).content


async def test_a_blocking_client_on_the_loops_own_thread_reads_the_tape(origin: Origin) -> None:
    """What has ended is found without a thread."""
    origin.script(Reply([EVENTS], "text/event-stream"))
    url = f"{origin.url}/v1/chat/completions"
    async with Exchange() as exchange:
        with Run(exchange, "legacy").current():
            await CLIENTS["httpx2"](url, json=CHAT)
    with play(exchange).current():
        assert _ask_now(url) == EVENTS


async def test_a_body_closed_while_another_task_reads_it_leaves_no_reader(origin: Origin) -> None:
    """A watchdog closes the response: the task that reads is cancelled by its owner, as usual."""
    origin.script(Reply([b"data: 1\n\n", "hang"], "text/event-stream"))
    async with Exchange() as exchange, httpx2.AsyncClient(transport=TapeTransport()) as client:
        run = Run(exchange, "legacy")
        with run.current():
            request = client.build_request("POST", f"{origin.url}/v1/chat/completions", json=CHAT)
            response = await client.send(request, stream=True)

        async def drain() -> None:
            async for _ in response.aiter_bytes():
                pass

        task = asyncio.create_task(drain())
        await until(lambda: run.waiting)
        task.cancel()
        await ended(task)
        await asyncio.create_task(response.aclose())
        await turn()
        assert run.waiting == 0
