"""Counts and records of the requests the simulator served: the ground truth of a load run."""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from typing import Literal

import msgspec

KEPT = 65_536
PAGE = 1_000
End = Literal["open", "completed", "cancelled", "cut", "refused"]


class Record(msgspec.Struct):
    """One chat request; stamps are `time.monotonic_ns()`, 0 while not reached.

    `started_ns`: the body was read. `first_ns`: the first chunk was handed to the socket.
    `ended_ns`: the last one was, or the answer broke off. A cancelled request has the microseconds
    from the loss of the connection to the stop.
    """

    number: int
    digest: str
    model: str
    stream: bool
    started_ns: int
    first_ns: int = 0
    ended_ns: int = 0
    chunks: int = 0
    end: End = "open"
    noticed_us: int | None = None

    def sent(self, chunks: int) -> None:
        """Count chunks that went out, and note the moment of the first."""
        self.first_ns = self.first_ns or time.monotonic_ns()
        self.chunks += chunks


class RequestLedger:
    """Counts since the last reset, and the latest records."""

    def __init__(self) -> None:
        self._number = 0
        self._changed = asyncio.Event()
        self.reset()

    def reset(self) -> None:
        """Forget everything; numbers go on, so that open requests cannot be mistaken for new."""
        self._first = self._number
        self._models: Counter[str] = Counter()
        self._ends: Counter[End] = Counter()
        self._digests: OrderedDict[str, int] = OrderedDict()
        self._records: deque[Record] = deque(maxlen=KEPT)
        self._noticed: deque[int] = deque(maxlen=PAGE)
        self._chunks = 0

    def open(self, digest: str, model: str, *, stream: bool) -> Record:
        """Enter a request."""
        record = Record(self._number, digest, model, stream, time.monotonic_ns())
        self._number += 1
        self._models[model] += 1
        self._digests[digest] = self._digests.get(digest, 0) + 1
        if len(self._digests) > KEPT:
            self._digests.popitem(last=False)
        self._records.append(record)
        self._changed.set()
        return record

    def close(self, record: Record, end: End, lost_ns: int = 0) -> None:
        """Note how a request ended; `lost_ns` is when its connection was lost."""
        record.end = end
        record.ended_ns = time.monotonic_ns()
        if record.number < self._first:
            return
        self._ends[end] += 1
        self._chunks += record.chunks
        self._changed.set()
        if end == "cancelled":
            record.noticed_us = max(0, (record.ended_ns - lost_ns) // 1000)
            self._noticed.append(record.noticed_us)

    def attempts(self, digest: str) -> int:
        """Count the earlier requests of a conversation."""
        return self._digests.get(digest, 0)

    def counts(self) -> dict[str, object]:
        """Everything counted since the last reset."""
        total = self._number - self._first
        return {
            "total": total,
            "in_flight": total - self._ends.total(),
            "completed": self._ends["completed"],
            "cancelled": self._ends["cancelled"],
            "cut": self._ends["cut"],
            "refused": self._ends["refused"],
            "chunks": self._chunks,
            "by_model": self._models,
            "by_digest": self._digests,
            "noticed_us": list(self._noticed),
        }

    async def until(self, key: str, count: int) -> None:
        """Wait until one of the counts (`in_flight`, `cancelled`, …) has reached a number."""
        while self.counts()[key] != count:
            self._changed.clear()
            await self._changed.wait()

    def page(self, since: int) -> dict[str, object]:
        """Up to 1 000 records from number `since` on, and the number to go on from."""
        wanted = [record for record in self._records if record.number >= since][:PAGE]
        following = wanted[-1].number + 1 if wanted else max(since, 0)
        return {"records": wanted, "next": following}
