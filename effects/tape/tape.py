"""The tape: the effects of one exchange, found by what was called, never by global order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from contract.errors import CutoverError, Fault
from contract.model import Chunk, ModelCall, OfferedTools, RawChunk
from contract.operations import OPERATIONS, Operation
from contract.records import EntryEnd, EntryRecord, breaks_line, readable, writable

FRAMES_FACTOR: Final = 8
"""How many times the limit of a tape the frames stored with it may take."""
_AHEAD: Final = 1_024
"""Items an overflowed tape holds that its reader has not read; one within its bounds holds all."""

_sorted = msgspec.json.Encoder(order="sorted").encode
_plain = msgspec.json.Encoder()
_raw_items = msgspec.json.Decoder(tuple[msgspec.Raw, ...])


def canonical(arguments: Any) -> bytes:
    """Encode arguments once, on one line: defaults omitted, keys sorted; snapshot and key in one.

    JSON inside that came on several lines loses its white space, and schemas of tools are as
    `writable` makes them: a call must find its entry on a tape that was stored and read.
    """
    tools = arguments.tools if isinstance(arguments, ModelCall) else ()
    if tools and not readable(tool.parameters for tool in tools):
        arguments = writable(arguments)
    encoded = _sorted(arguments)
    if breaks_line(encoded):
        with suppress(msgspec.DecodeError, RecursionError):  # what is no JSON stays as it is
            return msgspec.json.format(encoded, indent=-1)
    return encoded


class UnknownOperation(CutoverError, msgspec.ValidationError):
    """A tape holds a call of an operation that this version does not know."""

    def __init__(self, record: EntryRecord) -> None:
        super().__init__(f"entry {record.seq}: no operation {record.port!r}.{record.op!r}")


def label(operation: Operation, site: str, args: bytes) -> str:
    """Name a call, its arguments shortened, for messages."""
    return f"{operation.label}({site!r}) {args[:200].decode('utf-8', 'replace')}"


@dataclass(slots=True, eq=False)
class Signal:
    """Wakes every task that waits for a change; costs nothing while none waits."""

    _waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def wake(self) -> None:
        """Wake all tasks that wait now."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter


@dataclass(slots=True, eq=False)
class Budget:
    """Bytes that all tapes of a process, and the frames stored with them, may still take."""

    left: int


@dataclass(slots=True, eq=False)
class TapeUsage:
    """Bytes on one tape and of the frames stored with it; `changed` is woken when it overflows."""

    limit: int
    changed: Signal
    size: int = 0
    frames: int = 0
    overflowed: bool = False
    _budget: Budget | None = None
    _charged: int = 0

    @property
    def frames_overflowed(self) -> bool:
        """Whether the frames stored with an overflowed tape have outgrown its limit, too."""
        return self.overflowed and self.frames > self.limit

    def charge(self, budget: Budget) -> None:
        """Count against a common budget, too: what is there by now, and what comes."""
        self._budget = budget
        budget.left -= self._charged
        self.add(0)

    def release(self) -> None:
        """Return the bytes to the common budget; idempotent."""
        if self._budget is not None:
            self._budget.left += self._charged
            self._budget = None

    def add(self, size: int, *, frame: bool = False) -> None:
        """Count bytes on the tape, or of a frame that is stored until the exchange is recorded.

        Cumulative frames weigh much more than what they say, but a record of hundreds of
        megabytes would take minutes to write. An overflowed tape holds no more.
        """
        if frame:
            self.frames += size
        if self.overflowed:
            return
        if not frame:
            self.size += size
        self._charged += size
        budget = self._budget
        if budget is not None:
            budget.left -= size
        too_much = self.size > self.limit or self.frames > FRAMES_FACTOR * self.limit
        if too_much or (budget is not None and budget.left < 0):
            self.overflowed = True
            self.changed.wake()  # a run that waits for a call not yet made would wait for ever


@dataclass(slots=True, eq=False)
class Entry:
    """One call on the tape: appended to by its pump, read by any number of runs.

    It is the `n`-th call with its key; `seq` counts all calls of the tape. A call that has `begun`
    may have changed something, and must not be made again. A result that is `withheld`, the last
    item, is read by no run before the entry ends: the journal must have it first.
    """

    _usage: TapeUsage  # not the tape: the two would be a reference cycle
    operation: Operation
    site: str
    args: bytes
    seq: int
    n: int
    at: int
    ended: int = 0
    end: EntryEnd = "open"
    begun: bool = False
    withheld: bool = False
    fault: Fault | None = None
    items: list[Any] = field(default_factory=list)
    changed: Signal = field(default_factory=Signal)
    _dropped: int = 0

    def append(self, item: Any) -> None:
        """Record one item and wake the readers."""
        # Counted first: an item that cannot be encoded must not get on the tape.
        if type(item) is Chunk and not (item.tool_calls or item.other):
            self._usage.add(48 + len(item.text) + len(item.reasoning))  # no need to encode it
        else:
            if type(item) is OfferedTools:
                item = writable(item)  # schemas come from services, and go into prompts
            self._usage.add(len(_plain.encode(item)))
        self.items.append(item)
        self.changed.wake()

    def close(self, end: EntryEnd, at: int, fault: Fault | None = None) -> None:
        """End the entry; only the first end counts."""
        if self.end == "open":
            self.end = end
            self.ended = at
            self.fault = fault
            self.withheld = False
            self.changed.wake()

    def drop(self, position: int) -> None:
        """Drop the items up to and including `position`: their one reader has read them."""
        for index in range(self._dropped, position + 1):
            self.items[index] = None
        self._dropped = max(self._dropped, position + 1)
        self.changed.wake()

    def drop_unread(self) -> None:
        """Drop the oldest items of an overflowed tape that holds too many its reader has not read.

        For a write: it is not held up by the run that reads it, which misses them.
        """
        if len(self.items) - self._dropped > _AHEAD:
            self.drop(len(self.items) - _AHEAD - 1)

    async def wait_for_reader(self) -> None:
        """Wait until the one reader of an overflowed tape is not far behind."""
        while self._usage.overflowed and len(self.items) - self._dropped > _AHEAD:
            await self.changed.wait()

    @property
    def label(self) -> str:
        """Name of the call, for messages."""
        return label(self.operation, self.site, self.args)

    @property
    def last_stamp(self) -> int:
        """Its latest moment, in microseconds since the exchange began."""
        item = self.items[-1] if self.items else None
        return max(self.at, self.ended, getattr(item, "at", 0))

    @property
    def known_end(self) -> EntryEnd:
        """How it ends, as far as that is known: what has a result no run has read yet has ended."""
        if self.end != "open" or not (self.withheld or self.fault):
            return self.end
        return "complete" if self.fault is None else "error"

    def record(self) -> EntryRecord:
        """Return the entry as it is stored."""
        operation = self.operation
        # Without the bytes that chunks came in, which repeat the texts.
        items = [item.plain() if type(item) is RawChunk else item for item in self.items]
        return EntryRecord(
            seq=self.seq,
            port=operation.port,
            op=operation.name,
            site=self.site,
            n=self.n,
            at=self.at,
            ended=self.ended,
            end=self.known_end,
            args=msgspec.Raw(self.args),
            items=_encoded(items),
            fault=self.fault,
        )


def _encoded(items: Sequence[Any]) -> tuple[msgspec.Raw, ...]:
    """Encode items; JSON inside that is none, or text that is no UTF-8, costs no record."""
    try:
        return _raw_items.decode(_plain.encode(items))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return tuple([msgspec.Raw(_plain.encode(writable(item))) for item in items])


class Tape:
    """All effect calls of one exchange.

    `recording` is true while a run may still add calls. Once `usage` has overflowed, items are
    dropped as the serving run reads them, and no other run may read the tape.
    """

    def __init__(self, *, limit: int = 4 << 20) -> None:
        self.entries: list[Entry] = []
        self.recording = True
        self.changed = Signal()
        self.usage = TapeUsage(limit, self.changed)
        self._by_key: dict[tuple[Operation, str, bytes], list[Entry]] = {}
        self._by_site: dict[tuple[Operation, str], list[Entry]] = {}

    @property
    def overflowed(self) -> bool:
        """Whether the tape has outgrown its bounds."""
        return self.usage.overflowed

    @property
    def last_stamp(self) -> int:
        """The latest moment on the tape, in microseconds since the exchange began."""
        return max((entry.last_stamp for entry in self.entries), default=0)

    def add(self, operation: Operation, site: str, args: bytes, at: int) -> Entry:
        """Open a new entry for a call made now."""
        same = self._by_key.setdefault((operation, site, args), [])
        seq, n = len(self.entries), len(same)
        entry = Entry(self.usage, operation, site, args, seq, n, at)
        same.append(entry)
        self._by_site.setdefault((operation, site), []).append(entry)
        self.entries.append(entry)
        self.usage.add(len(args))
        self.changed.wake()
        return entry

    def find(self, operation: Operation, site: str, args: bytes, n: int) -> Entry | None:
        """Find the `n`-th call with exactly these arguments."""
        same = self._by_key.get((operation, site, args), ())
        return same[n] if n < len(same) else None

    def at_site(self, operation: Operation, site: str) -> Sequence[Entry]:
        """Return all calls of an operation at a site, in the order they were made."""
        return self._by_site.get((operation, site), ())

    def stop_recording(self) -> None:
        """Promise that the recording run adds no further call."""
        self.recording = False
        self.changed.wake()

    def record(self) -> tuple[EntryRecord, ...]:
        """Return the whole tape as it is stored."""
        return tuple(map(Entry.record, self.entries))

    @classmethod
    def load(cls, records: Iterable[EntryRecord], *, limit: int = sys.maxsize) -> Tape:
        """Read a stored tape; nothing records on it until a run does.

        Raises `msgspec.ValidationError` on unknown operations and malformed items.
        """
        tape = cls(limit=limit)
        tape.recording = False
        for record in records:
            operation = OPERATIONS.get((record.port, record.op))
            if operation is None:
                raise UnknownOperation(record)
            entry = tape.add(operation, record.site, bytes(record.args), record.at)
            for item in record.items:
                entry.append(msgspec.json.decode(item, type=operation.item))
            if record.end != "open":
                entry.close(record.end, record.ended, record.fault)
            else:
                entry.close("cut", record.at)
        return tape
