"""Calls the tests of the tape make again and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contract.model import ModelCall, ToolCall, UserMessage
from contract.stores import Turn

if TYPE_CHECKING:
    from contract.model import Chunk
    from contract.ports import Effects

TURN = Turn(message_id="m-1", role="user", content="Hello")


def asking(text: str = "Hello") -> ModelCall:
    """Build a model call with one user message."""
    return ModelCall(model_id="m", messages=(UserMessage(text),))


def tool(name: str, call_id: str = "call_0_0") -> ToolCall:
    """Build a call of a tool without arguments."""
    return ToolCall(call_id, name, "{}")


async def chunks(effects: Effects, text: str = "Hello", site: str = "reply") -> list[Chunk]:
    """Ask the model and wait for its end."""
    return [chunk async for chunk in effects.model.stream(site, asking(text))]


async def said(effects: Effects, text: str = "Hello", site: str = "reply") -> str:
    """Ask the model and join what it said."""
    return "".join(chunk.text for chunk in await chunks(effects, text, site))


async def turns(count: int = 5) -> None:
    """Let everything that is ready run, `count` turns of the loop long."""
    for _ in range(count):
        await asyncio.sleep(0)
