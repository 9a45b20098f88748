"""The prompts of the flows: their parameters, and what stands in where a file is missing.

Each stack has the files themselves, in its own template language; both fill in what is named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from rules.texts import bullets, text

DEFAULTS: Final = Path(__file__).parent / "default_prompts"
"""Stand in for prompt files that are missing; in `str.format` syntax, with all their parameters.

`memories` of the companion, `known` and `workers` are lists of texts; the other `memories` are a
`memories_paragraph`, and `intensity` has two decimals.
"""

_TOPICS, _LONGEST_TOPIC = 3, 40


def default_prompt(name: str, parameters: Mapping[str, Any]) -> str:
    """Return a built-in prompt, filled in; raises `KeyError` for a parameter that is missing."""
    template = (DEFAULTS / f"{name}.txt").read_text("utf-8").removesuffix("\n")
    return template.format_map(as_texts(parameters))


def as_texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters for templates without loops: lists become `bullets`, None becomes ""."""
    return {
        name: bullets(value) if isinstance(value, list) else "" if value is None else str(value)
        for name, value in parameters.items()
    }


def moment_parameters(now: datetime, timezone: str) -> dict[str, str]:
    """Return `current_date` and `current_time` of an aware moment in a zone."""
    local = now.astimezone(ZoneInfo(timezone))
    return {"current_date": f"{local:%Y-%m-%d}", "current_time": f"{local:%H:%M:%S}"}


def working_memory(count: int, hidden: Sequence[str], overrides: Mapping[str, str]) -> str:
    """Return what a companion's prompt says of a conversation.

    `count` are all earlier messages, `hidden` the user's among them that the model is not shown.
    """
    if not count:
        return text("companion", overrides, "new_conversation")
    length = text("companion", overrides, "earlier_turns", count=count)
    lines = [" ".join(message.split()) for message in hidden[-_TOPICS:]]
    if not lines:
        return length
    topics = "；".join(
        line if len(line) <= _LONGEST_TOPIC else line[:_LONGEST_TOPIC] + "…" for line in lines
    )
    return length + text("companion", overrides, "earlier_topics", topics=topics)


def speakers(
    overrides: Mapping[str, str], user_name: str | None, interlocutor: tuple[str, str] | None
) -> str:
    """Return what a pipeline's prompt says of its speakers; the interlocutor: name, relation."""
    said = ""
    if interlocutor is not None:
        name, relation = interlocutor
        said += text("pipeline", overrides, "interlocutor", name=name, relation=relation)
    return said + (text("pipeline", overrides, "user", name=user_name) if user_name else "")
