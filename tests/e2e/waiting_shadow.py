"""A stack for processes of their own: some of its runs wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from contract.flow import Event
from contract.ports import Effects
from graph_impl import FLOWS as SOUND

WAITS = "wait for ever"


async def chat(request: Any, effects: Effects) -> AsyncIterator[Event]:
    """Do as the graph stack does, unless the message says to wait."""
    if request.body.content == WAITS:
        await asyncio.Event().wait()
    async for event in SOUND["chat"](request, effects):
        yield event


FLOWS = {"chat": chat}
