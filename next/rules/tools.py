"""The built-in tools by flow, the tool that asks the user, and what follows a model's answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from rules.texts import text

MOST_ITERATIONS: Final = 10
"""Rounds of tools in flows without an option for it; then one last call with no tool allowed."""

BUILT_IN: Final = ("calculate", "current_time", "search_memory")
"""Names of the built-in tools, in the order they are offered in; one's own follow."""

ASK_HUMAN_DESCRIPTION: Final = (
    "Ask the user to fill in a form when something only they can tell or decide is missing. "
    "One question at a time; the answer comes back as JSON."
)

_TEXT: Final = {"type": "string"}
_FIELD: Final = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "label": _TEXT,
        "type": {"type": "string", "enum": ["text", "number", "boolean", "choice", "list"]},
        "required": {"type": "boolean"},
        "value": {"description": "proposed; of the field's type"},
        "options": {"type": "array", "items": _TEXT, "description": "of a choice or a list"},
    },
    "required": ["name", "label", "type"],
}
ASK_HUMAN_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "title": _TEXT,
        "fields": {"type": "array", "items": _FIELD, "minItems": 1},
    },
    "required": ["title", "fields"],
}
"""JSON schema of the arguments of `ask_human`."""


def after_answer(finish: str | None, calls: int) -> Literal["tools", "end", "skipped", "cut"]:
    """Return what follows an answer that ended with a finish reason and asked for tool calls.

    Tools run where the reason is `tool_calls`. "skipped" ends the reply, too: calls under another
    reason are not run, which the stack logs with the reason. "cut": the answer has no finish
    reason, so it broke off and must not be taken for a whole one.
    """
    if not finish:
        return "cut"
    if not calls:
        return "end"
    return "tools" if finish == "tool_calls" else "skipped"


def finish_notice(finish: str | None, overrides: Mapping[str, str]) -> str:
    """Return what a chat appends to a reply that ended early; "" for other finish reasons."""
    return text("chat", overrides, finish) if finish in {"content_filter", "length"} else ""
