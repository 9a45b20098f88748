"""In the graph a message is felt while memories of it are recalled; the frames keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from contract.stores import MemoryEntry, Recall
from effects.memory import InMemoryMemory
from tests.flows.companion.visits import Visit, turn
from tests.flows.playing import STACKS

pytestmark = pytest.mark.virtual

RECALL_MS = 50
BESIDE = [
    ("begin", "emotion", 0),
    ("begin", "memory", 0),
    ("end", "emotion", 0),
    ("end", "memory", RECALL_MS),
    ("begin", "reasoning", RECALL_MS),
    ("end", "reasoning", RECALL_MS),
]
IN_TURN = [
    ("begin", "emotion", 0),
    ("end", "emotion", 0),
    ("begin", "memory", 0),
    ("end", "memory", RECALL_MS),
    ("begin", "reasoning", RECALL_MS),
    ("end", "reasoning", RECALL_MS),
]


def now() -> int:
    """Tell the movable clock's time, milliseconds."""
    return round(asyncio.get_running_loop().time() * 1_000)


@dataclass
class Spans:
    """Notes when each node begins and ends, milliseconds since it was made."""

    began: int = field(default_factory=now)
    noted: list[tuple[str, str, int]] = field(default_factory=list)

    @contextmanager
    def node(self, name: str) -> Iterator[None]:
        """Note a node's begin and end."""
        self.noted.append(("begin", name, now() - self.began))
        try:
            yield
        finally:
            self.noted.append(("end", name, now() - self.began))


class SlowMemory(InMemoryMemory):
    """A memory that takes its time."""

    async def recall(self, site: str, wanted: Recall) -> tuple[MemoryEntry, ...]:
        """Recall, later."""
        await asyncio.sleep(RECALL_MS / 1_000)
        return await super().recall(site, wanted)


@pytest.mark.parametrize(("stack", "expected"), [("graph", BESIDE), ("legacy", IN_TURN)])
async def test_the_mood_is_sent_while_memories_are_recalled(
    stack: str, expected: list[tuple[str, str, int]]
) -> None:
    """In the graph the nodes overlap; on either stack the mood is out before any memory is."""
    visit = Visit(turn("今天很开心！"))
    world = visit.world()
    exchange = world.exchange(live=world.live(memory=SlowMemory()))
    spans = Spans()
    effects = replace(world.run(exchange).effects(), trace=spans)
    flow = STACKS[stack].flows["companion"]
    async with aclosing(cast("Any", flow(visit.request, effects))) as events:
        frames = [(event.__struct_config__.tag, now() - spans.began) async for event in events]
    await exchange.close()
    assert [it for it in spans.noted if it[1] != "admission"] == expected
    assert frames == [
        ("emotion", 0),
        ("text", RECALL_MS),
        ("text", RECALL_MS),
        ("done", RECALL_MS),
    ]
