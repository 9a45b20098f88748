"""The fixed texts of the five flows, by flow and name; options may replace each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "chat": {
        "content_filter": "赤尾有点不想讨论这个话题呢~",
        "length": "(后续内容被截断)",
    },
    "companion": {
        "picture": "[图片]",
        "no_text": "图片里没有找到文字。",
        "nothing_found": "\n\n没有找到值得记住的内容。",
        "confirm_title": "要记住这些内容吗？",
        "confirm_label": "记忆 {number}（置信度 {confidence}）",
        "remembered": "\n\n已记住 {count} 条。",
        "not_remembered": "\n\n好的，这些内容没有保存。",
        "outcome_unknown": "\n\n（有一步操作不知道是否已经完成，没有重做，请自行确认。）",
        "new_conversation": "这是本次对话的开始。",
        "earlier_turns": "此前共有 {count} 条消息。",
        "earlier_topics": "更早时用户说过：{topics}。",
    },
    "session": {"memories": "\n\n相关记忆：\n"},
    "pipeline": {
        "memories": "\n\n相关记忆：\n",
        "interlocutor": "\n\n你是{name}，用户的{relation}。",
        "user": "\n\n用户名叫{name}。",
        "warn": "\n\n（这段对话已经比较长了。）",
        "compress": "\n\n（这段对话很长，最早的内容已不再参考。）",
        "end": "\n\n（这段对话已到长度上限，我们先聊到这里，期待下次再见。）",
    },
    "ops": {
        "rejected": "{worker}.{action} 被拒绝，没有执行。",
        "failed": "{worker}.{action} 没有完成：{code}",
        "outcome_unknown": "不知道 {worker}.{action} 是否已经完成，没有重做，请自行确认。",
        "completed": "已完成。",
    },
}
"""Notices, closing lines, titles and labels; `{name}` in them is filled in by `text`.

Texts that follow others begin with what separates them.
"""

ToolFault = Literal[
    "unknown_tool", "bad_arguments", "tool_failed", "tool_timeout", "outcome_unknown"
]
"""Why a tool call has no result; `outcome_unknown`: a kill came between a write and its result."""

_PLACE: Final = re.compile(r"\{(\w+)\}")


def text(flow: str, overrides: Mapping[str, str], name: str, /, **values: object) -> str:
    """Return a flow's fixed text, or what `overrides` has for it, with its values filled in.

    Braces that name no value stay as they are; values are never read as templates.
    """
    template = overrides.get(name, TEXTS[flow][name])
    return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), template)


def check_texts(flow: str, overrides: Mapping[str, str]) -> None:
    """Raise `ValueError` for an override of a text that the flow does not have."""
    if unknown := sorted(overrides.keys() - TEXTS[flow].keys()):
        message = f"no text of {flow} is called {unknown[0]!r}; there are {sorted(TEXTS[flow])}"
        raise ValueError(message)


def tool_error(code: ToolFault) -> str:
    """Return what a tool message holds instead of a result."""
    return f"Error: {code}"


def bullets(lines: Sequence[str]) -> str:
    """Return a list with one line an entry, white space within an entry made single."""
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def memories_paragraph(flow: str, overrides: Mapping[str, str], memories: Sequence[str]) -> str:
    """Return memories as the paragraph that ends a system prompt; "" where there are none."""
    return text(flow, overrides, "memories") + bullets(memories) if memories else ""
