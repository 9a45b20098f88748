"""The world of fakes counts what is done to it and keeps exchanges apart."""

import pytest

from effects.model import says
from effects.testing import World

pytestmark = pytest.mark.virtual


async def test_every_live_call_is_noted_with_its_site() -> None:
    """What a run does live is in `made`, in order."""
    world = World(says("Hello"))
    effects = world.run().effects()
    await effects.clock.now("prompt")
    await effects.ids.new("reply")
    await effects.tools.list("offer")
    assert world.made == [("clock.now", "prompt"), ("ids.new", "reply"), ("tools.list", "offer")]
    assert world.count("clock.now") == 1


async def test_two_exchanges_are_two_owners_of_locks() -> None:
    """A lock taken by one exchange is held against the other until the first ends."""
    world = World()
    first, second = world.exchange(), world.exchange(live=world.live())
    assert await world.run(first).effects().locks.acquire("message", "key", 60.0)
    assert not await world.run(second).effects().locks.acquire("message", "key", 60.0)
    await first.close()
    assert await world.run(second).effects().locks.acquire("again", "key", 60.0)
    await second.close()
