"""Pins and feedback, on each database."""

import asyncio

import pytest

from effects.rollout import Feedback, feedback_since, forget_pin, pin, put_feedback
from effects.world import World
from tests.effects.conftest import MovableClock


async def test_a_conversation_stays_with_the_stack_of_its_first_turn(world: World) -> None:
    """Whatever is drawn later; other flows and conversations have pins of their own."""
    del world
    assert await pin("chat", "c", "graph") == ""
    assert await pin("chat", "c", "legacy") == "graph"
    assert await pin("chat", "d", "legacy") == ""
    assert await pin("ops", "c", "legacy") == ""


@pytest.mark.parametrize("conversation", ["c" * 100_000, "c\0d"])
async def test_any_conversation_is_pinned_and_forgotten(world: World, conversation: str) -> None:
    """Also one whose id no index takes."""
    del world
    assert await pin("chat", conversation, "graph") == ""
    assert await pin("chat", conversation, "legacy") == "graph"
    assert await pin("chat", conversation + "e", "legacy") == ""
    assert await forget_pin("chat", conversation) == 1


async def test_of_two_first_turns_at_once_both_get_the_same(world: World) -> None:
    """Also in two processes: the row decides."""
    del world
    drawn = ("graph", "legacy") * 5
    found = await asyncio.gather(*(pin("chat", "c", one) for one in drawn))
    began = drawn[found.index("")]
    assert sorted(found) == ["", *[began] * 9]


async def test_the_last_feedback_on_an_exchange_counts(world: World, clock: MovableClock) -> None:
    """A changed mind replaces the score; `since` selects by time."""
    del world
    await put_feedback("one", 1)
    await put_feedback("two", 0, "so-so")
    clock.now += 10
    await put_feedback("one", -1, "wrong")
    late = Feedback("one", -1, "wrong", clock.now)
    assert await feedback_since(0) == [Feedback("two", 0, "so-so", clock.now - 10), late]
    assert await feedback_since(clock.now) == [late]
