"""An endpoint of embeddings in trouble: asked again, given up, and never half believed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from starlette.responses import Response

from contract.errors import EffectFailed, Fault
from effects.memory.embeddings import EndpointEmbedder
from effects.model import ModelEntry, Provider
from tests.support.embedding_server import KEY, Answer, Noted, endpoint, hashing, in_turn, saying

pytestmark = pytest.mark.sockets


def embedded(*numbers: bytes) -> Answer:
    """Answer with one vector of these numbers."""
    return saying(200, b'{"data": [{"index": 0, "embedding": [%b]}]}' % b",".join(numbers))


async def fault(embedder: EndpointEmbedder, *texts: str) -> Fault:
    """Ask, and give the fault."""
    with pytest.raises(EffectFailed) as failed:
        await embedder.embed(texts or ("tea",))
    return failed.value.fault


async def test_a_request_says_what_is_wanted() -> None:
    """Path, key and model; dimensions only where the model is to be shortened; 64 a request."""
    noted = Noted()
    bodies: list[dict[str, Any]] = []

    async def answer(body: bytes) -> Response:
        bodies.append(msgspec.json.decode(body))
        return await hashing()(body)

    async with endpoint(answer, noted) as embedder:
        await embedder.embed([f"text {n}" for n in range(65)])
    async with endpoint(answer, shortened=True) as embedder:
        await embedder.embed(["tea"])
    assert noted.requests[0].url.path == "/v1/embeddings"
    assert noted.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert [len(body["input"]) for body in bodies] == [64, 1, 1]
    assert bodies[1] == {"model": "small", "input": ["text 64"]}
    assert bodies[2] == {"model": "small", "input": ["tea"], "dimensions": 64}


@pytest.mark.parametrize(
    ("first", "waited"),
    [
        (saying(503, b"{}"), [0.2]),
        (saying(429, b"{}", **{"retry-after": "1"}), [1.2]),
        (saying(500, b"oops"), [0.2]),
    ],
)
async def test_what_passes_is_asked_again(
    first: Answer, waited: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """After a wait, and said in the log without the key."""
    noted = Noted()
    async with endpoint(in_turn(first, hashing()), noted) as embedder:
        assert (await embedder.embed(["tea"])).shape == (1, 64)
    assert noted.waits == pytest.approx(waited)
    assert "embeddings of 'small'" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        (saying(401, b"{}"), "model_auth", None),
        (saying(400, b'{"error": {"message": "bad"}}'), "model_bad_request", None),
        (saying(200, b"<html>"), "model_error", "no embeddings"),
        (embedded(b'"x"'), "model_error", "no embeddings"),
        (saying(200, b'{"data": []}'), "model_error", "indices"),
        (saying(200, b'{"data": [{"index": 1, "embedding": []}]}'), "model_error", "indices"),
        (hashing(32), "model_error", "dimensions"),
        (embedded(*[b"1e300"] * 64), "model_error", "numbers"),  # beyond 32 bits is infinite
    ],
)
async def test_what_stays_is_a_fault_at_once(answer: Answer, code: str, reason: str | None) -> None:
    """A retry would end the same."""
    noted = Noted()
    async with endpoint(answer, noted) as embedder:
        failed = await fault(embedder)
    assert (failed.code, noted.waits, len(noted.requests)) == (code, [], 1)
    assert failed.data.get("reason") == reason


async def test_other_dimensions_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """The error names both numbers, and so does the log."""
    async with endpoint(hashing(32)) as embedder:
        failed = await fault(embedder)
    assert failed.data == {"reason": "dimensions", "sent": 32, "configured": 64}
    assert "it sends 32 dimensions and [embeddings] dimensions is 64" in caplog.text


async def test_an_endpoint_that_is_down_rests() -> None:
    """After three failures it is not called for a while."""
    noted = Noted()
    async with endpoint(saying(503, b"{}"), noted) as embedder:
        failed = [await fault(embedder) for _ in range(3)]
    assert len(noted.requests) == 3
    assert {one.code for one in failed} == {"model_unavailable"}
    assert failed[-1].data["cause"] == "breaker_open"


async def test_nobody_waits_for_ever() -> None:
    """The limit holds for the whole; who leaves is let go."""
    enough = asyncio.Event()

    async def late(_: bytes) -> Response:
        await enough.wait()
        return Response()

    async with endpoint(late, total=0.05) as embedder:
        assert (await fault(embedder)).code == "model_timeout_total"
        enough.set()
    async with endpoint(hashing()) as embedder:
        task = asyncio.create_task(embedder.embed(["tea"]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_nobody_there_is_a_fault(unused_port: int, caplog: pytest.LogCaptureFixture) -> None:
    """A name of a class, no address."""
    caplog.set_level(logging.DEBUG)
    provider = Provider("test", f"http://127.0.0.1:{unused_port}/v1")
    embedder = EndpointEmbedder(ModelEntry("e", provider, "small"), 8, draw=lambda: 0.0)
    try:
        failed = await fault(embedder)
    finally:
        await embedder.aclose()
    assert failed.code == "model_unavailable"
    assert str(unused_port) not in repr(failed)
