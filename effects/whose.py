"""Whose data is meant, where some is to be forgotten."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["user", "chat", "message"]


class Whose(NamedTuple):
    """All of a user, of a chat, or of a message and its replies."""

    kind: Kind
    value: str
