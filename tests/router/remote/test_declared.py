"""Flows declared in the configuration alone, on real sockets and frame by frame."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flows.declared import DeclaredFlow, declared_spec
from contract.wire import Dialect, FrameReader, built_in, dialect_of
from router.capture.redaction import Redactor
from router.config.patterns import compile_patterns
from router.remote.stack import may_stream, media_type
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.records import a_run
from tests.support.scripted_service import (
    EVENTS,
    LINES,
    Answer,
    Asked,
    Service,
    Stream,
    says,
    serving,
    streams,
)

DONE = b"data: [DONE]\n\n"


def reader(file: Dialect) -> FrameReader:
    """Read a declared wire."""
    return FrameReader(file)


@asynccontextmanager
async def declared(
    folder: Path, answer: Answer, dialect: str
) -> AsyncIterator[tuple[Deployment, Service]]:
    """Deploy a router with a declared flow whose legacy stack is a service."""
    async with serving(answer) as service:
        flow = f'[flows.support]\npath = "/api/support"\ndialect = {dialect}\n'
        stacks = f'[stacks.legacy]\nurl = "{service.url}/"\n'
        async with deployed(folder, Setup(more=flow + stacks)) as place:
            yield place, service


async def asked(place: Deployment, body: bytes = b'{ "any": [1] }') -> tuple[int, bytes]:
    """Ask the declared flow."""
    async with place.session.post(f"{place.url}/api/support", data=body) as response:
        return response.status, await response.read()


@pytest.mark.sockets
async def test_any_object_is_passed_on_as_it_is(tmp_path: Path) -> None:
    """Unknown fields, spaces and all; a body that is no object is refused here."""
    async with declared(tmp_path, streams(DONE), '"openai"') as (place, service):
        assert await asked(place) == (200, DONE)
        assert (await asked(place, b"[1]"))[0] == 422
        assert [(one.line.split()[1], one.body) for one in service.asked] == [
            ("/api/support", b'{ "any": [1] }')
        ]


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("dialect", "frames"),
    [
        ("{}", [b'data: {"t":"a"}\n\n', b": c\n\n", b'event: b\ndata: {"t":"b"}\n\n']),
        ('{ payload = "text" }', [b"data: a\n\n", b"data: b\n\n"]),
        ('{ framing = "ndjson" }', [b'{"t":"a"}\n', b'{"t":"b"}']),
        ('"ndjson"', [b'{"message":{"content":"a"},"done":false}\n', b'{"done":true}\n']),
        ('"anthropic-messages"', [b'event: message_stop\ndata: {"type":"message_stop"}\n\n']),
    ],
)
async def test_a_stream_is_whole_when_its_wire_says_so(
    tmp_path: Path, dialect: str, frames: list[bytes]
) -> None:
    """With its terminal event; on a wire that has none, with the end of the stream."""
    kind = LINES if "ndjson" in dialect else EVENTS
    async with declared(tmp_path, streams(*frames, kind=kind), dialect) as (place, _):
        assert await asked(place) == (200, b"".join(frames))
        run = await place.run()
        assert (run.outcome, run.error, len(run.frames)) == ("completed", None, len(frames))


async def breaks_off(_: Asked, stream: Stream) -> None:
    """Send an event, and lose the connection."""
    await stream.head()
    await stream.send(b"data: {}\n\n")
    stream.reset()


@pytest.mark.sockets
async def test_a_wire_without_an_end_still_breaks_off(tmp_path: Path) -> None:
    """A connection that is lost is no end of a stream; the declared frames follow."""
    dialect = '{ failure = [{ event = "broken", data = "{code}" }] }'
    async with declared(tmp_path, breaks_off, dialect) as (place, _):
        assert await asked(place) == (200, b"data: {}\n\nevent: broken\ndata: internal\n\n")
        assert (await place.run()).outcome == "truncated"


@pytest.mark.sockets
async def test_where_a_wire_has_no_words_for_it_the_connection_breaks(tmp_path: Path) -> None:
    """A stream that ended like any other would be taken for whole."""
    async with declared(tmp_path, breaks_off, "{}") as (place, _):
        with pytest.raises(aiohttp.ClientError):
            await asked(place)
        assert (await place.run()).outcome == "truncated"


@pytest.mark.sockets
async def test_an_error_may_be_the_end(tmp_path: Path) -> None:
    """Of a stack that has said so and says no more."""
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    async with declared(tmp_path, streams(error), '"anthropic-messages"') as (place, _):
        assert await asked(place) == (200, error)
        assert (await place.run()).outcome == "failed"


@pytest.mark.sockets
async def test_nothing_at_all_is_no_stream(tmp_path: Path) -> None:
    """Also where the end of a stream is its only ending."""
    async with declared(tmp_path, streams(), "{}") as (place, _):
        assert (await asked(place))[0] == 500


@pytest.mark.parametrize(
    ("framing", "kind", "may"),
    [
        ("ndjson", b"text/html; charset=utf-8", False),
        ("ndjson", b"Text/Event-Stream", False),
        ("ndjson", b"application/problem+json", False),
        ("ndjson", b"application/json", True),
        ("ndjson", b"application/jsonl; charset=utf-8", True),
        ("ndjson", b"text/plain", True),
        ("sse", b"text/html", False),
        ("sse", b"application/json", False),
        ("sse", b"application/x-ndjson", False),
        ("sse", b"TEXT/EVENT-STREAM;charset=utf-8", True),
        ("sse", b"application/octet-stream", True),
        ("sse", b"", True),
    ],
)
def test_what_may_be_a_stream_by_its_name(
    framing: Literal["sse", "ndjson"], kind: bytes, *, may: bool
) -> None:
    """There is no registered name for lines of JSON, and some say nothing at all."""
    assert may_stream(framing, media_type([(b"content-type", kind)])) is may


@pytest.mark.sockets
async def test_metrics_and_documents_know_the_flow(tmp_path: Path) -> None:
    """By its name and its path; its body is any object."""
    flow = '"ndjson"\n[metrics]\nenabled = true'
    async with declared(tmp_path, streams(b'{"done":true}\n', kind=LINES), flow) as (place, _):
        assert (await asked(place))[0] == 200
        async with place.session.get(f"{place.url}/metrics") as response:
            assert 'flow="support"' in await response.text()
        async with place.session.get(f"{place.url}/openapi.json") as response:
            described = (await response.json())["paths"]["/api/support"]["post"]
        assert described["requestBody"]["content"]["application/json"]["schema"] == {
            "type": "object"
        }
        assert list(described["responses"]["200"]["content"]) == ["application/x-ndjson"]


@pytest.mark.sockets
async def test_who_lacks_a_flow_does_not_stand_in(tmp_path: Path) -> None:
    """Nor is it forced by a key: the stack in this process has no code for it."""
    more = "enable_langgraph = true\nfallback_to_graph = true\nforce_graph = ['qa']\n"
    flow = f'"openai"\nroute_keys = {{ user_id = "user" }}\n{more}'
    async with declared(tmp_path, says(502), flow) as (place, service):
        assert (await asked(place))[0] == 500
        assert (await asked(place, b'{"user":"qa"}'))[0] == 503
        assert len(service.asked) == 1


@pytest.mark.sockets
async def test_an_error_inside_a_chunk_is_a_failure(tmp_path: Path) -> None:
    """It is the answer, and told once."""
    error = b'data: {"error":{"code":"overloaded"}}\n\n'
    async with declared(tmp_path, streams(error, DONE), '"openai"') as (place, _):
        assert await asked(place) == (200, error + DONE)
        assert (await place.run()).outcome == "failed"


@pytest.mark.parametrize(
    ("dialect", "frame", "name"),
    [
        ("openai", DONE, "[DONE]"),
        ("openai", b'data: {"error":{"code":"x"}}\n\n', "error"),
        ("openai", b'data: {"error":null,"choices":[]}\n\n', None),
        ("openai", b'data: {"choices":[{"delta":{"content":"[DONE] error"}}]}\n\n', None),
        ("openai", b": [DONE]\n\n", None),
        ("ndjson", b'{"done": true}\n', "done"),
        ("ndjson", b'{"done":false,"message":{"content":"done"}}\n', None),
        ("ndjson", b'{"error":"x"}\n', "error"),
        ("anthropic-messages", b'event: error\ndata: {"type":"error"}\n\n', "error"),
        ("anthropic-messages", b'data: {"type":"message_stop"}\n\n', "message_stop"),
        ("anthropic-messages", b"event: message_stop\ndata: {\n\n", "message_stop"),
    ],
)
def test_what_ends_or_fails_is_seen(dialect: str, frame: bytes, name: str | None) -> None:
    """And it is among the frames that are looked at."""
    read = reader(built_in()[dialect])
    assert read.notable(frame) == name
    assert name is None or list(read.suspects([frame])) == [0]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1).filter(
    lambda name: name == name.strip()
)


@given(end=NAMES, said=NAMES, path=st.booleans(), ascii_alone=st.booleans())
def test_whatever_is_notable_is_looked_at(
    *, end: str, said: str, path: bool, ascii_alone: bool
) -> None:
    """However a name is written: a frame that is passed over is no ending."""
    file = Dialect(terminal=(end,), event=dialect_of('[event]\npath = "k.n"', "", "").event)
    read = reader(file if path else Dialect(terminal=(end,)))
    value = {"k": {"n": said}}
    encoded = json.dumps(value).encode() if ascii_alone else msgspec.json.encode(value)
    frame = b"data: " + encoded + b"\n\n"
    if not path:
        frame = f"event: {said}\n".encode() + frame
    assert read.notable(frame) is None or read.suspects([frame])


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        (b'data: {"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}\n\n', "ab"),
        (b'data: {"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}\n\n', "a"),
        (b'data: {"choices":[{"delta":{"reasoning":"a"}}]}\n\n', None),
        (DONE, None),
        (b": c\n\n", None),
    ],
)
def test_the_answers_text_is_found(frames: bytes, text: str | None) -> None:
    """For the time to the first of it."""
    event = reader(built_in()["openai"]).event(frames)
    assert (event and event.text()) == text


def test_a_name_spread_over_chunks_is_redacted() -> None:
    """The pieces of the text are joined, wherever the dialect says they stand."""
    spec = declared_spec("x", DeclaredFlow(path="/x", dialect=built_in()["openai"]))
    chunk = '{"choices":[{"delta":{"content":"%s"}}]}'
    frames = tuple(
        (at, f"data: {chunk % piece}\n\n") for at, piece in enumerate(["a@exa", "mple.", "org ok"])
    )
    run = a_run(frames=frames)
    (after,) = Redactor(compile_patterns({}), (), b"key").exchange([run], spec.decoder)
    said = "".join(text for _, text in after.frames)
    assert "mple." not in said
    assert "ok" in said
