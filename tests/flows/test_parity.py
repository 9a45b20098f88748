"""Both stacks put the same bytes on the wire and do the same to the world, whatever the request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cutover.selftest.cases import case
from tests.support.companion_turns import visit
from tests.support.flow_runs import DIRECTIONS, Scene, same_on_both

pytestmark = pytest.mark.virtual


def drawn(
    draw: Callable[[int], Scene], cases: int, per_test: int, *marks: pytest.MarkDecorator
) -> list[object]:
    """Return seeds in batches."""
    batches = range(0, cases, per_test)
    name = draw.__name__
    return [
        pytest.param(draw, range(first, first + per_test), marks=marks, id=f"{name}-{first}")
        for first in batches
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "seeds"), [*drawn(case, 320, 20, pytest.mark.untraced), *drawn(visit, 120, 40)]
)
async def test_drawn_requests_are_answered_alike(
    draw: Callable[[int], Scene], seeds: range
) -> None:
    """Recorded on one stack, tailed and replayed on the other, the directions taking turns."""
    ended = set()
    for seed in seeds:
        played = await same_on_both(draw(seed), *DIRECTIONS[seed % 2])
        ended.add(played.ended[0])
    assert ended > {"completed"}
