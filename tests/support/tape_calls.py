"""Exchanges, calls and odd live ports for the tests of the tape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

from contract.model import Chunk, ModelCall, ToolCall, UserMessage
from contract.ports import Effects
from contract.stores import Turn
from effects.model import ScriptedModel
from effects.tape import Exchange, Policy, Tape, TapeSession
from effects.testing import World

TURN = Turn(message_id="m-1", role="user", content="Hello")
CONTEXT = ContextVar("CONTEXT", default="empty")


@dataclass(frozen=True)
class Live:
    """An open exchange in a world, and its first run."""

    world: World
    exchange: Exchange
    run: TapeSession
    effects: Effects

    def other(self, policy: Policy = "live") -> TapeSession:
        """Open the session of another run."""
        return self.world.run(self.exchange, policy, "other")


@asynccontextmanager
async def live(
    world: World | None = None, tape: Tape | None = None, **exchange: Any
) -> AsyncIterator[Live]:
    """Open an exchange with a live run, and close it."""
    world = world or World()
    opened = world.exchange(tape, **exchange)
    run = world.run(opened)
    try:
        yield Live(world, opened, run, run.effects())
    finally:
        await opened.close()


def asking(text: str = "Hello") -> ModelCall:
    """Build a model call with one user message."""
    return ModelCall(model_id="m", messages=(UserMessage(text),))


def tool(name: str, call_id: str = "call_0_0") -> ToolCall:
    """Build a call of a tool without arguments."""
    return ToolCall(call_id, name, "{}")


async def chunks(effects: Effects, text: str = "Hello", site: str = "reply") -> list[Chunk]:
    """Call the model and wait for its end."""
    return [chunk async for chunk in effects.model.stream(site, asking(text))]


async def said(effects: Effects, text: str = "Hello", site: str = "reply") -> str:
    """Call the model and join its texts."""
    return "".join(chunk.text for chunk in await chunks(effects, text, site))


async def turns(count: int = 5) -> None:
    """Let everything that is ready run, `count` turns of the loop long."""
    for _ in range(count):
        await asyncio.sleep(0)


class ContextModel(ScriptedModel):
    """A model that answers with the context it runs in."""

    async def stream(self, *_: object) -> AsyncIterator[Chunk]:
        """Yield it."""
        yield Chunk(text=CONTEXT.get())


class SlowStore:
    """A store whose writes take so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.stored = 0
        self._seconds = seconds

    async def put(self, *_: object) -> bool:
        """Take that time, then store."""
        await asyncio.sleep(self._seconds)
        self.stored += 1
        return True


class SlowIds:
    """Identifiers that take three seconds."""

    async def new(self, *_: object) -> str:
        """Make one, late."""
        await asyncio.sleep(3.0)
        return "late"


class Raising:
    """A port whose operations raise an error; locks are acquired after `slow` seconds."""

    def __init__(self, error: Exception, slow: float = 0.0) -> None:
        self._error = error
        self._slow = slow

    async def _raise(self, *_: object) -> NoReturn:
        raise self._error

    put = new = answer = release = _raise

    async def acquire(self, *_: object) -> bool:
        """Acquire the lock."""
        if self._slow:
            await asyncio.sleep(self._slow)
        return True
