"""Both stacks hold the same conversations: same bytes, same effects, same threads."""

from __future__ import annotations

from collections import Counter

import pytest

from graph_impl import FLOWS as GRAPH
from graph_impl.session import session
from graph_impl.threads import MemoryThreads
from router.serving.stack import LocalStack
from tests.flows.playing import DIRECTIONS, STACKS, same_on_both
from tests.flows.session.conversing import said, stored
from tests.flows.session.drawn import conversation

CONVERSATIONS = 64
PER_TEST = 8
TRACED = (0, 8, 40)
"""Of all first seeds those whose turns go every way there is."""

pytestmark = pytest.mark.virtual


@pytest.mark.slow
@pytest.mark.parametrize(
    "first_seed",
    [
        pytest.param(seed, marks=[] if seed in TRACED else pytest.mark.untraced)
        for seed in range(0, CONVERSATIONS, PER_TEST)
    ],
)
async def test_drawn_conversations_are_held_alike(first_seed: int) -> None:
    """Each turn recorded by one stack, tailed and replayed by the other, taking turns.

    Whenever the graph served to the end, its thread is what the store holds; no other run of it
    has touched the thread.
    """
    ended = Counter[object]()
    for seed in range(first_seed, first_seed + PER_TEST):
        threads = MemoryThreads()
        flows = {**GRAPH, "session": session(threads=threads)}
        stacks = {**STACKS, "graph": LocalStack("graph", flows, "g1")}
        for number, turn in enumerate(conversation(seed)):
            first, second = DIRECTIONS[(seed + number) % 2]
            before = await said(threads, turn.session)
            played = await same_on_both(turn, first, second, stacks)
            after = await said(threads, turn.session)
            if first == "legacy":
                assert after == before
            elif played.ended[0] == "completed":
                assert after == await stored(turn)
            ended[played.ended[0]] += 1
    assert len(ended) > 1  # the draw is not all sunshine
    assert ended["completed"] > sum(ended.values()) / 3
