"""Stacks that break on marked exchanges; a worker that loads them loads little else."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

from contract.flow import Event, Flow
from contract.ports import Effects
from cutover.replay.play import NOTHING
from legacy import FLOWS
from tests.support.faulty_stacks import deaf

MARK = "blocks"
"""Message ids that begin so are those on which a broken stack breaks."""

Flows = Mapping[str, Flow]
Act = Callable[[], Awaitable[Any]]


def _broken(act_for: Callable[[str], Act]) -> Flows:
    """Break after the second event of a marked request."""

    async def flow(request: Any, effects: Effects) -> AsyncIterator[Event]:
        name: str = request.body.message_id
        count = 0
        async with aclosing(cast("Any", FLOWS["chat"](request, effects))) as events:
            async for event in events:
                yield event
                count += 1
                if name.startswith(MARK) and count == 2:
                    await act_for(name)()

    return {"chat": flow}


async def _block() -> None:
    threading.Event().wait()


async def _exit() -> None:
    os._exit(3)


async def _hang() -> None:
    await asyncio.get_running_loop().create_future()


async def _ignore() -> None:
    while True:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            continue


async def _crash() -> None:
    raise ZeroDivisionError


_ACTS: Mapping[str, Act] = {"stands": _block, "ends": _exit, "ignores": _ignore}

NAMED = _broken(lambda name: _ACTS[name.rpartition("-")[2]])
"""Breaks in the way that the message id ends with."""
HANGING = _broken(lambda _: _hang)
RELUCTANT = _broken(lambda _: lambda: deaf(20.0)(NOTHING))
CRASHING = _broken(lambda _: _crash)
