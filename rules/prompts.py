"""The fixed texts of the five flows, and their prompts: parameters, and stand-ins for files.

Each stack has the prompts themselves, in its own template language; both fill in these parameters.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

TEXTS: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    (Path(__file__).parent / "texts.toml").read_text("utf-8")
)
"""Notices, closing lines, titles and labels, by flow and name."""

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


def finish_notice(finish: str | None, overrides: Mapping[str, str]) -> str:
    """Return what a chat appends to a reply that ended early; "" for other finish reasons."""
    return text("chat", overrides, finish) if finish in {"content_filter", "length"} else ""


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
    name, relation = interlocutor or ("", "")
    other = text("pipeline", overrides, "interlocutor", name=name, relation=relation)
    user = text("pipeline", overrides, "user", name=user_name)
    return (other if interlocutor else "") + (user if user_name else "")
