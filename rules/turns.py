"""How a turn ends, and when none begins, whatever the flow."""

from __future__ import annotations

from contract.conversations import Turn
from contract.errors import Refused


def reply(message_id: str, turn: Turn, content: str) -> Turn:
    """Build the turn a finished answer leaves in the store."""
    return Turn(
        message_id=message_id,
        role="assistant",
        content=content,
        chat_id=turn.chat_id,
        user_id=turn.user_id,
        reply_to=turn.message_id,
    )


def session_busy() -> Refused:
    """Refuse a turn while another one of its session is under way."""
    return Refused(409, "session_busy", "another turn of this session is under way")
