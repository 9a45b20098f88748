"""Requests of each flow that are served in every test of the kind, and what they cost."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtests.simulator import Answer


@dataclass(frozen=True, slots=True)
class Sample:
    """A request: its flow, body, path and options; `own` are the keys a repetition makes new.

    `answers` are the model's, where the simulated one would say more than a test needs.
    """

    flow: str
    body: Mapping[str, Any]
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()


PICTURE = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n").decode()
"""A picture as far as anyone here looks at it."""

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
    "companion": Sample(
        "companion",
        {"session_id": "s", "message": "我很开心！12 * 7 等于几？"},
        own=("session_id",),
    ),
    "companion, a question": Sample(
        "companion",
        {"session_id": "s", "message": "Please book a table. What is 3 + 4?", "user_id": "u"},
        own=("session_id",),
    ),
    "companion, a picture": Sample(
        "companion",
        {"session_id": "s", "image": PICTURE, "action": "analyze_for_memory"},
        "/chat/image",
        own=("session_id",),
    ),
    "ops": Sample(
        "ops",
        {"session_id": "s", "input": "Check 127.0.0.1:10 then 127.0.0.1:11"},
        own=("session_id",),
    ),
    "ops, an approval": Sample(
        "ops",
        {"session_id": "s", "input": "Delete temporary *.log then show the disks"},
        own=("session_id",),
    ),
    "session": Sample(
        "session",
        {"message": "What is 12 * 7? I like tea.", "session_id": "s", "user_id": "u"},
        options={"extract_from": 2},
        own=("session_id", "user_id"),
    ),
    "session, a new one": Sample("session", {"message": "What is 12 * 7 and 3 + 4?"}),
    "pipeline, with memories": Sample(
        "pipeline",
        {
            "user_id": "u",
            "session_id": "s",
            "message": "还记得我们上次去公园吗？",
            "user_name": "张三",
            "interlocutor": {"name": "小红", "relation": "女儿"},
        },
        own=("session_id",),
        answers=(Answer(text="需要检索"), Answer(text="当然记得！那天天气真好。")),
    ),
    "pipeline, near its limit": Sample(
        "pipeline",
        {"user_id": "u", "session_id": "s", "message": "Tell me a story of the sea."},
        options={"token_limit": 9},
        own=("session_id",),
        answers=(Answer(text="不需要检索"), Answer(text="Once upon a time.")),
    ),
}
"""By what they show."""
