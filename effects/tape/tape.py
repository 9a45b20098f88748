"""The tape: every effect of one exchange, found by what was asked, never by global order."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from contract.model import Chunk, RawChunk
from contract.records import EntryRecord
from effects.tape.keys import known, label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from contract.errors import Fault
    from contract.operations import Operation
    from contract.records import EntryEnd
    from effects.tape.keys import Key

_plain = msgspec.json.Encoder()
_AHEAD = 1_024
"""Items an overflowed tape holds that its reader has not taken; one within its bounds holds all."""

_raws = msgspec.json.Decoder(tuple[msgspec.Raw, ...])


class Signal:
    """Wakes everybody who waits for a change; costs nothing while nobody waits."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Wake all who wait now."""
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


class Entry:
    """One call on the tape: appended to by its pump, read by any number of runs."""

    __slots__ = (
        "args",
        "at",
        "bounds",
        "changed",
        "dropped",
        "end",
        "ended",
        "fault",
        "items",
        "n",
        "operation",
        "seq",
        "site",
        "taken",
    )

    def __init__(
        self,
        bounds: Bounds,
        operation: Operation,
        site: str,
        args: bytes,
        *,
        seq: int,
        n: int,
        at: int,
    ) -> None:
        # Not the tape: each would keep the other until the garbage collector finds them.
        self.bounds = bounds
        self.operation = operation
        self.site = site
        self.args = args
        self.seq = seq
        self.n = n
        self.at = at
        self.ended = 0
        self.end: EntryEnd = "open"
        self.fault: Fault | None = None
        self.items: list[Any] = []
        self.dropped = 0
        self.changed = Signal()
        self.taken = Signal()

    def append(self, item: Any) -> None:
        """Record one item and wake the readers."""
        # Before it is there: what cannot be encoded would keep the tape from being written down.
        self.bounds.weigh(item)
        self.items.append(item)
        self.changed.wake()

    def close(self, end: EntryEnd, at: int, fault: Fault | None = None) -> None:
        """End the entry; only the first ending counts."""
        if self.end == "open":
            self.end = end
            self.ended = at
            self.fault = fault
            self.changed.wake()

    def drop(self, position: int) -> None:
        """Let go of the items up to and with `position`: their one reader has had them."""
        for index in range(self.dropped, position + 1):
            self.items[index] = None
        self.dropped = max(self.dropped, position + 1)
        self.taken.wake()

    async def room(self) -> None:
        """Wait until the one reader of an overflowed tape is not far behind."""
        while self.bounds.overflowed and len(self.items) - self.dropped > _AHEAD:
            await self.taken.wait()

    @property
    def label(self) -> str:
        """Name of the call, for messages to people."""
        return label(self.operation, self.site, self.args)

    def record(self) -> EntryRecord:
        """Write the entry down."""
        operation = self.operation
        return EntryRecord(
            seq=self.seq,
            port=operation.port,
            op=operation.name,
            site=self.site,
            n=self.n,
            at=self.at,
            ended=self.ended,
            end=self.end,
            args=msgspec.Raw(self.args),
            items=_raws.decode(_plain.encode(self._plain_items())),
            fault=self.fault,
        )

    def _plain_items(self) -> list[Any]:
        """Give the items without the bytes they came in: those hold all texts once more."""
        return [item.plain() if type(item) is RawChunk else item for item in self.items]


class Budget:
    """Bytes that all tapes of a process, and the frames kept with them, may hold together."""

    __slots__ = ("left",)

    def __init__(self, total: int) -> None:
        self.left = total


MOST_BESIDE = 8
"""Times what a tape may hold: how much may be kept beside it."""


class Bounds:
    """How much is on one tape, and how much may be; `changed` is woken when that is exceeded."""

    __slots__ = ("_budget", "_changed", "_spent", "beside", "limit", "overflowed", "size")

    def __init__(self, limit: int, changed: Signal) -> None:
        self.size = self.beside = self._spent = 0
        self.overflowed = False
        self.limit = limit
        self._budget: Budget | None = None
        self._changed = changed

    def share(self, budget: Budget) -> None:
        """Count against a common budget, too: what is there by now, and what comes."""
        self._budget, spent, self._spent = budget, self._spent, 0
        self._spend(spent)

    def weigh(self, item: Any) -> None:
        """Count an item."""
        if type(item) is Chunk and not item.tool_calls:
            # The common case, without encoding it.
            size = 48 + len(item.text) + len(item.reasoning)
        else:
            size = len(_plain.encode(item))
        self.grow(size)

    def grow(self, size: int) -> None:
        """Count bytes."""
        if not self.overflowed:  # from there on nothing is kept
            self.size += size
            self._spend(size)

    def grow_beside(self, size: int) -> None:
        """Count bytes kept with the tape: they weigh on the common budget, and may be many.

        Cumulative frames weigh much more than what they tell; but a record of hundreds of megabytes
        would take minutes to write down.
        """
        self.beside += size
        if not self.overflowed:
            self._spend(size)

    @property
    def too_heavy(self) -> bool:
        """Whether what is kept beside an overflowed tape has outgrown the same limit."""
        return self.overflowed and self.beside > self.limit

    def _spend(self, size: int) -> None:
        self._spent += size
        budget = self._budget
        if budget is not None:
            budget.left -= size
        heavy = self.size > self.limit or self.beside > MOST_BESIDE * self.limit
        if heavy or (budget is not None and budget.left < 0):
            self.overflowed = True
            self._changed.wake()  # who waits for a call not yet made must not wait for it

    def free(self) -> None:
        """Give the bytes back to the common budget; idempotent."""
        if self._budget is not None:
            self._budget.left += self._spent
            self._budget = None


class Tape:
    """All effect calls of one exchange.

    `recording` is true while a run may still add calls; `overflowed` once the tape has outgrown
    its bounds: from then on items are dropped as the serving run reads them, and nobody else may
    read the tape.
    """

    def __init__(self, *, limit: int = 4 << 20) -> None:
        self.entries: list[Entry] = []
        self.recording = True
        self.changed = Signal()
        self._bounds = Bounds(limit, self.changed)
        self._by_key: dict[Key, list[Entry]] = {}
        self._by_site: dict[tuple[str, str], list[Entry]] = {}

    @property
    def limit(self) -> int:
        """Bytes it may hold."""
        return self._bounds.limit

    @property
    def overflowed(self) -> bool:
        """Whether the tape has outgrown its bounds."""
        return self._bounds.overflowed

    @property
    def size(self) -> int:
        """Bytes on the tape, as they are counted."""
        return self._bounds.size

    def add(self, operation: Operation, site: str, args: bytes, at: int) -> Entry:
        """Open a new entry for a call made now."""
        same = self._by_key.setdefault((operation.label, site, args), [])
        seq, n = len(self.entries), len(same)
        entry = Entry(self._bounds, operation, site, args, seq=seq, n=n, at=at)
        same.append(entry)
        self._by_site.setdefault((operation.label, site), []).append(entry)
        self.entries.append(entry)
        self._bounds.grow(len(args))
        self.changed.wake()
        return entry

    def find(self, operation: Operation, site: str, args: bytes, n: int) -> Entry | None:
        """Find the `n`-th call with exactly these arguments."""
        same = self._by_key.get((operation.label, site, args), ())
        return same[n] if n < len(same) else None

    def at_site(self, operation: Operation, site: str) -> Sequence[Entry]:
        """All calls of an operation at a site, in the order they were made."""
        return self._by_site.get((operation.label, site), ())

    def finish_recording(self) -> None:
        """No further call will be added by the run that records."""
        self.recording = False
        self.changed.wake()

    @property
    def last_stamp(self) -> int:
        """The latest moment on the tape, in microseconds since the exchange began."""
        return max((_last_stamp(entry) for entry in self.entries), default=0)

    @property
    def too_heavy(self) -> bool:
        """Whether the frames kept with an overflowed tape must be let go of, too."""
        return self._bounds.too_heavy

    def keep_beside(self, size: int) -> None:
        """Count the bytes of a frame that is kept together with the tape."""
        self._bounds.grow_beside(size)

    def share(self, budget: Budget) -> None:
        """Count its bytes against the common budget, until it is freed."""
        self._bounds.share(budget)

    def free(self) -> None:
        """Give the bytes back to the common budget; idempotent."""
        self._bounds.free()

    def record(self) -> tuple[EntryRecord, ...]:
        """Write the whole tape down."""
        return tuple(entry.record() for entry in self.entries)

    @classmethod
    def load(cls, records: Iterable[EntryRecord], *, limit: int = sys.maxsize) -> Tape:
        """Read a tape that was written down; nothing records on it until a run does.

        Raises `msgspec.ValidationError` on operations and items that are not ours.
        """
        tape = cls(limit=limit)
        tape.recording = False
        for record in records:
            operation = known(record)
            entry = tape.add(operation, record.site, bytes(record.args), record.at)
            for item in record.items:
                entry.append(msgspec.json.decode(item, type=operation.item))
            if record.end != "open":
                entry.close(record.end, record.ended, record.fault)
            else:
                entry.close("cut", record.at)
        return tape


def _last_stamp(entry: Entry) -> int:
    item = entry.items[-1] if entry.items else None
    return max(entry.at, entry.ended, getattr(item, "at", 0))
