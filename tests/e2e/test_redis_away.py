"""Redis is killed and started again under load: streams go on, and nothing is corrupt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.deployment import Answer, Deployment, Setup, deployed, until
from tests.e2e.redis_server import own_redis

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

OPEN = 20
PATIENCE_S = 10.0
# Longer than the outage, shorter than the test's patience.
MORE = """
[models.steady]
provider = "simulated"
model = "sim-chat?rate=50&tokens=100&limit=100"
"""
FAULTS = {
    "board": "store_unavailable; breakers and the shadow's budget are this router's own",
    "locks": "lock_unavailable; messages are locked within each process alone",
    "pins": "store_unavailable; conversations are assigned by the hash alone",
}


def body(message: str, model: str = "steady") -> dict[str, object]:
    """Give the first turn of a chat of its own."""
    return {
        "message_id": message,
        "chat_id": f"chat {message}",
        "content": "Hello",
        "model_config": {"model_id": model},
    }


async def ready(place: Deployment, faults: dict[str, str]) -> None:
    """Ask brief questions until `/readyz` tells these faults; every one must be answered."""
    async with asyncio.timeout(PATIENCE_S):
        number = 0
        while True:
            number += 1
            answer = await place.ask(body(f"{sorted(faults)} {number}", "gpt-4.1"))
            assert answer.steps[-2:] == ["SUCCESS", "END"]
            told = await place.get("/readyz")
            # A busy machine may hold the loop up, which is told as well.
            if {part: why for part, why in told["faults"].items() if part in FAULTS} == faults:
                assert told["status"] == ("degraded" if told["faults"] else "ready")
                return


async def test_streams_go_on_without_redis_and_locks_are_shared_again_with_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Before, during and after the outage every stream ends well; `/readyz` tells the outage."""
    async with own_redis(tmp_path) as redis:
        setup = Setup(
            more=MORE, route_key="session_id", locks=redis.url, pins=redis.url, lock_ttl=1.5
        )
        async with deployed(tmp_path, setup) as place:
            before = streams(place, "before")
            await until(lambda: place.provider.ledger.counts()["in_flight"] == OPEN)
            await redis.kill()
            during = streams(place, "during")
            await until(lambda: place.provider.ledger.counts()["total"] == 2 * OPEN)
            again = await place.ask(body("during 0"))
            assert (again.status, again.problem["code"]) == (409, "message_locked")
            await ready(place, FAULTS)
            await redis.start()
            await ready(place, {})
            answers: list[Answer] = await asyncio.gather(*before, *during)
            assert {tuple(answer.steps) for answer in answers} == {
                ("ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END")
            }
            await elsewhere(place, redis.url, tmp_path_factory.mktemp("other"))
            assert {run.outcome for run in await place.lines()} == {"completed", "refused"}


async def elsewhere(place: Deployment, redis: str, folder: Path) -> None:
    """Take a lock here that a second router then finds taken: they are shared as before."""
    held = asyncio.create_task(place.ask(body("held")))
    await until(lambda: place.provider.ledger.counts()["in_flight"] == 1)
    async with deployed(folder, Setup(locks=redis)) as other:
        refused = await other.ask(body("held", "gpt-4.1"))
        assert (refused.status, refused.problem["code"]) == (409, "message_locked")
    assert (await held).steps[-1] == "END"


def streams(place: Deployment, word: str) -> list[asyncio.Task[Answer]]:
    """Open streams that last for a while."""
    return [asyncio.create_task(place.ask(body(f"{word} {n}"))) for n in range(OPEN)]
