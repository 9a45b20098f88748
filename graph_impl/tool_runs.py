"""Doing things side by side: the tool calls of a round, and what needs not be waited for yet."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from contextlib import AbstractAsyncContextManager

    from contract.model import ToolCall, ToolResult
    from contract.ports import Effects

Got = TypeVar("Got")


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, Got]) -> AsyncIterator[list[asyncio.Task[Got]]]:
    """Start what is done meanwhile; whoever leaves early leaves none of it behind."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def started(
    effects: Effects, calls: tuple[ToolCall, ...]
) -> AbstractAsyncContextManager[list[asyncio.Task[ToolResult]]]:
    """Start every call of a round."""
    return beside(*[effects.tools.run("tool", call) for call in calls])
