"""Conversations: which turns can be stored and are equal, and a database that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Final, Literal, NamedTuple, Protocol, Self

import msgspec
from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    Text,
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

from contract.ports import Conversations
from contract.stores import (
    ChatKey,
    DataSubject,
    SubjectKind,
    Turn,
    encode_data,
    require_storable,
)
from effects.stores.database import SqlStore
from effects.stores.tables import (
    CONVERSATIONS,
    TURNS,
    BoundStatement,
    Insert,
    Statement,
    Transaction,
)

PutResult = Literal["new", "same", "taken"]
"""A turn was stored, is stored already, or its id belongs to another one."""


class ConversationStore(Conversations, Protocol):
    """The turns of all flows; `of` returns those of one, whose ids are its own.

    The store itself holds turns without a flow, as they were stored before flows had name spaces:
    every flow sees them, and none stores another turn under their ids (docs/decisions/0032).
    """

    def of(self, flow: str) -> Conversations:
        """Return the conversations of a flow."""
        ...


class FlowView:
    """A store of conversations as one flow sees it."""

    flow = ""
    """The flow whose ids are meant; "" for turns without one."""

    def of(self, flow: str) -> Self:
        """Return the conversations of a flow, in the same place."""
        view = copy(self)
        view.flow = flow
        return view


class ErasedTurns(NamedTuple):
    """What was removed: how many turns, and the chats they stood in."""

    turns: int
    chats: frozenset[ChatKey]


def same_turn(stored: Turn, turn: Turn) -> bool:
    """Whether a turn whose id is taken is the one that is stored."""
    return _identity(stored) == _identity(turn)


def _identity(turn: Turn) -> tuple[str | None, ...]:
    """Return what makes a turn the same one; not its time: a turn is put again later."""
    return turn.content, turn.role, turn.chat_id, turn.user_id, _data_text(turn)


def _data_text(turn: Turn) -> str | None:
    return None if turn.data is None else encode_data(turn.data)


def check_turn(turn: Turn) -> None:
    """Raise `EffectFailed(store_failed)` for a turn with text or data that cannot be stored."""
    fields = msgspec.structs.astuple(turn)
    require_storable("store_failed", *(value for value in fields if isinstance(value, str)))
    _data_text(turn)


def stamped(turn: Turn, wall: Callable[[], float]) -> Turn:
    """Return a turn with its time: now, where it has none; `wall` returns seconds."""
    return turn if turn.at is not None else msgspec.structs.replace(turn, at=int(wall()))


_T: Final = TURNS.c
_FIELDS: Final = [column for column in TURNS.c if column.name not in {"seq", "flow"}]
_FLOW: Final[Any] = bindparam("flow", type_=Text)
_NO_FLOW: Final[Any] = literal_column("''", Text)


def _seen(turn: Any) -> ColumnElement[bool]:
    """Whether a flow sees a turn: its own, or one without a flow."""
    seen: ColumnElement[bool] = turn.c.flow.in_((_FLOW, _NO_FLOW))
    return seen


def _insert(insert: Insert) -> ClauseElement:
    """Insert a turn, unless one without a flow has its id."""
    columns = [_FLOW, *(bindparam(column.name, type_=column.type) for column in _FIELDS)]
    taken = TURNS.alias("taken")
    free = (
        ~select(taken.c.seq).where(_id_is(taken, "message_id"), taken.c.flow == _NO_FLOW).exists()
    )
    row = insert(TURNS).from_select(
        ["flow", *(one.name for one in _FIELDS)], select(*columns).where(free)
    )
    statement: ClauseElement = row.on_conflict_do_nothing()
    return statement


def _id_is(turn: Any, name: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = turn.c.message_id == bindparam(name, type_=Text)
    return found


def _history() -> Any:
    turn, newer = TURNS.alias("turn"), TURNS.alias("newer")
    # One, or two where a router of an earlier version has stored it once more.
    known = select(func.min(_T.seq)).where(_id_is(TURNS, "before"), _seen(TURNS)).scalar_subquery()
    # A message that is not stored (yet) comes after all that are.
    last: ColumnElement[int] = literal_column("9223372036854775807", BigInteger)
    until = select(func.coalesce(known, last).label("seq")).cte("until")
    assistant: ColumnElement[str] = literal_column("'assistant'")
    replaced = (
        select(newer.c.seq)
        .where(
            and_(turn.c.role == assistant, newer.c.role == assistant),
            and_(newer.c.reply_to == turn.c.reply_to, newer.c.chat_id == turn.c.chat_id),
            _seen(newer),
            and_(newer.c.seq > turn.c.seq, newer.c.seq < until.c.seq),
        )
        .exists()
    )
    return (
        select(*(turn.c[column.name] for column in _FIELDS))
        .select_from(turn.join(until, true()))
        .where(turn.c.chat_id == bindparam("chat_id"), _seen(turn))
        .where(turn.c.seq < until.c.seq, not_(replaced))
        .order_by(turn.c.seq.desc())
        .limit(bindparam("limit"))
    )


_INSERT: Final = Statement(_insert)
_FIND: Final = Statement(
    select(*_FIELDS).where(_id_is(TURNS, "message_id"), _seen(TURNS)).order_by(_T.flow.desc())
)
_HISTORY: Final = Statement(_history())

_ID: Final[Any] = bindparam("value")
_FOUND: Final = TURNS.alias("found")
_ASKED: Final = TURNS.alias("asked")
_BELONGS: Final[Mapping[SubjectKind, ColumnElement[bool]]] = {
    # A reply belongs to the user who was replied to.
    "user": or_(
        _FOUND.c.user_id == _ID,
        select(_ASKED.c.seq)
        .where(_ASKED.c.user_id == _ID, _ASKED.c.message_id == _FOUND.c.reply_to)
        .where(_ASKED.c.flow.in_((_FOUND.c.flow, _NO_FLOW)))
        .exists(),
    ),
    "chat": _FOUND.c.chat_id == _ID,
    "message": or_(_FOUND.c.message_id == _ID, _FOUND.c.reply_to == _ID),
}
# Found before any is deleted: a condition that looks for rows does not see deleted ones.
_ERASE: Final = {
    kind: Statement(
        delete(TURNS)
        .where(
            _T.seq.in_(select(_FOUND.c.seq).where(condition, or_(_FLOW == _NO_FLOW, _seen(_FOUND))))
        )
        .returning(_T.flow, _T.chat_id)
    )
    for kind, condition in _BELONGS.items()
}


class SqlConversations(FlowView, SqlStore):
    """Turns in a database."""

    schema = CONVERSATIONS

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        require_storable("store_failed", message_id)
        rows, _ = await self._database.execute(_FIND(message_id=message_id, flow=self.flow))
        return _turn(rows[0]) if rows else None

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; an equal one again is fine, False when the id belongs to another."""
        check_turn(turn)
        _, inserted = await self._database.execute(self._insertion(turn))
        if inserted:
            return True
        stored = await self.find(site, turn.message_id)
        return stored is not None and same_turn(stored, turn)

    async def put_all(self, turns: Sequence[Turn]) -> list[PutResult]:
        """Store turns in their order, all or none; returns what became of each."""
        for turn in turns:
            check_turn(turn)
        return await self._database.transact(self._put_all(turns))

    def _put_all(self, turns: Sequence[Turn]) -> Transaction[list[PutResult]]:
        results: list[PutResult] = []
        for turn in turns:
            _, inserted = yield self._insertion(turn)
            if inserted:
                results.append("new")
                continue
            rows, _ = yield _FIND(message_id=turn.message_id, flow=self.flow)
            results.append("same" if rows and same_turn(_turn(rows[0]), turn) else "taken")
        return results

    def _insertion(self, turn: Turn) -> BoundStatement:
        values = msgspec.structs.asdict(stamped(turn, self._wall)) | {"data": _data_text(turn)}
        return _INSERT(flow=self.flow, **values)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns stored before a message, oldest first."""
        require_storable("store_failed", chat_id, before)
        call = _HISTORY(chat_id=chat_id, before=before, limit=max(limit, 0), flow=self.flow)
        rows, _ = await self._database.execute(call)
        return tuple(_turn(row) for row in reversed(rows))

    async def erase(self, subject: DataSubject) -> ErasedTurns:
        """Remove a subject's turns and the replies to them."""
        require_storable("store_failed", subject.value)
        return await self._database.erase(_erase(subject))


def _erase(subject: DataSubject) -> Transaction[ErasedTurns]:
    rows, _ = yield _ERASE[subject.kind](value=subject.value, flow=subject.flow)
    chats = frozenset(ChatKey(flow, chat) for flow, chat in rows if chat is not None)
    return ErasedTurns(len(rows), chats)


def _turn(row: tuple[Any, ...]) -> Turn:
    message_id, role, content, chat_id, user_id, user_name, reply_to, data, at = row
    return Turn(
        message_id=message_id,
        role=role,
        content=content,
        chat_id=chat_id,
        user_id=user_id,
        user_name=user_name,
        reply_to=reply_to,
        data=None if data is None else msgspec.json.decode(data),
        at=at,
    )
