"""Stacks that are named on a command line: copies with one thing changed, or more asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

from contract.flow import Event, Flow
from contract.flows.chat import Send
from contract.ports import Effects
from contract.stores import Recall
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from tests.support.faulty_stacks import after, crash, short
from tests.support.planted_faults import PLANTED, planted

Flows = Mapping[str, Flow]


SAME: Flows = GRAPH
OLD: Flows = LEGACY
CHANGED_PROMPT, CHANGED_ARGUMENT, DROPPED_FRAME, WRONG_FINAL_TEXT, FRAME_AFTER_END = (
    {"chat": planted(name)} for name in PLANTED
)
OLD_CRASHING: Flows = {"chat": after(LEGACY["chat"], 3, crash)}


async def _late(request: Any, effects: Effects) -> AsyncIterator[Event]:
    """Go on after the end."""
    async with aclosing(cast("Any", LEGACY["chat"](request, effects))) as events:
        async for event in events:
            yield event
    yield Send("still here")


OLD_LATE: Flows = {"chat": _late}
OLD_SHORT: Flows = {"chat": short(LEGACY["chat"], 3)}


def _asking(ask: Callable[[Effects], Awaitable[object]]) -> Flows:
    """Ask for something no tape holds, then do as usual."""

    async def flow(request: Any, effects: Effects) -> AsyncIterator[Event]:
        await ask(effects)
        async with aclosing(cast("Any", GRAPH["chat"](request, effects))) as events:
            async for event in events:
                yield event

    return {"chat": flow}


NEW_CALL = _asking(lambda effects: effects.memory.recall("new", Recall(user_id="u", query="q")))
NEW_SITE = _asking(lambda effects: effects.ids.new("new"))
EMPTY: Flows = {}
NO_MAPPING = 7
