"""36 streams recorded from seven providers: ours must amount to what the SDK makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from openai import AsyncOpenAI, DefaultAioHttpClient

from effects.model.stream import StreamAssembler
from tests.effects.model.accumulated import Accumulated, of_ours, of_the_sdk
from tests.support.loopback_provider import CALL, Loopback, Wire, once, registry_of, serving

pytestmark = pytest.mark.untraced

RECORDINGS = 36
WITH_AN_ERROR_INSIDE = 2


@pytest.fixture(scope="session")
def recordings(shared_data: Path) -> list[bytes]:
    """Return the bodies of the recorded streams."""
    lines = (shared_data / "provider_streams.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["sse"].encode() for line in lines]


async def by_the_sdk(loopback: Loopback) -> Accumulated:
    """Ask with the SDK's typed stream."""
    async with AsyncOpenAI(
        api_key="k",
        base_url=loopback.base_url,
        max_retries=0,
        http_client=DefaultAioHttpClient(trust_env=False),
    ) as client:
        chunks = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hello"}], stream=True
        )
        return await of_the_sdk(aiter(chunks))


async def by_us(loopback: Loopback) -> Accumulated:
    """Ask through the port."""
    async with registry_of(loopback.entry()) as registry:
        return await of_ours(once(registry).stream("reply", CALL))


def pieces(body: bytes, size: int) -> Sequence[bytes]:
    """Cut a body into pieces of `size` bytes."""
    return [body[start : start + size] for start in range(0, len(body), size)]


@pytest.mark.slow
@pytest.mark.sockets
@pytest.mark.parametrize("number", range(RECORDINGS))
async def test_a_recording_amounts_to_what_the_sdk_makes_of_it(
    recordings: list[bytes], number: int
) -> None:
    """Text, reasoning, tool calls, finish reason, usage, model; and whether it failed."""
    body = recordings[number]

    async def answer(wire: Wire) -> None:
        await wire.head()
        for piece in pieces(body, 1000):
            await wire.send(piece)
        await wire.end()

    async with serving(answer) as loopback:
        ours, theirs = await by_us(loopback), await by_the_sdk(loopback)
    assert ours == theirs
    assert ours.text or ours.reasoning or ours.calls


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7])
def test_a_recording_in_other_pieces_gives_the_same_chunks(
    recordings: list[bytes], size: int
) -> None:
    """Byte by byte, by sevens, whole."""
    for body in recordings:
        whole, cut = StreamAssembler(), StreamAssembler()
        expected = whole.feed(body)
        assert [chunk for piece in pieces(body, size) for chunk in cut.feed(piece)] == expected
        assert (cut.end(), cut.malformed) == (whole.end(), 0)


def test_a_recording_is_complete_unless_it_holds_an_error(recordings: list[bytes]) -> None:
    """Streams without `[DONE]` are complete, two end with the provider's error."""
    assert len(recordings) == RECORDINGS
    faults = []
    for body in recordings:
        assembler = StreamAssembler()
        assembler.feed(body)
        faults.append(assembler.end())
    errors = [fault for fault in faults if fault is not None]
    assert [fault.code for fault in errors] == ["model_error"] * WITH_AN_ERROR_INSIDE
    assert [fault.data for fault in errors] == [
        {"code": "tool_use_failed", "type": "invalid_request_error"},
        {"code": 400},
    ]
