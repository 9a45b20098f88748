"""Stores: arguments and results of their calls, text they can store, and whose data is erased."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec

from contract.errors import EffectFailed, Fault, FaultCode

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

TURN_DATA_BYTES: Final = 65_536
"""The most the data of a turn may take as compact JSON: a history of twenty fits on a tape."""
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation, as stored.

    `data` is what a flow stores beside the text, a plain JSON object of `TURN_DATA_BYTES` at most;
    it is never changed in place. `at` is when the turn was first stored, in seconds since the Unix
    epoch: a store sets it where the turn has none. Turns of earlier versions have neither.
    """

    message_id: str
    role: Literal["user", "assistant"]
    content: str
    chat_id: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    reply_to: str | None = None
    data: dict[str, Any] | None = None
    at: int | None = None


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
    """One remembered fact: `session_id` is where it was learnt, `changed_in` where it was changed.

    `kind` is what it is about, one of the kinds of `rules.extraction`, where that is known. `at`
    is when it was stored, in seconds since the Unix epoch: a store sets it where the entry has
    none. Entries of earlier versions have neither.
    """

    memory_id: str
    user_id: str
    text: str
    session_id: str | None = None
    relation: str | None = None
    confidence: float | None = None
    kind: str | None = None
    at: int | None = None
    changed_in: tuple[str, ...] = ()


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


class FindNear(msgspec.Struct, frozen=True):
    """Arguments of `memory.near`: up to `limit` of the user's entries for each text."""

    user_id: str
    texts: tuple[str, ...]
    limit: int = 5


class NearEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry, and the cosine similarity of its vector; None where full text has found it."""

    entry: MemoryEntry
    similarity: float | None = None


class NearEntries(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of `memory.near`: the entries near each text, best first.

    `among[i][j]` is the similarity of the texts `i` and `j` < `i`; empty without vectors.
    """

    matches: tuple[tuple[NearEntry, ...], ...] = ()
    among: tuple[tuple[float, ...], ...] = ()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `memory.progress`: a conversation of a flow, as it is read for one user."""

    user_id: str
    flow: str
    session_id: str


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of `memory.progress`: the message up to which it was read; None before the first."""

    message_id: str | None = None


class Revision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What comes of reading a conversation from `after`, exclusive, to `message_id`.

    `removed` are ids of the user's entries that are no longer true, or replaced by new ones.
    """

    reading: Reading
    message_id: str
    after: str | None = None
    removed: tuple[str, ...] = ()


class Remember(msgspec.Struct, frozen=True, omit_defaults=True):
    """Arguments of `memory.write`; an entry equal in user and text is stored once.

    With a `revision` all of it is made or none: the fault `memory_failed`, `read_meanwhile`, if the
    conversation was not read up to `after`. What it removes is removed before entries are added.
    """

    entries: tuple[MemoryEntry, ...]
    revision: Revision | None = None


class Remembered(msgspec.Struct, frozen=True):
    """Result of `memory.write`: how many entries were new when they were first written."""

    written: int


READ_MEANWHILE: Final = Fault("memory_failed", retryable=True, data={"reason": "read_meanwhile"})
"""Of a revision whose messages another exchange has read since."""


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


def encode_data(data: dict[str, Any]) -> str:
    """Return a turn's data as compact JSON, keys sorted.

    Raises `EffectFailed(store_failed)`: `data_not_json` for what JSON would change (a tuple, a
    number that is none, a key that is no text), `data_too_large`, and `text` for data with a NUL.
    """
    try:
        encoded = msgspec.json.encode(data, order="sorted")
        plain = msgspec.json.decode(encoded) == data
    except (TypeError, ValueError, OverflowError, RecursionError):
        encoded, plain = b"", False
    facts: dict[str, str | int | float | bool | None] = {}
    if not plain:
        facts = {"reason": "data_not_json"}
    elif len(encoded) > TURN_DATA_BYTES:
        facts = {"reason": "data_too_large", "bytes": len(encoded), "most": TURN_DATA_BYTES}
    elif _ESCAPED_NUL.search(encoded):
        facts = {"reason": "text"}
    if facts:
        raise EffectFailed(Fault("store_failed", data=facts))
    return encoded.decode()
