"""Fixed texts users or models see; each can be overridden by name in a flow's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_FILTER: Final = "content_filter"
LENGTH: Final = "length"

DEFAULTS: Mapping[str, str] = {
    CONTENT_FILTER: "赤尾有点不想讨论这个话题呢~",
    LENGTH: "(后续内容被截断)",
}

DEFAULT_SYSTEM_PROMPT: Final = (
    "你是一个AI助手，当前时间是 {current_time}，当前日期是 {current_date}。\n"
    "请根据以下对话历史回答用户问题。"
)
"""Stands in for a missing prompt file; in `str.format` syntax."""

SESSION_PROMPT: Final = "{system_prompt}{memories}"
"""Stands in for the session flow's; in `str.format` syntax."""


def text(name: str, overrides: Mapping[str, str]) -> str:
    """Give a fixed text by its name."""
    return overrides.get(name, DEFAULTS[name])


def ending_notice(finish: str, overrides: Mapping[str, str]) -> str:
    """Give what is appended to a reply that ended early; "" for any other finish reason."""
    return text(finish, overrides) if finish in DEFAULTS else ""
