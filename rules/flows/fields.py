"""What the flows share: types of fields, each with the bounds it enforces, and options."""

from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

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


class ErrorEvent(NamedEvent, frozen=True, tag="error"):
    """Why the answer is not whole: a stable code."""

    code: str


class FlowOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that every flow has; `texts` replace fixed texts of `flow`."""

    flow: ClassVar[str]
    model_id: str = "gpt-4.1"
    temperature: Temperature = 0.7
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        check_texts(self.flow, self.texts)
        zone = getattr(self, "timezone", "UTC")
        try:
            ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            message = f"no time zone is called {zone!r}"
            raise ValueError(message) from None
