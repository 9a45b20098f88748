"""The adapter against a provider on loopback: requests, limits, failures."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import traceback
from collections.abc import Awaitable, Callable

import pytest
from openai import AsyncOpenAI

from contract.errors import EffectFailed, Fault
from contract.model import Chunk
from effects.model import ModelEntry
from effects.model.client import MAX_ERROR_BYTES
from tests.support.loopback_provider import (
    CALL,
    KEY,
    Loopback,
    Wire,
    ask,
    delta,
    finish,
    once,
    refusing,
    registry_of,
    serving,
    sse,
    usage,
    whole,
)
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets

DONE = b"data: [DONE]\n\n"
NEVER = 30.0
SOON = 0.02


async def fault_of(entry: ModelEntry) -> Fault:
    """Ask, and return the fault that comes of it."""
    with pytest.raises(EffectFailed) as caught:
        await ask(entry)
    return caught.value.fault


async def complete(wire: Wire) -> None:
    """Answer in full."""
    await wire.head()
    await wire.events(delta(content="Hi"), finish(), usage(1, 1))
    await wire.send(DONE)
    await wire.end()


async def test_the_request_is_ours_and_authenticated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Path, key, body; and nothing from an environment meant for another account."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-other")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-other")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    async with serving(complete) as loopback:
        await ask(loopback.entry())
    [request] = loopback.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert not [name for name in request.headers if name.startswith("openai-")]
    assert (request.body["model"], request.body["stream"]) == ("loop-1", True)


async def test_the_head_of_the_request_is_the_sdks() -> None:
    """It is made once and not by `post`; only what the SDK says of its own retrying is missing."""
    async with serving(complete) as loopback:
        await ask(loopback.entry())
        async with AsyncOpenAI(
            api_key=KEY, base_url=loopback.base_url, max_retries=0, timeout=None
        ) as sdk:
            stream = await sdk.chat.completions.create(
                model="loop-1",
                messages=[{"role": "user", "content": "Hello"}],
                stream=True,
                stream_options={"include_usage": True},
                extra_headers={"Accept-Encoding": "identity"},
            )
            assert [chunk async for chunk in stream]
    ours, theirs = loopback.requests
    about_us = {"content-length", "connection", "x-stainless-retry-count"}
    assert ours.path == theirs.path
    assert ours.body == theirs.body
    assert {**ours.headers, **dict.fromkeys(about_us, "")} == {
        **theirs.headers,
        **dict.fromkeys(about_us, ""),
    }


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the provider says so."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving(complete) as loopback:
        assert len(await ask(loopback.entry())) == 3


async def test_an_answer_may_be_compressed_all_the_same() -> None:
    """Though we ask for the opposite: some gateways do not listen."""
    packed = gzip.compress(b"".join(map(sse, (delta(content="Hi"), finish()))) + DONE)

    async def answer(wire: Wire) -> None:
        await wire.head(headers={"content-encoding": "gzip"})
        await wire.send(packed[:10])
        await wire.send(packed[10:])
        await wire.end()

    async with serving(answer) as loopback:
        chunks = await ask(loopback.entry())
    assert "".join(chunk.text for chunk in chunks) == "Hi"


async def test_a_connection_is_used_again() -> None:
    """Reading on to the end of the body keeps it."""
    async with serving(complete) as loopback, registry_of(loopback.entry()) as registry:
        for _ in range(3):
            await whole(once(registry).stream("reply", CALL))
    assert (len(loopback.requests), loopback.connections) == (3, 1)


async def test_one_failure_is_one_request() -> None:
    """Retrying is for a layer that knows the tape."""
    async with serving(refusing(500, b"{}")) as loopback:
        await fault_of(loopback.entry())
    assert len(loopback.requests) == 1


async def test_a_refusal_is_a_fault_with_its_facts() -> None:
    """Status, code, how long to wait."""
    body = b'{"error":{"code":"rate_limit_exceeded","message":"slow down"}}'
    async with serving(refusing(429, body, retry_after="2", x_request_id="req_1")) as loopback:
        fault = await fault_of(loopback.entry())
    assert (fault.code, fault.retryable) == ("model_rate_limited", True)
    assert fault.data == {
        "status": 429,
        "code": "rate_limit_exceeded",
        "request_id": "req_1",
        "retry_after": 2.0,
    }


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error":null}', b'"text"', b"\xff"])
async def test_a_refusal_may_say_anything(body: bytes) -> None:
    """The status is enough."""
    async with serving(refusing(503, body)) as loopback:
        assert (await fault_of(loopback.entry())).code == "model_unavailable"


async def test_nobody_listens(unused_port: int) -> None:
    """A connection refused may be accepted later."""
    entry = Loopback(base_url=f"http://127.0.0.1:{unused_port}/v1").entry()
    fault = await fault_of(entry)
    assert (fault.code, fault.retryable) == ("model_unavailable", True)
    assert fault.data == {"cause": "ConnectionRefusedError"}


async def test_nobody_accepts() -> None:
    """The limit on connecting is told as what it is, not as the cancellation it works with."""
    with socket.socket() as listening, socket.socket() as first:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        first.connect(listening.getsockname())  # the one that fits in
        there = Loopback(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
        fault = await fault_of(there.entry(connect=SOON))
    assert (fault.code, fault.retryable) == ("model_unavailable", True)
    assert fault.data == {"cause": "TimeoutError"}


async def test_a_reset_before_the_headers() -> None:
    """The request did not reach a server."""

    async def answer(wire: Wire) -> None:
        wire.reset()

    async with serving(answer) as loopback:
        fault = await fault_of(loopback.entry())
    assert (fault.code, fault.retryable) == ("model_unavailable", True)


async def test_an_answer_that_is_no_http() -> None:
    """Named by its class, like every broken connection."""

    async def answer(wire: Wire) -> None:
        await wire.raw(b"SSH-2.0-OpenSSH\r\n\r\n")
        await wire.gone()

    async with serving(answer) as loopback:
        fault = await fault_of(loopback.entry())
    assert (fault.code, fault.retryable) == ("model_unavailable", True)


async def after_a_break(
    *events: object, broken: Callable[[Wire], Awaitable[None]], **limits: float
) -> list[Chunk]:
    """Hear all events, then have the connection broken; return what comes of it."""
    heard = asyncio.Event()

    async def answer(wire: Wire) -> None:
        await wire.head()
        await wire.events(*events)
        await heard.wait()
        await broken(wire)
        await wire.gone()

    async with serving(answer) as loopback, registry_of(loopback.entry(**limits)) as registry:
        chunks = []
        async for chunk in once(registry).stream("reply", CALL):
            chunks.append(chunk)
            if len(chunks) == len(events):
                heard.set()
        return chunks


async def reset(wire: Wire) -> None:
    """Break the connection off."""
    wire.reset()


async def babble(wire: Wire) -> None:
    """Send what is no piece of a chunked body."""
    await wire.raw(b"nonsense\r\n")


async def test_a_body_that_makes_no_sense_is_silence() -> None:
    """The connection is dropped by aiohttp, which wakes no reader: the limit on silence does."""
    with pytest.raises(EffectFailed) as caught:
        await after_a_break(delta(content="Hi"), broken=babble, idle=SOON)
    assert caught.value.fault.code == "model_timeout_idle"


@pytest.mark.parametrize("broken", [reset, Wire.end])
async def test_a_stream_cut_in_the_middle(broken: Callable[[Wire], Awaitable[None]]) -> None:
    """Never success, whether the connection broke or the body just ended."""
    with pytest.raises(EffectFailed) as caught:
        await after_a_break(delta(content="Hi"), broken=broken)
    fault = Fault("model_truncated", retryable=True, data={"malformed": 0})
    assert caught.value.fault == fault


@pytest.mark.parametrize("broken", [reset, babble, Wire.end])
async def test_a_break_after_the_answer_is_none(broken: Callable[[Wire], Awaitable[None]]) -> None:
    """A finish reason came: nothing is missing."""
    chunks = await after_a_break(delta(content="Hi"), finish(), broken=broken, tail=SOON)
    assert [chunk.finish for chunk in chunks] == ["", "stop"]


async def test_no_answer_at_all() -> None:
    """The limit on the first byte."""
    async with serving(Wire.gone) as loopback:
        fault = await fault_of(loopback.entry(first_byte=SOON))
    assert fault == Fault("model_timeout_first_byte", retryable=True, data={"seconds": SOON})


async def test_no_more_is_read_of_an_error_than_anybody_looks_at() -> None:
    """Its body never ends: what came of it is enough, and the connection is dropped."""
    left = asyncio.Event()

    async def answer(wire: Wire) -> None:
        await wire.head(500)
        for _ in range(3):
            await wire.send(b"x" * (MAX_ERROR_BYTES // 2))
        await wire.gone()
        left.set()

    async with serving(answer) as loopback:
        assert (await fault_of(loopback.entry())).code == "model_unavailable"
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()


async def test_half_an_error_response_is_left_in_time() -> None:
    """Its head came, its body never ends: the connection is dropped like any other."""
    left = asyncio.Event()

    async def answer(wire: Wire) -> None:
        await wire.head(500)
        await wire.gone()
        left.set()

    async with serving(answer) as loopback:
        assert (await fault_of(loopback.entry(first_byte=0.2))).code == "model_timeout_first_byte"
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()


async def stalled(loopback_events: list[bytes], **limits: float) -> tuple[list[Chunk], Fault]:
    """Ask a provider that says something and then nothing; return what was heard."""

    async def answer(wire: Wire) -> None:
        await wire.head()
        for data in loopback_events:
            await wire.send(data)
        await wire.gone()

    chunks: list[Chunk] = []

    async def read(entry: ModelEntry) -> None:
        async with registry_of(entry) as registry:
            async for chunk in once(registry).stream("reply", CALL):
                chunks.append(chunk)  # noqa: PERF401 (kept when the stream fails)

    async with serving(answer) as loopback:
        with pytest.raises(EffectFailed) as caught:
            await read(loopback.entry(**limits))
    return chunks, caught.value.fault


async def test_headers_and_no_token() -> None:
    """The limit on the first token; a role and keep-alives are none."""
    opening = [sse(delta(role="assistant", content="")), b": PROCESSING\n\n"]
    chunks, fault = await stalled(opening, first_token=0.2, idle=SOON)
    assert chunks == []
    assert fault == Fault("model_timeout_first_token", retryable=True, data={"seconds": 0.2})


async def test_a_stream_that_stalls() -> None:
    """The limit on silence, after what was said."""
    chunks, fault = await stalled([sse(delta(content="Hi"))], idle=SOON)
    assert chunks == [Chunk(text="Hi", model="loop-1")]
    assert fault == Fault("model_timeout_idle", retryable=True, data={"seconds": SOON})


async def test_a_stream_that_never_ends() -> None:
    """The limit on the whole call."""
    _, fault = await stalled([sse(delta(content="Hi"))], total=0.3)
    assert fault.code == "model_timeout_total"


@pytest.mark.parametrize("last", [[sse(finish())], [sse(finish()), DONE]])
async def test_a_whole_answer_does_not_wait_for_the_connection(last: list[bytes]) -> None:
    """It ends well although the provider neither says `[DONE]` nor hangs up."""

    async def answer(wire: Wire) -> None:
        await wire.head()
        for data in [sse(delta(content="Hi")), *last]:
            await wire.send(data)
        await wire.gone()

    async with serving(answer) as loopback:
        chunks = await ask(loopback.entry(tail=SOON))
    assert [chunk.finish for chunk in chunks] == ["", "stop"]


async def test_usage_after_the_finish_reason_is_waited_for() -> None:
    """Keep reading to the end."""
    async with serving(complete) as loopback:
        assert (await ask(loopback.entry()))[-1].usage is not None


async def test_an_error_inside_the_stream_ends_it_at_once() -> None:
    """The provider keeps the connection open; we do not."""
    chunks, fault = await stalled(
        [sse(delta(content="Hi")), sse({"error": {"code": "x"}})], idle=NEVER
    )
    assert len(chunks) == 1
    assert fault == Fault("model_error", data={"code": "x"})


async def test_malformed_chunks_are_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Counted, not quoted."""

    async def answer(wire: Wire) -> None:
        await wire.head()
        await wire.send(b"data: {secret\n\n" + sse(delta(content="Hi")) + sse(finish()) + DONE)
        await wire.end()

    async with serving(answer) as loopback:
        assert (await ask(loopback.entry()))[0].text == "Hi"
    assert "passed over 1 malformed chunks of 'loop-1' at 'loopback'" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("body", [f'{{"error":{{"message":"bad {KEY}"}}}}'.encode(), KEY.encode()])
async def test_no_key_is_shown_anywhere(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Not by a provider that quotes it, in a repr, the log or a traceback."""
    caplog.set_level(logging.DEBUG)
    async with serving(refusing(401, body)) as loopback:
        entry = loopback.entry()
        with pytest.raises(EffectFailed) as caught:
            await ask(entry)
    shown = [repr(entry), str(entry), caplog.text, repr(caught.value.fault)]
    shown += traceback.format_exception(caught.value)
    assert not [text for text in shown if KEY in text]


async def test_leaving_before_the_headers_is_noticed() -> None:
    """A cancelled call drops a connection without an answer."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def answer(wire: Wire) -> None:
        asked.set()
        await wire.gone()
        left.set()

    async with serving(answer) as loopback:
        asking = asyncio.create_task(ask(loopback.entry()))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()


def test_a_loop_that_ends_closes_a_forgotten_stream(recwarn: pytest.WarningsRecorder) -> None:
    """Its generator is closed by the loop, its connection with it; nothing is complained of."""

    async def forget() -> None:
        async def answer(wire: Wire) -> None:
            await wire.head()
            await wire.events(delta(content="Hi"))
            await wire.gone()
            left.append(True)

        async with serving(answer) as loopback, registry_of(loopback.entry()) as registry:
            stream = once(registry).stream("reply", CALL)
            await anext(stream)
            del stream
            async with asyncio.timeout(PATIENCE_S):
                while not left:  # noqa: ASYNC110 (the collector calls, not a task)
                    await asyncio.sleep(0)

    left: list[bool] = []
    asyncio.run(forget())
    assert not list(recwarn)
