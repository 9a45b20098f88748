"""Both stacks of the companion put the same bytes on the wire and do the same to the world."""

from __future__ import annotations

import pytest

from tests.flows.companion.visits import visit
from tests.flows.playing import DIRECTIONS, same_on_both

CASES = 120
PER_TEST = 40

pytestmark = pytest.mark.virtual


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, CASES, PER_TEST))
async def test_drawn_turns_are_answered_alike(first_seed: int) -> None:
    """Recorded on one stack, tailed and replayed on the other, the directions taking turns."""
    ended = set()
    for seed in range(first_seed, first_seed + PER_TEST):
        played = await same_on_both(visit(seed), *DIRECTIONS[seed % 2])
        ended.add(played.ended[0])
    assert ended > {"completed"}
