"""Every shape of tests/support/provider_shapes.py through the port, over a loopback socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from contract.errors import Fault
from contract.model import Chunk, RawChunk, ToolCall, Usage
from effects.model.retry import remedy
from effects.model.splice import AnswerMismatch, SentAnswer
from effects.model.stream import RawAssembler, StreamAssembler
from tests.support.loopback_provider import (
    CALL,
    Wire,
    once,
    registry_of,
    serving,
    until_fault,
    whole,
)
from tests.support.misbehaving_providers import NO_WAIT, heard, pair, saying, through_the_port
from tests.support.provider_shapes import SHAPES, Expected, Shape, delta, events

pytestmark = [pytest.mark.sockets, pytest.mark.untraced]

SPARE = saying("Half of it", model="loop-2")


def calls_in(chunks: Sequence[Chunk]) -> tuple[ToolCall, ...]:
    """Join the pieces of tool calls by their index."""
    calls: dict[int, ToolCall] = {}
    for piece in (piece for chunk in chunks for piece in chunk.tool_calls):
        known = calls.get(piece.index, ToolCall("", "", ""))
        calls[piece.index] = ToolCall(
            known.id or piece.id, known.name or piece.name, known.arguments + piece.arguments
        )
    return tuple(calls.values())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
async def test_a_shape_has_its_verdict(shape: Shape) -> None:
    """What was said and, where the answer is not whole, the fault and what follows it."""
    async with serving(shape.answer) as loopback, registry_of(loopback.entry()) as registry:
        chunks, fault = await until_fault(once(registry).stream("reply", CALL))
    got = heard(chunks, fault)
    found = Expected(
        fault=None if fault is None else fault.code,
        then=None if fault is None else remedy(fault, "something" if got.text else "nothing"),
        text=got.text,
        reasoning=got.reasoning,
        calls=calls_in(chunks),
        finish=got.finish,
        usage=got.usage,
    )
    wanted = shape.expected
    assert found == replace(wanted, text=wanted.text or wanted.refusal, refusal="")


@pytest.mark.parametrize("shape", [one for one in SHAPES if one.expected.fault], ids=str)
async def test_a_fallback_answers_wherever_it_could(shape: Shape) -> None:
    """Only what is wrong with the request itself ends the call."""
    rescued = shape.expected.then != "stop"
    async with (
        serving(shape.answer) as first,
        serving(SPARE) as second,
        through_the_port(pair(first, second), replace(NO_WAIT, attempts=2)) as caller,
    ):
        got = await caller.ask()
    assert (got.fault is None, len(second.requests)) == (rescued, int(rescued))
    assert not rescued or (got.text, got.model) == ("Half of it", "loop-2")


async def test_a_live_refusal_is_speech_and_comes_at_once() -> None:
    """It ends the wait for the first token, and no piece of it waits for the end."""
    heard_first = asyncio.Event()

    async def answer(wire: Wire) -> None:
        await wire.head()
        await wire.events(delta(role="assistant", content=None), delta(refusal="I can't "))
        await heard_first.wait()
        await wire.events(delta(refusal="help."), delta("stop"))
        await wire.end()

    async with serving(answer) as loopback, registry_of(loopback.entry()) as registry:
        stream = once(registry).stream("reply", CALL)
        first = await anext(stream)
        heard_first.set()
        assert [first.text, *[chunk.text for chunk in await whole(stream)]] == [
            "I can't ",
            "help.",
            "",
        ]


@pytest.mark.parametrize(
    "fields",
    [
        {"function_call": {"name": "f", "arguments": ""}},
        {"audio": {"data": "AAAA"}},
        {"images": [{"image_url": {"url": "data:image/png;base64,AA=="}}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "Well"}]},
        {"thinking": "Well", "audio": {"data": "AAAA"}},
        {"audio": "half \ud83d"},
    ],
    ids="-".join,
)
def test_speech_that_is_no_text_is_held_as_it_came(fields: dict[str, Any]) -> None:
    """A client of the gateway gets it at once, and it is never spliced."""
    raw = RawAssembler()
    [chunk] = raw.feed(events(delta(**fields), done=False))
    assert isinstance(chunk, RawChunk)
    held = json.loads(json.dumps(fields).replace("\\ud83d", "\\ufffd"))
    assert (len(chunk.raw), chunk.other, chunk.field, raw.spoken) == (1, held, "", 1)
    sent = SentAnswer()
    sent.note([chunk])
    sent.note([Chunk(text="more")])
    assert sent.extent == "too_much"


@pytest.mark.parametrize(
    ("fields", "chunk"),
    [
        ({"refusal": "No."}, Chunk(text="No.", field="refusal")),
        ({"thinking": "Well"}, Chunk(reasoning="Well", field="thinking")),
        ({"reasoning": "Well"}, Chunk(reasoning="Well", field="reasoning")),
        ({"reasoning_content": "Well"}, Chunk(reasoning="Well")),
        ({"reasoning": "Well", "reasoning_content": "Well"}, Chunk(reasoning="Well")),
        ({"content": "Hi"}, Chunk(text="Hi")),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_a_chunk_names_the_field_its_text_came_in(fields: dict[str, Any], chunk: Chunk) -> None:
    """On every tape: a refusal is told from content, and a splice may begin with it."""
    data = events({**delta(**fields), "model": None}, done=False)
    assert StreamAssembler().feed(data) == [chunk]
    [raw] = RawAssembler().feed(data)
    assert isinstance(raw, RawChunk)
    assert raw.plain() == chunk
    sent = SentAnswer()
    sent.note([raw])
    splice = sent.splice()
    assert splice is not None
    assert splice.feed([chunk, Chunk(text="So")]) == [Chunk(text="So")]


def test_a_refusal_does_not_continue_as_content() -> None:
    """Equal words, but clients show the two apart."""
    sent = SentAnswer()
    sent.note([Chunk(text="No", field="refusal")])
    splice = sent.splice()
    assert splice is not None
    with pytest.raises(AnswerMismatch):
        splice.feed([Chunk(text="No.")])


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "assistant", "content": ""},
        {"content": None, "refusal": None, "audio": {}, "annotations": []},
        {"role": "assistant", "provider_specific_fields": {"trace": "x"}},
        {"function_call": {"name": "", "arguments": ""}},
    ],
)
def test_a_delta_without_a_text_is_no_speech(fields: dict[str, Any]) -> None:
    """A role, and fields that are empty, are signs of life at most."""
    for assembler in (StreamAssembler(), RawAssembler()):
        assert assembler.feed(events(delta(**fields), done=False)) == []
        assert assembler.spoken == 0


def test_an_answer_that_is_no_stream_is_read_as_one() -> None:
    """Some servers ignore that a stream was asked for."""
    body = {
        "object": "chat.completion",
        "model": "loop-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    text = json.dumps(body, indent=2).encode()
    for cut in (1, 10, len(text)):
        assembler = RawAssembler()
        assert assembler.feed(text[:cut]) + assembler.feed(text[cut:]) == []
        [chunk] = assembler.flush()
        assert (chunk.text, chunk.finish, chunk.usage) == ("Hi", "stop", Usage(1, 2, 3))
        assert isinstance(chunk, RawChunk)
        assert b'"delta":{"role":"assistant","content":"Hi"}' in chunk.raw[0]
        assert assembler.end() is None
    cut_off = StreamAssembler()
    cut_off.feed(text[:-9])
    assert cut_off.flush() == []
    assert cut_off.end() == Fault("model_truncated", retryable=True, data={"malformed": 1})
