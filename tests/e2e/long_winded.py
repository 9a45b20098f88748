"""A stack of one's own whose sessions have another system prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from contract.flow import Event
from contract.ports import Effects
from graph_impl import FLOWS as GRAPH


async def session(asked: Any, effects: Effects) -> AsyncIterator[Event]:
    """Answer as the graph does, to another prompt."""
    options = msgspec.structs.replace(asked.options, system_prompt="Use many words.")
    inner: Any = GRAPH["session"](
        type(asked)(asked.body, options, asked.path, asked.session), effects
    )
    try:
        async for event in inner:
            yield event
    finally:
        await inner.aclose()


FLOWS = {"session": session}
