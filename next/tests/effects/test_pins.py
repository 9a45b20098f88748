"""Pins, on each database."""

from __future__ import annotations

import asyncio

from effects.pins import pin
from effects.world import World


async def test_a_conversation_stays_with_the_stack_of_its_first_turn(world: World) -> None:
    """Whatever is drawn later; other flows and conversations have pins of their own."""
    del world
    assert await pin("chat", "c", "graph") == "graph"
    assert await pin("chat", "c", "legacy") == "graph"
    assert await pin("chat", "d", "legacy") == "legacy"
    assert await pin("ops", "c", "legacy") == "legacy"


async def test_of_two_first_turns_at_once_both_get_the_same(world: World) -> None:
    """Also in two processes: the row decides."""
    del world
    drawn = ("graph", "legacy") * 5
    assert len(set(await asyncio.gather(*(pin("chat", "c", one) for one in drawn)))) == 1
