"""Rows and threads as turns and memories: names of columns, ids that are missing, replies."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from contract.errors import CutoverError, EffectFailed
from contract.flows.chat import Identifier
from contract.stores import MemoryEntry, Turn, encode_data, storable
from contract.threads import SavedThread
from cutover.imports.source import Rows, SourceRow
from rules.extraction.lessons import KINDS

Value = TypeVar("Value", Turn, MemoryEntry)

IDS: Final = frozenset({"message_id", "chat_id", "user_id", "reply_to", "memory_id", "session_id"})
_ROLES: Final = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant"}
_NO_TURNS: Final = frozenset({"system", "developer", "tool", "function"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPACT: Final = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}
"""Times without separators, by how many digits they have."""
_MILLISECONDS: Final = 10**11
"""Seconds from here on are milli-, micro- or nanoseconds: as seconds they are after 5000."""
_CHATS: Final = 10_000
"""Chats whose last message is known, for the reply to it."""


class LeftOut(NamedTuple):
    """A row that is no turn, and why."""

    why: str


class Rejected(NamedTuple):
    """A row that cannot be stored, and why."""

    reason: str


Shaped: TypeAlias = Value | LeftOut | Rejected
Place: TypeAlias = int | str
"""The line of a file, the number of a result's row, or the id of a thread."""
Redact: TypeAlias = Callable[[Value], Value]


class BadMapping(CutoverError):
    """A `--map` names nothing that is stored."""

    def __init__(self, assignment: str, known: Iterable[str]) -> None:
        listed = ", ".join(known)
        super().__init__(f"--map {assignment!r}: expected OURS=THEIRS, where OURS is of: {listed}")


class ColumnMissing(CutoverError):
    """A source has no such column."""

    def __init__(self, name: str, column: str, ours: str, there: Sequence[str]) -> None:
        near = get_close_matches(column, there, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(
            f"{name!r}, line 1: no column {column!r} for {ours!r}; {hint}"
            f"there are {', '.join(map(repr, there))}: use --map {ours}=COLUMN"
        )


class ColumnRepeated(CutoverError):
    """A source has several columns of one name, as a join of tables does."""

    def __init__(self, name: str, column: str) -> None:
        super().__init__(f"{name!r} has several columns {column!r}: name one of them otherwise")


class _NotThis(CutoverError):
    """A value cannot be stored as a field."""

    def __init__(self, *, field: str, why: object) -> None:
        super().__init__(f"{field}: {why}")


def mapped(known: Sequence[str], assignments: Iterable[str]) -> dict[str, str]:
    """Read `ours=theirs` for some of the names that are known; raises `BadMapping`."""
    found = {}
    for assignment in assignments:
        ours, _, theirs = assignment.partition("=")
        if ours not in known or not theirs:
            raise BadMapping(assignment, known)
        found[ours] = theirs
    return found


def turns_of_rows(
    rows: Rows, assignments: Sequence[str], redact: Redact[Turn]
) -> Iterator[tuple[Place, Shaped[Turn]]]:
    """Shape rows as turns of conversations, which come in their order.

    Raises `BadMapping`, `ColumnMissing` and `ColumnRepeated`.
    """
    columns = _columns(Turn, ("chat_id", "role", "content"), rows, assignments)
    return _each(rows.rows, _TurnShape(columns, redact))


def entries_of_rows(
    rows: Rows, assignments: Sequence[str], redact: Redact[MemoryEntry]
) -> Iterator[tuple[Place, Shaped[MemoryEntry]]]:
    """Shape rows as memories; raises what `turns_of_rows` does."""
    columns = _columns(MemoryEntry, ("user_id", "text"), rows, assignments)

    def shape(row: SourceRow) -> MemoryEntry | LeftOut:
        fields = _fields(columns, ("user_id",), row)
        if not str(fields.get("text", "")).strip():
            return LeftOut("without text")
        entry = redact(_checked(_converted(MemoryEntry, {"memory_id": "", **fields})))
        # An entry equal in user and text is stored once: that is its place, too.
        made = entry.memory_id or _id_of(entry.user_id, entry.text)
        return replace(entry, memory_id=made)

    return _each(rows.rows, shape)


THREAD_FIELDS: Final = ("messages", "user_id", "user_name")
"""What is read of a thread, by the names of the channels it is in."""


def turns_of_threads(
    threads: Iterable[SavedThread], names: Mapping[str, str], redact: Redact[Turn]
) -> Iterator[tuple[Place, Shaped[Turn]]]:
    """Shape the messages of threads as turns; a thread is the conversation of its id."""
    for thread in threads:
        if thread.fault:
            yield thread.thread_id, Rejected(thread.fault)
            continue
        shared = {
            "chat_id": thread.thread_id,
            "user_id": thread.values.get(names.get("user_id", "user_id")),
        }
        name = thread.values.get(names.get("user_name", "user_name"))
        shape = _TurnShape({field: field for field in Turn.__struct_fields__}, redact)
        # Trimmed at its beginning, a thread has the same messages at other places.
        seen = Counter[str]()
        for message in thread.messages:
            seen[repr(message)] += 1
            own = {"user_name": name} if message.role == "user" else {}
            row = SourceRow(seen[repr(message)], shared | own | message._asdict())
            for _, shaped in _each([row], shape):
                if isinstance(shaped, Turn):  # timed last: it is no part of an id
                    yield thread.thread_id, replace(shaped, at=thread.at)
                else:
                    yield thread.thread_id, shaped


def _each(
    rows: Iterable[SourceRow], shape: Callable[[SourceRow], Value | LeftOut]
) -> Iterator[tuple[Place, Shaped[Value]]]:
    for row in rows:
        if row.fault:
            yield row.line, Rejected(row.fault)
            continue
        try:
            shaped: Shaped[Value] = shape(row)
        except CutoverError as error:
            shaped = Rejected(str(error))
        yield row.line, shaped


class _TurnShape:
    """Shapes rows as turns, and links replies to what they answer."""

    def __init__(self, columns: Mapping[str, str], redact: Redact[Turn]) -> None:
        self._columns = columns
        self._redact = redact
        self._last: OrderedDict[str, Turn] = OrderedDict()

    def __call__(self, row: SourceRow) -> Turn | LeftOut:
        fields = _fields(self._columns, ("chat_id", "role"), row)
        role = str(fields.get("role", "")).lower()
        if role in _NO_TURNS:
            return LeftOut(f"{role} message")
        if role not in _ROLES:
            known = ", ".join((*_ROLES, *sorted(_NO_TURNS)))
            raise _NotThis(field="role", why=f"{role!r} is none of {known}")
        text = _text_of(fields.get("content"))
        if not text.strip():
            return LeftOut("without text")
        ours = {"message_id": "", **fields, "role": _ROLES[role], "content": text}
        turn = self._redact(_converted(Turn, ours))
        if turn.data is not None:
            _check_data(turn.data)
        return self._linked(turn, row.line)

    def _linked(self, turn: Turn, place: int) -> Turn:
        """Add to a turn the id it lacks, and a reply its message and the user who was replied to.

        Only the first of several replies in a row: of replies to one message only the last counts.
        """
        chat = turn.chat_id or ""
        last = self._last.pop(chat, None)
        reply_to, user_id = turn.reply_to, turn.user_id
        if last is not None and turn.role == "assistant":
            if last.role == "user":
                reply_to = reply_to or last.message_id
            user_id = user_id or last.user_id
        made = turn.message_id or _id_of(place, chat, turn.role, turn.content, turn.at)
        turn = replace(turn, message_id=made, reply_to=reply_to, user_id=user_id)
        self._last[chat] = turn
        if len(self._last) > _CHATS:
            self._last.popitem(last=False)
        return turn


def _columns(
    kind: type[Turn | MemoryEntry],
    required: Sequence[str],
    rows: Rows,
    assignments: Sequence[str],
) -> dict[str, str]:
    """Return the column of each field; raises what `turns_of_rows` does."""
    named = mapped(kind.__struct_fields__, assignments)
    columns = {name: named.get(name, name) for name in kind.__struct_fields__}
    if rows.columns is None:
        return columns
    for ours, theirs in columns.items():
        # A database may return objects.
        found = {theirs, theirs.partition(".")[0]}.intersection(rows.columns)
        if not found and (ours in required or ours in named):
            raise ColumnMissing(rows.name, theirs, ours, rows.columns)
        if repeated := next((one for one in found if rows.columns.count(one) > 1), None):
            raise ColumnRepeated(rows.name, repeated)
    return columns


def _fields(columns: Mapping[str, str], required: Sequence[str], row: SourceRow) -> dict[str, Any]:
    """Return a row's values by our names, those that are missing or empty left out."""
    fields = {}
    for ours, theirs in columns.items():
        value = _value(row.values, theirs)
        if value is None or (isinstance(value, str) and not value):
            continue
        if ours in IDS:
            value = _id(ours, value)
        elif ours == "at":
            value = _seconds(value)
        elif ours == "data" and isinstance(value, str):
            value = _json(value)
        fields[ours] = value
    for ours in required:
        if ours not in fields:
            raise _NotThis(field=ours, why=f"no value in {columns[ours]!r}")
    return fields


def _value(values: Mapping[str, Any], name: str) -> Any:
    """Return the value of a column; `a.b` is also `b` in the object `a`."""
    if name in values:
        return values[name]
    head, dot, rest = name.partition(".")
    inner = values.get(head)
    return _value(inner, rest) if dot and isinstance(inner, Mapping) else None


def _id(name: str, value: Any) -> str:
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        value = str(value)
    try:
        found: str = msgspec.convert(value, Identifier)
    except msgspec.ValidationError as error:
        raise _NotThis(field=name, why=error) from error
    return found


def _seconds(value: Any) -> int:
    """Return a time in seconds since the Unix epoch; one without a zone is UTC."""
    try:
        moment = _moment(value)
        seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (TypeError, ValueError, OverflowError):
        seconds = -1
    if seconds < 0:
        why = f"{value!r} is no time since 1970, such as 1767323045 or 2026-01-02T03:04:05Z"
        raise _NotThis(field="at", why=why)
    return seconds


def _moment(value: Any) -> datetime:
    """Read a time in any of its forms; raises `TypeError`, `ValueError` or `OverflowError`."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        raise TypeError
    text = str(value)
    if text.isdecimal() and len(text) in _COMPACT:
        return datetime.strptime(text, _COMPACT[len(text)]).replace(tzinfo=UTC)
    try:
        number = float(value)
    except ValueError:
        return datetime.fromisoformat(text)
    for _ in range(3):
        number = number / 1_000 if number >= _MILLISECONDS else number
    return _EPOCH + timedelta(seconds=number)


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _NotThis(field="data", why="no JSON object") from error


def _checked(entry: MemoryEntry) -> MemoryEntry:
    if entry.confidence is not None and not 0 <= entry.confidence <= 1:
        raise _NotThis(field="confidence", why=f"{entry.confidence} is not from 0 to 1")
    if entry.kind not in {None, *KINDS}:
        raise _NotThis(field="kind", why=f"{entry.kind!r} is none of {', '.join(KINDS)}")
    return entry


def _check_data(data: dict[str, Any]) -> None:
    try:
        encode_data(data)
    except EffectFailed as failed:
        raise _NotThis(field="data", why=failed.fault.data["reason"]) from failed


def _text_of(content: Any) -> str:
    """Return the text of a message: its own, or that of its parts."""
    parts = content if isinstance(content, list) else [content]
    texts = []
    for part in parts:
        match part:
            case str():
                texts.append(part)
            case {"text": str(text)}:
                texts.append(text)
            case None | {"type": str()}:
                pass
            case _:
                raise _NotThis(field="content", why=f"a {type(part).__name__} where a text is due")
    return "".join(texts)


def _converted(kind: type[Value], fields: Mapping[str, Any]) -> Value:
    try:
        value = msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _NotThis(field="row", why=error) from error
    for name, text in msgspec.structs.asdict(value).items():
        if isinstance(text, str) and not storable(text):
            raise _NotThis(field=name, why="a NUL, or bytes that are no UTF-8")
    return value


def _id_of(*parts: object) -> str:
    """Make the id of a row that has none, the same at each import."""
    return "imported-" + blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()
