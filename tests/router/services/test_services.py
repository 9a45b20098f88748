"""Services behind addresses, on loopback: what passes, what falls back, what is taken over."""

import asyncio
import gzip
import json
import socket
import struct
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from cutover.flow import ClientRequest, Request
from cutover.wire import Reader, WholeBody, find_dialect, splitter
from harness import root
from harness.config import parse
from harness.live import LiveSettings
from harness.services import open_services
from router import driver, edge, exchange, serve
from router.gateway.runs import OpenRuns
from router.services import Address, Service, ServiceFlow, ServiceRequest, open_session
from tests.support.client import Client
from tests.support.origin import Origin, Piece, Reply
from tests.support.stage import staged

pytestmark = pytest.mark.sockets

RECORDINGS = Path(__file__).parents[2] / "cutover" / "wire" / "recordings"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads(
    (RECORDINGS / "expected.toml").read_text("utf-8")
)
WHOLE = [name for name, due in EXPECTED.items() if due["ending"] == "completed"]
FAILING = [name for name, due in EXPECTED.items() if due["ending"] != "completed"]
MEDIA = {"sse": "text/event-stream", "ndjson": "application/x-ndjson", "txt": "text/plain"}
ASKED = {"user": {"id": "u"}, "messages": []}


@dataclass
class Pair:
    """Two services and a router before them."""

    legacy: Origin
    graph: Origin
    app: FastAPI
    flow: dict[str, Any] = field(default_factory=dict)

    async def ask(
        self, path: str = "/ask", body: Any = ASKED, method: str = "POST", **sends: str
    ) -> tuple[Client, bytes]:
        """Ask, and return the client with what it got."""
        client = Client(self.app, sends={k.replace("_", "-"): v for k, v in sends.items()})
        return client, await client.post(path, body, method=method)


@asynccontextmanager
async def pair(
    dialect: str = "chat-completions", limits: Any = None, **table: Any
) -> AsyncIterator[Pair]:
    """Open two services and a router before them."""
    async with (
        Origin() as legacy,
        Origin() as graph,
        staged() as stage,
        open_services(parse({})) as opened,
    ):
        declared = {"paths": ["/ask"], "dialect": dialect, "keys": {"user": "body.user.id"}}
        settings = parse(
            {
                "stacks": {
                    "legacy": {"url": legacy.url, "headers": {"X-Own": "router's"}},
                    "graph": {"url": graph.url},
                },
                "limits": limits or {},
                "flows": {"mine": {**declared, **table}},
            }
        )
        app = root.application(LiveSettings(settings), stage.world, opened)
        yield Pair(legacy, graph, app)


def recording(name: str) -> tuple[str, list[bytes], str]:
    """Return a recording's dialect, its blocks, and its media type."""
    dialect = EXPECTED[name]["dialect"]
    cut = splitter(find_dialect(dialect))
    blocks = cut.feed((RECORDINGS / name).read_bytes())
    return dialect, [*blocks, *cut.flush()], MEDIA[name.rpartition(".")[2]]


def said(dialect: str, stream: bytes) -> dict[str, str]:
    """Return the texts of a stream."""
    reader = Reader(find_dialect(dialect))
    reader.feed(stream)
    reader.close()
    return dict(reader.texts)


def without_comments(stream: bytes) -> bytes:
    """Return a stream without what says who serves."""
    lines = stream.split(b"\n\n")
    return b"\n\n".join(one for one in lines if not one.startswith(b": served-by"))


@pytest.mark.parametrize("name", WHOLE)
async def test_bytes_pass_as_they_are(name: str) -> None:
    """Whatever the dialect: the client gets the service's very bytes."""
    dialect, blocks, media = recording(name)
    async with pair(dialect) as both:
        both.legacy.script(Reply(blocks, media))
        client, got = await both.ask()
        assert got == b"".join(blocks)
        assert client.status == 200
        assert client.headers["content-type"] == media
        assert client.headers["x-cutover-served"] == "legacy"


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
async def test_another_service_takes_over_behind_every_event(name: str) -> None:
    """The client has, in the end, what one whole stream says."""
    dialect, blocks, media = recording(name)
    async with pair(dialect) as both:
        for cut in range(len(blocks)):
            pieces: Sequence[Piece] = [*blocks[:cut], "reset"]
            both.legacy.script(Reply(pieces, media))
            both.graph.script(Reply(blocks, media))
            client, got = await both.ask()
            whole = without_comments(got)
            if client.headers["x-cutover-served"] == "legacy" and not both.graph.replies:
                assert said(dialect, whole) == EXPECTED[name]["texts"], cut
            elif both.graph.replies:  # the end had gone out
                assert whole == b"".join(blocks[:cut])
                both.graph.replies.clear()
            else:
                assert whole == b"".join(blocks), cut


@pytest.mark.parametrize("name", FAILING)
async def test_a_failure_reported_before_any_content_is_replaced(name: str) -> None:
    """By the other service; what has begun is taken over where the text allows it."""
    dialect, blocks, media = recording(name)
    fine, whole, _ = recording(next(one for one in WHOLE if EXPECTED[one]["dialect"] == dialect))
    early = "c" not in EXPECTED[name]["verdicts"]
    async with pair(dialect) as both:
        both.legacy.script(Reply(blocks, media))
        both.graph.script(Reply(whole, media))
        client, got = await both.ask()
        assert fine == dialect
        if early:
            assert got == b"".join(whole)
            assert client.headers["x-cutover-served"] == "graph"
        assert client.status == 200


STREAMS = tomllib.loads(Path(__file__).with_name("streams.toml").read_text("utf-8"))


def blocks_of(text: str) -> list[bytes]:
    """Return the events of a stream in the table."""
    ends = "\n\n" if "data:" in text else "\n"
    lines = [one for one in text.split(ends) if one]
    return [f"{one if 'data:' in one else f'data: {one}'}\n\n".encode() for one in lines]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("row", STREAMS["goes_on"], ids=lambda row: row["dialect"])
async def test_a_stream_goes_on_behind_the_end_of_an_answer(
    row: dict[str, str], whole: bool
) -> None:
    """Its client gets all of it; where the second answer breaks off, the other service goes on."""
    first, then = blocks_of(row["first"]), blocks_of(row["then"])
    pieces: list[Piece] = [*first, 0.01, *then] if whole else [*first, 0.01, *then[:-1], "reset"]
    async with pair(row["dialect"]) as both:
        both.legacy.script(Reply(pieces, MEDIA["sse"]))
        both.graph.script(Reply([*first, *then], MEDIA["sse"]))
        _, got = await both.ask()
        assert without_comments(got) == b"".join([*first, *then])
        assert bool(both.graph.replies) is whole


@pytest.mark.parametrize("then", ["content", "reset", "failure"])
async def test_a_client_hears_of_a_service_that_thinks(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By comments before the first content, and then what this service, or the other, answers."""
    monkeypatch.setattr(edge, "SILENCE_SECONDS", 0.001)
    dialect, blocks, media = recording("chat-text.sse")
    failing = [b'data: {"error": {"message": "no"}}\n\n']
    pieces: dict[str, Sequence[Piece]] = {"content": blocks, "reset": ["reset"], "failure": failing}
    async with pair(dialect) as both:
        both.legacy.script(Reply([b": ok\n\n", 0.2, *pieces[then]], media))
        both.graph.script(Reply(blocks if then == "reset" else [*failing], media))
        client, got = await both.ask()
        assert (client.status, client.pieces[0]) == (200, b": keep-alive\n\n")
        assert said(dialect, got) == (
            {} if then == "failure" else EXPECTED["chat-text.sse"]["texts"]
        )
        assert (failing[0] in got) is (then == "failure")


@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_that_is_no_stream_is_not_put_behind_a_head_that_went_out(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of a service that thinks, and then breaks, hears of a failure in the stream."""
    monkeypatch.setattr(edge, "SILENCE_SECONDS", 0.001)
    dialect, _, media = recording("chat-text.sse")
    async with pair(dialect) as both:
        both.legacy.script(Reply([b": ok\n\n", 0.2, "reset"], media))
        both.graph.script(Reply([b"{}"], "application/json", status))
        client, got = await both.ask()
        assert client.status == 200
        assert b"{}" not in got
        assert b'data: {"error":' in got


@pytest.mark.parametrize("row", STREAMS["hangs"], ids=lambda row: row["stream"])
async def test_a_service_that_hangs_behind_its_end_ends(
    row: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is whole, and nothing follows but what keeps its connection alive."""
    monkeypatch.setattr(serve, "FOLLOWS_SECONDS", 0.1)
    monkeypatch.setattr(exchange, "AFTER_END_SECONDS", 0)
    dialect, blocks, media = recording(row["stream"])
    alive: list[Piece] = [0.02, row["alive"].encode()] if row["alive"] else []
    async with pair(dialect) as both:
        both.legacy.script(Reply([*blocks, *alive * 500, "hang"], media))
        client, got = await both.ask()
        assert client.headers["x-cutover-served"] == "legacy"
        assert got.replace(row["alive"].encode(), b"") == b"".join(blocks)
        assert got.count(row["alive"].encode() or b"-") < 100


@pytest.mark.parametrize("row", STREAMS["fails"], ids=lambda row: row["dialect"])
async def test_a_failure_before_any_text_is_replaced(row: dict[str, str]) -> None:
    """Whatever its form; it is the service's own, which its breaker counts."""
    fine = next(one for one in WHOLE if EXPECTED[one]["dialect"] == row["dialect"])
    dialect, whole, media = recording(fine)
    async with pair(dialect) as both:
        both.legacy.script(Reply(blocks_of(row["stream"]), media))
        both.graph.script(Reply(whole, media))
        client, got = await both.ask()
        assert (client.headers["x-cutover-served"], got) == ("graph", b"".join(whole))


@pytest.mark.parametrize("name", FAILING)
async def test_the_last_report_of_a_failure_goes_out(name: str) -> None:
    """A client that no service can help gets what its service said."""
    dialect, blocks, media = recording(name)
    async with pair(dialect, langgraph_fallback=False) as both:
        both.legacy.script(Reply(blocks, media))
        _, got = await both.ask()
        assert got == b"".join(blocks)


@pytest.mark.parametrize("name", ["chat-text.sse", "anthropic-text.sse", "ai-sdk-text.sse"])
async def test_a_stream_that_breaks_off_ends_in_the_words_of_its_dialect(name: str) -> None:
    """Nothing is cut off silently, and nothing says more than a code."""
    dialect, blocks, media = recording(name)
    middle = EXPECTED[name]["verdicts"].index("c") + 1
    async with pair(dialect, langgraph_fallback=False) as both:
        both.legacy.script(Reply([*blocks[:middle], "reset"], media))
        _, got = await both.ask()
        reader = Reader(find_dialect(dialect))
        failures = [one.failed for one in reader.feed(got) if one.failed]
        assert got.startswith(b"".join(blocks[:middle]))
        assert failures
        assert b"service_cut" in got


async def test_a_successor_that_fails_behind_the_client_ends_the_stream() -> None:
    """Its report comes before what the client has: the router's own failure goes out instead."""
    _, whole, media = recording("chat-text.sse")
    _, failing, _ = recording("chat-error.sse")
    broken = [one for one in failing if b'"error"' in one]
    async with pair() as both:
        both.legacy.script(Reply([*whole[:4], "reset"], media))
        both.graph.script(Reply([*whole[:2], *broken], media))
        _, got = await both.ask()
        reader = Reader(find_dialect("chat-completions"))
        assert [one.failed for one in reader.feed(got) if one.failed]


@pytest.mark.parametrize(
    ("status", "media", "body", "served"),
    [
        (200, "application/json", b'{"choices":[]}', "legacy"),
        (201, "application/pdf", b"%PDF\xff", "legacy"),
        (200, "text/html", b"", "legacy"),
        (404, "application/json", b'{"error":"no such thread"}', "legacy"),
        (429, "text/plain", b"slow down", "legacy"),
        (302, "text/plain", b"", "legacy"),
        (204, "text/event-stream", b"", "legacy"),
        (101, "text/plain", b"", "graph"),
        (600, "text/plain", b"", "graph"),
        (500, "text/plain", b"boom", "graph"),
        (503, "application/json", b"{}", "graph"),
    ],
)
async def test_an_answer_that_is_no_stream_passes(
    status: int, media: str, body: bytes, served: str
) -> None:
    """With its status and its bytes; one of a broken service is asked of the other."""
    async with pair() as both:
        both.legacy.script(Reply([body] if body else [], media, status))
        both.graph.script(Reply([b"fine"], "text/plain"))
        client, got = await both.ask()
        assert client.headers["x-cutover-served"] == served
        assert (client.status, got) == ((status, body) if served == "legacy" else (200, b"fine"))


async def test_the_last_answer_of_a_broken_service_passes() -> None:
    """Its status and its words, where no other one can help."""
    async with pair() as both:
        both.legacy.script(Reply([b"boom"], "text/plain", 500))
        both.graph.script(Reply([b"bang"], "text/plain", 502))
        client, got = await both.ask()
        assert (client.status, got) == (502, b"bang")


@pytest.mark.parametrize("how", ["", "reset"])
async def test_a_service_that_is_away_is_replaced(how: Any) -> None:
    """Whether nothing listens there, or it resets the connection."""
    async with pair() as both:
        if how:
            both.legacy.script(Reply(before="reset"))
        else:
            await both.legacy.__aexit__()
        both.graph.script(Reply([b"{}"]))
        client, got = await both.ask()
        assert (client.status, got) == (200, b"{}")
        assert client.headers["x-cutover-served"] == "graph"


@pytest.mark.parametrize(("limit", "whole"), [(8 << 20, True), (1 << 20, False)])
async def test_a_long_event_passes_within_its_limit(limit: int, whole: bool) -> None:
    """A picture in a delta; beyond the limit the stream ends honestly."""
    long = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * (6 << 20))
    blocks = [b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', long]
    async with pair(langgraph_fallback=False, limits={"event_bytes": limit}) as both:
        both.legacy.script(Reply([*blocks, b"data: [DONE]\n\n"], "text/event-stream"))
        _, got = await both.ask()
        assert (long in got) is whole
        assert (b"event_too_long" in got) is not whole


@pytest.mark.parametrize("encoding", ["gzip", "X-GZIP", "deflate", "zstd", "br", "deflate, gzip"])
@pytest.mark.parametrize("media", ["text/plain", "application/json"])
async def test_a_compressed_answer_is_refused_as_such(
    encoding: str, media: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has asked for it, and what breaks off in it would be taken for whole."""
    caplog.set_level("INFO", "cutover.exchange")
    packed, headers = gzip.compress(b"line\n" * 99, mtime=0), (("content-encoding", encoding),)
    async with pair("text") as both:
        both.legacy.script(Reply([packed[:-5]], media, headers=headers))
        both.graph.script(
            Reply([b"fine"], "text/plain", headers=(("content-encoding", "Identity"),))
        )
        client, got = await both.ask()
        assert (client.status, got) == (200, b"fine")
        assert "content-encoding" not in client.headers
    assert "taken_over=service_encoding " in caplog.text


async def test_a_kept_connection_that_was_closed_is_opened_anew() -> None:
    """A service that closes idle connections at once costs no client a failure."""
    async with pair(langgraph_fallback=False) as both:
        both.legacy.keeps_alive = True
        for _ in range(3):
            both.legacy.script(Reply([b"{}"]))
            client, got = await both.ask()
            assert (client.status, got) == (200, b"{}")


async def test_a_kept_connection_that_is_reset_is_opened_anew() -> None:
    """A service that closes it as a request comes in resets it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n{}")
        if await reader.read(1):
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()

    serving = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = serving.sockets[0].getsockname()
    async with serving, open_session() as session:
        address = Address(f"http://{host}:{port}")
        service = Service(address, find_dialect("text"), session, OpenRuns())
        for _ in range(3):
            request = Request(ServiceRequest("GET", "/a"), None, "/a", ())
            assert [one async for one in service(request)][-1] == WholeBody(b"{}")


async def test_a_service_is_sent_what_the_client_sent() -> None:
    """Credentials and headers of its own, path and query; nothing that the router alone may say."""
    table: dict[str, Any] = {
        "paths": ["/threads/{thread}/runs"],
        "methods": ["GET", "POST"],
        "keys": {},
    }
    async with pair(**table) as both:
        both.legacy.script(Reply([b"{}"]), Reply([b"{}"]))
        sends = {"authorization": "Bearer k", "x_mine": "1", "x_cutover_run": "f" * 32}
        await both.ask("/threads/t%2F1/runs", b'{"a": 1}', **sends)
        await both.ask("/threads/%7e2/runs", b"", method="GET")
        first, second = both.legacy.asked
        assert (first.method, first.target, first.body) == (
            "POST",
            "/threads/t%2F1/runs",
            b'{"a": 1}',
        )
        assert (first.headers["authorization"], first.headers["x-mine"]) == ("Bearer k", "1")
        assert first.headers["x-cutover-run"] != "f" * 32
        assert first.headers["traceparent"].split("-")[1] == first.headers["x-cutover-run"]
        assert (second.method, second.target, second.body) == ("GET", "/threads/%7e2/runs", b"")


async def test_headers_pass_as_bytes_and_those_of_the_router_count() -> None:
    """Also in UTF-8; a header that CGI takes for one of the router's, or its own key, is none."""
    async with pair() as both:
        title = (("x-title", "中".encode().decode("latin-1")),)
        both.legacy.script(Reply([b"{}"], headers=title))
        sends = {"x-mine": "中", "x_cutover_run": "f", "X-Own": "client's", "x_own": "client's"}
        client = Client(both.app, sends={name.lower(): value for name, value in sends.items()})
        await client.post("/ask", ASKED)
        (asked,) = both.legacy.asked
        assert asked.headers["x-mine"].encode("latin-1").decode() == client.headers["x-title"]
        assert asked.headers["x-own"] == "router's"
        assert not {"x_cutover_run", "x_own"} & asked.headers.keys()


@pytest.mark.parametrize("thread", ["..", ".", "..\\x"])
async def test_no_argument_leads_to_another_path(thread: str) -> None:
    """Which the flow does not declare, at a service that resolves it."""
    async with pair(paths=["/threads/{thread}/runs"], keys={}) as both:
        client, got = await both.ask(f"/threads/{thread}/runs")
        assert (client.status, json.loads(got)["code"]) == (400, "bad_path")
        assert not both.legacy.asked


@pytest.mark.parametrize("row", STREAMS["loops"], ids=lambda row: row["piece"][:30])
async def test_events_without_content_are_no_stream_without_end(
    row: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few bytes they are, the other service answers."""
    monkeypatch.setattr(driver, "STREAM_BYTES", 1 << 18)
    async with pair(row["dialect"]) as both:
        both.legacy.script(Reply([row["piece"].encode() * 2_000, "hang"], "text/event-stream"))
        both.graph.script(Reply([b"{}"]))
        client, _ = await both.ask()
        assert client.headers["x-cutover-served"] == "graph"


@pytest.mark.parametrize("group", STREAMS["keys"].values(), ids=STREAMS["keys"])
def test_values_that_are_equal_are_one_key(group: list[str]) -> None:
    """However JSON spells them, and whatever stands beside."""
    flow = ServiceFlow("mine", {}, find_dialect("text"), {"user": "body.u"})
    asked = [ClientRequest("POST", "/ask", "/ask", [], one.encode(), {}) for one in group]
    keys = {flow.key(flow.body(one)) for one in asked}
    assert len(keys) == 1
    assert keys != {""}


async def test_head_is_answered_by_a_head() -> None:
    """It is no stream that lacks its end."""
    async with pair(methods=["GET"]) as both:
        both.legacy.script(Reply([], "text/event-stream"))
        client, _ = await both.ask(method="HEAD", body=b"")
        assert (client.status, client.headers["x-cutover-served"]) == (200, "legacy")


@pytest.mark.parametrize(
    ("form", "key"), [(b"user=u&x=\xff", "u"), (b"user=u" + b"&x=1" * 5_000, "")]
)
def test_any_form_passes(form: bytes, key: str) -> None:
    """Keys are found in those whose other fields are no UTF-8, and not in thousands of fields."""
    flow = ServiceFlow("mine", {}, find_dialect("text"), {"user": "body.user"})
    headers = [("content-type", "application/x-www-form-urlencoded")]
    assert flow.key(flow.body(ClientRequest("POST", "/ask", "/ask", headers, form, {}))) == key


@pytest.mark.parametrize(
    ("place", "path", "body", "key"),
    [
        ("body.user.id", "/ask", {"user": {"id": "ä"}}, "ä"),
        ("body.user.id", "/ask", {"user": {"id": 7}}, "7"),
        ("body.user.id", "/ask", {"user": {"id": 7.0}}, "7"),
        ("body.user.id", "/ask", {"user": {"id": [1]}}, "[1]"),
        ("body.user.id", "/ask", {"user": {"id": True}}, "true"),
        ("body.user.id", "/ask", {"user": None}, ""),
        ("body.messages.0.id", "/ask", {"messages": [{"id": "m"}]}, "m"),
        ("body.user", "/ask", "user=u&x=1", "u"),
        ("query.user", "/ask?user=a%20b", {}, "a b"),
        ("header.x-user", "/ask", {}, "from header"),
        ("path.thread", "/t/5", {}, "5"),
        ("body.user", "/ask", b"\xff\xfe", ""),
        ("body.user.id", "/ask", {"user": {"id": "x" * 5000}}, "x" * 5000),
    ],
)
async def test_keys_stand_where_they_are_declared(
    place: str, path: str, body: Any, key: str
) -> None:
    """In the body, a form, the query, a header, the path."""
    flow = ServiceFlow("mine", {}, find_dialect("text"), {"user": place})
    form = isinstance(body, str)
    raw = body.encode() if form else body if isinstance(body, bytes) else json.dumps(body).encode()
    media = "application/x-www-form-urlencoded" if form else "application/json"
    headers = [("content-type", media), ("x-user", "from header")]
    params = {"thread": "5"} if path.startswith("/t/") else {}
    asked = ClientRequest("POST", path.partition("?")[0], path, headers, raw, params)
    assert flow.key(flow.body(asked), "user") == key
    stored = json.loads(json.dumps({"method": "POST", "target": path}))
    assert flow.stored("/ask", stored, None).body.target == path
