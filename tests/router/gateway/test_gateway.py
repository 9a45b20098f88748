"""The gateway on a socket: what passes, what is made up, who is turned away."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError

from contract.model import Chunk
from effects.model import RescuingModel
from tests.support.gateways import MOST_BYTES, client_of, opened
from tests.support.loopback_provider import (
    Answer,
    Loopback,
    Wire,
    delta,
    in_turn,
    registry_of,
    serving,
    sse,
)
from tests.support.misbehaving_providers import DONE, counted, pair, reset, said, saying
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets

KEY = "the key of these tests"
HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
STREAMED = {**HELLO, "stream": True}


@dataclass
class Place:
    """A gateway, the provider behind it, and a plain client."""

    url: str
    provider: Loopback
    session: aiohttp.ClientSession

    async def post(self, body: object, path: str = "/v1/chat/completions") -> tuple[int, bytes]:
        """Ask; a body of bytes is sent as it is."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url + path, data=data) as response:
            return response.status, await response.read()


@asynccontextmanager
async def placed(
    answer: Answer, spare: Answer | None = None, key: str = ""
) -> AsyncIterator[Place]:
    """Put a gateway before a provider; `spare` answers for the fallback model."""
    async with serving(answer) as one, serving(spare or answer) as other:
        entries = pair(one, other) if spare is not None else [one.entry()]
        async with registry_of(*entries) as registry:
            model = RescuingModel(registry, draw=lambda: 0.0)
            async with opened(model, registry, key) as url, aiohttp.ClientSession() as session:
                yield Place(url, one, session)


def events(*datas: bytes) -> Answer:
    """Answer with these events, byte for byte."""

    async def answer(wire: Wire) -> None:
        await wire.head()
        await wire.events(*datas)
        await wire.send(DONE)
        await wire.end()

    return answer


ODD = [
    b'{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""}}], "odd" : [1.0]}',
    b'{"id":"x","model":"loop-1","choices":[{"index":0,"delta":{"content":"H\\u0069"},"lp":null}]}',
    b'{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"obfuscation":"aa"}',
    b'{"id":"x","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}',
]


async def test_what_the_provider_sent_is_what_the_client_gets() -> None:
    """Byte for byte, unknown fields and events without news included."""
    asked = {**STREAMED, "stream_options": {"include_usage": True}}
    async with placed(events(*ODD)) as place:
        assert await place.post(asked) == (200, b"".join(map(sse, ODD)) + DONE)


async def test_usage_goes_only_to_who_asked_for_it() -> None:
    """The provider is asked for it all the same: the record has a cost."""
    async with placed(events(*ODD)) as place:
        assert await place.post(STREAMED) == (200, b"".join(map(sse, ODD[:-1])) + DONE)
        [request] = place.provider.requests
    assert request.body["stream_options"] == {"include_usage": True}


USED = {"usage": counted(3)}
CHOICE_AND_USAGE = {**said("loop-1", {}, finish_reason="stop"), **USED}


@pytest.mark.parametrize(
    "usages",
    [
        [CHOICE_AND_USAGE, {**said("loop-1", {}), "choices": [], **USED}],
        [CHOICE_AND_USAGE, {"id": "chatcmpl-1", **USED}],
        [{**CHOICE_AND_USAGE, "usage": counted(1)}, {"choices": None, **USED}],
    ],
    ids=["twice the same", "without choices", "other counts"],
)
async def test_usage_that_is_repeated_goes_only_to_who_asked(usages: list[Any]) -> None:
    """Naive clients read `choices[0]` of every event."""
    texts = [json.dumps(one).encode() for one in (said("loop-1", {"content": "Hi"}), *usages)]
    async with placed(events(*texts)) as place, sdk(place) as client:
        assert await place.post(STREAMED) == (200, b"".join(map(sse, texts[:-1])) + DONE)
        asked = {**STREAMED, "stream_options": {"include_usage": True}}
        assert await place.post(asked) == (200, b"".join(map(sse, texts)) + DONE)
        stream = await client.chat.completions.create(**STREAMED)
        deltas = [chunk.choices[0].delta.content async for chunk in stream]
    assert deltas == ["Hi", None]


class Empty(RescuingModel):
    """Says nothing the first time, as a stream of `[DONE]` alone does, and `Hi` from then on."""

    asked = 0

    async def stream(self, _site: str, _call: object) -> AsyncGenerator[Chunk, None]:
        """Answer."""
        self.asked += 1
        for text in () if self.asked == 1 else ("Hi",):
            yield Chunk(text=text, finish="stop")


@pytest.mark.parametrize("body", [HELLO, STREAMED], ids=["whole", "streamed"])
async def test_an_answer_without_a_chunk_is_an_error(body: dict[str, Any]) -> None:
    """It has a status of its own, and its connection serves the next request."""
    async with (
        registry_of() as registry,
        opened(Empty(registry), registry) as url,
        aiohttp.TCPConnector(limit=1) as one,
        aiohttp.ClientSession(connector=one) as session,
    ):
        path = f"{url}/v1/chat/completions"
        async with session.post(path, json=body) as response:
            failed = await response.json()
        async with session.post(path, json=body) as answered:
            assert (answered.status, b"Hi" in await answered.read()) == (200, True)
    assert (response.status, failed["error"]["code"]) == (502, "model_truncated")


async def test_what_a_splice_cuts_is_made_up() -> None:
    """The client sees one answer; from the cut on it is the fallback's, under its name."""
    asked = {**STREAMED, "stream_options": {"include_usage": True}}
    spare = saying("Hello you", model="loop-2", usage=2)
    async with placed(saying("Hello", then=reset), spare) as place:
        _, body = await place.post(asked)
    chunks = [json.loads(line[6:]) for line in body.split(b"\n\n")[:-2]]
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:2]] == [
        {"content": "Hello"},
        {"content": " you"},
    ]
    assert {chunk["model"] for chunk in chunks[1:]} == {"loop-2"}
    assert chunks[1]["object"] == "chat.completion.chunk"
    assert chunks[-1]["usage"] == counted(2)


async def test_an_answer_in_one_piece() -> None:
    """Put together from the streamed one, with all that its events held."""
    usual = said("loop-1", {"role": "assistant", "content": "Hel", "annotations": [{"a": 1}]})
    logged = said("loop-1", {"content": "lo"}, logprobs={"content": [{"token": "lo"}]})
    end = said("loop-1", {}, finish_reason="stop", logprobs={"content": [{"token": "."}]})
    counts = {"id": "x", "choices": [], "usage": counted(3), "system_fingerprint": "fp"}
    texts = [json.dumps(one).encode() for one in (usual, logged, end, counts)]
    async with placed(events(*texts, b"{broken")) as place:
        status, body = await place.post(HELLO)
    answer = json.loads(body)
    assert (status, answer["object"], answer["model"]) == (200, "chat.completion", "loop-1")
    assert (answer["usage"], answer["system_fingerprint"]) == (counted(3), "fp")
    assert answer["choices"] == [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "lo"}, {"token": "."}]},
            "message": {"role": "assistant", "content": "Hello", "annotations": [{"a": 1}]},
        }
    ]


@asynccontextmanager
async def sdk(place: Place, key: str = "none") -> AsyncIterator[AsyncOpenAI]:
    """Open OpenAI's client on a gateway."""
    async with client_of(place.url, key) as client:
        yield client


@pytest.mark.parametrize(
    "cut",
    [{"content": "Hey"}, {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "add"}}]}],
    ids=["another text", "a tool call"],
)
async def test_a_whole_answer_is_the_fallbacks_where_the_first_broke(cut: dict[str, Any]) -> None:
    """Nothing was sent of the broken answer, so that the second need not continue it."""

    async def broken(wire: Wire) -> None:
        await wire.head()
        await wire.events(said("loop-1", cut))
        wire.reset()

    spare = saying("Hello you", model="loop-2", usage=2)
    async with placed(broken, spare) as place, sdk(place) as client:
        answer = await client.chat.completions.create(**HELLO)
        status, body = await place.post(HELLO)
    assert (answer.choices[0].message.content, answer.model) == ("Hello you", "loop-2")
    assert answer.choices[0].message.tool_calls is None
    assert status == 200
    assert json.loads(body)["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Hello you",
    }


def tool_call() -> Answer:
    """Answer with two calls of tools, in pieces."""
    pieces = [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add"}},
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": "1}"}},
        {"index": 1, "id": "call_2", "type": "function", "function": {"name": "sub"}},
    ]
    deltas = [said("loop-1", {"tool_calls": [piece]}) for piece in pieces]
    end = said("loop-1", {}, finish_reason="tool_calls")
    return events(*[json.dumps(one).encode() for one in (*deltas, end)])


async def test_tools_with_the_real_client() -> None:
    """In one piece; the definitions reach the provider as they were written."""
    parameters = {
        "type": "object",
        "properties": {"z": {"type": "number"}, "a": {}},
    }
    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": parameters}}]
    async with placed(tool_call()) as place, sdk(place) as client:
        answer = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "1?"}], tools=tools
        )
        [request] = place.provider.requests
    assert answer.choices[0].finish_reason == "tool_calls"
    calls = [one.model_dump() for one in answer.choices[0].message.tool_calls or ()]
    assert calls == [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "sub", "arguments": ""}},
    ]
    assert request.body["tools"] == tools
    assert list(request.body["tools"][0]["function"]["parameters"]["properties"]) == ["z", "a"]


async def test_fields_nobody_here_knows_pass() -> None:
    """Only the model's name is another, and the answer is always asked for as a stream."""
    body = {
        **HELLO,
        "temperature": 0.25,
        "seed": 2**40,
        "metadata": {"é": [None, True, 1.0]},
        "stream_options": {"include_obfuscation": False},
    }
    async with placed(saying("Hi")) as place:
        assert (await place.post(body))[0] == 200
        [request] = place.provider.requests
    assert request.body == {
        **body,
        "model": "loop-1",
        "stream": True,
        "stream_options": {"include_obfuscation": False, "include_usage": True},
    }


async def test_the_models_are_listed() -> None:
    """By the ids they are asked by."""
    async with placed(saying("Hi")) as place, sdk(place) as client:
        listed = [(model.id, model.owned_by) async for model in client.models.list()]
    assert listed == [("m", "loopback")]


async def test_a_key_is_asked_for() -> None:
    """None and a wrong one are refused, and the provider is not asked."""
    async with placed(saying("Hi"), key=KEY) as place:
        for path in ("/v1/chat/completions", "/exchanges/x/v1/chat/completions"):
            status, body = await place.post(HELLO, path)
            assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
        async with sdk(place, "wrong") as client:
            with pytest.raises(AuthenticationError):
                await client.models.list()
        assert not place.provider.requests
        async with sdk(place, KEY) as client:
            answer = await client.chat.completions.create(**HELLO)
            assert answer.choices[0].message.content == "Hi"


async def test_a_request_that_is_none() -> None:
    """Refused in OpenAI's words, with the field that is to blame."""
    async with placed(saying("Hi")) as place:
        for body, param in (({**HELLO, "n": 2}, "n"), (b"[1]", None)):
            status, answer = await place.post(body)
            error = json.loads(answer)["error"]
            assert (status, error["type"]) == (400, "invalid_request_error")
            assert (error["code"], error["param"]) == ("invalid_request", param)
        assert not place.provider.requests


@pytest.mark.parametrize("many", [1, None])
async def test_one_answer_may_be_asked_for_by_number(many: int | None) -> None:
    """As many as there are without being asked for; several would be on the tape as one."""
    async with placed(saying("Hi")) as place:
        status, answer = await place.post({**HELLO, "n": many})
        [request] = place.provider.requests
    assert (status, len(json.loads(answer)["choices"])) == (200, 1)
    assert request.body["n"] == many


async def test_a_body_too_large() -> None:
    """Refused before it is read."""
    async with placed(saying("Hi")) as place:
        status, answer = await place.post(b" " * (MOST_BYTES + 1))
    assert (status, json.loads(answer)["error"]["code"]) == (413, "body_too_large")


async def test_faults_have_their_status_and_our_code() -> None:
    """As the client's own exceptions, also for a stream that has not begun."""
    async with placed(in_turn(policy, policy)) as place, sdk(place) as client:
        for stream in (False, True):
            with pytest.raises(BadRequestError) as caught:
                await client.chat.completions.create(**HELLO, stream=stream)
            assert caught.value.code == "model_content_policy"
        with pytest.raises(NotFoundError) as unknown:
            await client.chat.completions.create(**{**HELLO, "model": "none"})
    assert (unknown.value.code, unknown.value.param) == ("unknown_model", "model")


async def policy(wire: Wire) -> None:
    """Refuse what was asked."""
    await wire.head(400, {"content-type": "application/json"})
    await wire.send(b'{"error":{"code":"content_filter"}}')
    await wire.end()


async def test_whoever_leaves_takes_the_provider_along() -> None:
    """Before the first chunk and after it."""
    for texts in ((), ("Hel",)):
        asked, left = asyncio.Event(), asyncio.Event()

        async def hold(
            wire: Wire, asked: asyncio.Event = asked, left: asyncio.Event = left
        ) -> None:
            asked.set()
            await wire.gone()
            left.set()

        async with placed(saying(*texts, then=hold)) as place:
            asking = asyncio.create_task(place.post(STREAMED))
            await asked.wait()
            asking.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await left.wait()


async def test_an_exchange_nobody_has_open() -> None:
    """In the path it is a mistake; in a header the call stands alone."""
    async with placed(saying("Hi")) as place:
        status, body = await place.post(HELLO, "/exchanges/gone/v1/chat/completions")
        assert (status, json.loads(body)["error"]["code"]) == (404, "unknown_exchange")
        headers = {"x-exchange-id": "gone", "x-cutover-role": "shadow", "traceparent": "odd"}
        async with place.session.post(
            f"{place.url}/v1/chat/completions", json=HELLO, headers=headers
        ) as response:
            assert response.status == 200


@pytest.mark.slow
async def test_a_caller_that_does_not_read_is_given_up() -> None:
    """So is what was asked for it: otherwise both would be held for as long as it likes."""
    left = asyncio.Event()

    async def endless(wire: Wire) -> None:
        await wire.head()
        try:
            while True:
                await wire.send(sse(delta(content="y" * 10_000)))
        finally:
            left.set()

    async with serving(endless) as provider, registry_of(provider.entry()) as registry:
        model = RescuingModel(registry, draw=lambda: 0.0)
        async with opened(model, registry, send_seconds=0.25) as url:
            host, port = url.removeprefix("http://").split(":")
            body = json.dumps(STREAMED).encode()
            head = "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n"
            head += f"content-length: {len(body)}\r\n\r\n"
            with socket.create_connection((host, int(port))) as client:
                client.sendall(head.encode() + body)
                async with asyncio.timeout(PATIENCE_S):
                    await left.wait()


CALL = {"id": "c", "type": "function"}
NAMED = {"name": "add", "arguments": "{}"}
UNARGUED = {"name": "add", "arguments": ""}
END = said("loop-1", {}, finish_reason="stop")


def texts(*chunks: object) -> list[bytes]:
    """Encode chunks as events' data, lone halves of characters as they are often written."""
    return [json.dumps(one).encode() for one in chunks]


async def message(*chunks: bytes) -> Any:
    """Return the message that an answer of these events has in one piece."""
    async with placed(events(*chunks)) as place:
        status, body = await place.post(HELLO)
    assert status == 200
    [choice] = json.loads(body)["choices"]
    assert choice["finish_reason"] == "stop"
    return choice["message"]


@pytest.mark.parametrize(
    ("calls", "whole"),
    [
        (None, None),
        ([{**CALL, "function": None}], [{**CALL, "function": {"arguments": ""}}]),
        ([{"function": {"name": "add", "arguments": None}}], [{"function": UNARGUED}]),
        (["none", {"index": 0, **CALL, "function": NAMED}], [{**CALL, "function": NAMED}]),
        ({"none": 1}, {"none": 1}),
    ],
    ids=["null", "no function", "no arguments", "a text among them", "no list"],
)
async def test_calls_that_are_none(calls: object, whole: object) -> None:
    """Many say null where there is no call; whatever they say, there is an answer."""
    odd = said("loop-1", {"content": "Hel", "tool_calls": calls})
    more = said("loop-1", {"content": "lo", "tool_calls": None})
    found = await message(*texts(odd, more, END))
    assert found == {"role": "assistant", "content": "Hello", "tool_calls": whole}


async def test_a_character_cut_in_two_is_whole_again() -> None:
    """Also where the halves came in different events, or as bytes that are no UTF-8 alone."""
    pairs = texts(*[said("loop-1", {"content": half}) for half in ("a\ud83d", "\ude00b")])
    strawberry = "🍓".encode()
    torn = [
        texts(said("loop-1", {"content": "@"}))[0].replace(b"@", half)
        for half in (strawberry[:2], strawberry[2:])
    ]
    assert (await message(*pairs, *torn, *texts(END)))["content"] == "a😀b🍓"


async def test_a_half_without_another_costs_nothing_else() -> None:
    """It is replaced, as on the model port."""
    halves = texts(*[said("loop-1", {"content": half}) for half in ("a\ud83d", "b")], END)
    assert (await message(*halves))["content"] == "a\ufffdb"


async def test_half_a_character_beside_the_usage() -> None:
    """An unrequested usage in each event does not drop the text."""
    cut = {**said("loop-1", {"content": "a\ud83d"}), "usage": counted(1)}
    rest = {**said("loop-1", {"content": "\ude00"}), "usage": counted(2)}
    async with placed(events(*texts(cut, rest, END))) as place:
        status, body = await place.post(STREAMED)
    assert status == 200
    assert body == b"".join(b"data: %b\n\n" % one for one in (*texts(cut, rest, END), b"[DONE]"))
