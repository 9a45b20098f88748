"""The tool that asks the user, and what follows a model's answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rules.texts import text

MOST_ITERATIONS: Final = 10
"""Rounds of tools in flows without an option for it; then one last call with no tool allowed."""

ASK_HUMAN_DESCRIPTION: Final = (
    "Ask the user to fill in a form when something only they can tell or decide is missing. "
    "One question at a time; the answer comes back as JSON."
)

ASK_HUMAN_SCHEMA: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "ask_human.json").read_text("utf-8")
)
"""JSON schema of the arguments of `ask_human`, as models are shown it."""


def runs_tools(finish: str, calls: int) -> bool:
    """Return whether tools run that an answer calls: under any other reason, stacks log them."""
    return calls > 0 and finish == "tool_calls"


def finish_notice(finish: str | None, overrides: Mapping[str, str]) -> str:
    """Return what a chat appends to a reply that ended early; "" for other finish reasons."""
    return text("chat", overrides, finish) if finish in {"content_filter", "length"} else ""
