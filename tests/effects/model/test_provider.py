"""The adapter against a provider on loopback: requests, limits, failures."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import traceback
from collections.abc import Mapping
from typing import Literal

import pytest
from openai import AsyncOpenAI

from contract.errors import EffectFailed, Fault, FaultCode
from contract.model import Chunk
from effects.model import ModelEntry
from effects.model.client import MAX_ERROR_BYTES
from effects.model.errors import Facts
from tests.support.loopback_provider import (
    CALL,
    KEY,
    Answer,
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
    until_fault,
    usage,
)
from tests.support.misbehaving_providers import Held, reset
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.virtual]

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


async def after_a_break(*events: object, broken: Answer, **limits: float) -> list[Chunk]:
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


async def babble(wire: Wire) -> None:
    """Send what is no piece of a chunked body."""
    await wire.raw(b"nonsense\r\n")


async def test_a_body_that_makes_no_sense_is_silence() -> None:
    """The connection is dropped by aiohttp, which wakes no reader: the limit on silence does."""
    with pytest.raises(EffectFailed, match="model_timeout_idle"):
        await after_a_break(delta(content="Hi"), broken=babble, idle=SOON)


@pytest.mark.parametrize("broken", [reset, Wire.end])
async def test_a_stream_cut_in_the_middle(broken: Answer) -> None:
    """Never success, whether the connection broke or the body just ended."""
    with pytest.raises(EffectFailed) as caught:
        await after_a_break(delta(content="Hi"), broken=broken)
    fault = Fault("model_truncated", retryable=True, data={"malformed": 0})
    assert caught.value.fault == fault


@pytest.mark.parametrize("broken", [reset, babble, Wire.end])
async def test_a_break_after_the_answer_is_none(broken: Answer) -> None:
    """A finish reason came: nothing is missing."""
    chunks = await after_a_break(delta(content="Hi"), finish(), broken=broken, tail=SOON)
    assert [chunk.finish for chunk in chunks] == ["", "stop"]


HI = sse(delta(content="Hi"))
PACKED = gzip.compress(HI + sse(finish()) + DONE)
GZIP = {"content-encoding": "gzip"}
ROLE = sse(delta(role="assistant", content=""))
TIMED_OUT = Fault("model_timeout_idle", retryable=True, data={"seconds": SOON})
LIMITED = b'{"error":{"code":"rate_limit_exceeded","message":"slow down"}}'
LIMITED_FACTS: Facts = {
    "status": 429,
    "code": "rate_limit_exceeded",
    "request_id": "req_1",
    "retry_after": 2.0,
}


def sending(
    *pieces: bytes, then: Answer = Wire.gone, headers: Mapping[str, str] | None = None
) -> Answer:
    """Answer with these pieces of a body, then do something else."""

    async def answer(wire: Wire) -> None:
        await wire.head(headers=headers)
        for piece in pieces:
            await wire.send(piece)
        await then(wire)

    return answer


async def ssh(wire: Wire) -> None:
    """Answer with what is no HTTP."""
    await wire.raw(b"SSH-2.0-OpenSSH\r\n\r\n")
    await wire.gone()


def unavailable(**facts: str | float) -> Fault:
    """Make the fault of a provider that could not be reached or is busy."""
    return Fault("model_unavailable", retryable=True, data={**facts})


def timeout(stage: Literal["first_byte", "first_token", "total"], seconds: float) -> Fault:
    """Make the fault of a limit."""
    codes: dict[str, FaultCode] = {
        "first_byte": "model_timeout_first_byte",
        "first_token": "model_timeout_first_token",
        "total": "model_timeout_total",
    }
    return Fault(codes[stage], retryable=True, data={"seconds": seconds})


# What a provider does, under which limits; the finish reasons or texts heard, and the fault.
ANSWERS: dict[str, tuple[Answer, dict[str, float], list[str], Fault | None]] = {
    "compressed although we ask for the opposite": (
        sending(PACKED[:10], PACKED[10:], then=Wire.end, headers=GZIP),
        {},
        ["Hi", "stop"],
        None,
    ),
    "whole, without an end": (
        sending(HI, sse(finish()), DONE),
        {"tail": SOON},
        ["Hi", "stop"],
        None,
    ),
    "refused, with its facts": (
        refusing(429, LIMITED, retry_after="2", x_request_id="req_1"),
        {},
        [],
        Fault("model_rate_limited", retryable=True, data=LIMITED_FACTS),
    ),
    **{
        f"refused with {body!r}": (refusing(503, body), {}, [], unavailable(status=503))
        for body in (b"", b"<html>", b"[]", b'{"error":null}', b'"text"', b"\xff")
    },
    **{
        f"a redirect by {status}, which is not followed": (
            refusing(status, b"", location="/v1/chat/completions"),
            {},
            [],
            Fault("model_unavailable", retryable=False, data={"status": status}),
        )
        for status in (301, 302, 307, 308)
    },
    "reset before the headers": (reset, {}, [], unavailable(cause="ServerDisconnectedError")),
    "no HTTP": (ssh, {}, [], unavailable(cause="BadStatusLine")),
    "no answer at all": (Wire.gone, {"first_byte": SOON}, [], timeout("first_byte", SOON)),
    "headers, and a role and comments as signs of life": (
        sending(ROLE, b": PROCESSING\n\n"),
        {"first_token": 0.2, "idle": SOON},
        [],
        timeout("first_token", 0.2),
    ),
    "a stall": (sending(HI), {"idle": SOON}, ["Hi"], TIMED_OUT),
    "no end of all": (sending(HI), {"total": 0.3}, ["Hi"], timeout("total", 0.3)),
    "an error inside, which ends it at once": (
        sending(HI, sse({"error": {"code": "x"}})),
        {"idle": NEVER},
        ["Hi"],
        Fault("model_error", data={"code": "x"}),
    ),
}


@pytest.mark.parametrize(
    ("answer", "limits", "heard", "fault"), ANSWERS.values(), ids=ANSWERS.keys()
)
async def test_what_comes_of_an_answer(
    answer: Answer, limits: dict[str, float], heard: list[str], fault: Fault | None
) -> None:
    """All that came before the end, and at the end the fault if the answer is not whole."""
    async with serving(answer) as loopback, registry_of(loopback.entry(**limits)) as registry:
        chunks, found = await until_fault(once(registry).stream("reply", CALL))
    assert [one.text or one.finish or "usage" for one in chunks] == heard
    assert found == fault
    assert len(loopback.requests) <= 1  # calling again is for a layer that knows the tape


@pytest.mark.parametrize(
    ("pieces", "limits", "code"),
    [
        ([b"x" * (MAX_ERROR_BYTES // 2)] * 3, {}, "model_unavailable"),
        ([], {"first_byte": 0.2}, "model_timeout_first_byte"),
    ],
    ids=["endless", "silent"],
)
async def test_an_error_whose_body_never_ends_is_left(
    pieces: list[bytes], limits: dict[str, float], code: FaultCode
) -> None:
    """What came of it is enough, and the connection is dropped like any other."""
    left = asyncio.Event()

    async def answer(wire: Wire) -> None:
        await wire.head(500)
        for piece in pieces:
            await wire.send(piece)
        await wire.gone()
        left.set()

    async with serving(answer) as loopback:
        assert (await fault_of(loopback.entry(**limits))).code == code
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()


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
    held = Held()
    async with serving(held) as loopback:
        asking = asyncio.create_task(ask(loopback.entry()))
        await held.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await held.until_left()


def test_a_loop_that_ends_closes_a_forgotten_stream(recwarn: pytest.WarningsRecorder) -> None:
    """Its generator is closed by the loop, its connection with it; nothing is complained of."""

    async def forget() -> None:
        left = asyncio.Event()

        async def answer(wire: Wire) -> None:
            await wire.head()
            await wire.events(delta(content="Hi"))
            await wire.gone()
            left.set()

        async with serving(answer) as loopback, registry_of(loopback.entry()) as registry:
            stream = once(registry).stream("reply", CALL)
            await anext(stream)
            del stream
            async with asyncio.timeout(PATIENCE_S):
                await left.wait()

    asyncio.run(forget())
    assert not list(recwarn)
