"""Reading back what the engine's threads hold, through its saver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.flows.session.conversing import Saying

if TYPE_CHECKING:
    from contract.stores import Turn
    from graph_impl.threads import Threads

Said = list[tuple[str, str, str]]
"""Messages as id, role and content, oldest first."""


async def said(threads: Threads, session: str) -> Said | None:
    """Read a thread; None where there is none. It holds messages, and nothing else."""
    found = await threads.read(session)
    if found is None:
        return None
    values: dict[str, Any] = dict(found.checkpoint["channel_values"])
    messages: list[dict[str, str]] = values.pop("messages")
    assert values == {}
    assert {frozenset(one) for one in messages} <= {frozenset(("id", "role", "content"))}
    assert {one["role"] for one in messages} <= {"user", "assistant"}
    return [(one["id"], one["role"], one["content"]) for one in messages]


async def stored(turn: Saying) -> Said:
    """Read what the store holds of a session, as far back as a turn looks, that turn included."""
    kept = await turn.house.conversations.history("", turn.session, before="", limit=10_000)
    return shown(kept)[-turn.options.history_limit - 2 :]


def shown(turns: tuple[Turn, ...]) -> Said:
    """Show stored turns as a thread holds them."""
    return [(one.message_id, one.role, one.content) for one in turns]
