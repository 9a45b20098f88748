"""The tool that asks the user, and what follows a model's answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rules.texts import text

MOST_ITERATIONS: Final = 10
"""Rounds of tools in flows without an option for it; then one last call with no tool allowed."""

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


def runs_tools(finish: str, calls: int) -> bool:
    """Return whether tools run that an answer calls: under any other reason, stacks log them."""
    return calls > 0 and finish == "tool_calls"


def finish_notice(finish: str | None, overrides: Mapping[str, str]) -> str:
    """Return what a chat appends to a reply that ended early; "" for other finish reasons."""
    return text("chat", overrides, finish) if finish in {"content_filter", "length"} else ""
