"""Redis is killed and started again under load: streams go on, and nothing is corrupt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from loadtests.simulator.player import ClientPresence
from tests.e2e.redis_server import own_redis
from tests.support.deployment import Answer, Deployment, Setup, deployed, first_turn
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from starlette.types import Receive

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

OPEN = 14
TTL = 1.5
"""Seconds of a lock: in a third of it a router knows that Redis is away, or back."""
MORE = """
[models.steady]
provider = "simulated"
model = "sim-chat?rate=50&tokens=50&limit=50"
"""
FAULTS = {
    "shared_state": "store_unavailable; breakers and the shadow's budget are this router's own",
    "locks": "lock_unavailable; messages are locked within each process alone",
    "pins": "store_unavailable; conversations are assigned by the hash alone",
}


class Held(ClientPresence):
    """A client of the provider whose answer waits behind its first words until it is let go on."""

    let_go: ClassVar[asyncio.Event]

    def __init__(self, receive: Receive) -> None:
        super().__init__(receive)
        self._go_on = Held.let_go

    async def until(self, moment: float | None) -> bool:
        """Wait, whatever the clock says."""
        if moment is None or moment > asyncio.get_running_loop().time():
            await self._go_on.wait()
        return await super().until(moment)


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams that are under way."""

    let_go: asyncio.Event
    answers: list[asyncio.Task[Answer]]

    async def end(self) -> None:
        """Let them go on: every one ends well."""
        self.let_go.set()
        async with asyncio.timeout(PATIENCE_S):
            answers = await asyncio.gather(*self.answers)
        assert {tuple(answer.steps) for answer in answers} == {
            ("ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END")
        }


async def ready(place: Deployment, faults: dict[str, str]) -> None:
    """Ask brief questions until `/readyz` tells these faults; every one must be answered."""
    async with asyncio.timeout(PATIENCE_S):
        number = 0
        while True:
            number += 1
            answer = await place.ask(first_turn(f"{sorted(faults)} {number}"))
            assert answer.steps[-2:] == ["SUCCESS", "END"]
            told = await place.get("/readyz")
            # A busy machine may hold the loop up, which is told as well.
            if {part: why for part, why in told["faults"].items() if part in FAULTS} == faults:
                assert told["status"] == ("degraded" if told["faults"] else "ready")
                return


async def test_streams_go_on_without_redis_and_locks_are_shared_again_with_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, during and after the outage every stream ends well; `/readyz` tells the outage."""
    monkeypatch.setattr("loadtests.simulator.player.ClientPresence", Held)
    async with own_redis(tmp_path) as redis:
        setup = Setup(
            more=MORE, route_key="session_id", locks=redis.url, pins=redis.url, lock_ttl=TTL
        )
        async with deployed(tmp_path, setup) as place:
            before = await streams(place, "before")
            across = await streams(place, "across")
            await redis.kill()
            during = await streams(place, "during")
            assert place.provider.ledger.counts()["in_flight"] == 3 * OPEN
            again = await place.ask(first_turn("during 0", "steady"))
            assert (again.status, again.problem["code"]) == (409, "message_locked")
            await ready(place, FAULTS)
            await before.end()
            await redis.start()
            await ready(place, {})
            await across.end()
            await during.end()
            await elsewhere(place, redis.url, tmp_path_factory.mktemp("other"))
            assert {run.outcome for run in await place.lines()} == {"completed", "refused"}


async def elsewhere(place: Deployment, redis: str, folder: Path) -> None:
    """Take a lock here that a second router then finds taken: they are shared as before."""
    # A second router's start holds up the loop, and with it the renewals.
    text = place.watched.path.read_text("utf-8")
    place.edit(text.replace(f"lock_ttl = {TTL}", "lock_ttl = 600.0"))
    held = await streams(place, "held", 1)
    async with deployed(folder, Setup(locks=redis)) as other:
        refused = await other.ask(first_turn("held 0"))
        assert (refused.status, refused.problem["code"]) == (409, "message_locked")
    await held.end()


async def streams(place: Deployment, word: str, many: int = OPEN) -> Streams:
    """Open streams that last until they are let go on, and see the provider answer them."""
    Held.let_go = let_go = asyncio.Event()
    asked = int(str(place.provider.ledger.counts()["total"])) + many
    answers = [
        asyncio.create_task(place.ask(first_turn(f"{word} {n}", "steady"))) for n in range(many)
    ]
    async with asyncio.timeout(PATIENCE_S):
        await place.provider.ledger.until("total", asked)
    return Streams(let_go, answers)
