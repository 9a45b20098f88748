"""A stack for processes of their own whose every reply runs a tool that takes a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from contract.flows.chat import Accept, End, StartReply, Success
from contract.model import ToolCall
from effects.tools import function_tool

if TYPE_CHECKING:
    from contract.flow import Event
    from contract.ports import Effects


@function_tool(timeout=0.1)
async def build(seconds: float) -> str:
    """Build for so long."""
    await asyncio.sleep(seconds)
    return "built"


async def chat(request: Any, effects: Effects) -> AsyncIterator[Event]:
    """Build for as many seconds as the message says, and say what came of it."""
    yield Accept()
    yield StartReply()
    call = ToolCall("c1", "build", f'{{"seconds":{request.body.content}}}')
    result = await effects.tools.run("tool", call)
    yield Success(result.content or str(result.error))
    yield End()


FLOWS = {"chat": chat}
