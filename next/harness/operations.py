"""What performs the flows' further operations, over the stores alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from cutover.errors import Refused
from effects import conversations
from effects.pauses import Pauses
from effects.world import current
from router.app import Perform
from rules.flows.ops import OpsApproval, OpsSession
from rules.flows.session import StoredMessage


def pauses() -> Pauses:
    """Return the store of pauses."""
    world = current()
    return Pauses(world.database, world.clock)


async def ops_session(args: Mapping[str, str], _: Any) -> OpsSession:
    """Return a session of the ops flow; raises `Refused` 404 for one without messages."""
    session = args["session_id"]
    turns = await conversations.messages("ops", session)
    if not turns:
        raise Refused(404, "unknown_session", "no session with this session_id is stored")
    waiting = await pauses().open_of("ops", session)
    pending: OpsApproval | msgspec.UnsetType = UNSET
    iteration = next((one.data["iteration"] for one in reversed(turns) if one.data), 0)
    if waiting is not None:
        iteration = sum(mark["name"] == "step" for mark in waiting.frames["marks"])
        if waiting.state == "open":
            pending = msgspec.convert(waiting.form, OpsApproval)
    messages = tuple(StoredMessage(one.id, one.role, one.content) for one in turns)
    return OpsSession(session, iteration, messages, pending)


OPERATIONS: Mapping[str, Perform] = {"ops.session": ops_session}
"""Operations by the name that the flow gives them."""
