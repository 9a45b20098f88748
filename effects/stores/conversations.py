"""Conversations: which turns can be stored and are equal, and a database that keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
)

from contract.stores import DataSubject, SubjectKind, Turn, require_storable
from effects.stores.database import SqlStore
from effects.stores.tables import CONVERSATIONS, TURNS, Statement, Transaction, bound


class ErasedTurns(NamedTuple):
    """What was removed: how many turns, and the chats they stood in."""

    turns: int
    chats: frozenset[str]


def same_turn(stored: Turn, turn: Turn) -> bool:
    """Whether a turn whose id is taken is the one that is stored."""
    return (stored.content, stored.role, stored.chat_id, stored.user_id) == (
        turn.content,
        turn.role,
        turn.chat_id,
        turn.user_id,
    )


def check_turn(turn: Turn) -> None:
    """Raise `EffectFailed(store_failed)` for a turn with text that cannot be stored."""
    require_storable("store_failed", *msgspec.structs.astuple(turn))


def check_ids(*ids: str) -> None:
    """Raise `EffectFailed(store_failed)` for an id that cannot have been stored."""
    require_storable("store_failed", *ids)


_T: Final = TURNS.c
_FIELDS: Final = [column for column in TURNS.c if column.name != "seq"]


def _history() -> Any:
    turn, newer = TURNS.alias("turn"), TURNS.alias("newer")
    known = select(_T.seq).where(_T.message_id == bindparam("before")).scalar_subquery()
    # A message that is not stored (yet) comes after all that are.
    last: ColumnElement[int] = literal_column("9223372036854775807", BigInteger)
    until = select(func.coalesce(known, last).label("seq")).cte("until")
    assistant: ColumnElement[str] = literal_column("'assistant'")
    replaced = (
        select(newer.c.seq)
        .where(
            and_(turn.c.role == assistant, newer.c.role == assistant),
            and_(newer.c.reply_to == turn.c.reply_to, newer.c.chat_id == turn.c.chat_id),
            and_(newer.c.seq > turn.c.seq, newer.c.seq < until.c.seq),
        )
        .exists()
    )
    return (
        select(*(turn.c[column.name] for column in _FIELDS))
        .select_from(turn.join(until, true()))
        .where(turn.c.chat_id == bindparam("chat_id"), turn.c.seq < until.c.seq, not_(replaced))
        .order_by(turn.c.seq.desc())
        .limit(bindparam("limit"))
    )


_INSERT: Final = Statement(
    lambda insert: insert(TURNS).values(bound(TURNS, "seq")).on_conflict_do_nothing()
)
_FIND: Final = Statement(select(*_FIELDS).where(_T.message_id == bindparam("message_id")))
_HISTORY: Final = Statement(_history())

_ID: Final[Any] = bindparam("value")
_FOUND: Final = TURNS.alias("found")
_ASKED: Final = TURNS.alias("asked")
_BELONGS: Final[Mapping[SubjectKind, ColumnElement[bool]]] = {
    # A reply belongs to the user who was replied to.
    "user": or_(
        _FOUND.c.user_id == _ID,
        _FOUND.c.reply_to.in_(select(_ASKED.c.message_id).where(_ASKED.c.user_id == _ID)),
    ),
    "chat": _FOUND.c.chat_id == _ID,
    "message": or_(_FOUND.c.message_id == _ID, _FOUND.c.reply_to == _ID),
}
# Found before any is deleted: a condition that looks for rows does not see deleted ones.
_ERASE: Final = {
    kind: Statement(
        delete(TURNS).where(_T.seq.in_(select(_FOUND.c.seq).where(condition))).returning(_T.chat_id)
    )
    for kind, condition in _BELONGS.items()
}


class SqlConversations(SqlStore):
    """Turns in a database."""

    schema = CONVERSATIONS

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        check_ids(message_id)
        rows, _ = await self._database.execute(_FIND(message_id=message_id))
        return _turn(rows[0]) if rows else None

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; an equal one again is fine, False when the id belongs to another."""
        check_turn(turn)
        _, inserted = await self._database.execute(_INSERT(**msgspec.structs.asdict(turn)))
        if inserted:
            return True
        stored = await self.find(site, turn.message_id)
        return stored is not None and same_turn(stored, turn)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns stored before a message, oldest first."""
        check_ids(chat_id, before)
        call = _HISTORY(chat_id=chat_id, before=before, limit=max(limit, 0))
        rows, _ = await self._database.execute(call)
        return tuple(_turn(row) for row in reversed(rows))

    async def erase(self, subject: DataSubject) -> ErasedTurns:
        """Remove a subject's turns and the replies to them."""
        check_ids(subject.value)
        return await self._database.erase(_erase(subject))


def _erase(subject: DataSubject) -> Transaction[ErasedTurns]:
    rows, _ = yield _ERASE[subject.kind](value=subject.value)
    return ErasedTurns(len(rows), frozenset(chat for (chat,) in rows if chat is not None))


def _turn(row: tuple[Any, ...]) -> Turn:
    message_id, role, content, chat_id, user_id, user_name, reply_to = row
    return Turn(
        message_id=message_id,
        role=role,
        content=content,
        chat_id=chat_id,
        user_id=user_id,
        user_name=user_name,
        reply_to=reply_to,
    )
