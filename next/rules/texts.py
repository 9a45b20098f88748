"""The fixed texts of the five flows, by flow and name; options may replace each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

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
