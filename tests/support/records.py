"""Records, pauses, replies and audit entries; a test names the fields it is about."""

from __future__ import annotations

from typing import Any

import msgspec

from contract.records import EntryRecord, RequestRecord, RunRecord
from contract.stores import Turn
from contract.workers import AuditEntry
from effects.stores import Pause

_RUN = RunRecord(
    v=1,
    exchange="e",
    flow="chat",
    role="serving",
    stack="legacy",
    assigned="legacy",
    served="legacy",
    began=0,
    outcome="completed",
)
_ENTRY = EntryRecord(
    seq=0, port="model", op="stream", site="m", at=0, end="complete", args=msgspec.Raw(b"{}")
)
_AUDITED = AuditEntry(
    entry_id="a-1",
    at="2026-01-01T00:00:00Z",
    session_id="s",
    event="executed",
    worker="system",
    action="disk",
    risk="low",
    ok=True,
)
_PAUSE = Pause(
    hitl_id="h1",
    exchange="x1",
    flow="companion",
    stack="graph",
    created_at=0.0,
    expires_at=2e9,
    tape=b"tape",
)


def raw(value: object) -> msgspec.Raw:
    """Encode a value as records keep it; what is encoded stays as it is."""
    return msgspec.Raw(msgspec.json.encode(value))


def a_run(exchange: str = "e", **fields: Any) -> RunRecord:
    """Return the record of a served run of the chat flow, completed without a request or a tape."""
    return msgspec.structs.replace(_RUN, exchange=exchange, **fields)


def an_entry(*items: msgspec.Raw, **fields: Any) -> EntryRecord:
    """Return the record of a model's call, whole and without arguments; `items` are its items."""
    return msgspec.structs.replace(_ENTRY, items=items, **fields)


def a_request(body: object) -> RequestRecord:
    """Return the record of a request without options."""
    return RequestRecord(raw(body), raw({}))


def a_pause(**fields: Any) -> Pause:
    """Return the pause `h1` of an exchange `x1`, open until 2033."""
    return msgspec.structs.replace(_PAUSE, **fields)


def an_audit_entry(**fields: Any) -> AuditEntry:
    """Return the entry `a-1` of an instruction that was executed."""
    return msgspec.structs.replace(_AUDITED, **fields)


def a_reply(number: int, content: str, chat: str = "c") -> Turn:
    """Return the reply `r…` to the message `u…` of this number."""
    return Turn(
        message_id=f"r{number}",
        role="assistant",
        content=content,
        chat_id=chat,
        reply_to=f"u{number}",
    )
