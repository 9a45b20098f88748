"""Stacks that are named on a command line: copies with one thing changed, and broken ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from contract.chat import Send
from contract.flow import Event, Flow
from contract.memory import Recall
from contract.ports import Effects
from cutover.replay.playing import NOTHING
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from tests.e2e import planted
from tests.router.faulty import after, crash, deaf, short

MARK = "blocks"
"""Message ids that begin so are those on which a broken stack breaks."""

Flows = Mapping[str, Flow]


def _planted(plant: planted.Plant) -> Flows:
    with TemporaryDirectory() as folder:  # prompts are read when a flow is built
        return {"chat": plant(Path(folder))}


SAME: Flows = GRAPH
OLD: Flows = LEGACY
CHANGED_PROMPT = _planted(planted.changed_prompt)
CHANGED_ARGUMENT = _planted(planted.changed_argument)
DROPPED_FRAME = _planted(planted.dropped_frame)
WRONG_FINAL_TEXT = _planted(planted.wrong_final_text)
FRAME_AFTER_END = _planted(planted.frame_after_end)


OLD_CRASHING: Flows = {"chat": after(LEGACY["chat"], 3, crash)}


async def _late(request: Any, effects: Effects) -> AsyncIterator[Event]:  # noqa: ANN401
    """Go on after the end."""
    async with aclosing(cast("Any", LEGACY["chat"](request, effects))) as events:
        async for event in events:
            yield event
    yield Send("still here")


OLD_LATE: Flows = {"chat": _late}
OLD_SHORT: Flows = {"chat": short(LEGACY["chat"], 3)}


def _broken(act: Any) -> Flows:  # noqa: ANN401 - whatever an act does
    """Break after the second event of a marked request."""

    async def flow(request: Any, effects: Effects) -> AsyncIterator[Event]:  # noqa: ANN401
        marked = request.body.message_id.startswith(MARK)
        count = 0
        async with aclosing(cast("Any", GRAPH["chat"](request, effects))) as events:
            async for event in events:
                yield event
                count += 1
                if marked and count == 2:
                    await act()

    return {"chat": flow}


async def _block() -> None:
    while True:
        pass


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


BLOCKING = _broken(_block)
EXITING = _broken(_exit)
HANGING = _broken(_hang)
DEAF = _broken(_ignore)
RELUCTANT = _broken(lambda: deaf(20.0)(NOTHING))
CRASHING = _broken(_crash)


def _asking(ask: Callable[[Effects], Awaitable[object]]) -> Flows:
    """Ask for something no tape holds, then do as usual."""

    async def flow(request: Any, effects: Effects) -> AsyncIterator[Event]:  # noqa: ANN401
        await ask(effects)
        async with aclosing(cast("Any", GRAPH["chat"](request, effects))) as events:
            async for event in events:
                yield event

    return {"chat": flow}


NEW_CALL = _asking(lambda effects: effects.memory.recall("new", Recall(user_id="u", query="q")))
NEW_SITE = _asking(lambda effects: effects.ids.new("new"))
EMPTY: Flows = {}
NO_MAPPING = 7
