"""What the flows share: a round of tools, and memories recalled and learnt where that works.

The rules start no task and write no log: each stack has this of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager

from contract.errors import EffectFailed
from contract.model import ToolCall, ToolResult
from contract.ports import Effects
from contract.stores import MemoryEntry, Recall

log = logging.getLogger(__name__)


@asynccontextmanager
async def started_tools(
    effects: Effects, calls: Sequence[ToolCall]
) -> AsyncIterator[list[asyncio.Task[ToolResult]]]:
    """Start all calls of a round; none survives the block."""
    tasks = [asyncio.create_task(effects.tools.run("tool", call)) for call in calls]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def recalled(effects: Effects, query: Recall | None) -> tuple[MemoryEntry, ...]:
    """Recall memories; none without a query, and none where recall fails."""
    if query is None:
        return ()
    try:
        return await effects.memory.recall("recall", query)
    except EffectFailed as failure:
        log.warning("nothing is recalled: %s", failure.fault.code)
        return ()


async def attempt_learning(learning: Awaitable[None]) -> None:
    """Await what learns from a conversation; what fails is not learnt."""
    try:
        await learning
    except EffectFailed as failure:
        log.warning("nothing is learnt: %s", failure.fault.code)
