"""Shadows on workers: every exchange ends in one ledger state, and once in the captures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.redis_server import own_redis
from tests.e2e.shadow_workers import worker_process
from tests.support.deployment import Deployment, Setup, deployed, first_turn, until

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


def with_broker(broker: str, more: str = "") -> Setup:
    """Return a deployment whose shadows run on workers."""
    return Setup(shadow=100, more=f'[shadow]\nbroker = "{broker}"\n{more}')


async def serve(place: Deployment, count: int, name: str = "m") -> None:
    """Serve so many first turns, ten at a time."""
    for begin in range(0, count, 10):
        bodies = [first_turn(f"{name}{one}") for one in range(begin, min(begin + 10, count))]
        answers = await asyncio.gather(*map(place.ask, bodies))
        assert {one.status for one in answers} == {200}


async def test_a_worker_runs_what_the_router_hands_over(tmp_path: Path) -> None:
    """Its records say what those of a shadow in the router's own process do."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    async with own_redis(tmp_path) as redis, deployed(there, with_broker(redis.url)) as place:
        with worker_process(there) as worker:
            await serve(place, 20)
            await place.settled()
            assert place.books() == {"compared(equal)": 20}
            assert worker.stop() == 0
        handed = await place.lines()
    async with deployed(here, Setup(shadow=100)) as place:
        await serve(place, 20)
        kept = await place.lines()
    print(worker.said())
    assert len(handed) == len(kept) == 40
