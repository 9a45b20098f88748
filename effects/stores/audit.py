"""The audit log of instructions: appended to, never changed, with pseudonyms that can be erased.

Who decided, and in which session, is stored as a random pseudonym. The table that leads from a
pseudonym to its name is another one: erasing a row there leaves the log as it is, and anonymous.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import ClauseElement, bindparam, delete, func, or_, select

from contract.stores import DataSubject, require_storable
from contract.workers import AuditEntry
from effects.stores.database import SqlStore
from effects.stores.tables import (
    AUDIT_CODES,
    AUDIT_ENTRIES,
    AUDIT_LOG,
    AUDIT_PSEUDONYMS,
    Insert,
    Statement,
    Transaction,
    bound,
)

PseudonymKind = Literal["person", "session"]

LONGEST_PAGE: Final = 1_000
_KINDS: Final[dict[str, PseudonymKind]] = {"user": "person", "chat": "session"}
_E: Final = AUDIT_ENTRIES.c
_P: Final = AUDIT_PSEUDONYMS.c


def _once(insert: Insert) -> ClauseElement:
    row = insert(AUDIT_ENTRIES).values(bound(AUDIT_ENTRIES, "seq"))
    statement: ClauseElement = row.on_conflict_do_nothing(index_elements=["entry_id"])
    return statement


def _named(insert: Insert) -> ClauseElement:
    row = insert(AUDIT_PSEUDONYMS).values(bound(AUDIT_PSEUDONYMS))
    statement: ClauseElement = row.on_conflict_do_nothing(index_elements=["kind", "name"])
    return statement


_FIND: Final = Statement(select(_E.seq).where(_E.entry_id == bindparam("entry_id")))
_APPEND: Final = Statement(_once)
_NAME: Final = Statement(_named)
_PSEUDONYM: Final = Statement(
    select(_P.pseudonym).where(_P.kind == bindparam("kind"), _P.name == bindparam("name"))
)
_ERASE: Final = Statement(
    delete(AUDIT_PSEUDONYMS).where(_P.kind == bindparam("kind"), _P.name == bindparam("name"))
)
_SESSIONS: Final = AUDIT_PSEUDONYMS.alias("sessions")
_PEOPLE: Final = AUDIT_PSEUDONYMS.alias("people")
_READ_COLUMNS: Final = (
    "entry_id", "at", "session_id", "event", "worker", "action", "args", "risk", "by", "ok", "code",
)  # fmt: skip
_BEFORE: Final = AUDIT_ENTRIES.alias("earlier_than")
_READ: Final = Statement(
    select(
        _E.entry_id,
        _E.at,
        func.coalesce(_SESSIONS.c.name, _E.session),
        _E.event,
        _E.worker,
        _E.action,
        _E.args,
        _E.risk,
        func.coalesce(_PEOPLE.c.name, _E.who),
        _E.ok,
        _E.code,
    )
    .select_from(
        AUDIT_ENTRIES.outerjoin(_SESSIONS, _SESSIONS.c.pseudonym == _E.session).outerjoin(
            _PEOPLE, _PEOPLE.c.pseudonym == _E.who
        )
    )
    .where(
        or_(bindparam("of_session") == "", _E.session == bindparam("of_session")),
        or_(bindparam("of_person") == "", _E.who == bindparam("of_person")),
        or_(
            bindparam("of_before") == "",
            _E.seq
            < select(_BEFORE.c.seq)
            .where(_BEFORE.c.entry_id == bindparam("of_before"))
            .scalar_subquery(),
        ),
    )
    .order_by(_E.seq.desc())
    .limit(bindparam("most"))
)


class SqlAudit(SqlStore):
    """The log in a database; made by `SqlAudit.open(place)`. All methods raise `EffectFailed`."""

    schema = AUDIT_LOG
    codes = AUDIT_CODES

    async def append(self, site: str, entry: AuditEntry) -> None:
        """Append an entry, once for each id; fault `audit_unavailable`."""
        args = msgspec.json.encode(entry.args, order="sorted").decode()
        require_storable("audit_unavailable", entry.entry_id, entry.session_id, entry.by, args)

        def transaction() -> Transaction[None]:
            # Looked up first: a repeated entry must not name again who was erased meanwhile.
            if (yield _FIND(entry_id=entry.entry_id)).rows:
                return
            session = yield from _pseudonym("session", entry.session_id)
            who = yield from _pseudonym("person", entry.by)
            yield _APPEND(
                entry_id=entry.entry_id,
                at=entry.at,
                session=session,
                event=entry.event,
                worker=entry.worker,
                action=entry.action,
                args=args,
                risk=entry.risk,
                who=who,
                code=entry.code,
                ok=entry.ok,
            )

        await self._database.transact(transaction())

    async def read(
        self, *, session_id: str = "", by: str = "", before: str = "", limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """Read entries, newest first: of a session, of a person, those before an entry.

        A name that was erased reads as its pseudonym, and is asked for by it.
        """

        def transaction() -> Transaction[Sequence[tuple[Any, ...]]]:
            names: list[str] = []
            for kind, name in (("session", session_id), ("person", by)):
                rows = (yield _PSEUDONYM(kind=kind, name=name)).rows if name else [("",)]
                names.append(rows[0][0] if rows else name)
            session, person = names
            return (
                yield _READ(
                    of_session=session,
                    of_person=person,
                    of_before=before,
                    most=min(limit, LONGEST_PAGE),
                )
            ).rows

        rows = await self._database.snapshot(transaction())
        return tuple(_entry(row) for row in rows)

    async def erase(self, subject: DataSubject) -> int:
        """Erase the name of a user or a session; the entries stay."""
        kind = _KINDS.get(subject.kind)
        if kind is None:
            return 0
        require_storable("audit_unavailable", subject.value)

        def transaction() -> Transaction[int]:
            return (yield _ERASE(kind=kind, name=subject.value)).changed

        return await self._database.erase(transaction())


def _pseudonym(kind: PseudonymKind, name: str) -> Transaction[str]:
    """Return the pseudonym of a name, drawn where it has none; "" for none."""
    if not name:
        return ""
    yield _NAME(kind=kind, name=name, pseudonym=f"{kind}-{token_hex(8)}")
    found = yield _PSEUDONYM(kind=kind, name=name)
    pseudonym: str = found.rows[0][0]
    return pseudonym


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    fields = dict(zip(_READ_COLUMNS, row, strict=True))
    fields["args"] = msgspec.json.decode(fields["args"])
    fields["ok"] = None if fields["ok"] is None else bool(fields["ok"])
    return AuditEntry(**fields)
