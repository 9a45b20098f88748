"""A stack for processes of their own: it exits unasked, or ignores its cancellation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from contract.flow import Event
from contract.flows.chat import Accept, End, StartReply, Success


async def chat(request: Any, _effects: object) -> AsyncIterator[Event]:
    """Do as the message says."""
    yield Accept()
    yield StartReply()
    if request.body.content == "exit":
        await asyncio.create_task(_exits())
    if request.body.content == "callback":
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(0.01)
    while request.body.content == "stay":
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            continue
    yield Success("")
    yield End()


async def _exits() -> None:
    sys.exit(3)


FLOWS = {"chat": chat}
