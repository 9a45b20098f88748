"""Records: how exchanges are written down, one run a line, version 1."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast

import msgspec

from contract.errors import Fault
from contract.model import Usage

if TYPE_CHECKING:
    RawIfAny = msgspec.Raw | None
else:
    # msgspec writes `Raw | None` but cannot read it back: the field is Raw, or left out.
    RawIfAny = msgspec.Raw

VERSION = 1

Role = Literal["serving", "fallback", "shadow", "replay"]
Outcome = Literal["completed", "refused", "failed", "truncated", "timeout", "paused", "cancelled"]
EntryEnd = Literal["complete", "error", "cut", "open"]
ShadowState = Literal["", "due", "not_sampled", "dropped", "cancelled"]
How = Literal["live", "exact", "nearest", "missed"]
Score = Literal[-1, 0, 1]


class EntryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One effect call on a tape.

    `at` and `ended` in microseconds since the exchange began; `n` is the occurrence of its key
    (port, op, site, args); `args` the canonical bytes that were encoded at the call.
    """

    seq: int
    port: str
    op: str
    site: str
    n: int = 0
    at: int
    ended: int = 0
    end: EntryEnd
    args: msgspec.Raw
    items: tuple[msgspec.Raw, ...] = ()
    fault: Fault | None = None


class PlayRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call a run made, in the order it made them.

    `entry` is the `seq` of the tape entry that was played (None: missed). `args` are those of the
    call, only where they differ from the entry's own. `at` is when it was made. `frames` is how
    many the run had produced by then: -1 where that is unknown, as of stacks behind an address.
    """

    port: str
    op: str
    site: str
    how: How
    at: int = 0
    entry: int | None = None
    args: RawIfAny = None
    frames: int = -1


class ErrorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a run did not complete: a stable code, and the kind of failure (an exception's class).

    A refusal has the HTTP status and the sentence clients get, too; 0 where an earlier version
    recorded it. The sentence of a remote stack is its whole body where that says more. `where` is
    the line of a crash: `graph_impl/chat.py:120`.
    """

    code: str
    kind: str = ""
    status: int = 0
    detail: str = ""
    where: str = ""


class OwnHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a shadow that holds conversations of its own received of them.

    `own` counts its own earlier replies, `other` those among them that differ from the served ones.
    `served` counts the served ones it received because it has none: it joined later.
    """

    own: int = 0
    other: int = 0
    served: int = 0


class RequestRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request: its body, its options, its path if not the flow's own, the session it begins."""

    body: msgspec.Raw
    options: msgspec.Raw
    path: str = ""
    session: str = ""


class ModelUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one model call used: the model's own name, its finish reason, its tokens.

    `by` is the id of the fallback that answered, where that is not the requested model.
    """

    model: str
    finish: str = ""
    usage: Usage | None = None
    by: str = ""


class RunHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stack handling one request, without the request, the frames and the tape.

    `began` is wall-clock microseconds since the Unix epoch; every other time is microseconds
    since the exchange began. `plays` are on every run's line. `nodes` are the times in which the
    nodes of its stack were open, in the order in which they first opened; `run_us` is the whole
    time until the last one closed, 0 where none was open, or where an older record does not say.
    `reason` is what decided the assignment or, where another stack served, why; `assigned_by` is
    then what decided, "" where `reason` says it, or an earlier version recorded it.
    `lost_us` is what a fallback cost. `sent` counts the frames the client already had when this run
    took over, or went on after a pause of the exchange `resumes`; `skipped` how many of its own
    frames it did not get, None where these are as many as `sent`. `client_left`, on lines of
    served runs: the client was gone before the end, or did not read. `history` is that of a shadow
    with conversations of its own.

    On the serving run's line `shadow` is what became of the exchange's second run: `due` where it
    must be there, too, perhaps in another segment; "" where the recorder does not say. On a line of
    the second run itself it says that this run does not come after all. `shadow_reason`, on the
    serving run's line, is the ledger's reason for that state, "" where there is none or an earlier
    version recorded it; a line of the second run has it as the code of its error. `own_histories`,
    on the serving run's line: each stack stores the conversation itself; `turn` is then which one
    this is, 1 for the first: 0 where the router had not seen that, or an earlier version recorded
    it.

    `pause_bytes` is the size of the row a served run waits in that paused; 0 where an earlier
    version recorded it. `dialect` names the format of its frames, where that is not the one that
    clients of the flow get.
    """

    v: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    exchange: str
    flow: str
    role: Role
    stack: str
    assigned: str
    served: str
    reason: str = ""
    assigned_by: str = ""
    bucket: int = -1
    config: str = ""
    code: str = ""
    began: int
    outcome: Outcome
    error: ErrorRecord | None = None
    plays: tuple[PlayRecord, ...] = ()
    nodes: dict[str, int] = {}
    run_us: int = 0
    cost: float | None = None
    lost_us: int = 0
    pause_bytes: int = 0
    sent: int = 0
    skipped: int | None = None
    client_left: bool = False
    resumes: str = ""
    shadow: ShadowState = ""
    shadow_reason: str = ""
    own_histories: bool = False
    turn: int = 0
    history: OwnHistory | None = None
    redacted: bool = False
    dialect: str = ""


class RunRecord(RunHead, frozen=True, kw_only=True, omit_defaults=True):
    """One stack handling one request.

    `frames` are `(at, text)` as produced, blank line included. `tape` is on the serving run's
    line.
    """

    request: RequestRecord | None = None
    frames: tuple[tuple[int, str], ...] = ()
    tape: tuple[EntryRecord, ...] | None = None
    models: tuple[ModelUse, ...] = ()


class FeedbackRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a user thought of an exchange; `at` is microseconds since the Unix epoch.

    `flow` and `assigned` are those of the receipt in the exchange's id; earlier versions wrote no
    flow, and the stack only where the process still knew it. The last of several counts.
    """

    v: int
    exchange: str
    score: Score
    at: int
    comment: str | None = None
    flow: str = ""
    assigned: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RunRecord)

_MARGIN: Final = 500
"""Levels of nesting left to what reads a record, whose own calls count like levels."""
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


def encode_run(record: RunRecord) -> bytes:
    """Write one run as one line of JSON, newline included."""
    raw = raw_values(record.request, record.tape or (), record.plays)
    return encode_readable(record, raw) + b"\n"


def encode_readable(record: msgspec.Struct, raw: Iterable[msgspec.Raw]) -> bytes:
    """Encode a record whose values `raw` are JSON as it came, on one line.

    What breaks the line, or cannot be read again, is written as `writable` makes it.
    """
    try:
        if readable(raw):
            return _encoder.encode(record)
    except _UNREADABLE:
        pass
    return _encoder.encode(writable(record))


def readable(raw: Iterable[msgspec.Raw]) -> bool:
    """Whether values that are JSON as it came break no line, and can be read again."""
    joined = b",".join(raw)
    return not breaks_line(joined) and _readable(joined)


def decode_run(line: bytes) -> RunRecord:
    """Read one line; raises `msgspec.DecodeError` or `ValidationError` on anything else."""
    return _decoder.decode(line)


def raw_values(
    request: RequestRecord | None, entries: Iterable[EntryRecord], plays: Iterable[PlayRecord] = ()
) -> Iterator[msgspec.Raw]:
    """Yield every value that is JSON as it came: of a request, a tape and a run's calls."""
    if request is not None:
        yield request.body
        yield request.options
    for entry in entries:
        yield entry.args
        yield from entry.items
    for play in plays:
        if play.args is not None:
            yield play.args


T = TypeVar("T")


def writable(value: T) -> T:
    """Return a record, or a part of one, that is one line and can be read again.

    JSON on several lines loses its white space. Halves of surrogate pairs and bytes that are no
    UTF-8 become U+FFFD; JSON that is none, or is nested too deep, becomes
    `{"unwritable": why, "bytes": size, "digest": hex}`.
    """
    try:
        encoded = _encoder.encode(value)
        if not breaks_line(encoded) and _decodable(encoded):
            return value  # as nearly all are: what is looked through is rare
    except _UNREADABLE:
        pass
    return cast("T", _repaired(value))


def _repaired(value: Any) -> Any:
    match value:
        case str():
            return _text(value)
        case msgspec.Raw():
            return _raw(bytes(value))
        case tuple():
            return tuple(map(_repaired, value))
        case dict():
            return {_repaired(key): _repaired(item) for key, item in value.items()}
        case msgspec.Struct():
            names = value.__struct_fields__
            return type(value)(**{name: _repaired(getattr(value, name)) for name in names})
        case _:
            return value


def _raw(raw: bytes) -> msgspec.Raw:
    if _decodable(raw):
        return msgspec.Raw(msgspec.json.format(raw, indent=-1) if breaks_line(raw) else raw)
    why = "nested too deep"
    try:
        repaired = _encoder.encode(_texts(json.loads(raw.decode("utf-8", "replace"), strict=False)))
        if _decodable(repaired):
            return msgspec.Raw(repaired)
    except RecursionError:
        pass
    except ValueError:
        why = "no JSON"
    digest = blake2b(raw, digest_size=8).hexdigest()
    return msgspec.Raw(_encoder.encode({"unwritable": why, "bytes": len(raw), "digest": digest}))


def breaks_line(raw: bytes) -> bool:
    """Whether JSON does not stand on one line."""
    return b"\n" in raw or b"\r" in raw


def _readable(raw: bytes) -> bool:
    """Whether JSON values, with commas between them, can be read deep inside a record."""
    try:
        msgspec.json.decode(b"[" * _MARGIN + raw + b"]" * _MARGIN, type=msgspec.Raw)
        return raw.isascii() or bool(raw.decode())
    except _UNREADABLE:
        return False


def _decodable(raw: bytes) -> bool:
    """Whether a value can be read, its numbers, too, deep inside a record."""
    try:
        msgspec.json.decode(raw)
    except _UNREADABLE:
        return False
    return _readable(raw)


def _text(text: str) -> str:
    """Put halves of a surrogate pair together; U+FFFD takes the place of one that is alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return list(map(_texts, value))
    if isinstance(value, dict):
        return {_text(key): _texts(item) for key, item in value.items()}
    return value
