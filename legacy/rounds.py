"""What the flows share: admission to a model, whole answers, a round of tools, memories."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from contract.errors import EffectFailed
from contract.model import ModelCall, ToolCall, ToolResult
from contract.ports import Effects
from contract.stores import MemoryEntry, Recall
from rules.memories import Fact, entries
from rules.model_calls import check_limits, unknown_model

log = logging.getLogger(__name__)


async def check_model(effects: Effects, model_id: str, max_tokens: int | None) -> None:
    """Refuse an unknown model, and what it cannot do; raises `Refused`."""
    try:
        info = await effects.model.lookup("model", model_id)
    except EffectFailed as failure:
        if failure.fault.code == "unknown_model":
            raise unknown_model(model_id) from failure
        raise
    check_limits(max_tokens, info)


async def read_text(effects: Effects, site: str, call: ModelCall) -> str:
    """Call the model and return the whole text of its answer."""
    return "".join([chunk.text async for chunk in effects.model.stream(site, call)])


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


async def remember(
    effects: Effects, site: str, facts: Sequence[Fact], owner: str, session: str
) -> int:
    """Write facts to long-term memory; returns how many were new."""
    ids = [await effects.ids.new("memory") for _ in facts]
    return await effects.memory.write(site, entries(facts, ids, owner, session))
