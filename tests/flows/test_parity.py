"""Both stacks put the same bytes on the wire and do the same to the world, whatever is asked."""

import pytest

from cutover.selftest.cases import case
from tests.flows.playing import DIRECTIONS, same_on_both

CASES = 320
PER_TEST = 20

pytestmark = pytest.mark.virtual


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, CASES, PER_TEST))
async def test_drawn_requests_are_answered_alike(first_seed: int) -> None:
    """Recorded on one stack, tailed and replayed on the other, the directions taking turns."""
    ended = set()
    for seed in range(first_seed, first_seed + PER_TEST):
        played = await same_on_both(case(seed), *DIRECTIONS[seed % 2])
        ended.add(played.ended[0])
    assert len(ended) > 1  # the draw is not all sunshine
