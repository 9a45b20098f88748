"""Running the tool calls of a round side by side."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from contract.errors import EffectFailed
from rules.model_calls import check_limits, unknown_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from contract.model import ToolCall, ToolResult
    from contract.ports import Effects


@asynccontextmanager
async def started(
    effects: Effects, calls: tuple[ToolCall, ...]
) -> AsyncIterator[list[asyncio.Task[ToolResult]]]:
    """Start every call of a round; whoever leaves early leaves none behind."""
    tasks = [asyncio.create_task(effects.tools.run("tool", call)) for call in calls]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def check_model(effects: Effects, model_id: str, max_tokens: int | None) -> None:
    """Refuse a model nobody registered, and what it cannot do; raises `Refused`."""
    try:
        info = await effects.model.lookup("model", model_id)
    except EffectFailed as failure:
        if failure.fault.code == "unknown_model":
            raise unknown_model(model_id) from failure
        raise
    check_limits(max_tokens, info)
