"""Bad input is answered with a problem, and odd input that is good all the same is served."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.flows.chat import ChatRequest
from contract.records import ErrorRecord
from tests.support.deployment import Deployment, Setup, deployed

pytestmark = pytest.mark.sockets


MIB = 1_048_576
FIELDS = ("message_id", "content", "user_name", "chat_id", "user_id")
WHOLE: dict[str, Any] = {
    "message_id": "m",
    "content": "Hello",
    "user_name": "Ann",
    "chat_id": "c",
    "user_id": "u",
    "model_config": {"model_id": "gpt-4.1"},
    "prompt_params": {"key": "value"},
}


def body(**more: Any) -> bytes:
    """Build a good body with something changed."""
    return msgspec.json.encode(WHOLE | more)


def deep(levels: int) -> bytes:
    """Build so many lists in lists."""
    return b"[" * levels + b"]" * levels


UNREADABLE = {
    "empty": (b"", "empty_body"),
    "blank": (b"  \n", "not_json"),
    "no JSON": (b"message_id=m", "not_json"),
    "half a body": (body()[:-1], "not_json"),
    "two bodies": (body() * 2, "not_json"),
    "a BOM": (b"\xef\xbb\xbf" + body(), "not_json"),
    "NaN": (b'{"message_id":"m","prompt_params":{"n":NaN}}', "not_json"),
    "UTF-16": (body().decode().encode("utf-16"), "not_json"),
    "deep in an unknown field": (b'{"message_id":"m","x":' + deep(100_000) + b"}", "too_deep"),
    **{
        f"a raw lone surrogate in {field}": (
            body().replace(b'"%s":"' % field.encode(), b'"%s":"\xed\xa0\x80' % field.encode()),
            "not_json",
        )
        for field in FIELDS
    },
    **{
        f"an escaped lone surrogate in {field}": (
            body().replace(b'"%s":"' % field.encode(), b'"%s":"\\ud800' % field.encode()),
            "not_json",
        )
        for field in FIELDS
    },
    "a lone surrogate in a parameter": (
        body().replace(b'"value"', b'"\\udfff"'),
        "not_json",
    ),
    "a lone surrogate in a parameter's name": (body().replace(b'"key"', b'"\\ud800"'), "not_json"),
    "a lone surrogate in a model id": (body().replace(b"gpt", b"\\udc00"), "not_json"),
}
WRONG = {
    "a list": b"[]",
    "null": b"null",
    "a text": b'"m"',
    "lists in lists": deep(100_000),
    "no id": b'{"content":"Hello"}',
    **{f"a number for {field}": body(**{field: 7}) for field in FIELDS},
    **{f"an empty {field}": body(**{field: ""}) for field in FIELDS},
    **{f"a NUL in {field}": body(**{field: "a\0b"}) for field in FIELDS},
    **{f"a list for {field}": body(**{field: ["a"]}) for field in FIELDS},
    "a blank text": body(content=" \n\u3000"),
    "a long id": body(message_id="m" * 129),
    "a long name": body(user_name="m" * 65),
    "a long text": body(content="m" * 65_537),
    "a long text of wide characters": body(content="字" * 65_537),
    "a NUL in a parameter": body(prompt_params={"key": "\0"}),
    "a NUL in a parameter's name": body(prompt_params={"a\0b": "x"}),
    "a list for a parameter": body(prompt_params={"key": []}),
    "an endless number": body().replace(b'"value"', b"1e999"),
    "a number of 5000 digits": body().replace(b'"value"', b"9" * 5_000),
    "a temperature too high": body(model_config={"temperature": 2.1}),
    "a temperature below zero": body(model_config={"temperature": -0.1}),
    "a text for a temperature": body(model_config={"temperature": "0.7"}),
    "no tokens": body(model_config={"max_tokens": 0}),
    "huge tokens": body().replace(b'"model_id":"gpt-4.1"', b'"max_tokens":1' + b"0" * 100),
    "more tokens than the model has": body(model_config={"max_tokens": 65_000}),
    "51 rounds": body(model_config={"max_tool_iterations": 51}),
    "a number for a switch": body(model_config={"enable_tools": 1}),
    "a list for the model": body(model_config=[]),
}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Deployment]:
    """Deploy with everything shadowed; afterwards nothing may be stored or left behind."""
    async with deployed(tmp_path, Setup(shadow=100)) as running:
        yield running
        await running.settled()
        assert running.services.router.ledger.open == 0
        assert running.provider.ledger.counts()["total"] == 0
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as store:
        assert store.execute("SELECT COUNT(*) FROM turns").fetchone() == (0,)


def told(problem: Any) -> str:
    """Return a problem's text, for what must not be in it."""
    return msgspec.json.encode(problem).decode()


async def test_what_cannot_be_read_is_400(place: Deployment) -> None:
    """Whatever is no JSON in UTF-8 is refused, with one stable word."""
    for name, (sent, code) in UNREADABLE.items():
        answer = await place.ask(sent)
        assert (answer.status, answer.problem["code"]) == (400, code), name
        assert "Error" not in told(answer.problem), name
        assert "position" not in told(answer.problem), name


async def test_what_is_not_due_is_422_and_says_where(place: Deployment) -> None:
    """JSON of another shape is refused, and the place is named."""
    for name, sent in WRONG.items():
        answer = await place.ask(sent)
        assert answer.status == 422, name
        assert answer.problem["code"] in {"invalid_request", "max_tokens_too_large"}, name
        assert len(answer.body) < 500, name


async def test_too_large_is_413_however_it_is_sent(place: Deployment) -> None:
    """A declared length is believed at once; a chunked body is counted."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b" " * (MIB // 16)

    for sent in (BytesIO(b" " * (MIB + 1)), chunks()):
        async with place.session.post(f"{place.url}/chat/sse", data=sent) as response:
            assert response.status == 413
            assert response.content_type == "application/problem+json"
            assert (await response.json(content_type=None))["code"] == "body_too_large"


async def test_a_body_that_breaks_off_is_dropped(place: Deployment) -> None:
    """Half a body and a closed connection are no request."""
    host, port = place.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /chat/sse HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await place.get("/healthz")) == {"status": "alive"}
    assert place.services.router.counts.requests == 0


async def test_an_unknown_message_is_404(place: Deployment) -> None:
    """Without content the message must be in the store."""
    answer = await place.ask({"message_id": "unknown-message"})
    assert (answer.status, answer.problem["code"]) == (404, "unknown_message")


async def test_a_locked_message_is_409(place: Deployment) -> None:
    """The message is being answered already."""
    other = place.services.router.live("chat", ChatRequest(message_id="m")).locks
    assert await other.acquire("test", "msg_lock:m", 60)
    answer = await place.ask(body())
    assert (answer.status, answer.problem["code"]) == (409, "message_locked")


async def test_an_unknown_model_is_422(place: Deployment) -> None:
    """No provider is called for an unregistered model."""
    answer = await place.ask(body(model_config={"model_id": "gpt-nowhere"}))
    assert (answer.status, answer.problem["code"]) == (422, "unknown_model")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/chat/sse", 405, "method_not_allowed"),
        ("PUT", "/feedback", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("POST", "/chats", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("GET", "/chat/sse/%2e%2e/%00", 404, "not_found"),
    ],
)
async def test_wrong_paths_and_methods_are_problems_too(
    place: Deployment, method: str, path: str, status: int, code: str
) -> None:
    """The framework's own answers have the same shape."""
    async with place.session.request(method, place.url + path) as response:
        assert response.status == status
        assert response.content_type == "application/problem+json"
        assert (await response.json(content_type=None))["code"] == code
        assert status != 405 or response.headers["allow"]


MIB = 1_048_576
ENDED_WELL = ["ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END"]


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_odd_bodies_are_served(tmp_path: Path, stack: str) -> None:
    """Unknown fields are ignored, the last of equal keys counts, 1 MiB is not too much."""
    odd = [
        b'{"message_id":"a","content":"Hello","unknown":{"deep":[[1e400]],"raw":[9e99]}}',
        b'{"message_id":"x","message_id":"b","content":"No","content":"Hello"}',
        b'\n\t {"message_id":"c","content":"Hello","user_name":null} \r\n',
        '{"message_id":"d","content":"\\ud83d\\ude00 字 🍅 \u2028 \ufeff"}'.encode(),
        b'{"message_id":"e","content":"Hello","prompt_params":{"a":1e300,"b":-9223372036854775808}}',
    ]
    async with deployed(tmp_path, Setup(stack="graph" if stack == "graph" else "legacy")) as place:
        for sent in odd:
            answer = await place.ask(sent)
            assert (answer.status, answer.steps) == (200, ENDED_WELL), sent
        padded = b'{"message_id":"f","content":"Hello"'.ljust(MIB - 1) + b"}"
        data = BytesIO(padded)
        async with place.session.post(f"{place.url}/chat/sse", data=data) as response:
            assert response.status == 200
            await response.read()
        runs = await place.lines()
        assert [run.outcome for run in runs] == ["completed"] * 6
        store = place.services.router.live("chat", ChatRequest(message_id="n")).conversations
        assert await store.find("test", "x") is None
        said = await store.find("test", "b")
        assert said is not None
        assert said.content == "Hello"


async def test_an_id_with_another_text_is_a_conflict(tmp_path: Path) -> None:
    """The text first stored under an id stays; the same text again is served again."""
    async with deployed(tmp_path) as place:
        # The time stands in the prompt, and the simulated provider answers by every word of it.
        asked = {"message_id": "m", "prompt_params": {"current_date": "d", "current_time": "t"}}
        first = await place.ask({**asked, "content": "Hello"})
        other = await place.ask({**asked, "content": "Good bye"})
        again = await place.ask({**asked, "content": "Hello"})
        stored = await place.ask(asked)
        assert (first.status, again.status, stored.status) == (200, 200, 200)
        assert (other.status, other.problem["code"]) == (409, "message_conflict")
        assert first.events == again.events == stored.events


async def test_refusals_are_on_record_and_leave_no_lock(tmp_path: Path) -> None:
    """A refusal is an outcome: captured, shadowed, and the id is free at once."""
    async with deployed(tmp_path, Setup(shadow=100)) as place:
        assert (await place.ask({"message_id": "m"})).status == 404
        runs = await place.lines()
        assert [(run.role, run.outcome) for run in runs] == [
            ("serving", "refused"),
            ("shadow", "refused"),
        ]
        said = "no message with this message_id is stored"
        told = ErrorRecord("unknown_message", status=404, detail=said)
        assert [run.error for run in runs] == [told, told]
        assert place.books() == {"compared(equal)": 1}
        assert (await place.ask({"message_id": "m", "content": "Hello"})).status == 200
