"""What is stored of an exchange: its runs, each a line of JSON, and its tape.

`encode` makes a line of anything that a stack, a tool or a provider produced; `decode` reads it
back. Stamps are microseconds since the exchange began. Free JSON is held as text: no depth of it
and no number in it can make a line unreadable.
"""

import json
from typing import Any, Literal, Self, TypeVar

import msgspec

from cutover.errors import CutoverError, Outcome

VERSION = 1


class RecordDamaged(CutoverError):
    """A line is no record: torn, changed, or of a later version; `reason` is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the record cannot be read: {reason}")
        self.reason = reason


DAMAGED = (msgspec.MsgspecError, CutoverError, LookupError, ValueError, RecursionError)
"""What the parts of a line raise that do not fit its flow, or each other."""


class Binary(msgspec.Struct, frozen=True):
    """Bytes that are no UTF-8, in base64."""

    b64: bytes


class ItemRecord(msgspec.Struct, frozen=True, array_like=True):
    """Bytes that arrived `at` a moment."""

    at: int
    content: str | Binary

    @classmethod
    def of(cls, at: int, data: bytes) -> Self:
        """Return the record of bytes: their text, or base64 where they are no text."""
        try:
            return cls(at, data.decode())
        except UnicodeDecodeError:
            return cls(at, Binary(data))

    @property
    def data(self) -> bytes:
        """The bytes, as they came."""
        return self.content.b64 if isinstance(self.content, Binary) else self.content.encode()


class FrameRecord(ItemRecord, frozen=True, array_like=True):
    """A frame that went out `at` a moment."""


class ErrorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a call failed: the error's class, its message, and its arguments as JSON text."""

    kind: str
    message: str = ""
    args: str = "[]"


class EntryRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call on a tape; `key` in hexadecimal, `canonical` its request in normal form."""

    name: str
    key: str
    canonical: str
    at: int
    writes: bool = False
    items: tuple[ItemRecord, ...] = ()
    end: Literal["open", "done", "failed", "cut"] = "done"
    error: ErrorRecord | None = None


class TapeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tape; `incomplete` names effects with calls that could not be stored."""

    entries: tuple[EntryRecord, ...] = ()
    incomplete: tuple[str, ...] = ()
    question: str | None = None


class PlayRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of one run, and how it was answered: performed, from the tape, or by the nearest.

    `entry` is the place on the exchange's tape, None for what is not stored there. `canonical` is
    there where the run asked something else than the entry was performed for.
    """

    name: str
    how: Literal["live", "tape", "nearest"]
    entry: int | None = None
    canonical: str | None = None


Role = Literal["serving", "fallback", "shadow", "replay", "fork"]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line: one stack handling one request, which began `at`, in microseconds since 1970.

    `request` is the body as JSON text, `options` the flow's. The serving run's line holds the tape;
    `plays` of every run point into it, a fork's into its own. `escaped` counts calls off the tape,
    `nodes_us` is the time spent in each node, `versions` what code and settings were in force.
    `redacted` is whether personal data was replaced. `why` is why it was assigned so. The line of
    the run that served last says when the client had the first text, and the last frame: in
    microseconds since the request was read, also where an earlier run sent it.
    """

    exchange: str
    flow: str
    path: str
    role: Role
    policy: Literal["live", "play", "fork"]
    stack: str
    assigned: str
    served: str
    at: int
    outcome: Outcome
    request: str
    options: str
    frames: tuple[FrameRecord, ...] = ()
    tape: TapeRecord | None = None
    plays: tuple[PlayRecord, ...] = ()
    nodes_us: dict[str, int] = {}
    escaped: dict[str, int] = {}
    versions: dict[str, str] = {}
    redacted: bool = False
    why: str = ""
    first_text_us: int | None = None
    ended_us: int | None = None
    v: int = VERSION


PauseState = Literal["open", "answered", "claimed", "done", "expired"]


class PauseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange that waits; `id` is its question's.

    `request` is the client's request as JSON, `tape` the stored tape, `question` the form and
    `frames` what the client has been sent, both JSON. `expires_at` and `claimed_until` are seconds
    since the epoch. `owner` names the claim, "" where there is none.
    """

    id: str
    flow: str
    session: str
    path: str
    stack: str
    request: bytes
    tape: bytes
    question: Any
    frames: Any
    expires_at: float = 0.0
    answer: Any = None
    state: PauseState = "open"
    owner: str = ""
    claimed_until: float = 0.0


class WriteRecord(msgspec.Struct, frozen=True):
    """A write of a resumed exchange; `result` is None where the process ended before it came."""

    key: str
    name: str
    args: bytes
    result: bytes | None = None


R = TypeVar("R", bound=msgspec.Struct)


def encode(record: msgspec.Struct) -> bytes:
    """Return a record as JSON without raw line ends; lone surrogates become U+FFFD."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(record), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def decode(line: bytes, kind: type[R]) -> R:
    """Return the record in a line; raises `RecordDamaged`."""
    try:
        record = msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordDamaged(str(error)) from error
    if (version := getattr(record, "v", VERSION)) != VERSION:
        reason = f"it has version {version}, and this program reads {VERSION}"
        raise RecordDamaged(reason)
    return record


def json_text(value: Any) -> str:
    """Return JSON for a field that holds it as text; what JSON cannot hold is named by its fault.

    NaN and infinities become null.
    """
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError, OverflowError, TypeError) as error:
        return f'"(not stored: {type(error).__name__})"'
