"""Pauses as rows of the table `graph_checkpoints`, wherever that is; nothing here reaches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import EffectFailed, Fault
from contract.human import HumanAnswer, OpenQuestion
from effects.stores.pauses import transitions
from effects.stores.pauses.encryption import SEALED
from effects.stores.pauses.pause import Pause

if TYPE_CHECKING:
    from effects.stores.pauses.encryption import Encryption

NAMES = (
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


def _without(*left: str) -> str:
    """List the columns, some of them empty."""
    return ", ".join(f"NULL AS {name}" if name in left else name for name in NAMES)


_COLUMNS = ", ".join(NAMES)
# A tape may be large: it is read where it is wanted.
_LIGHT = _without("tape")
# What moves a pause needs nothing that is sealed: it goes on without the key.
_BARE = _without("tape", "question", "answer", "digest")
_UNFINISHED = "state IN ('open', 'answered', 'claimed')"
_ORDER = "ORDER BY created_at, hitl_id"

INSERT = (
    f"INSERT INTO graph_checkpoints ({_COLUMNS}) "  # noqa: S608 (the columns are ours)
    f"VALUES (:{', :'.join(NAMES)}) ON CONFLICT DO NOTHING"
)
FIND = f"SELECT {_COLUMNS} FROM graph_checkpoints WHERE hitl_id = :hitl_id"  # noqa: S608 (as above)
FIND_LIGHT = f"SELECT {_LIGHT} FROM graph_checkpoints WHERE hitl_id = :hitl_id"  # noqa: S608 (as above)
FIND_BARE = f"SELECT {_BARE} FROM graph_checkpoints WHERE hitl_id = :hitl_id"  # noqa: S608 (as above)
PENDING = (
    f"SELECT {_LIGHT} FROM graph_checkpoints WHERE {_UNFINISHED} "  # noqa: S608 (as above)
    "AND (CAST(:flow AS text) IS NULL OR flow = CAST(:flow AS text)) "
    "AND (CAST(:session_id AS text) IS NULL OR session_id = CAST(:session_id AS text)) "
    f"{_ORDER}"
)
WAITING = (
    f"SELECT {_BARE}, length(tape) FROM graph_checkpoints "  # noqa: S608 (as above)
    f"WHERE {_UNFINISHED} {_ORDER}"
)
OF_A_SESSION = (
    f"SELECT {_BARE} FROM graph_checkpoints WHERE {_UNFINISHED} "  # noqa: S608 (as above)
    f"AND flow = :flow AND session_id = :session_id AND exchange <> :but {_ORDER}"
)
DUE = (
    f"SELECT {_BARE} FROM graph_checkpoints "  # noqa: S608 (as above)
    f"WHERE expires_at <= :now AND {_UNFINISHED} {_ORDER}"
)
GONE = (
    "DELETE FROM graph_checkpoints WHERE expires_at <= :before AND state IN ('finished', 'expired')"
)
FORGET = {
    column: f"DELETE FROM graph_checkpoints WHERE {column} = :value"  # noqa: S608 (as above)
    for column in ("exchange", "session_id", "user_id")
}

Row = tuple[Any, ...]
Values = dict[str, Any]

_GONE: Values = {"tape": b"", "question": b"null", "answer": b"null"}

_question = msgspec.json.Decoder(OpenQuestion | None)
_answer = msgspec.json.Decoder(HumanAnswer | None)


def update(columns: Values) -> str:
    """Write the statement that changes some columns of a pause."""
    changes = ", ".join(f"{name} = :{name}" for name in columns if name != "hitl_id")
    return f"UPDATE graph_checkpoints SET {changes} WHERE hitl_id = :hitl_id"  # noqa: S608 (ours)


class Codec:
    """Pauses into rows and back; tape, question, answer and the answer's digest are sealed."""

    def __init__(self, sealing: Encryption) -> None:
        self._sealing = sealing

    def row(self, pause: Pause) -> Values:
        """Write a whole pause."""
        return {name: self._stored(pause, name) for name in NAMES}

    def pause(self, row: Row) -> Pause:
        """Read a pause; what was not asked for is empty. Fault `pause_sealed`."""
        try:
            return self._pause(dict(zip(NAMES, row, strict=True)))
        except ValueError as failure:
            raise EffectFailed(Fault("store_failed", data={"reason": "row"})) from failure

    def changes(self, before: Pause, after: Pause) -> Values:
        """Write what has changed; a pause that is over loses its tape, question and answer."""
        changed = {
            name: self._stored(after, name)
            for name in NAMES
            if getattr(before, name) != getattr(after, name)
        }
        if changed and after.state in transitions.OVER:
            changed |= _GONE
        return changed

    def _pause(self, fields: Values) -> Pause:
        opened = {name: self._opened(fields, name) for name in ("tape", "question", "answer")}
        fields["tape"] = opened["tape"]
        fields["question"] = _question.decode(opened["question"] or b"null")
        fields["answer"] = _answer.decode(opened["answer"] or b"null")
        fields["digest"] = self._digest(fields)
        fields["continued"] = bool(fields["continued"])
        return Pause(**fields)

    def _stored(self, pause: Pause, name: str) -> Any:
        value = getattr(pause, name)
        match name:
            case "question" | "answer":
                return self._sealing.seal(transitions.encoded(value), pause.hitl_id, name)
            case "tape":
                return self._sealing.seal(value, pause.hitl_id, name)
            case "digest":
                sealed = self._sealing.seal(value.encode(), pause.hitl_id, name)
                return sealed.hex() if sealed.startswith(SEALED) else value
            case _:
                return value

    def _opened(self, fields: Values, name: str) -> bytes:
        stored = fields[name]
        if stored is None:
            return b""
        kept = stored.encode() if isinstance(stored, str) else bytes(stored)
        return self._sealing.open(kept, fields["hitl_id"], name)

    def _digest(self, fields: Values) -> str:
        """Read what identifies an answer: a short answer could be guessed from it."""
        stored = fields["digest"] or ""
        kept = bytes.fromhex(stored) if stored.startswith(SEALED.hex()) else stored.encode()
        return self._sealing.open(kept, fields["hitl_id"], "digest").decode()
