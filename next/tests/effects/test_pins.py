"""Pins, on each database."""

from __future__ import annotations

import asyncio

import pytest

from effects.pins import forget, pin
from effects.world import World


async def test_a_conversation_stays_with_the_stack_of_its_first_turn(world: World) -> None:
    """Whatever is drawn later; other flows and conversations have pins of their own."""
    del world
    assert await pin("chat", "c", "graph") == "graph"
    assert await pin("chat", "c", "legacy") == "graph"
    assert await pin("chat", "d", "legacy") == "legacy"
    assert await pin("ops", "c", "legacy") == "legacy"


@pytest.mark.parametrize("conversation", ["c" * 100_000, "c\0d"])
async def test_any_conversation_is_pinned_and_forgotten(world: World, conversation: str) -> None:
    """Also one whose id no index takes."""
    del world
    assert await pin("chat", conversation, "graph") == "graph"
    assert await pin("chat", conversation, "legacy") == "graph"
    assert await pin("chat", conversation + "e", "legacy") == "legacy"
    assert await forget("chat", conversation) == 1


async def test_of_two_first_turns_at_once_both_get_the_same(world: World) -> None:
    """Also in two processes: the row decides."""
    del world
    drawn = ("graph", "legacy") * 5
    assert len(set(await asyncio.gather(*(pin("chat", "c", one) for one in drawn)))) == 1
