"""Types of the fields that requests and options share, each with the bounds it enforces."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

Identifier = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f]*\Z")]
"""An id that a client or a provider chose."""
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f]*\Z")]
"""What a person or a relation is called."""
MessageText = Annotated[
    str, Meta(min_length=1, max_length=65_536, pattern=r"^\s*[^\s\x00][^\x00]*\Z")
]
"""A user's message: not blank, because some providers refuse that and others answer anything."""
PromptValue = Annotated[str, Meta(max_length=8_192, pattern=r"^[^\x00]*\Z")] | int | float | None
PromptParams = Annotated[
    dict[Annotated[str, Meta(max_length=64, pattern=r"^[^\W\d]\w*\Z")], PromptValue],
    Meta(max_length=64),
]
"""Parameters of a prompt by name; a name is one that every template language can write."""
Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Tokens = Annotated[int, Meta(ge=0, le=10_000_000)]


class NamedEvent(msgspec.Struct, frozen=True, tag_field="event"):
    """An event of a flow whose frames are named: its tag is the frame's `event:` line."""


def check_timezone(name: str) -> None:
    """Raise `ValueError` where no time zone has this name."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        message = f"no time zone is called {name!r}"
        raise ValueError(message) from None
