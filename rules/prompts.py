"""Prompts: the parameters each one gets, default templates, and fixed texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from contract.flows.chat import PromptValue

Render = Callable[[Mapping[str, PromptValue]], str]
"""Renders a prompt with its parameters."""

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
COMPANION_PROMPT: Final = (
    "你是一个贴心的桌面伙伴。今天是 {current_date} {current_time}。\n"
    "用户的情绪：{emotion}（{intensity}）。{intent}\n{working_memory}\n你记得的事：\n{memories}"
)
VISION_PROMPT: Final = "读出图片中的全部文字。没有文字时，只回答 {no_text}。"
EXTRACTION_PROMPT: Final = (
    "从下面的文字中找出关于用户、值得长期记住的事实，只输出 JSON："
    '{{"memories":[{{"text":"…","confidence":0.5}}]}}。'
)
"""Stand in for the companion's; in `str.format` syntax."""


def parameters(
    now: datetime, timezone: str, overrides: Mapping[str, PromptValue] | None
) -> dict[str, PromptValue]:
    """Build the parameters of a prompt; what a request sends overrides the built-in ones."""
    local = now.astimezone(ZoneInfo(timezone))
    return {
        "current_date": local.strftime("%Y-%m-%d"),
        "current_time": local.strftime("%H:%M:%S"),
        **(overrides or {}),
    }


def text(name: str, overrides: Mapping[str, str]) -> str:
    """Return a fixed text by its name."""
    return overrides.get(name, DEFAULTS[name])


def ending_notice(finish: str, overrides: Mapping[str, str]) -> str:
    """Return the notice for a reply that ended early; "" for any other finish reason."""
    return text(finish, overrides) if finish in DEFAULTS else ""
