"""The stream between routers and workers: what is delivered again, and what only one may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from contract.errors import EffectFailed
from effects.stores.shadow_stream import RouterStream, WorkerStream
from tests.e2e.redis_server import own_redis
from tests.support.shadow_streams import AT_ONCE, LONG, Place, own_stream

pytestmark = pytest.mark.sockets


@pytest.fixture
async def place(redis_url: str) -> AsyncIterator[Place]:
    """Make a stream of the test's own."""
    async with own_stream(redis_url) as made:
        yield made


async def test_what_is_sent_is_told(place: Place) -> None:
    """Once it is, nothing of it is left; a worker that comes first waits for the stream."""
    async with place.worker() as worker, aclosing(place.router()) as router:
        reading = asyncio.create_task(worker.read())
        await router.send(b"an exchange")
        delivery = await reading
        assert delivery.message == b"an exchange"
        assert await worker.stream.begin(delivery, "e") == 1
        assert await worker.stream.claim("e")
        await worker.stream.done(delivery, router.router, b"compared")
        assert await router.told() == [b"compared"]
        assert await place.left() == 0
        await worker.stream.leave()
        stream = place.prefix + "exchanges"
        assert [*(await place.redis.xinfo_consumers(stream, "workers") or ())] == []


async def test_routers_are_told_of_their_own(place: Place) -> None:
    """In the order in which it was told, each once."""
    async with (
        place.worker() as worker,
        aclosing(place.router()) as one,
        aclosing(place.router()) as two,
    ):
        for router, message in ((one, b"1"), (two, b"2"), (one, b"3")):
            await router.send(message)
        for router in (one, two, one):
            delivery = await worker.read()
            await worker.stream.done(delivery, router.router, b"told " + delivery.message)
        assert await one.told() == [b"told 1", b"told 3"]
        assert await two.told() == [b"told 2"]


async def test_one_alone_may_write_it_down(place: Place) -> None:
    """A router that has taken an exchange back, or a worker, whoever comes first."""
    async with place.worker() as worker, aclosing(place.router()) as router:
        assert await router.take_back({"first": ""}) == {"first"}
        assert not await worker.stream.claim("first")
        assert await worker.stream.claim("second")
        assert await router.take_back({"first": "", "second": "", "third": ""}) == {"third"}
        assert not await worker.stream.claim("second")


async def test_what_is_taken_back_leaves_the_stream(place: Place) -> None:
    """A worker that has read it already does not begin it."""
    async with place.worker() as worker, aclosing(place.router()) as router:
        where = await router.send(b"x")
        delivery = await worker.read()
        assert delivery.id == where
        assert await router.take_back({"e": where}) == {"e"}
        assert await place.left() == 0
        assert await worker.stream.begin(delivery, "e") == 0


async def test_what_is_done_is_not_begun_again(place: Place) -> None:
    """It goes off the stream."""
    async with place.worker() as worker, aclosing(place.router()) as router:
        await router.send(b"x")
        delivery = await worker.read()
        assert await worker.stream.claim("e")
        assert await worker.stream.begin(delivery, "e") == 0
        assert await place.left() == 0


async def test_what_a_worker_left_behind_is_anothers_though_nothing_new_comes(
    place: Place,
) -> None:
    """And no longer its own; each beginning is one more try."""
    async with aclosing(place.router()) as router, place.worker() as dead:
        await router.send(b"x")
        left = await dead.read()
        assert await dead.stream.begin(left, "e") == 1
        async with place.worker(AT_ONCE) as other:
            taken = await other.read()
            assert taken == left
            assert await other.stream.begin(taken, "e") == 2
            assert await dead.stream.begin(left, "e") == 0
            assert await other.stream.begin(taken, "e") == 3


async def test_one_that_leaves_lets_others_have_what_it_read(place: Place) -> None:
    """At once, not after it has been silent for long."""
    async with aclosing(place.router()) as router, place.worker() as leaving:
        await router.send(b"x")
        await leaving.read()
        async with place.worker() as other:
            reading = asyncio.create_task(other.read())
            await asyncio.sleep(0)
            assert not reading.done()
            await leaving.stream.leave()
            assert (await reading).message == b"x"


async def test_a_stream_that_is_gone_is_made_anew(place: Place) -> None:
    """As after a restart of a Redis that keeps nothing."""
    async with aclosing(place.router()) as router, place.worker() as worker:
        await router.send(b"before")
        await worker.read()
        await place.redis.delete(place.prefix + "exchanges")
        await router.send(b"after")
        assert (await worker.read()).message == b"after"


async def test_what_is_set_aside_is_there_to_be_looked_at(place: Place) -> None:
    """As it came."""
    async with aclosing(place.router()) as router, place.worker() as worker:
        await router.send(b"poison")
        delivery = await worker.read()
        await worker.stream.set_aside(delivery)
        found: Any = await place.redis.xrange(place.prefix + "aside")
        assert [fields for _, fields in found] == [{b"data": b"poison"}]


async def test_what_was_set_aside_can_be_erased(place: Place) -> None:
    """Whatever else stands there stays."""
    async with aclosing(place.router()) as router, place.worker() as worker:
        for number in range(250):
            await router.send(b"router\nan exchange of %d\nand more" % (number % 3))
            await worker.stream.set_aside(await worker.read())
        assert await router.erase_set_aside(lambda line: line.endswith(b"of 1")) == 83
        assert await router.erase_set_aside(lambda line: line.endswith(b"of 1")) == 0
        assert await place.redis.xlen(place.prefix + "aside") == 167


@pytest.mark.slow
async def test_a_redis_that_is_full_takes_what_makes_room(tmp_path: Path) -> None:
    """What routers take back, and workers have done, goes; exchanges and marks are refused."""
    async with (
        own_redis(tmp_path) as server,
        own_stream(server.url) as place,
        place.worker() as worker,
        aclosing(place.router()) as router,
    ):
        await router.send(b"done")
        where = await router.send(b"waits")
        delivery = await worker.read()
        assert await worker.stream.begin(delivery, "e") == 1
        await place.redis.config_set("maxmemory", 1)
        for refused in (
            router.send(b"more"),
            router.take_back({"waits": where}),
            worker.stream.done(delivery, router.router, b"compared"),
        ):
            with pytest.raises(EffectFailed, match="store_unavailable"):
                await refused
        assert await place.left() == 0
        await place.redis.config_set("maxmemory", 0)
        await router.send(b"again")
        assert await place.left() == 1


async def test_no_redis_is_a_fault(unused_port: int) -> None:
    """For both ends."""
    url = f"redis://127.0.0.1:{unused_port}/0"
    async with aclosing(RouterStream(url)) as router, aclosing(WorkerStream(url, LONG)) as worker:
        for call in (router.send(b""), router.told(), worker.claim("e"), worker.leave()):
            with pytest.raises(EffectFailed, match="store_unavailable"):
                await call
