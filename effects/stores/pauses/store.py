"""Pauses in a database: every change reads, decides and writes in one transaction."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from sqlalchemy import Select, Text, and_, bindparam, delete, func, null, or_, select, update

from contract.errors import EffectFailed, Fault
from contract.human import HumanAnswer, OpenQuestion
from contract.stores import require_storable
from effects.stores.database import Database, DatabaseStore, open_database
from effects.stores.pauses import transitions
from effects.stores.pauses.encryption import ENCRYPTED, Encryption, Plaintext
from effects.stores.pauses.transitions import (
    REMAINDER,
    REMAINS_SECONDS,
    ClaimReply,
    ExpireReply,
    Pause,
    PauseTotals,
    RespondReply,
    Swept,
    Waiting,
)
from effects.stores.tables import PAUSE_STORE, PAUSES, BoundStatement, Statement, Transaction, bound

Reply = TypeVar("Reply")
_Row: TypeAlias = tuple[Any, ...]
_Values: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Pause], Pause | None]
"""Returns a pause as it is to be stored, None where it stays as it is."""
PauseKey: TypeAlias = Literal["exchange", "session_id", "user_id"]
"""A column by which pauses are erased."""

_P: Final = PAUSES.c
_NAMES: Final = tuple(column.name for column in PAUSES.c)


def _columns(*without: str) -> Select[Any]:
    """Select every column, some of them empty."""
    return select(*(null().label(one.name) if one.name in without else one for one in PAUSES.c))


def _unless_null(name: str) -> Any:
    value = bindparam(name, type_=Text)
    return or_(value.is_(None), _P[name] == value)


_LIVE: Final = or_(*(_P.state == state for state in ("open", "answered", "claimed")))
_OVER: Final = or_(*(_P.state == state for state in sorted(transitions.OVER)))
_ORDER: Final = (_P.created_at, _P.hitl_id)
# A tape may be large: it is read where it is needed.
_LIGHT: Final = _columns("tape")
# What moves a pause needs nothing encrypted: it works without the key.
_BARE: Final = _columns("tape", "question", "answer", "digest")

_INSERT: Final = Statement(
    lambda insert: insert(PAUSES).values(bound(PAUSES)).on_conflict_do_nothing()
)
_READ: Final = Statement(_columns().where(_P.hitl_id == bindparam("hitl_id")))
_FIND_LIGHT, _FIND_BARE = (
    Statement(columns.where(_P.hitl_id == bindparam("hitl_id")).with_for_update())
    for columns in (_LIGHT, _BARE)
)
_PENDING: Final = Statement(
    _LIGHT.where(_LIVE, _unless_null("flow"), _unless_null("session_id")).order_by(*_ORDER)
)
_WAITING: Final = Statement(_BARE.add_columns(func.length(_P.tape)).where(_LIVE).order_by(*_ORDER))
# What is over has no tape. SQLite finds the columns behind a tape by reading all of it, but not its
# length: `state` is asked of those alone whose time has passed, and no tape is sorted into groups.
_SIZES: Final = (
    select(
        _P.flow,
        (func.length(_P.question) + func.length(_P.tape) + func.length(_P.answer)).label("size"),
    )
    .where(
        func.length(_P.tape) > 0,
        _P.hitl_id.not_like(f"{REMAINDER}%"),
        or_(
            _P.expires_at > bindparam("now"),
            and_(_P.state == "claimed", _P.leased_until > bindparam("now")),
        ),
    )
    .offset(0)  # first the sizes, then their sums
    .subquery()
)
_TOTALS: Final = Statement(
    select(_SIZES.c.flow, func.count(), func.sum(_SIZES.c.size)).group_by(_SIZES.c.flow)
)
_SESSION: Final = _BARE.where(
    _LIVE,
    _P.flow == bindparam("flow"),
    _P.session_id == bindparam("session_id"),
    _P.exchange != bindparam("but"),
).order_by(*_ORDER)
_READ_SESSION, _LOCK_SESSION = Statement(_SESSION), Statement(_SESSION.with_for_update())
_DUE: Final = _BARE.where(_P.expires_at <= bindparam("now"), _LIVE).order_by(*_ORDER)
_READ_DUE, _LOCK_DUE = Statement(_DUE), Statement(_DUE.with_for_update())
_REMOVE_REMAINS: Final = Statement(
    delete(PAUSES).where(_P.expires_at <= bindparam("before"), _OVER)
)
_REMOVE_OWN: Final = Statement(
    delete(PAUSES).where(_P.hitl_id == bindparam("hitl_id"), _P.owner == bindparam("owner"))
)
_KEYS: Final[tuple[PauseKey, ...]] = ("exchange", "session_id", "user_id")
_ERASE: Final = {
    name: Statement(delete(PAUSES).where(_P[name] == bindparam("value"), _unless_null("flow")))
    for name in _KEYS
}

_NOTHING_LEFT: Final[_Values] = {"tape": b"", "question": b"null", "answer": b"null"}

_question = msgspec.json.Decoder(OpenQuestion | None)
_answer = msgspec.json.Decoder(HumanAnswer | None)


@cache
def _update(*names: str) -> Statement:
    """Return the statement that changes some columns of a pause."""
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    return Statement(update(PAUSES).values(values).where(_P.hitl_id == bindparam("this_pause")))


class PauseStore(ABC):
    """Where pauses wait. Every operation may raise `EffectFailed`.

    An operation on one pause reads it, decides and writes, at once for all processes. Those that
    need an owner take one that is unique to the exchange which continues: two owners of one name
    would share a claim.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, encryption: Encryption | None = None
    ) -> None:
        self._clock = clock
        self._codec = _Codec(encryption or Plaintext())

    def row_bytes(self, pause: Pause) -> int:
        """Return the bytes of a pause's row as it is stored, without what a database adds.

        Encrypted columns count as they are written, a time or a number as eight bytes, a truth
        value as one.
        """
        return sum(map(_bytes_of, self._codec.row(pause).values()))

    @abstractmethod
    async def _insert(self, pause: Pause) -> bool:
        """Store a new pause; False when the id is taken."""

    @abstractmethod
    async def _read(self, hitl_id: str) -> Pause | None:
        """Read a pause as it is stored."""

    @abstractmethod
    async def _pending(self, session_id: str | None, flow: str | None) -> Iterable[Pause]:
        """Read those that are not stored as over, oldest first, without their tapes."""

    @abstractmethod
    async def _waiting(self) -> Iterable[tuple[Pause, int]]:
        """Read those that are not stored as over, oldest first, and the sizes of their tapes."""

    @abstractmethod
    async def _totals(self, now: float) -> Mapping[str, PauseTotals]:
        """Add up by flow what waits for a human at a moment, remainders left out."""

    @abstractmethod
    async def _move(
        self,
        hitl_id: str,
        decide: Callable[[Pause], tuple[Reply, Pause]],
        *,
        question: bool = False,
    ) -> Reply | None:
        """Move one pause; None when there is no such. `decide` may need its question."""

    @abstractmethod
    async def _move_session(self, flow: str, session_id: str, but: str, step: Step) -> int:
        """Move a flow's pauses of a session, but those of one exchange; returns how many moved."""

    @abstractmethod
    async def _move_due(self, now: float, step: Step) -> int:
        """Move at least those whose time is over; returns how many moved."""

    @abstractmethod
    async def _remove_remains(self, before: float) -> int:
        """Remove what is over and would have expired before a moment; returns how many."""

    @abstractmethod
    async def _remove(self, sought: Mapping[PauseKey, Collection[str]], flow: str | None) -> int:
        """Remove the pauses of exchanges, sessions and users; returns how many."""

    @abstractmethod
    async def _remove_own(self, hitl_id: str, owner: str) -> None:
        """Remove a pause that an owner has claimed."""

    async def open(self, pause: Pause) -> bool:
        """Store a pause before its question is shown; False when the id is taken."""
        transitions.check_pause(pause)
        return await self._insert(pause)

    async def get(self, hitl_id: str) -> Pause | None:
        """Read a pause as it stands now."""
        require_storable("store_failed", hitl_id)
        pause = await self._read(hitl_id)
        return None if pause is None else transitions.seen(pause, self._clock())

    async def expire_session(self, flow: str, session_id: str, but: str = "") -> int:
        """Expire a flow's pauses of a session; returns how many.

        One that is being continued expires when it is released. Those the exchange `but` has
        opened stay: a turn does not expire its own question.
        """
        require_storable("store_failed", flow, session_id, but)
        now = self._clock()
        return await self._move_session(
            flow, session_id, but, lambda pause: transitions.pass_by(pause, now)
        )

    async def pending(
        self, session_id: str | None = None, *, flow: str | None = None
    ) -> tuple[Pause, ...]:
        """List pauses that are not over, oldest first, without their tapes."""
        require_storable("store_failed", session_id, flow)
        now = self._clock()
        found = (transitions.seen(one, now) for one in await self._pending(session_id, flow))
        return tuple(pause for pause in found if pause.state != "expired")

    async def waiting(self) -> tuple[Waiting, ...]:
        """List what is not over, oldest first; nothing is decrypted, no key is needed."""
        now = self._clock()
        found = [(transitions.seen(one, now), size, one) for one, size in await self._waiting()]
        return tuple(
            transitions.waiting(pause, size, stored.owner)
            for pause, size, stored in found
            if pause.state != "expired"
        )

    async def totals(self) -> Mapping[str, PauseTotals]:
        """Add up what waits for a human, by flow; nothing is decrypted, no key is needed."""
        return await self._totals(self._clock())

    async def sweep(self) -> Swept:
        """Expire what is due and remove what has been over for a day."""
        now = self._clock()
        expired = await self._move_due(now, lambda pause: transitions.expire_due(pause, now))
        return Swept(expired, await self._remove_remains(now - REMAINS_SECONDS))

    async def erase(
        self,
        exchanges: Collection[str],
        sessions: Collection[str],
        users: Collection[str] = (),
        *,
        flow: str | None = None,
    ) -> int:
        """Remove the pauses of exchanges, sessions and users, tapes and all; returns how many.

        With a flow those of other flows stay.
        """
        require_storable("store_failed", *exchanges, *sessions, *users, flow)
        sought: dict[PauseKey, Collection[str]]
        sought = {"exchange": exchanges, "session_id": sessions, "user_id": users}
        return await self._remove(sought, flow)

    async def replace_tape(self, hitl_id: str, tape: bytes) -> bool:
        """Replace the tape; False when the pause is over, or its tape has gone on since."""
        now = self._clock()
        return await self._move_if(
            hitl_id, "", lambda pause: transitions.replace_tape(pause, tape, now)
        )

    async def respond(self, hitl_id: str, answer: HumanAnswer) -> RespondReply:
        """Answer; an equal answer again is `same`, a different one a `conflict`."""
        require_storable("store_failed", hitl_id)
        now = self._clock()
        reply = await self._move(
            hitl_id, lambda pause: transitions.respond(pause, answer, now), question=True
        )
        return reply or "unknown"

    async def claim(self, hitl_id: str, owner: str, lease_s: float) -> ClaimReply:
        """Take an answered pause to continue it; of several calls one returns `claimed`."""
        require_storable("store_failed", hitl_id, owner)
        now = self._clock()
        reply = await self._move(
            hitl_id, lambda pause: transitions.claim(pause, owner, lease_s, now)
        )
        return reply or "unknown"

    async def renew(
        self, hitl_id: str, owner: str, lease_s: float, tape: bytes | None = None
    ) -> bool:
        """Extend a claim; False when it has been lost. A tape holds what was done so far."""
        now = self._clock()
        return await self._move_if(
            hitl_id, owner, lambda pause: transitions.renew(pause, owner, lease_s, now, tape)
        )

    async def release(self, hitl_id: str, owner: str, tape: bytes | None = None) -> bool:
        """Let another owner continue, after a disconnect or a failure; False if not its owner.

        The tape (`effects.tape.resume`) holds what was done: it is not done again.
        """
        return await self._move_if(
            hitl_id, owner, lambda pause: transitions.release(pause, owner, tape)
        )

    async def finish(self, hitl_id: str, owner: str) -> bool:
        """End a pause that was continued to its end; False when it is not its owner's."""
        return await self._move_if(hitl_id, owner, lambda pause: transitions.finish(pause, owner))

    async def remove(self, hitl_id: str, owner: str) -> None:
        """Remove a pause whose outcome no client asks for, unless another owner has claimed it."""
        require_storable("store_failed", hitl_id, owner)
        await self._remove_own(hitl_id, owner)

    async def expire(self, hitl_id: str) -> ExpireReply:
        """Expire a pause; `taken` while it is being continued."""
        require_storable("store_failed", hitl_id)
        now = self._clock()
        reply = await self._move(hitl_id, lambda pause: transitions.expire_one(pause, now))
        return reply or "unknown"

    async def _move_if(self, hitl_id: str, owner: str, step: Step) -> bool:
        require_storable("store_failed", hitl_id, owner)

        def decide(pause: Pause) -> tuple[bool, Pause]:
            after = step(pause)
            return after is not None, after or pause

        return bool(await self._move(hitl_id, decide))


class SqlPauses(DatabaseStore, PauseStore):
    """Pauses in a database; made by `SqlPauses.open(place)`.

    Of several processes that claim a pause one gets it. `clock` returns seconds since the Unix
    epoch, the same for all processes.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        encryption: Encryption | None = None,
    ) -> None:
        DatabaseStore.__init__(self, database)
        PauseStore.__init__(self, clock, encryption)

    @classmethod
    @asynccontextmanager
    async def open_store(
        cls,
        place: str | Path,
        clock: Callable[[], float] = time.time,
        encryption: Encryption | None = None,
    ) -> AsyncIterator[SqlPauses]:
        """Open the database, as `open_database` does."""
        async with open_database(place, PAUSE_STORE) as database:
            yield cls(database, clock, encryption)

    async def _move(
        self,
        hitl_id: str,
        decide: Callable[[Pause], tuple[Reply, Pause]],
        *,
        question: bool = False,
    ) -> Reply | None:
        # With its question, so that a router which cannot decrypt it takes no answer to it.
        query = _FIND_LIGHT if question else _FIND_BARE

        def transaction() -> Transaction[Reply | None]:
            rows, _ = yield query(hitl_id=hitl_id)
            if not rows:
                return None
            before = self._codec.pause(rows[0])
            reply, after = decide(before)
            yield from self._write(before, after)
            return reply

        return await self._database.transact(transaction())

    async def _insert(self, pause: Pause) -> bool:
        return bool((await self._database.execute(_INSERT(**self._codec.row(pause)))).changed)

    async def _read(self, hitl_id: str) -> Pause | None:
        rows, _ = await self._database.execute(_READ(hitl_id=hitl_id))
        return self._codec.pause(rows[0]) if rows else None

    async def _pending(self, session_id: str | None, flow: str | None) -> Iterable[Pause]:
        rows, _ = await self._database.execute(_PENDING(flow=flow, session_id=session_id))
        return map(self._codec.pause, rows)

    async def _waiting(self) -> Iterable[tuple[Pause, int]]:
        rows, _ = await self._database.execute(_WAITING())
        return ((self._codec.pause(row[:-1]), row[-1]) for row in rows)

    async def _totals(self, now: float) -> Mapping[str, PauseTotals]:
        rows, _ = await self._database.execute(_TOTALS(now=now))
        return {flow: PauseTotals(pauses, size) for flow, pauses, size in rows}

    async def _move_session(self, flow: str, session_id: str, but: str, step: Step) -> int:
        sought = {"flow": flow, "session_id": session_id, "but": but}
        return await self._move_many(_READ_SESSION(**sought), _LOCK_SESSION(**sought), step)

    async def _move_due(self, now: float, step: Step) -> int:
        return await self._move_many(_READ_DUE(now=now), _LOCK_DUE(now=now), step)

    async def _remove_remains(self, before: float) -> int:
        return (await self._database.execute(_REMOVE_REMAINS(before=before))).changed

    async def _remove_own(self, hitl_id: str, owner: str) -> None:
        await self._database.execute(_REMOVE_OWN(hitl_id=hitl_id, owner=owner))

    async def _remove(self, sought: Mapping[PauseKey, Collection[str]], flow: str | None) -> int:
        calls = [
            _ERASE[name](value=value, flow=flow)
            for name, values in sought.items()
            for value in values
        ]
        return await self._database.erase(_total(calls)) if calls else 0

    async def _move_many(self, read: BoundStatement, lock: BoundStatement, step: Step) -> int:
        """Move many pauses; returns how many did."""
        # Every turn of a session calls this, and mostly nothing waits: reading waits for no writer.
        if not (await self._database.execute(read)).rows:
            return 0

        def transaction() -> Transaction[int]:
            moved = 0
            rows, _ = yield lock
            for row in rows:
                before = self._codec.pause(row)
                after = step(before)
                if after is not None:
                    moved += 1
                    yield from self._write(before, after)
            return moved

        return await self._database.transact(transaction())

    def _write(self, before: Pause, after: Pause) -> Transaction[None]:
        if changes := self._codec.changes(before, after):
            yield _update(*changes)(**changes, this_pause=before.hitl_id)


def _bytes_of(value: object) -> int:
    match value:
        case None:
            return 0
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case bool():
            return 1
        case _:
            return 8


def _total(calls: Collection[BoundStatement]) -> Transaction[int]:
    total = 0
    for call in calls:
        total += (yield call).changed
    return total


class _Codec:
    """Pauses as rows and back; tape, question, answer and the answer's digest are encrypted."""

    def __init__(self, encryption: Encryption) -> None:
        self._encryption = encryption

    def row(self, pause: Pause) -> _Values:
        """Encode a whole pause."""
        return {name: self._encode(pause, name) for name in _NAMES}

    def changes(self, before: Pause, after: Pause) -> _Values:
        """Encode what has changed; a pause that is over loses its tape, question and answer."""
        changed = {
            name: self._encode(after, name)
            for name in _NAMES
            if getattr(before, name) != getattr(after, name)
        }
        if changed and after.state in transitions.OVER:
            changed |= _NOTHING_LEFT
        return changed

    def pause(self, row: _Row) -> Pause:
        """Decode a pause; columns that were not selected are empty. Fault `pause_sealed`."""
        try:
            fields = dict(zip(_NAMES, row, strict=True))
            opened = {name: self._decrypt(fields, name) for name in ("tape", "question", "answer")}
            fields["tape"] = opened["tape"]
            fields["question"] = _question.decode(opened["question"] or b"null")
            fields["answer"] = _answer.decode(opened["answer"] or b"null")
            fields["digest"] = self._decrypt(fields, "digest").decode()
            fields["continued"] = bool(fields["continued"])
            return Pause(**fields)
        except ValueError as failure:
            raise EffectFailed(Fault("store_failed", data={"reason": "row"})) from failure

    def _encode(self, pause: Pause, name: str) -> Any:
        value = getattr(pause, name)
        match name:
            case "question" | "answer":
                return self._encryption.seal(transitions.encoded(value), pause.hitl_id, name)
            case "tape":
                return self._encryption.seal(value, pause.hitl_id, name)
            case "digest":  # a short answer could be guessed from it
                sealed = self._encryption.seal(value.encode(), pause.hitl_id, name)
                return sealed.hex() if sealed.startswith(ENCRYPTED) else value
            case _:
                return value

    def _decrypt(self, fields: _Values, name: str) -> bytes:
        stored = fields[name]
        if stored is None:
            return b""
        if isinstance(stored, str):
            encrypted = name == "digest" and stored.startswith(ENCRYPTED.hex())
            stored = bytes.fromhex(stored) if encrypted else stored.encode()
        return self._encryption.open(bytes(stored), fields["hitl_id"], name)
