"""Stores: arguments and results of their calls, text they can store, and whose data is erased."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

import msgspec

from contract.errors import EffectFailed, Fault, FaultCode

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


class ReadHistory(msgspec.Struct, frozen=True):
    """Arguments of `conversations.history`: up to `limit` turns of a chat before a message."""

    chat_id: str
    before: str
    limit: int


class FoundTurns(msgspec.Struct, frozen=True):
    """Result of `conversations.history`, oldest first."""

    turns: tuple[Turn, ...]


class PutTurn(msgspec.Struct, frozen=True):
    """Arguments of `conversations.put`."""

    turn: Turn


class StoredTurn(msgspec.Struct, frozen=True):
    """Result of `conversations.put`: False when the id belongs to a different turn."""

    ok: bool


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One remembered fact; `session_id` is where it was learnt."""

    memory_id: str
    user_id: str
    text: str
    session_id: str | None = None
    relation: str | None = None
    confidence: float | None = None


class Recall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments of `memory.recall`: never another user's entries, nor `except_session`'s."""

    user_id: str
    query: str
    limit: int = 5
    except_session: str | None = None
    relation: str | None = None


class Memories(msgspec.Struct, frozen=True):
    """Result of `memory.recall`, best first."""

    entries: tuple[MemoryEntry, ...]


class Remember(msgspec.Struct, frozen=True):
    """Arguments of `memory.write`; an entry equal in user and text is stored once."""

    entries: tuple[MemoryEntry, ...]


class Remembered(msgspec.Struct, frozen=True):
    """Result of `memory.write`: how many entries were new when they were first written."""

    written: int


class Acquire(msgspec.Struct, frozen=True):
    """Arguments of `locks.acquire`; `ttl` in seconds, renewed by the adapter while held."""

    key: str
    ttl: float


class Acquired(msgspec.Struct, frozen=True):
    """Result of `locks.acquire`; False when another owner holds it."""

    held: bool


class Release(msgspec.Struct, frozen=True):
    """Arguments of `locks.release`."""

    key: str


class Released(msgspec.Struct, frozen=True):
    """Result of `locks.release`: noted; the exchange releases the lock when it ends."""


class ClockReading(msgspec.Struct, frozen=True):
    """Result of `clock.now`: microseconds since the Unix epoch, UTC."""

    us: int

    @property
    def moment(self) -> datetime:
        """The time, aware, in UTC."""
        return _EPOCH + timedelta(microseconds=self.us)

    @classmethod
    def of(cls, moment: datetime) -> ClockReading:
        """Make a reading of an aware time."""
        return cls(int(moment.timestamp()) * 1_000_000 + moment.microsecond)


class NewId(msgspec.Struct, frozen=True):
    """Result of `ids.new`."""

    id: str


SubjectKind = Literal["user", "chat", "message"]


class DataSubject(NamedTuple):
    """Whose data is to be erased: a user's, a chat's, or a message's with its replies.

    Ids of chats and messages are a flow's own; without a flow those of every flow are meant.
    """

    kind: SubjectKind
    value: str
    flow: str = ""


class ChatKey(NamedTuple):
    """A conversation: its flow, "" where that is not known, and its id there."""

    flow: str
    chat_id: str


def storable(text: str) -> bool:
    """Whether every store returns the text unchanged: it has no NUL and no lone surrogate."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_storable(code: FaultCode, *texts: str | None) -> None:
    """Raise `EffectFailed` with `code` for a text that cannot be stored."""
    for text in texts:
        if text is not None and not storable(text):
            raise EffectFailed(Fault(code, data={"reason": "text"}))
