"""Conversations: the turns both stacks read and write."""

from __future__ import annotations

from typing import Literal

import msgspec


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation, as stored."""

    message_id: str
    role: Literal["user", "assistant"]
    content: str
    chat_id: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    reply_to: str | None = None


class FindTurn(msgspec.Struct, frozen=True):
    """Arguments of `conversations.find`."""

    message_id: str


class FoundTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of `conversations.find`; `turn` is None when the id is unknown."""

    turn: Turn | None = None


class History(msgspec.Struct, frozen=True):
    """Arguments of `conversations.history`: up to `limit` turns of a chat before a message."""

    chat_id: str
    before: str
    limit: int


class Turns(msgspec.Struct, frozen=True):
    """Result of `conversations.history`, oldest first."""

    turns: tuple[Turn, ...]


class PutTurn(msgspec.Struct, frozen=True):
    """Arguments of `conversations.put`."""

    turn: Turn


class Stored(msgspec.Struct, frozen=True):
    """Result of `conversations.put`: False when the id belongs to a different turn."""

    ok: bool
