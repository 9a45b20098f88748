"""Every shape of tests/support/provider_shapes.py through the gateway, as its clients see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec
import pytest
from openai import APIError, AsyncOpenAI

from contract.model import Chunk, ModelCall, PassedCall, ToolCall, Usage
from contract.operations import MODEL_STREAM
from effects.model import ModelRegistry, RescuePolicy, RescuingModel
from effects.model.stream import RawAssembler
from effects.tape.tape import Tape
from tests.support.gateways import client_of, opened
from tests.support.loopback_provider import Answer, Wire, finish, registry_of, serving
from tests.support.misbehaving_providers import pair, saying
from tests.support.provider_shapes import DONE, SHAPES, SPEECH, Expected, Shape, delta, events

pytestmark = pytest.mark.sockets

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
STREAMED = {**HELLO, "stream": True}
COUNTED = {**STREAMED, "stream_options": {"include_usage": True}}
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
WHOLE = [one for one in SHAPES if one.expected.fault is None]
FAULTY = [one for one in SHAPES if one.expected.fault is not None]
RESCUED = [one for one in FAULTY if one.expected.then != "stop"]


@asynccontextmanager
async def gateway(answer: Answer, spare: Answer | None = None) -> AsyncIterator[str]:
    """Put a gateway that calls each model once before a provider; `spare` is its fallback's."""
    async with serving(answer) as one, serving(spare or answer) as other:
        entries = pair(one, other) if spare is not None else [one.entry()]
        async with registry_of(*entries) as registry:
            model = RescuingModel(registry, RescuePolicy(attempts=1))
            async with opened(model, registry) as url:
                yield url


async def post(url: str, body: object) -> tuple[int, bytes]:
    """Ask as a client that reads bytes."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", json=body) as response,
    ):
        return response.status, await response.read()


async def whole(client: AsyncOpenAI) -> Expected:
    """Ask for the answer in one piece, with OpenAI's client."""
    try:
        answer = await client.chat.completions.create(**HELLO)
    except APIError as error:
        return Expected(error.code)  # type: ignore[arg-type] # one of ours
    [choice] = answer.choices
    message = choice.message
    text, reasoning = texts_of(message.content)
    counts = answer.usage
    return Expected(
        text=text,
        refusal=message.refusal or "",
        reasoning=reasoning + thought(message.model_extra or {}),
        calls=tuple(
            ToolCall(call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
            if call.type != "custom"
        ),
        finish=choice.finish_reason,
        usage=counts and Usage(counts.prompt_tokens, counts.completion_tokens, counts.total_tokens),
    )


async def streamed(client: AsyncOpenAI) -> Expected:
    """Ask for a stream, with OpenAI's client; its tool calls are the bytes' own affair."""
    found = Expected()
    try:
        async for chunk in await client.chat.completions.create(**STREAMED):
            [choice] = chunk.choices
            text, reasoning = texts_of(choice.delta.content)
            reasoning += thought(choice.delta.model_extra or {})
            found = replace(
                found,
                text=found.text + text,
                refusal=found.refusal + (choice.delta.refusal or ""),
                reasoning=found.reasoning + reasoning,
                finish=choice.finish_reason or found.finish,
            )
    except APIError as error:
        return replace(found, fault=error.code)  # type: ignore[arg-type] # one of ours
    return found


def texts_of(content: Any) -> tuple[str, str]:
    """Return the text and the thoughts of a content, which may be a list of parts."""
    if not isinstance(content, list):
        return content or "", ""
    text = "".join(part.get("text", "") for part in content)
    thoughts = (one["text"] for part in content for one in part.get("thinking", ()))
    return text, "".join(thoughts)


def thought(fields: dict[str, Any]) -> str:
    """Return the thoughts in fields that OpenAI's client does not know."""
    details = "".join(one["text"] for one in fields.get("reasoning_details", ()))
    return details + "".join(fields.get(name) or "" for name in THOUGHTS)


@pytest.mark.parametrize("shape", WHOLE, ids=str)
async def test_an_answer_reaches_its_client(shape: Shape) -> None:
    """Whole as it was meant, streamed to the byte, usage alone for those who asked for it."""
    async with gateway(shape.answer) as url, client_of(url) as client:
        assert await whole(client) == shape.expected
        assert await streamed(client) == replace(shape.expected, calls=(), usage=None)
        if not shape.streamed:
            return
        assert await post(url, COUNTED) == (200, shape.body)
        status, body = await post(url, STREAMED)
    left = [one for one in shape.body.split(b"\n\n") if b'"choices": []' not in one]
    assert (status, body) == (200, b"\n\n".join(left))


class RecordedModel(RescuingModel):
    """Plays chunks of a tape, in place of a provider."""

    def __init__(self, registry: ModelRegistry, chunks: Sequence[Chunk]) -> None:
        super().__init__(registry)
        self._chunks = chunks

    async def stream(self, _: str, __: ModelCall | PassedCall) -> AsyncGenerator[Chunk, None]:
        """Yield them at once."""
        for chunk in self._chunks:
            yield chunk


def recorded(shape: Shape) -> list[Chunk]:
    """Return what a stored tape holds of an answer."""
    entry = Tape().add(MODEL_STREAM, "gateway", b"{}", 0)
    for chunk in RawAssembler().feed(shape.body):
        entry.append(chunk)
    return [msgspec.json.decode(item, type=Chunk) for item in entry.record().items]


def deltas(body: bytes) -> list[dict[str, Any]]:
    """Return what each event of a stream says, but for roles and empty fields."""
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    found = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
    kept = [{name: one[name] for name in one if one[name] and name != "role"} for one in found]
    return [one for one in kept if one]


@pytest.mark.parametrize("shape", [one for one in SPEECH if one.streamed], ids=str)
async def test_what_a_tape_holds_of_an_answer_is_played_in_its_shape(shape: Shape) -> None:
    """A refusal as a refusal, audio as audio, thoughts under their provider's name."""
    async with registry_of() as registry:
        model = RecordedModel(registry, recorded(shape))
        async with opened(model, registry) as url, client_of(url) as client:
            assert await whole(client) == shape.expected
            assert await streamed(client) == replace(shape.expected, calls=(), usage=None)
            _, body = await post(url, STREAMED)
            _, answer = await post(url, HELLO)
    assert deltas(body) == deltas(shape.body)
    async with gateway(shape.answer) as url:
        _, first = await post(url, HELLO)
    messages = [json.loads(one)["choices"][0]["message"] for one in (answer, first)]
    played, given = ({name: one[name] for name in one if one[name]} for one in messages)
    assert played == given


@pytest.mark.untraced
@pytest.mark.parametrize("shape", FAULTY, ids=str)
async def test_a_fault_reaches_its_client(shape: Shape) -> None:
    """As our code: with a status where nothing was sent, else as the last event, without an end."""
    code, said = shape.expected.fault, shape.expected.text
    async with gateway(shape.answer) as url, client_of(url) as client:
        assert await whole(client) == Expected(code)
        assert await streamed(client) == Expected(code, text=said)
        for body in (HELLO, STREAMED):
            status, answer = await post(url, body)
            begun = bool(said) and body is STREAMED
            assert (status == 200) == begun
            assert DONE not in answer
            last = answer.rstrip().rpartition(b"\n")[2].removeprefix(b"data: ")
            assert json.loads(last)["error"]["code"] == code


@pytest.mark.parametrize("shape", RESCUED, ids=str)
async def test_a_whole_answer_is_always_rescued(shape: Shape) -> None:
    """Whatever had come of it, the fallback's counts alone; streamed, it may go on otherwise."""
    async with (
        gateway(shape.answer, saying("Another", model="loop-2")) as url,
        client_of(url) as client,
    ):
        assert await whole(client) == Expected(text="Another", finish="stop")


async def test_a_delta_that_is_not_known_comes_at_once() -> None:
    """It does not wait for one that is: a client shows a refusal while it is written."""
    shown = asyncio.Event()
    refusals = [delta(refusal="I can't "), delta(refusal="help.")]

    async def answer(wire: Wire) -> None:
        await wire.head()
        await wire.events(delta(role="assistant", content=None), refusals[0])
        await shown.wait()
        await wire.events(refusals[1], finish())
        await wire.send(DONE)
        await wire.end()

    async with gateway(answer) as url, client_of(url) as client:
        said = []
        async for chunk in await client.chat.completions.create(**STREAMED):
            if piece := chunk.choices[0].delta.refusal:
                said.append(piece)
                shown.set()
    assert said == ["I can't ", "help."]


def shape_of(*data: object) -> Answer:
    """Make a provider that streams these events."""
    return Shape("", "", "calls", 200, events(*data), Expected()).answer


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (
            [
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "We"}]}]},
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "ll"}]}]},
                {"content": "H"},
                {"content": "i"},
                {"content": ""},
            ],
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Well"}]},
                    {"type": "text", "text": "Hi"},
                ]
            },
        ),
        (
            [
                {
                    "tool_calls": [
                        {"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}
                    ]
                },
                {
                    "tool_calls": [
                        {"index": 0, "id": "", "function": {"name": "", "arguments": None}}
                    ]
                },
            ],
            {
                "content": None,
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}],
            },
        ),
    ],
    ids=["parts and texts", "arguments as an object, empty repeats"],
)
async def test_pieces_of_a_whole_answer(pieces: list[Any], message: Any) -> None:
    """Nothing that was said is lost where pieces have different forms."""
    ended = {**finish(), "model": "loop-1"}
    late = {**delta(), "choices": [{"index": 0, "delta": {}, "finish_reason": ""}]}
    datas = [delta(**piece) for piece in pieces]
    async with gateway(shape_of(*datas, ended, late)) as url:
        status, body = await post(url, HELLO)
    [choice] = json.loads(body)["choices"]
    assert (status, choice["finish_reason"]) == (200, "stop")
    assert choice["message"] == {"role": "assistant", **message}


async def test_no_byte_of_a_call_is_changed_in_a_stream() -> None:
    """Its index is the provider's, wrong as it may be: only whole answers are put together."""
    same = next(one for one in SHAPES if one.name == "two calls that both have index 0")
    async with gateway(same.answer) as url:
        _, body = await post(url, STREAMED)
    assert body == same.body
