"""Running the tool calls of a round side by side."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

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
