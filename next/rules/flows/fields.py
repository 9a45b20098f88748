"""What the flows share: types of fields, each with the bounds it enforces, options, an ending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from cutover.flow import Event
from rules.prompts import check_texts

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


class FlowOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that every flow has; `texts` replace fixed texts of `flow`."""

    flow: ClassVar[str]
    model_id: str = "gpt-4.1"
    temperature: Temperature = 0.7
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        check_texts(self.flow, self.texts)
        check_timezone(getattr(self, "timezone", "UTC"))


def closing(
    error: Callable[[str], Event], done: Event
) -> Callable[[Any, str, str | None], tuple[Event, ...]]:
    """Return what ends a flow's stream that failed: an `error` with its code, and `done`."""

    def failure(_options: Any, code: str, last: str | None) -> tuple[Event, ...]:
        match last:
            case "done":
                return ()
            case "error":
                return (done,)
            case _:
                return (error(code), done)

    return failure


def check_timezone(name: str) -> None:
    """Raise `ValueError` where no time zone has this name."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        message = f"no time zone is called {name!r}"
        raise ValueError(message) from None
