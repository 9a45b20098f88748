"""Writing captures: finished exchanges are redacted, packed and stored, off the served path."""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Literal

import msgspec

from contract.blobs import LONGEST, without_blobs
from contract.capture_files import DATE_PREFIX, FEEDBACK, FLOW_PREFIX
from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.records import FeedbackRecord, RunRecord, encode_run, writable
from contract.wire import EventDecoder
from router.capture.objects import capture_store
from router.capture.redaction import ExchangeValues, Redactor
from router.capture.segments import Batch, Settled
from router.config.patterns import compile_patterns
from router.config.schema import CaptureSettings
from router.routing.assignment import captured

Put = Literal["queued", "not_sampled", "dropped"]
Dropped = Literal["queue_full", "redaction_failed", "disk", "closed"]

QUEUE_BYTES = 64 * 1_048_576
HOLD = 0.05
"""Seconds a packed exchange waits for others: waking the thread costs the loop its turn."""

_DAY_MICROSECONDS = 86_400 * 1_000_000
_SWEEP_SECONDS = 3_600.0
CLOSING_SECONDS = 5.0
"""What a writer that is closed has to store what is left."""

_encoder = msgspec.json.Encoder()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """Counts since the start, in exchanges and feedbacks; `bytes` as stored.

    Each is `written`, `waiting`, `not_sampled` or `dropped`, but for those that were forgotten
    while they waited. A second run that comes later than the served ones may wait or be dropped by
    itself.
    """

    written: int = 0
    lines: int = 0
    batches: int = 0
    bytes: int = 0
    waiting: int = 0
    not_sampled: int = 0
    deleted_files: int = 0
    dropped: Mapping[Dropped, int] = field(default_factory=dict)


class ServedRunsLost(CutoverError):
    """The served runs of an exchange could not be redacted, and its second run goes with them."""

    def __init__(self, exchange: str) -> None:
        super().__init__(f"the served runs of {exchange!r} could not be redacted")


class Packed(msgspec.Struct, frozen=True):
    """Lines of one exchange or feedback, and the folder they go to.

    `later` where they are those of a second run, whose exchange has been written before.
    """

    folder: str
    exchange: str
    lines: list[bytes]
    later: bool = False


class CaptureWriter:
    """Takes finished exchanges on the loop; redacts, packs and stores them in its own thread.

    Short ones of remote stacks are packed at once: the thread would take as long, and compete with
    the loop for the interpreter.

    `put` and `feedback` never wait: with the queue full (a slow disk), or the disk refusing, whole
    exchanges are dropped and counted. A batch is `batch` exchanges or `flush_seconds`, whichever
    comes first; an object store gets several batches in one object. `key` makes pseudonyms; without
    one they are equal within this process only.
    """

    def __init__(
        self,
        captures: CaptureSettings,
        specs: Mapping[str, FlowSpec],
        *,
        salt: str,
        key: bytes = b"",
    ) -> None:
        self._captures = captures
        self._specs = specs
        self._salt = salt
        redact = captures.redact
        self.redactor = Redactor(
            compile_patterns(redact.patterns), redact.paths, key or secrets.token_bytes(32)
        )
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._not_sampled = 0
        self._refused: Counter[Dropped] = Counter()
        self._refused_at = -math.inf
        # What was queued, and what the thread has taken of it; the loop counts the one, the thread
        # the other.
        self._queued = self._queued_bytes = 0
        self._taken = self._taken_bytes = 0
        self._batch = _Batch(captures)  # opens the place, or refuses it
        self._ready: list[Packed] = []
        self._ready_size = 0
        self._handing: asyncio.TimerHandle | None = None
        self._closing: Future[bool] | None = None
        threading.Thread(target=self._work, name="cutover-capture", daemon=True).start()

    def put(self, records: Sequence[RunRecord], values: ExchangeValues | None = None) -> Put:
        """Take the records of one finished exchange; whole or not at all.

        `values` where its second run comes later, by `put_later`.
        """
        percent = self._captures.percent
        if not records or not captured(percent, self._salt, records[0].exchange):
            self._not_sampled += bool(records)
            return "not_sampled"
        return self._put(records, values)

    def put_later(self, record: RunRecord, values: ExchangeValues) -> Put:
        """Take the second run of an exchange that was `queued` with the same `values`."""
        if self._ready and not values.learned:
            self._hand_over()  # what was put before is written before
        return self._put((record,), values, later=True)

    def feedback(self, record: FeedbackRecord) -> Put:
        """Take a user's feedback; never sampled, there is too little of it.

        Of an exchange that is not captured it has no comment: whose it is could not be found out.
        """
        if not self._reserve(0):
            return "dropped"
        if not captured(self._captures.percent, self._salt, record.exchange):
            record = msgspec.structs.replace(record, comment=None)
        self._jobs.put(partial(self._take, partial(self._pack_feedback, record), 0))
        return "queued"

    @property
    def fault(self) -> str | None:
        """What was dropped, where nothing has been stored since; None where captures work."""
        if max(self._refused_at, self._batch.dropped_at) <= self._batch.stored_at:
            return self._batch.store.fault
        dropped = self.counts.dropped.items()
        reasons = ", ".join(f"{count} {why}" for why, count in dropped)
        return f"no exchange was stored since the last was dropped; since the start: {reasons}"

    @property
    def counts(self) -> CaptureCounts:
        """The counts; may be read at any time."""
        done = self._batch
        return CaptureCounts(
            written=done.written,
            lines=done.lines,
            batches=done.batches,
            bytes=done.bytes,
            waiting=self._unsettled,
            not_sampled=self._not_sampled,
            deleted_files=done.store.deleted,
            # A plain dict: `dataclasses.asdict` makes a Counter a count of pairs, which is no JSON.
            dropped=dict(self._refused + done.dropped.copy()),
        )

    async def flush(self) -> bool:
        """Wait until everything taken so far is stored or dropped.

        An object store may refuse some of it for now: returns False then, as it is tried again.
        """
        done = self._closing
        if done is None:
            done = Future()
            self._hand_over()
            self._jobs.put(partial(self._flush, done))
        return await asyncio.shield(asyncio.wrap_future(done))

    async def aclose(self, deadline: float | None = None) -> int:
        """Store what is left within `deadline` or `CLOSING_SECONDS`; return how many remain."""
        if self._closing is None:
            self._hand_over()
            self._closing = Future()
            self._jobs.put(partial(self._flush, self._closing))
        try:
            async with asyncio.timeout(CLOSING_SECONDS if deadline is None else deadline):
                await asyncio.shield(asyncio.wrap_future(self._closing))
        except TimeoutError:
            log.warning("captures: %d not stored at the deadline", self._unsettled)
        return self._unsettled

    @property
    def _unsettled(self) -> int:
        return self._queued - self._batch.settled

    def _reserve(self, size: int) -> bool:
        """Reserve space in the queue, if there is any: a single job of any size always fits."""
        waiting = self._queued - self._taken
        waiting_bytes = self._queued_bytes - self._taken_bytes
        if self._closing is not None:
            self._refuse("closed")
        elif waiting and (waiting >= self._captures.queue or waiting_bytes + size > QUEUE_BYTES):
            self._refuse("queue_full")
        else:
            self._queued += 1
            self._queued_bytes += size
            return True
        return False

    def _refuse(self, why: Dropped) -> None:
        self._refused[why] += 1
        self._refused_at = time.monotonic()

    def _put(
        self, records: Sequence[RunRecord], values: ExchangeValues | None, *, later: bool = False
    ) -> Put:
        size = sum([_size(record) for record in records])
        if not self._reserve(size):
            return "dropped"
        packed = None
        if size <= LONGEST and not records[0].tape and (not later or (values and values.learned)):
            packed = self._packed_at_once(records, values, later=later)
        if packed is None:
            pack = partial(self._packed_in_thread, tuple(records), values, later=later)
            self._jobs.put(partial(self._take, pack, size))
            return "queued"
        self._ready.append(packed)
        self._ready_size += size
        if len(self._ready) >= self._captures.batch:
            self._hand_over()
        elif self._handing is None:
            self._handing = asyncio.get_running_loop().call_later(HOLD, self._hand_over)
        return "queued"

    def _packed_at_once(
        self, records: Sequence[RunRecord], values: ExchangeValues | None, *, later: bool
    ) -> Packed | None:
        """Pack short runs of remote stacks; None where something may have to be redacted.

        That takes less time than a change of threads; texts to be searched take longer, as do
        tapes.
        """
        with suppress(Exception):  # the thread meets it again, and counts it
            redacted = self.redactor.at_once(records, *self._decoders(records), values)
            return None if redacted is None else _encoded(redacted, later=later)
        return None

    def _decoders(self, records: Sequence[RunRecord]) -> tuple[EventDecoder, EventDecoder | None]:
        """Return the decoders of the flow's format, and of the other one that graph may stream."""
        spec = self._specs[records[0].flow]
        other = spec.other_format
        return spec.decoder, None if other is None else other.decoder

    def _hand_over(self) -> None:
        """Queue the packed exchanges for the thread."""
        if self._handing is not None:
            self._handing.cancel()
            self._handing = None
        if self._ready:
            self._jobs.put(partial(self._take_ready, self._ready, self._ready_size))
            self._ready, self._ready_size = [], 0

    # From here on in the thread.

    def _work(self) -> None:
        closed = False
        while not closed:
            try:
                job = self._jobs.get(timeout=self._batch.seconds_left())
            except queue.Empty:
                self._batch.tend()
            else:
                job()
                closed = self._closing is not None and self._closing.done()

    def _flush(self, done: Future[bool]) -> None:
        self._batch.write()
        self._batch.flush(close=done is self._closing)
        done.set_result(not self._batch.store.waiting)

    def _take_ready(self, ready: Sequence[Packed], size: int) -> None:
        for packed in ready:
            self._batch.add(packed)
        self._taken += len(ready)
        self._taken_bytes += size

    def _take(self, pack: Callable[[], Packed | None], size: int) -> None:
        try:
            packed = pack()
        except OSError as error:
            self._batch.drop("disk", 1, error)
        except Exception as error:  # noqa: BLE001 (unredacted, nothing may be stored or logged)
            self._batch.drop("redaction_failed", 1, error)
        else:
            if packed is None:
                self._batch.settled += 1
            else:
                self._batch.add(packed)
        finally:
            self._taken += 1
            self._taken_bytes += size
            time.sleep(0)  # hands the interpreter to the loop between two exchanges

    def _packed_in_thread(
        self, records: Sequence[RunRecord], values: ExchangeValues | None, *, later: bool
    ) -> Packed:
        if later and values is not None and not values.learned:
            raise ServedRunsLost(records[0].exchange)
        try:
            return self._packed_without_blobs(records, values, later=later)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            # A stack, a tool or a service said what cannot be searched: it is made so that it can.
            return self._packed_without_blobs(list(map(writable, records)), values, later=later)

    def _packed_without_blobs(
        self, records: Sequence[RunRecord], values: ExchangeValues | None, *, later: bool
    ) -> Packed:
        redacted = self.redactor.exchange(records, *self._decoders(records), values)
        for at, record in enumerate(redacted):
            if _size(record) > LONGEST:
                redacted[at] = without_blobs(record, self._batch.store.blob)
        return _encoded(redacted, later=later)

    def _pack_feedback(self, record: FeedbackRecord) -> Packed | None:
        """Pack a feedback; None where its exchange was forgotten."""
        if record.exchange in self._batch.forgotten():
            return None
        line = _encoder.encode(self.redactor.feedback(record)) + b"\n"
        folder = f"{FEEDBACK}/{DATE_PREFIX}{_date(record.at // _DAY_MICROSECONDS)}"
        return Packed(folder, record.exchange, [line])


class _Batch:
    """Lines not yet stored, by folder, and counts of all others.

    It belongs to the thread; its counters may be read from any.
    """

    def __init__(self, captures: CaptureSettings) -> None:
        self.store = capture_store(captures)
        self._captures = captures
        self._batches: dict[str, Batch] = {}
        self._packed = 0
        self._due = math.inf
        self._sweep = time.monotonic() if captures.keep_days else math.inf
        self.written = self.lines = self.batches = self.bytes = 0
        self._forgotten: frozenset[str] | None = None
        self.settled = 0
        """How many of those packed, or not, are stored or dropped."""
        self.dropped: Counter[Dropped] = Counter()
        self.stored_at = self.dropped_at = -math.inf

    def seconds_left(self) -> float | None:
        """Return the time until `tend` is due; None while it is not."""
        moment = min(self._due, self._sweep, self.store.due)
        return None if moment == math.inf else max(0.0, moment - time.monotonic())

    def forgotten(self) -> frozenset[str]:
        """Return the exchanges that were forgotten, read once a batch."""
        if self._forgotten is None or not self._batches:
            self._forgotten = self.store.forgotten()
        return self._forgotten

    def add(self, packed: Packed) -> None:
        """Add lines packed together; writes when the batch is full or due."""
        batch = self._batches.setdefault(packed.folder, Batch())
        batch.add(packed.lines, packed.exchange, later=packed.later)
        self._packed += 1
        if self._due == math.inf:
            self._due = time.monotonic() + self._captures.flush_seconds
        if self._packed >= self._captures.batch or self.store.full:
            self.write()
        self.tend()

    def tend(self) -> None:
        """Write the batch that is due, and delete files that are too old."""
        now = time.monotonic()
        if self._due <= now:
            self.write()
        if self.store.due <= now:
            self._settle(self.store.tend())
        if self._sweep <= now:
            self._sweep = now + _SWEEP_SECONDS
            try:
                self.store.expire()
            except (OSError, ValueError, OverflowError) as error:
                self._log("old files stay", error)

    def write(self) -> None:
        """Hand everything to the store, a batch per folder."""
        self._forgotten = None
        batches, self._batches = self._batches, {}
        self._packed, self._due = 0, math.inf
        self._settle(self.store.store(batches))

    def flush(self, *, close: bool) -> None:
        """Let the store put what it holds; what it cannot is lost where it is to close."""
        self._settle(self.store.close() if close else self.store.flush())

    def _settle(self, found: Iterable[Settled]) -> None:
        """Count what has been stored or lost."""
        for one in found:
            if one.error is not None:
                self.drop("disk", one.packed, one.error)
                continue
            self.stored_at = time.monotonic()
            self.settled += one.packed
            self.written += one.exchanges
            self.lines += one.lines
            self.batches += one.batches
            self.bytes += one.size

    def drop(self, why: Dropped, count: int, error: Exception) -> None:
        """Count a loss; the error is named only: its text could quote the data."""
        self.dropped[why] += count
        self.settled += count
        self.dropped_at = time.monotonic()
        self._log(f"{count} dropped ({why})", error)

    def _log(self, what: str, error: Exception) -> None:
        log.error("captures: %s: %s", what, type(error).__name__)


def _encoded(records: Sequence[RunRecord], *, later: bool) -> Packed:
    date = _date(records[0].began // _DAY_MICROSECONDS)
    lines = [encode_run(record) for record in records]
    folder = f"{FLOW_PREFIX}{records[0].flow}/{DATE_PREFIX}{date}"
    return Packed(folder, records[0].exchange, lines, later)


def _size(record: RunRecord) -> int:
    """Estimate the memory of a record by its texts, in bytes."""
    found = sum([len(text) for _, text in record.frames])
    if record.request is not None:
        found += len(memoryview(record.request.body))
    for entry in record.tape or ():
        found += len(memoryview(entry.args)) + sum([len(memoryview(one)) for one in entry.items])
    for play in record.plays:
        found += 0 if play.args is None else len(memoryview(play.args))
    return found


@cache
def _date(days: int) -> str:
    return datetime.fromtimestamp(days * 86_400, UTC).strftime("%Y-%m-%d")
