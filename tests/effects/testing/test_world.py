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
