"""Shadows on workers: every exchange ends in one ledger state, and once in the captures."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from cutover.wiring.stacks import load_stacks
from tests.e2e.redis_server import RedisServer, own_redis
from tests.e2e.shadow_workers import worker_process
from tests.support.deployment import Deployment, Setup, deployed, first_turn, until
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """Start a Redis of the test's own."""
    async with own_redis(tmp_path) as server:
        yield server


def with_workers(redis: RedisServer, more: str = "") -> Setup:
    """Return a deployment whose shadows run on workers."""
    return Setup(shadow=100, more=f'[shadow]\nbroker = "{redis.url}"\n{more}')


async def serve(place: Deployment, count: int, name: str) -> None:
    """Serve so many first turns at once."""
    answers = await asyncio.gather(*(place.ask(first_turn(f"{name}{i}")) for i in range(count)))
    assert {(one.status, one.steps[-1]) for one in answers} == {(200, "END")}


async def captured(place: Deployment) -> Counter[str]:
    """Return how many exchanges have which runs in the captures, and what is said of the second."""
    runs: dict[str, list[str]] = {}
    for run in await place.lines():
        said = f"{run.role} {run.shadow} {run.shadow_reason}".strip()
        runs.setdefault(run.exchange, []).append(said)
    return Counter(" + ".join(sorted(said)) for said in runs.values())


PAIR = "serving due + shadow"


async def test_a_worker_runs_what_the_router_hands_over(redis: RedisServer, tmp_path: Path) -> None:
    """And writes down both runs, beside the captures of the router."""
    async with deployed(tmp_path, with_workers(redis)) as place:
        with worker_process(tmp_path) as worker:
            await serve(place, 20, "m")
            await place.settled()
            assert place.books() == {"compared(equal)": 20}
            assert (await place.get("/readyz"))["ledger"]["waiting"] == 0
            assert worker.stop() == 0
        assert await captured(place) == {PAIR: 20}
    assert worker.said().splitlines()[-1].endswith("stopped: 20 compared(equal)")


async def test_while_workers_stand_still_what_the_queue_cannot_hold_is_dropped(
    redis: RedisServer, tmp_path: Path
) -> None:
    """What it holds is compared once they go on."""
    async with deployed(tmp_path, with_workers(redis, "queue = 8")) as place:
        with worker_process(tmp_path) as worker:
            await serve(place, 2, "before")
            await place.settled()
            worker.send(signal.SIGSTOP)
            await serve(place, 20, "meanwhile")
            assert place.books() == {"compared(equal)": 2, "dropped(queue_full)": 12}
            worker.send(signal.SIGCONT)
            await place.settled()
            assert place.books() == {"compared(equal)": 10, "dropped(queue_full)": 12}
            assert worker.stop() == 0
        assert await captured(place) == {PAIR: 10, "serving dropped queue_full": 12}


async def test_a_redis_that_goes_and_comes_back_costs_no_stream_and_no_capture(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Exchanges of the time between are written down by their router."""
    async with deployed(tmp_path, with_workers(redis)) as place:
        with worker_process(tmp_path) as worker:
            await serve(place, 3, "before")
            await place.settled()
            await redis.kill()
            await serve(place, 3, "between")
            assert "shadow_workers" in (await place.get("/readyz"))["faults"]
            await redis.start()
            await until(lambda: "Redis is back" in worker.said())
            await serve(place, 3, "after")
            await place.settled()
            assert "shadow_workers" not in (await place.get("/readyz"))["faults"]
            assert place.books() == {"compared(equal)": 6, "dropped(broker)": 3}
            assert worker.stop() == 0
        assert await captured(place) == {PAIR: 6, "serving dropped broker": 3}


async def test_a_killed_worker_costs_nothing(redis: RedisServer, tmp_path: Path) -> None:
    """What it had is another worker's, at once where it was told to stop."""
    async with deployed(tmp_path, with_workers(redis, "seconds = 1.0")) as place:
        with worker_process(tmp_path, "first") as first:
            await serve(place, 1, "before")
            await place.settled()
            first.send(signal.SIGSTOP)
            await serve(place, 12, "handed")
            with worker_process(tmp_path, "second") as second:
                first.process.kill()
                # What the first one had read stays its own for a while, the rest is taken at once.
                await until(lambda: place.services.router.ledger.total() >= 1)
                first.process.join()
                await until(lambda: not place.services.router.ledger.open)
                assert second.stop() == 0
        assert place.books() == {"compared(equal)": 13}
        assert await captured(place) == {PAIR: 13}


async def test_a_router_that_stops_takes_back_what_no_worker_has_begun(
    redis: RedisServer, tmp_path: Path
) -> None:
    """It writes it down, and a worker that comes later leaves it alone."""
    async with deployed(tmp_path, with_workers(redis)) as place:
        await serve(place, 3, "m")
        await place.services.router.aclose(0.1)
        assert place.books() == {"dropped(stopping)": 3}
        with worker_process(tmp_path) as worker:
            await until(lambda: "listening" in worker.said())
            assert worker.stop() == 0
        assert await captured(place) == {"serving dropped stopping": 3}


async def test_an_exchange_that_no_worker_tells_of_comes_back(
    redis: RedisServer, tmp_path: Path
) -> None:
    """After [shadow] worker_seconds."""
    async with deployed(tmp_path, with_workers(redis, "worker_seconds = 0.01")) as place:
        await serve(place, 3, "m")
        await place.settled()
        assert place.books() == {"dropped(unanswered)": 3}
        assert await captured(place) == {"serving dropped unanswered": 3}


BLOCKING = """
import time
from graph_impl import FLOWS as BUILT_IN

async def chat(request, effects):
    time.sleep(60)
    yield

FLOWS = {**BUILT_IN, "chat": chat}
"""


async def test_a_candidate_that_blocks_its_worker_is_set_aside(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Each worker ends itself with a trace of where it stood; the fourth one goes on."""
    (tmp_path / "blocking.py").write_text(BLOCKING, "utf-8")
    setup = with_workers(redis, 'seconds = 0.2\n[stacks]\ngraph = "blocking:FLOWS"')
    async with deployed(tmp_path, replace(setup, stacks=load_stacks())) as place:
        await serve(place, 1, "m")
        for number in range(3):
            with worker_process(tmp_path, f"worker {number}") as worker:
                await asyncio.to_thread(worker.process.join, PATIENCE_S)
                assert "blocking.py" in worker.said()
        with worker_process(tmp_path) as worker:
            await place.settled()
            assert worker.stop() == 0
        assert place.books() == {"dropped(set_aside)": 1}
        assert await captured(place) == {"serving dropped set_aside": 1}
