"""Clients of the model on `CutoverTransport`: sent once by the run that serves, and played."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx
import httpx2
import msgspec
import openai
import pytest
from anthropic import Anthropic, AsyncAnthropic
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI
from pydantic import SecretStr

from contract.flow import Event, Request
from contract.flows.chat import CHAT
from contract.model import (
    GATEWAY_SITE,
    AssistantMessage,
    ModelCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from contract.normalisation import normal_args
from contract.operations import MODEL_STREAM
from contract.ports import Effects
from contract.records import EntryRecord, Role
from cutover_client import CutoverTransport, Gateway
from effects.model import says
from effects.tape import Exchange, Tape, TapeSession
from effects.testing import World
from router.gateway.in_process import client_bound
from router.gateway.requests import call_key, read_request
from router.serving.run import Run, RunRequest
from router.serving.stack import LocalStack
from tests.support.loopback_provider import (
    Loopback,
    Wire,
    delta,
    finish,
    in_turn,
    refusing,
    serving,
)
from tests.support.provider_shapes import SHAPES, STREAM, Shape

pytestmark = pytest.mark.sockets

KEY = "sk-secret-0123456789"
HELLO: Any = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
COUNTED: Any = {"stream": True, "stream_options": {"include_usage": True}}
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
SHADOW: Any = ("shadow", "nearest")
SERVING: Any = ("serving", "live")
Task = Callable[[], Awaitable[Any]]


async def worked(exchange: Exchange, kind: Any, task: Task) -> Any:
    """Do a task as a run of an exchange."""
    role, policy = kind
    session = TapeSession(exchange, role, policy)
    with client_bound(request(role), session):
        try:
            return await task()
        finally:
            assert session.waiting == 0


def request(role: Role) -> RunRequest:
    """Return a request for a run in a role."""
    return RunRequest(CHAT, "legacy", Request(None, None), role, exchange="e")


async def thrice(task: Task, *, stored: bool = True) -> list[Any]:
    """Do a task in the run that serves, in a shadow, and in a shadow of the stored tape."""
    exchange = World().exchange()
    found = [await worked(exchange, SERVING, task)]
    exchange.tape.stop_recording()
    found.append(await worked(exchange, SHADOW, task))
    record = msgspec.json.encode(exchange.tape.record())
    assert KEY.encode() not in record
    if stored:
        tape = Tape.load(msgspec.json.decode(record, type=tuple[EntryRecord, ...]))
        later = World().exchange(tape)
        found.append(await worked(later, SHADOW, task))
        await later.close()
    await exchange.close()
    return found


@asynccontextmanager
async def asynchronous(
    provider: Loopback, transport: Any = None, retries: int = 0
) -> AsyncIterator[AsyncOpenAI]:
    """Open OpenAI's client on a transport."""
    http = httpx2.AsyncClient(transport=transport or CutoverTransport())
    async with AsyncOpenAI(
        api_key=KEY, base_url=provider.base_url, http_client=http, max_retries=retries
    ) as client:
        yield client


async def seen(client: AsyncOpenAI, *, stream: bool) -> object:
    """Return all that a client of OpenAI sees of an answer."""
    try:
        if not stream:
            answer = await client.chat.completions.create(**HELLO)
            return answer if isinstance(answer, str) else answer.to_dict(warnings=False)
        chunks = []
        async for chunk in await client.chat.completions.create(**HELLO, **COUNTED):
            chunks.append(chunk.to_dict(warnings=False))  # noqa: PERF401 (kept when the stream fails)
    except openai.APIStatusError as error:
        return type(error).__name__, error.status_code, error.body, error.response.text
    except openai.APIError as error:
        return type(error).__name__, error.body
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        return type(error).__name__
    return chunks


@pytest.mark.parametrize("shape", SHAPES, ids=str)
async def test_every_answer_of_a_provider_is_seen_as_without_the_transport(shape: Shape) -> None:
    """Streams and errors of a dozen providers: by the run that serves, and by its shadow."""
    bare = httpx2.AsyncHTTPTransport()
    stream = shape.streamed
    async with (
        serving(shape.answer) as provider,
        asynchronous(provider, bare) as plain,
        asynchronous(provider) as taped,
    ):
        expected = await seen(plain, stream=stream)
        for found in await thrice(lambda: seen(taped, stream=stream), stored=False):
            assert found == expected
        assert len(provider.requests) == 2


def message(text: str) -> dict[str, Any]:
    """Make an answer of OpenAI's in one piece."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "loop-1",
        "choices": [{**choice, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "odd": [1],
    }


CLAUDE: Any = {"model": "c", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
CLAUDE_WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "c",
    "content": [{"type": "text", "text": "Hi there"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
CLAUDE_EVENTS = (
    {"type": "message_start", "message": {**CLAUDE_WHOLE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "there"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
)


class Provider:
    """A provider of both APIs that says "Hi there"."""

    def __init__(self) -> None:
        self.asked: Loopback | None = None

    async def __call__(self, wire: Wire) -> None:
        """Answer in the form that was asked for."""
        assert self.asked is not None
        asked = self.asked.requests[-1]
        claude = asked.path.endswith("/messages")
        if not asked.body.get("stream"):
            await wire.head(200, {"content-type": "application/json"})
            await wire.send(json.dumps(CLAUDE_WHOLE if claude else message("Hi there")).encode())
            await wire.end()
            return
        await wire.head(200, STREAM)
        if claude:
            for event in CLAUDE_EVENTS:
                await wire.send(f"event: {event['type']}\n".encode())
                await wire.events(event)
        else:
            await wire.events(delta(role="assistant", content=""), delta(content="Hi "))
            await wire.events(delta(content="there"), finish(), b"[DONE]")
        await wire.end()


@asynccontextmanager
async def speaking() -> AsyncIterator[Loopback]:
    """Run the provider of both APIs."""
    answer = Provider()
    async with serving(answer) as provider:
        answer.asked = provider
        yield provider


async def openai_async(url: str) -> str:
    """Ask AsyncOpenAI, streamed."""
    async with AsyncOpenAI(
        api_key=KEY,
        base_url=url,
        http_client=httpx2.AsyncClient(transport=CutoverTransport()),
    ) as client:
        stream = await client.chat.completions.create(**HELLO, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def openai_async_whole(url: str) -> str:
    """Ask AsyncOpenAI for an answer in one piece, on the older library."""
    async with AsyncOpenAI(
        api_key=KEY,
        base_url=url,
        http_client=httpx.AsyncClient(transport=CutoverTransport()),  # type: ignore[arg-type]
    ) as client:
        answer = await client.chat.completions.create(**HELLO)
        return answer.choices[0].message.content or ""


async def openai_sync(url: str) -> str:
    """Ask OpenAI in a thread, streamed and whole."""

    def ask() -> str:
        http = httpx2.Client(transport=CutoverTransport(httpx2.HTTPTransport()))
        with OpenAI(api_key=KEY, base_url=url, http_client=http) as client:
            chunks = client.chat.completions.create(**HELLO, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    return await asyncio.to_thread(ask)


async def openai_sync_whole(url: str) -> str:
    """Ask OpenAI in a thread, on the default transport, which sends on the router's loop."""

    def ask() -> str:
        http = httpx2.Client(transport=CutoverTransport())
        with OpenAI(api_key=KEY, base_url=url, http_client=http) as client:
            return client.chat.completions.create(**HELLO).choices[0].message.content or ""

    return await asyncio.to_thread(ask)


async def openai_elsewhere(url: str) -> str:
    """Ask AsyncOpenAI on another loop, in a thread."""
    return await asyncio.to_thread(lambda: asyncio.run(openai_async(url)))


@asynccontextmanager
async def chat_openai(url: str) -> AsyncIterator[ChatOpenAI]:
    """Open a model of LangChain."""
    with httpx2.Client(transport=CutoverTransport()) as blocking:
        async with httpx2.AsyncClient(transport=CutoverTransport()) as http:
            yield ChatOpenAI(
                model="m",
                api_key=SecretStr(KEY),
                base_url=url,
                http_client=blocking,
                http_async_client=http,
            )


async def langchain_openai(url: str) -> str:
    """Stream from ChatOpenAI."""
    async with chat_openai(url) as model:
        return "".join([str(chunk.content) async for chunk in model.astream("Hello")])


async def langchain_openai_sync(url: str) -> str:
    """Invoke ChatOpenAI in a thread."""
    async with chat_openai(url) as model:
        return str((await asyncio.to_thread(model.invoke, "Hello")).content)


def at_root(url: str) -> str:
    """Return the address as Anthropic's client has it: without the version."""
    return url.removesuffix("/v1")


async def anthropic_async(url: str) -> str:
    """Stream from AsyncAnthropic."""
    async with (
        AsyncAnthropic(
            api_key=KEY,
            base_url=at_root(url),
            http_client=httpx2.AsyncClient(transport=CutoverTransport()),
        ) as client,
        client.messages.stream(**CLAUDE) as stream,
    ):
        return "".join([text async for text in stream.text_stream])


async def anthropic_sync(url: str) -> str:
    """Ask Anthropic in a thread."""

    def ask() -> str:
        http = httpx2.Client(transport=CutoverTransport())
        with Anthropic(api_key=KEY, base_url=at_root(url), http_client=http) as client:
            block = client.messages.create(**CLAUDE).content[0]
            return block.text if block.type == "text" else ""

    return await asyncio.to_thread(ask)


async def langchain_anthropic(url: str) -> str:
    """Stream from ChatAnthropic, whose client is replaced."""
    model = ChatAnthropic(model="c", api_key=SecretStr(KEY), base_url=at_root(url))
    async with AsyncAnthropic(
        api_key=KEY,
        base_url=at_root(url),
        http_client=httpx2.AsyncClient(transport=CutoverTransport()),
    ) as client:
        model._async_client = client  # noqa: SLF001 - it takes none
        return "".join([str(chunk.text) async for chunk in model.astream("Hello")])


@pytest.mark.parametrize(
    "ask",
    [
        openai_async,
        openai_async_whole,
        openai_sync,
        openai_sync_whole,
        openai_elsewhere,
        langchain_openai,
        langchain_openai_sync,
        anthropic_async,
        anthropic_sync,
        langchain_anthropic,
    ],
)
async def test_it_is_sent_once_and_played_to_others(ask: Callable[[str], Awaitable[str]]) -> None:
    """With each SDK, blocking and not, streamed and whole, from memory and from a stored tape."""
    async with speaking() as provider:
        assert await thrice(lambda: ask(provider.base_url)) == ["Hi there"] * 3
        assert len(provider.requests) == 1
        assert await ask(provider.base_url) == "Hi there"
        assert len(provider.requests) == 2


async def test_a_tool_is_asked_for_and_its_result_is_told() -> None:
    """Two calls, each of its own; both are played."""
    called = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    answer = message("")
    answer["choices"][0]["message"] |= {"content": None, "tool_calls": [called]}

    async def call_tool(wire: Wire) -> None:
        await wire.head(200, {"content-type": "application/json"})
        await wire.send(json.dumps(answer).encode())
        await wire.end()

    async def speak(wire: Wire) -> None:
        await wire.head()
        await wire.events(delta(content="Sunny"), finish(), b"[DONE]")
        await wire.end()

    async with serving(in_turn(call_tool, speak)) as provider, asynchronous(provider) as client:

        async def ask() -> str:
            asked = await client.chat.completions.create(**HELLO, tools=[TOOL])
            said = asked.choices[0].message
            call = (said.tool_calls or [])[0]
            told = {"role": "tool", "tool_call_id": call.id, "content": "25 degrees"}
            messages: Any = [*HELLO["messages"], said.to_dict(), told]
            chunks = await client.chat.completions.create(
                model="m", messages=messages, tools=[TOOL], stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        assert await thrice(ask) == ["Sunny"] * 3
        assert len(provider.requests) == 2


BUSY = {"error": {"message": "Slow down", "type": "requests", "param": None, "code": "busy"}}


@pytest.mark.parametrize("stream", [False, True])
async def test_each_attempt_of_an_sdk_is_a_call_of_its_own(*, stream: bool) -> None:
    """A run that plays goes the same way: it is refused first, and answered then."""
    refusal = refusing(429, json.dumps(BUSY).encode(), retry_after_ms="1")
    answer = Provider()
    async with serving(in_turn(refusal, answer)) as provider:
        answer.asked = provider
        async with asynchronous(provider, retries=1) as client:
            first, second = await thrice(lambda: seen(client, stream=stream), stored=False)
        assert first == second
        assert "Hi" in str(first)
        assert len(provider.requests) == 2


async def test_a_refusal_is_of_the_same_kind_from_a_stored_tape() -> None:
    """Status, type and code are the provider's; its sentence, which may quote, is not stored."""
    refusal = refusing(400, json.dumps(BUSY).encode())
    async with serving(refusal) as provider, asynchronous(provider) as client:
        first, second, stored = await thrice(lambda: seen(client, stream=True))
    assert first == second
    assert stored[:2] == first[:2] == ("BadRequestError", 400)
    assert (stored[2]["type"], stored[2]["code"]) == ("requests", "busy")
    assert "Slow down" not in stored[3]


async def test_a_refusal_of_another_api_is_played_as_it_came() -> None:
    """Its body is on the tape as any answer's is."""
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    async def ask() -> object:
        http = httpx2.AsyncClient(transport=CutoverTransport())
        url = at_root(provider.base_url)
        async with AsyncAnthropic(
            api_key=KEY, base_url=url, http_client=http, max_retries=0
        ) as client:
            try:
                return await client.messages.create(**CLAUDE)
            except anthropic.APIStatusError as error:
                return type(error).__name__, error.status_code, error.body

    async with serving(refusing(529, json.dumps(told).encode())) as provider:
        assert await thrice(ask) == [("OverloadedError", 529, told)] * 3
        assert len(provider.requests) == 1


async def broken(wire: Wire) -> None:
    """Break off in the middle."""
    await wire.head()
    await wire.events(delta(content="Hi"))
    wire.reset()


async def silent(wire: Wire) -> None:
    """Break off before anything."""
    wire.reset()


@pytest.mark.parametrize("path", ["chat/completions", "other"])
@pytest.mark.parametrize("answer", [silent, broken])
@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_a_broken_connection_raises_the_same_in_every_run(
    library: Any, answer: Callable[[Wire], Awaitable[None]], path: str
) -> None:
    """Before the answer and within it, by the class of the client's own library."""
    body = {**HELLO, "stream": True}

    async def ask() -> object:
        heard: list[bytes] = []
        try:
            async with (
                library.AsyncClient(transport=CutoverTransport()) as client,
                client.stream("POST", f"{provider.base_url}/{path}", json=body) as response,
            ):
                async for piece in response.aiter_bytes():
                    heard.append(piece)  # noqa: PERF401 (kept when the stream fails)
        except library.RequestError as error:
            return type(error), b"Hi" in b"".join(heard)
        return heard

    async with serving(answer) as provider:
        found = await thrice(ask)
        assert len(provider.requests) == 1
    kinds = {kind for kind, _ in found}
    assert len(kinds) == 1
    assert issubclass(kinds.pop(), library.TransportError)
    assert {said for _, said in found} == {answer is broken}


async def test_nobody_is_there() -> None:
    """No connection: SDKs raise what they always do."""
    async with serving(silent) as gone:
        pass
    async with asynchronous(gone) as client:
        found = await thrice(lambda: seen(client, stream=False))
    assert found == [("APIConnectionError", None)] * 3


@pytest.mark.parametrize("inner", [None, httpx2.HTTPTransport])
async def test_a_call_is_cancelled_with_its_exchange(inner: Any) -> None:
    """As it is when the client leaves: the provider sees the connection end."""
    left = asyncio.Event()
    begun = asyncio.Event()

    async def endless(wire: Wire) -> None:
        await wire.head()
        await wire.events(delta(content="Hi"))
        begun.set()
        await wire.gone()
        left.set()

    exchange = World().exchange()

    async def ask() -> object:
        transport = CutoverTransport(inner and inner())
        if inner is None:
            async with asynchronous(provider, transport) as client:
                return await seen(client, stream=True)

        def blocking() -> object:
            http = httpx2.Client(transport=transport)
            with OpenAI(api_key=KEY, base_url=provider.base_url, http_client=http) as client:
                chunks = client.chat.completions.create(**HELLO, stream=True)
                with pytest.raises(httpx2.ReadError):
                    list(chunks)
                return None

        return await asyncio.to_thread(blocking)

    async with serving(endless) as provider:
        run = asyncio.create_task(worked(exchange, SERVING, ask))
        await begun.wait()
        exchange.cancel()
        await left.wait()
        await asyncio.wait({run})
        assert [entry.end for entry in exchange.tape.entries] == ["cut"]
        run.exception()
        await exchange.close()


async def test_a_successor_reads_on_where_the_run_that_asked_has_crashed() -> None:
    """The call is the exchange's, not the task's: no second one is made."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(wire: Wire) -> None:
        await wire.head()
        await wire.events(delta(content="Hi "))
        begun.set()
        await go_on.wait()
        await wire.events(delta(content="there"), finish(), b"[DONE]")
        await wire.end()

    exchange = World().exchange()
    async with serving(slowly) as provider, asynchronous(provider) as client:

        async def ask() -> str:
            chunks = await client.chat.completions.create(**HELLO, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        first = asyncio.create_task(worked(exchange, SERVING, ask))
        await begun.wait()
        first.cancel()
        await asyncio.wait({first})
        second = asyncio.create_task(worked(exchange, ("fallback", "live"), ask))
        go_on.set()
        assert await second == "Hi there"
        assert len(provider.requests) == 1
    await exchange.close()


async def test_a_client_that_blocks_is_refused_on_the_loop() -> None:
    """At once, without the retries of the SDK, which would block; nothing is sent."""
    async with speaking() as provider:

        async def ask() -> object:
            http = httpx2.Client(transport=CutoverTransport())
            url = provider.base_url
            with OpenAI(api_key=KEY, base_url=url, http_client=http) as client:
                return client.chat.completions.create(**HELLO)

        exchange = World().exchange()
        with pytest.raises(openai.BadRequestError, match=r"asyncio\.to_thread") as refused:
            await worked(exchange, SERVING, ask)
        assert refused.value.code == "blocks_the_loop"
        assert (provider.requests, exchange.tape.entries) == ([], [])


async def test_keys_are_on_no_tape() -> None:
    """Neither those in headers nor those in the query."""
    async with speaking() as provider:
        exchange = World().exchange()
        url = f"{provider.base_url}/models/m:generate?key={KEY}&api-key={KEY}&alt=sse"

        async def ask() -> int:
            async with httpx.AsyncClient(transport=CutoverTransport()) as client:
                headers = {"x-goog-api-key": KEY, "authorization": f"Bearer {KEY}"}
                response = await client.post(url, json={"a": 1}, headers=headers)
                return response.status_code

        assert await worked(exchange, SERVING, ask) == 200
        record = msgspec.json.encode(exchange.tape.record())
        assert KEY.encode() not in record
        assert b"alt=sse" in record
        assert provider.requests[0].path.count(KEY) == 2
        await exchange.close()


@pytest.mark.slow
async def test_large_bodies_pass() -> None:
    """10 MB each way: the tape outgrows its bounds, and who is served gets all of it."""
    size = 10_000_000
    text = "x" * size

    async def long(wire: Wire) -> None:
        await wire.head(200, {"content-type": "application/json"})
        await wire.send(json.dumps(message(text)).encode())
        await wire.end()

    async with serving(long) as provider, asynchronous(provider) as client:

        async def ask() -> int:
            messages: Any = [{"role": "user", "content": text}]
            answer = await client.chat.completions.create(model="m", messages=messages)
            return len(answer.choices[0].message.content or "")

        exchange = World().exchange()
        assert await worked(exchange, SERVING, ask) == size
        assert len(provider.requests[0].body["messages"][0]["content"]) == size
        assert exchange.tape.overflowed
        await exchange.close()


async def test_what_is_no_json_is_known_by_its_digest() -> None:
    """A form with a file is the same call again, whatever its boundary; bytes come back as such."""
    sound = bytes(range(256)) * 4

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        asked.append(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\nconnection: close\r\n\r\n")
        writer.write(sound)
        writer.close()

    asked: list[bytes] = []
    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/audio"

    async def ask() -> bytes:
        async with httpx2.AsyncClient(transport=CutoverTransport()) as client:
            return (await client.post(url, files={"file": ("a.wav", sound)})).content

    async with server:
        assert await thrice(ask) == [sound] * 3
        assert len(asked) == 1


async def through_the_port(exchange: Exchange, role: Role) -> str:
    """Ask as a stack behind the gateway does."""
    session = TapeSession(exchange, role)
    call = read_request(json.dumps({**HELLO, "stream": True, "temperature": None}).encode()).call
    args = await call_key(call)
    stream = session.stream(MODEL_STREAM, GATEWAY_SITE, call, args, normal_args)
    return "".join([chunk.text async for chunk in stream])


async def test_it_shares_calls_with_stacks_behind_the_gateway() -> None:
    """Requests that are the same in normal form are one call, whoever makes it first."""
    async with speaking() as provider, asynchronous(provider) as client:

        async def ask() -> str:
            answer = await client.chat.completions.create(**HELLO, n=1)
            return answer.choices[0].message.content or ""

        world = World(model=says("Hello"))
        first = world.exchange()
        assert await worked(first, SERVING, ask) == "Hi there"
        assert await through_the_port(first, "fallback") == "Hi there"
        second = world.exchange()
        assert await through_the_port(second, "serving") == "Hello"
        assert await worked(second, ("fallback", "live"), ask) == "Hello"
        assert (len(provider.requests), world.count("model.stream")) == (1, 1)


def stack(task: Task) -> LocalStack:
    """Make a stack whose flow does a task."""

    async def flow(_: Request[Any, Any], __: Effects) -> AsyncIterator[Event]:
        await task()
        yield Event()

    return LocalStack("legacy", {"chat": flow}, "", bind=client_bound)


async def ended(exchange: Exchange, kind: Any, task: Task) -> Run:
    """Run a stack to its end."""
    role, policy = kind
    run = stack(task).new_run(request(role), TapeSession(exchange, role, policy))
    run.start()
    await run.wait_stopped(5.0)
    return run


async def test_what_a_shadow_asks_alone_is_a_miss_of_its_run() -> None:
    """The SDK raises at once, without a retry; the run fails as any that misses its tape does."""
    caught: list[openai.APIStatusError] = []
    async with speaking() as provider, asynchronous(provider, retries=2) as client:

        async def ask() -> None:
            try:
                await client.chat.completions.create(**HELLO)
            except openai.APIStatusError as error:
                caught.append(error)
                raise

        exchange = World().exchange()
        exchange.tape.stop_recording()
        run = await ended(exchange, SHADOW, ask)
        assert (run.outcome and run.outcome.code) == "tape_miss"
        assert [error.status_code for error in caught] == [422]
        assert provider.requests == []


async def test_a_run_ends_by_its_providers_fault_as_by_a_ports() -> None:
    """It counts against the world, whatever the SDK has made of it."""
    async with serving(refusing(503)) as provider, asynchronous(provider) as client:
        for ask in (
            lambda: client.chat.completions.create(**HELLO),
            lambda: client.embeddings.create(model="m", input="Hello"),
        ):
            run = await ended(World().exchange(), SERVING, ask)
            outcome = run.outcome
            assert outcome is not None
            assert (outcome.kind, outcome.blame, outcome.code) == (
                "failed",
                "world",
                "model_unavailable",
            )


async def test_a_run_that_was_replaced_is_told_to_stop() -> None:
    """410, and nothing is sent; it ends as cancelled."""
    statuses: list[int] = []

    async def ask() -> None:
        try:
            await client.chat.completions.create(**HELLO)
        except openai.APIStatusError as error:
            statuses.append(error.status_code)
            raise

    async with speaking() as provider, asynchronous(provider) as client:
        session = TapeSession(World().exchange(), "serving")
        session.fence()
        run = stack(ask).new_run(request("serving"), session)
        run.start()
        await run.wait_stopped(5.0)
        assert (run.outcome and run.outcome.kind) == "cancelled"
        assert (statuses, provider.requests) == ([410], [])


async def test_it_shares_calls_with_built_in_stacks() -> None:
    """What a stack asks at a site of its own is the call that a client sends in other words."""
    called = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages: Any = [
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "a", "content": "25 degrees"},
    ]
    own = ModelCall(
        model_id="m",
        messages=(
            SystemMessage("Be kind"),
            UserMessage("Hello"),
            AssistantMessage(None, (ToolCall("b", "weather", "{ }"),)),
            ToolMessage("b", "25 degrees"),
        ),
        temperature=0.5,
        tools=(ToolSpec("weather", "", msgspec.Raw(b"{}")),),
    )
    tool = {
        "type": "function",
        "function": {"name": "weather", "description": "", "parameters": {}},
    }

    async def built_in(exchange: Exchange, role: Role) -> str:
        model = TapeSession(exchange, role).effects().model
        return "".join([chunk.text async for chunk in model.stream("reply", own)])

    async with speaking() as provider, asynchronous(provider) as client:

        async def ask() -> str:
            tools: Any = [tool]
            chunks = await client.chat.completions.create(
                model="m", messages=messages, temperature=0.5, tools=tools, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        world = World(model=says("Hello"))
        first = world.exchange()
        assert await worked(first, SERVING, ask) == "Hi there"
        assert await built_in(first, "fallback") == "Hi there"
        second = world.exchange()
        assert await built_in(second, "serving") == "Hello"
        assert await worked(second, ("fallback", "live"), ask) == "Hello"
        assert (len(provider.requests), world.count("model.stream")) == (1, 1)
        for exchange in (first, second):
            await exchange.close()


async def test_over_http_it_leaves_calls_to_the_gateway() -> None:
    """In a service behind an address they are sent as always, blocking or not."""
    headers = {"x-cutover-exchange": "e", "x-cutover-role": "serving"}
    async with speaking() as provider:
        with Gateway("http://127.0.0.1:1", "none").exchange(headers):
            assert await openai_async(provider.base_url) == "Hi there"
            assert await openai_sync(provider.base_url) == "Hi there"
        assert len(provider.requests) == 2
