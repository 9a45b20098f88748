"""Requests of each flow that are served in every test of the kind, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """A request: its flow, body, path and options; `own` are the keys a repetition makes new."""

    flow: str
    body: Mapping[str, Any]
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[str, ...] = ()


SAMPLES: dict[str, Sample] = {
    "chat": Sample(
        "chat",
        {"message_id": "m", "content": "What is 12 * 7?", "chat_id": "c", "user_name": "Ada"},
        options={"yield_interval": 0.0},
        own=("message_id", "chat_id"),
    ),
    "chat, two tools": Sample(
        "chat",
        {"message_id": "m", "content": "What is 12 * 7 and 3 + 4?", "chat_id": "c"},
        options={"yield_interval": 0.0, "wire": "extended"},
        own=("message_id", "chat_id"),
    ),
    "session": Sample(
        "session",
        {"message": "What is 12 * 7? I like tea.", "session_id": "s", "user_id": "u"},
        options={"extract_from": 2},
        own=("session_id", "user_id"),
    ),
    "session, a new one": Sample("session", {"message": "What is 12 * 7 and 3 + 4?"}),
}
"""By what they show."""
