"""What a model is told of a conversation beyond the messages it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.conversations import Turn

NOTHING: Final = "这是本次对话的开始。"
_TOPICS: Final = 3
_TOPIC: Final = 40
"""Characters of what was said once."""


def summary(earlier: Sequence[Turn], shown: Sequence[Turn]) -> str:
    """Sum up a conversation: how long it is, and what users said last that is shown no more."""
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
