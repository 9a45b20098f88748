"""Stacks that are named on a command line: copies with one thing changed, or more asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from contract.flow import Event, Flow
from contract.flows.chat import Send
from contract.ports import Effects
from contract.stores import Recall
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from tests.support import planted_faults
from tests.support.faulty_stacks import after, crash, short

Flows = Mapping[str, Flow]


def _planted(plant: planted_faults.Plant) -> Flows:
    with TemporaryDirectory() as folder:  # prompts are read when a flow is built
        return {"chat": plant(Path(folder))}


SAME: Flows = GRAPH
OLD: Flows = LEGACY
CHANGED_PROMPT = _planted(planted_faults.changed_prompt)
CHANGED_ARGUMENT = _planted(planted_faults.changed_argument)
DROPPED_FRAME = _planted(planted_faults.dropped_frame)
WRONG_FINAL_TEXT = _planted(planted_faults.wrong_final_text)
FRAME_AFTER_END = _planted(planted_faults.frame_after_end)


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
