"""The graph stack with one planted fault: it crashes in the middle of a chat's answer, once.

Named by the demonstration's configuration as its graph stack, as a team would name its own.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import graph_impl
from contract.errors import CutoverError
from cutover.demo.client import MARK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping

    from contract.flow import Event, Flow, Request
    from contract.ports import Effects

EVENTS_BEFORE = 4


class PlantedFault(CutoverError):
    """The crash the demonstration plants."""


def crashing(flow: Flow) -> Flow:
    """Wrap the flow `chat` so that it crashes after some events of a marked request."""

    async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        marked = request.body.message_id.startswith(MARK)
        events = cast("AsyncGenerator[Event, None]", flow(request, effects))
        count = 0
        async with aclosing(events):
            async for event in events:
                yield event
                count += 1
                if marked and count == EVENTS_BEFORE:
                    raise PlantedFault

    return wrapped


FLOWS: Mapping[str, Flow] = {**graph_impl.FLOWS, "chat": crashing(graph_impl.FLOWS["chat"])}
