"""Pairs that are equal, however they look, have no finding."""

import random

import msgspec
import pytest

from compare.differences import AT_ONCE, Pair, differences
from cutover.records import FrameRecord
from tests.compare.exchanges import ALL, SERVICES, Name, run
from tests.compare.variations import varied

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

BY_DAY, AT_NIGHT = 300, 20_000


@pytest.mark.parametrize("pairs", [BY_DAY, pytest.param(AT_NIGHT, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("exchange", ALL)
async def test_equal_pairs_have_no_finding(exchange: str, pairs: int) -> None:
    """Other ids and moments, another order of reads, other times, text that is cut elsewhere."""
    serving: tuple[Name, ...] = ("legacy", "graph")
    for serves in serving:
        compared = await run(exchange, serves)
        healthy = differences(compared.pair, compared.flow)
        assert (healthy.equal, healthy.differences, tuple(healthy.left_out)) == (True, (), ())
        for number in range(-(-pairs // (len(ALL) * len(serving)))):
            pair = varied(compared.pair, compared.flow, random.Random(f"{exchange} {number}"))
            found = differences(pair, compared.flow)
            assert (found.equal, found.differences) == (True, ()), (serves, number)


@pytest.mark.parametrize("exchange", SERVICES)
async def test_a_service_that_plays_does_not_hold_its_text_back(exchange: str) -> None:
    """Its tape answers at once, and its own answer comes over a socket; that is left out."""
    compared = await run(exchange)
    played = compared.pair.played
    late = tuple(FrameRecord.of(2_400_000, one.data) for one in played.frames)
    line = msgspec.structs.replace(played, frames=late)
    found = differences(Pair(compared.pair.served, line, compared.pair.tape), compared.flow)
    assert found.differences == ()
    assert found.left_out == (AT_ONCE,)
