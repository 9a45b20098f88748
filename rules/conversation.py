"""Conversations: the turns a model is shown, a summary of the others, and their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from contract.errors import Refused
from contract.flows.session import lock_key
from contract.ports import Effects
from contract.stores import Turn

_ASCII_PER_TOKEN = 4


NOTHING: Final = "这是本次对话的开始。"
_TOPICS: Final = 3
_TOPIC: Final = 40
"""Characters of a quoted message."""


def estimate(text: str) -> int:
    """Estimate tokens: four ASCII characters a token, any other character a token of its own."""
    if text.isascii():
        return -(-len(text) // _ASCII_PER_TOKEN)
    ascii_count = len(text.encode("ascii", "ignore"))
    return len(text) - ascii_count - (-ascii_count // _ASCII_PER_TOKEN)


def window(turns: Sequence[Turn], budget: int) -> tuple[Turn, ...]:
    """Keep the newest turns that fit into `budget` estimated tokens, oldest first."""
    kept: list[Turn] = []
    left = budget
    for turn in reversed(turns):
        left -= estimate(turn.content)
        if left < 0:
            break
        kept.append(turn)
    return tuple(reversed(kept))


async def store_reply(effects: Effects, turn: Turn, content: str) -> Turn:
    """Store a finished answer under a fresh id; returns its turn."""
    reply = Turn(
        message_id=await effects.ids.new("reply"),
        role="assistant",
        content=content,
        chat_id=turn.chat_id,
        user_id=turn.user_id,
        reply_to=turn.message_id,
    )
    await effects.conversations.put("reply", reply)
    return reply


async def lock_session(effects: Effects, session: str, seconds: float) -> None:
    """Lock a session; raises `Refused` while another turn of it is under way."""
    if not await effects.locks.acquire("session", lock_key(session), seconds):
        raise Refused(409, "session_busy", "another turn of this session is under way")


def summary(earlier: Sequence[Turn], shown: Sequence[Turn]) -> str:
    """Sum up a conversation: its length, and the last user messages that are not shown."""
    if not earlier:
        return NOTHING
    told = f"此前共有 {len(earlier)} 条消息。"
    hidden = earlier[: len(earlier) - len(shown)]
    said = [_clipped(turn.content) for turn in hidden if turn.role == "user"][-_TOPICS:]
    if not said:
        return told
    return told + "更早时用户说过：" + "；".join(said) + "。"


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TOPIC else line[:_TOPIC] + "…"
