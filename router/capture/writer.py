"""Writing captures: finished exchanges are redacted, packed and stored, off the served path."""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Literal, assert_never

import msgspec

from contract.blobs import LONGEST, without_blobs
from contract.flow import FlowSpec
from contract.records import FeedbackRecord, RunRecord, encode_run
from router.capture.redaction import Redactor
from router.capture.segments import SegmentStore, Sizes
from router.config import CaptureSettings, compile_patterns
from router.routing.rollout import captured

_FEEDBACK = "feedback"
_MICROSECONDS = 1_000_000
_DAY = 86_400

_encoder = msgspec.json.Encoder()


class Packed(msgspec.Struct, frozen=True):
    """Lines of one exchange or feedback, and the folder they go to."""

    folder: str
    lines: list[bytes]


class RecordPacker:
    """Turns records into stored lines; `blob` stores a long text and returns its digest."""

    def __init__(
        self, redactor: Redactor, specs: Mapping[str, FlowSpec], blob: Callable[[bytes], str]
    ) -> None:
        self._redactor = redactor
        self._specs = specs
        self._blob = blob

    def exchange(self, records: Sequence[RunRecord]) -> Packed:
        """Pack the records of an exchange, searching all its texts."""
        redacted = self._redactor.exchange(records, self._specs[records[0].flow].dialect)
        return self._packed(records, [without_blobs(one, self._blob) for one in redacted])

    def at_once(self, records: Sequence[RunRecord], weight: int) -> Packed | None:
        """Pack a short exchange of remote stacks, of `weight` bytes; None for any other.

        That takes less time than a change of threads; tapes take longer, and so do texts in which
        something may have to be redacted.
        """
        if weight > LONGEST or any(record.tape for record in records):
            return None
        redacted = self._redactor.at_once(records, self._specs[records[0].flow].dialect)
        return None if redacted is None else self._packed(records, redacted)

    def feedback(self, record: FeedbackRecord) -> Packed:
        """Pack a feedback."""
        line = _encoder.encode(self._redactor.feedback(record)) + b"\n"
        return Packed(f"{_FEEDBACK}/date={_day(record.at)}", [line])

    def _packed(self, records: Sequence[RunRecord], redacted: Sequence[RunRecord]) -> Packed:
        first = records[0]
        folder = f"flow={first.flow}/date={_day(first.began)}"
        return Packed(folder, [encode_run(one) for one in redacted])


def size(record: RunRecord) -> int:
    """Estimate the memory of a record by its texts, in bytes."""
    found = sum([len(text) for _, text in record.frames])
    if record.request is not None:
        found += len(memoryview(record.request.body))
    for entry in record.tape or ():
        found += len(memoryview(entry.args)) + sum(len(memoryview(one)) for one in entry.items)
    return found


def _day(microseconds: int) -> str:
    return _date(microseconds // _MICROSECONDS // _DAY)


@cache
def _date(days: int) -> str:
    return datetime.fromtimestamp(days * _DAY, UTC).strftime("%Y-%m-%d")


Dropped = Literal["queue_full", "redaction_failed", "disk", "closed"]

_SWEEP_SECONDS = 3_600.0

log = logging.getLogger(__name__)


class BatchBuffer:
    """Lines not yet stored, by folder, and counts of all others.

    It belongs to one thread; its counters may be read from any.
    """

    def __init__(
        self, captures: CaptureSettings, on_batch: Callable[[str, int], None] | None
    ) -> None:
        self._captures = captures
        self._on_batch = on_batch
        sizes = Sizes(captures.segment_bytes, captures.disk_bytes, captures.keep_days)
        self._store = SegmentStore(captures.path, sizes)
        self._lines: dict[str, list[bytes]] = {}
        self._exchanges: Counter[str] = Counter()
        self._due: float | None = None
        self._sweep = time.monotonic() if captures.keep_days else None
        self.written = self.lines = self.batches = self.bytes = 0
        self.dropped: Counter[Dropped] = Counter()

    @property
    def deleted_files(self) -> int:
        """How many files have been deleted for the disk quota or their age."""
        return self._store.deleted

    def seconds_left(self) -> float | None:
        """Return the time until `tend` is due; None while it is not."""
        moments = [moment for moment in (self._due, self._sweep) if moment is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def add(self, folder: str, lines: list[bytes]) -> None:
        """Add one exchange's lines; writes when the batch is full or due."""
        self._lines.setdefault(folder, []).extend(lines)
        self._exchanges[folder] += 1
        if self._due is None:
            self._due = time.monotonic() + self._captures.flush_seconds
        if self._exchanges.total() >= self._captures.batch:
            self.write()
        self.tend()

    def tend(self) -> None:
        """Write the batch that is due, and delete files that are too old."""
        now = time.monotonic()
        if self._due is not None and self._due <= now:
            self.write()
        if self._sweep is not None and self._sweep <= now:
            self._sweep = now + _SWEEP_SECONDS
            try:
                self._store.expire()
            except Exception as error:  # noqa: BLE001 (nothing may end the thread)
                log.error("captures: old files stay: %s", type(error).__name__)  # noqa: TRY400 - a path is enough of a trace

    def write(self) -> None:
        """Store everything, a batch per folder."""
        for folder, lines in self._lines.items():
            count = self._exchanges[folder]
            try:
                size = self._store.write(folder, b"".join(lines))
            except Exception as error:  # noqa: BLE001 (stores elsewhere have errors of their own)
                self.drop("disk", count, error)
                continue
            self.written += count
            self.lines += len(lines)
            self.batches += 1
            self.bytes += size
            self._notify(folder, count)
        self._lines.clear()
        self._exchanges.clear()
        self._due = None

    def blob(self, content: bytes) -> str:
        """Store a blob; returns its digest."""
        return self._store.blob(content)

    def drop(self, why: Dropped, count: int, error: Exception) -> None:
        """Count a loss; the error is named only: its text could quote the data."""
        self.dropped[why] += count
        log.error("captures: %d dropped (%s): %s", count, why, type(error).__name__)

    def close(self) -> None:
        """Close the files."""
        self._store.close()

    def _notify(self, folder: str, count: int) -> None:
        if self._on_batch is None:
            return
        try:
            self._on_batch(folder, count)
        except Exception:
            log.exception("captures: a listener failed")


Put = Literal["queued", "not_sampled", "dropped"]

QUEUE_BYTES = 64 * 1_048_576
HOLD = 0.05
"""Seconds a packed exchange waits for others: waking the thread costs the loop its turn."""


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """Counts since the start, in exchanges and feedbacks; `bytes` as stored.

    Each is `written`, `waiting`, `not_sampled` or `dropped`.
    """

    written: int
    lines: int
    batches: int
    bytes: int
    waiting: int
    not_sampled: int
    deleted_files: int
    dropped: Mapping[Dropped, int]


class _Exchange(msgspec.Struct, frozen=True):
    records: tuple[RunRecord, ...]
    size: int


class _Feedback(msgspec.Struct, frozen=True):
    record: FeedbackRecord
    size: int = 0


class _Ready(msgspec.Struct, frozen=True):
    packed: list[Packed]
    size: int


@dataclass(frozen=True, slots=True)
class _Flush:
    done: Future[None]
    last: bool = False


_Job = _Exchange | _Feedback | _Ready | _Flush


class CaptureWriter:
    """Takes finished exchanges on the loop; redacts, packs and stores them in its own thread.

    Short ones of remote stacks are packed at once: the thread would take as long, and compete with
    the loop for the interpreter.

    `put` and `feedback` never wait: with the queue full (a slow disk), or the disk refusing, whole
    exchanges are dropped and counted. A batch is `batch` exchanges or `flush_seconds`, whichever
    comes first. `key` makes pseudonyms; without one they are equal within this process only.
    """

    def __init__(
        self,
        captures: CaptureSettings,
        specs: Mapping[str, FlowSpec],
        *,
        salt: str,
        key: bytes = b"",
        on_batch: Callable[[str, int], None] | None = None,
    ) -> None:
        self._captures = captures
        self._specs = specs
        self._salt = salt
        redact = captures.redact
        redactor = Redactor(
            compile_patterns(redact.patterns), redact.paths, key or secrets.token_bytes(32)
        )
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._waiting = _QueueLimit(captures.queue, QUEUE_BYTES)
        self._not_sampled = 0
        self._taken = 0
        self._refused: Counter[Dropped] = Counter()  # counted on the loop
        self._batches = BatchBuffer(captures, on_batch)  # opens the place, or refuses it
        self._packing = RecordPacker(redactor, specs, self._batches.blob)
        self._ready: list[Packed] = []
        self._ready_size = 0
        self._handing: asyncio.TimerHandle | None = None
        self._closing: Future[None] | None = None
        self._thread = threading.Thread(target=self._work, name="cutover-capture", daemon=True)
        self._thread.start()

    def put(self, records: Sequence[RunRecord]) -> Put:
        """Take the records of one finished exchange; whole or not at all."""
        if not records:
            return "not_sampled"
        thousandths = int(self._captures.percent * 1_000)
        if not captured(thousandths, self._salt, records[0].exchange):
            self._not_sampled += 1
            return "not_sampled"
        return self._queue(_Exchange(tuple(records), sum(map(size, records))))

    def feedback(self, record: FeedbackRecord) -> Put:
        """Take a user's feedback; never sampled, there is too little of it."""
        return self._queue(_Feedback(record))

    @property
    def counts(self) -> CaptureCounts:
        """The counts; may be read at any time."""
        done = self._batches
        return CaptureCounts(
            written=done.written,
            lines=done.lines,
            batches=done.batches,
            bytes=done.bytes,
            waiting=self._unsettled,
            not_sampled=self._not_sampled,
            deleted_files=done.deleted_files,
            # A plain dict: `dataclasses.asdict` makes a Counter a count of pairs, which is no JSON.
            dropped=dict(self._refused + done.dropped.copy()),
        )

    async def flush(self) -> None:
        """Wait until everything taken so far is stored or dropped."""
        if self._closing is not None:
            await asyncio.shield(asyncio.wrap_future(self._closing))
            return
        job = _Flush(Future())
        self._hand_over()
        self._jobs.put(job)
        await asyncio.shield(asyncio.wrap_future(job.done))

    async def aclose(self, deadline: float = 5.0) -> int:
        """Store what is left, for `deadline` seconds at most; return how many remain."""
        if self._closing is None:
            self._closing = Future()
            self._hand_over()
            self._jobs.put(_Flush(self._closing, last=True))
        try:
            async with asyncio.timeout(deadline):
                await asyncio.shield(asyncio.wrap_future(self._closing))
        except TimeoutError:
            log.warning("captures: %d not stored at the deadline", self._unsettled)
        return self._unsettled

    @property
    def _unsettled(self) -> int:
        done = self._batches
        return self._taken - done.written - done.dropped.total()

    def _queue(self, job: _Exchange | _Feedback) -> Put:
        if self._closing is not None:
            self._refused["closed"] += 1
            return "dropped"
        if not self._waiting.reserve(job.size):
            self._refused["queue_full"] += 1
            return "dropped"
        self._taken += 1
        packed = self._packed_at_once(job)
        if packed is None:
            self._jobs.put(job)
        else:
            self._keep(packed, job.size)
        return "queued"

    def _packed_at_once(self, job: _Exchange | _Feedback) -> Packed | None:
        if not isinstance(job, _Exchange):
            return None
        try:
            return self._packing.at_once(job.records, job.size)
        except Exception:  # noqa: BLE001 - the thread meets it again, and counts it
            return None

    def _keep(self, packed: Packed, size: int) -> None:
        """Hold a packed exchange until a batch is full, or for a moment."""
        self._ready.append(packed)
        self._ready_size += size
        if len(self._ready) >= self._captures.batch:
            self._hand_over()
        elif self._handing is None:
            self._handing = asyncio.get_running_loop().call_later(HOLD, self._hand_over)

    def _hand_over(self) -> None:
        """Queue the packed exchanges for the thread."""
        if self._handing is not None:
            self._handing.cancel()
            self._handing = None
        if self._ready:
            self._jobs.put(_Ready(self._ready, self._ready_size))
            self._ready, self._ready_size = [], 0

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._batches.seconds_left())
            except queue.Empty:
                self._batches.tend()
                continue
            match job:
                case _Exchange() | _Feedback():
                    self._take(job)
                case _Ready(packed, size):
                    for one in packed:
                        self._batches.add(one.folder, one.lines)
                    self._waiting.release(size, len(packed))
                case _Flush(done, last):
                    self._batches.write()
                    if last:
                        self._batches.close()
                    done.set_result(None)
                    if last:
                        return
                case _:
                    assert_never(job)

    def _take(self, job: _Exchange | _Feedback) -> None:
        try:
            match job:
                case _Exchange(records):
                    packed = self._packing.exchange(records)
                case _Feedback(record):
                    packed = self._packing.feedback(record)
                case _:
                    assert_never(job)
        except OSError as error:
            self._batches.drop("disk", 1, error)
        except Exception as error:  # noqa: BLE001 (unredacted, nothing may be stored or logged)
            self._batches.drop("redaction_failed", 1, error)
        else:
            self._batches.add(packed.folder, packed.lines)
        finally:
            self._waiting.release(job.size)
            time.sleep(0)  # hands the interpreter to the loop between two exchanges


class _QueueLimit:
    """Exchanges and bytes in the queue: counted up on the loop, down in the thread."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        self._count = 0

    def reserve(self, size: int) -> bool:
        """Reserve space, if there is any (a single job of any size always fits)."""
        with self._lock:
            if self._count and (self._count >= self._most or self._bytes + size > self._most_bytes):
                return False
            self._count += 1
            self._bytes += size
            return True

    def release(self, size: int, count: int = 1) -> None:
        """Release space."""
        with self._lock:
            self._count -= count
            self._bytes -= size
