"""Pauses as rows of the table `graph_checkpoints`; every function runs in the store's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from contract.human import Answer, OpenQuestion
from effects.human import transitions
from effects.human.pause import Pause, Swept
from effects.migrations import Migrations
from effects.sqlite import erasing, transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection

Reply = TypeVar("Reply")

_NAMES = (
    "hitl_id",
    "exchange",
    "flow",
    "stack",
    "created_at",
    "expires_at",
    "session_id",
    "question",
    "tape",
    "answer_site",
    "answer_key",
    "state",
    "answer",
    "digest",
    "owner",
    "leased_until",
    "user_id",
    "continued",
)
_COLUMNS = ", ".join(_NAMES)
_LIGHT = _COLUMNS.replace("tape", "x'' AS tape")

MIGRATIONS: Migrations = (
    (
        """CREATE TABLE graph_checkpoints (
            hitl_id TEXT PRIMARY KEY, exchange TEXT NOT NULL, flow TEXT NOT NULL,
            stack TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL,
            session_id TEXT, question BLOB NOT NULL, tape BLOB NOT NULL,
            answer_site TEXT NOT NULL, answer_key TEXT NOT NULL, state TEXT NOT NULL,
            answer BLOB NOT NULL, digest TEXT NOT NULL, owner TEXT NOT NULL,
            leased_until REAL NOT NULL
        )""",
        "CREATE INDEX pauses_of_a_session ON graph_checkpoints (session_id)",
        "CREATE INDEX pauses_by_expiry ON graph_checkpoints (expires_at)",
    ),
    (
        "ALTER TABLE graph_checkpoints ADD COLUMN user_id TEXT",
        "ALTER TABLE graph_checkpoints ADD COLUMN continued INTEGER NOT NULL DEFAULT 0",
    ),
)
_INSERT = (
    f"INSERT INTO graph_checkpoints ({_COLUMNS}) "  # noqa: S608 (the columns are ours)
    f"VALUES ({', '.join('?' * len(_NAMES))}) ON CONFLICT DO NOTHING"
)
_FIND = f"SELECT {_COLUMNS} FROM graph_checkpoints WHERE hitl_id = ?"  # noqa: S608 (as above)
# Deciding needs no tape, and a tape may be large.
_FIND_LIGHT = f"SELECT {_LIGHT} FROM graph_checkpoints WHERE hitl_id = ?"  # noqa: S608 (as above)
_UNFINISHED = (
    f"SELECT {_LIGHT} FROM graph_checkpoints "  # noqa: S608 (as above)
    "WHERE state IN ('open', 'answered', 'claimed') AND (?1 IS NULL OR flow = ?1) "
    "AND (?2 IS NULL OR session_id = ?2) ORDER BY created_at, hitl_id"
)
_DUE = (
    f"SELECT {_LIGHT} FROM graph_checkpoints "  # noqa: S608 (as above)
    "WHERE expires_at <= ? AND state IN ('open', 'answered', 'claimed')"
)
_MOVE = (
    "UPDATE graph_checkpoints SET state = ?2, answer = ?3, digest = ?4, owner = ?5, "
    "leased_until = ?6 WHERE hitl_id = ?1"
)
_EMPTY = "UPDATE graph_checkpoints SET tape = x'', question = 'null' WHERE hitl_id = ?"
_TAPE = "UPDATE graph_checkpoints SET tape = ?2, continued = ?3 WHERE hitl_id = ?1"
_FORGET = "DELETE FROM graph_checkpoints WHERE expires_at <= ? AND state IN ('finished', 'expired')"

_question = msgspec.json.Decoder(OpenQuestion | None)
_answer = msgspec.json.Decoder(Answer | None)


def insert(connection: sqlite3.Connection, pause: Pause) -> bool:
    """Add a row; False when the id is taken."""
    row = msgspec.structs.asdict(pause) | {
        "question": transitions.encoded(pause.question),
        "answer": transitions.encoded(pause.answer),
    }
    return bool(connection.execute(_INSERT, [row[name] for name in _NAMES]).rowcount)


def find(connection: sqlite3.Connection, hitl_id: str) -> Pause | None:
    """Read a row, its tape included."""
    row = connection.execute(_FIND, (hitl_id,)).fetchone()
    return _pause(row) if row else None


def change(
    connection: sqlite3.Connection, hitl_id: str, decide: Callable[[Pause], tuple[Reply, Pause]]
) -> Reply | None:
    """Read a row, decide, write what became of it; None when there is no such row."""
    with transaction(connection):
        row = connection.execute(_FIND_LIGHT, (hitl_id,)).fetchone()
        if row is None:
            return None
        before = _pause(row)
        reply, after = decide(before)
        _move(connection, before, after)
        return reply


def expire_session(
    connection: sqlite3.Connection, flow: str, session_id: str, but: str, now: float
) -> int:
    """Expire a flow's pauses of a session that wait, but those of one exchange."""
    expired = 0
    with transaction(connection):
        for pause in unfinished(connection, flow, session_id):
            after = transitions.expire(pause, now) if pause.exchange != but else None
            if after is not None:
                _move(connection, pause, after)
                expired += 1
    return expired


def unfinished(
    connection: sqlite3.Connection, flow: str | None, session_id: str | None
) -> list[Pause]:
    """Read what is not over as far as the table knows, oldest first, without tapes."""
    found = connection.execute(_UNFINISHED, (flow, session_id)).fetchall()
    return [_pause(row) for row in found]


def sweep(connection: sqlite3.Connection, now: float, kept: float) -> Swept:
    """Expire what is due, remove what has been over for `kept` seconds."""
    with transaction(connection):
        pauses = [_pause(row) for row in connection.execute(_DUE, (now,)).fetchall()]
        due = [pause for pause in pauses if transitions.is_due(pause, now)]
        for pause in due:
            _move(connection, pause, transitions.over(pause, "expired"))
        removed = connection.execute(_FORGET, (now - kept,)).rowcount
    return Swept(len(due), removed)


def forget(
    connection: sqlite3.Connection, exchanges: Collection[str], sessions: Collection[str]
) -> int:
    """Remove the rows of exchanges and of sessions."""
    removed = 0
    with erasing(connection):
        for column, values in (("exchange", exchanges), ("session_id", sessions)):
            remove = f"DELETE FROM graph_checkpoints WHERE {column} = ?"  # noqa: S608 (ours)
            removed += sum(connection.execute(remove, (one,)).rowcount for one in values)
    return removed


def _move(connection: sqlite3.Connection, before: Pause, after: Pause) -> None:
    """Write what changed; a pause that is over loses its tape and its question."""
    if after == before:
        return
    connection.execute(
        _MOVE,
        (
            after.hitl_id,
            after.state,
            transitions.encoded(after.answer),
            after.digest,
            after.owner,
            after.leased_until,
        ),
    )
    if after.state in {"finished", "expired"}:
        connection.execute(_EMPTY, (after.hitl_id,))
    elif after.tape:
        connection.execute(_TAPE, (after.hitl_id, after.tape, after.continued))


def _pause(row: tuple[Any, ...]) -> Pause:
    fields = dict(zip(_NAMES, row, strict=True))
    fields["question"] = _question.decode(fields["question"])
    fields["answer"] = _answer.decode(fields["answer"])
    fields["continued"] = bool(fields["continued"])
    return Pause(**fields)
