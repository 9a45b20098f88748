"""Capture: finished exchanges are redacted and written down, never in anybody's way."""

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
from typing import Literal, assert_never

import msgspec

from contract.flow import FlowSpec
from contract.records import FeedbackRecord, RunRecord
from router.capture.batches import Batches, Dropped
from router.capture.packing import Packed, Packing, size
from router.capture.redaction import Redactor
from router.config import CaptureSettings, compile_patterns
from router.routing.rollout import captured

Put = Literal["queued", "not_sampled", "dropped"]

QUEUE_BYTES = 64 * 1_048_576
HOLD = 0.05
"""Seconds for which what is packed waits for others: waking the thread costs the loop its turn."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """What happened so far, in exchanges and feedbacks; `bytes` as stored.

    All that was put is `written`, `waiting`, `not_sampled` or `dropped`.
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

    Short ones of stacks behind addresses are packed on the spot: the thread would take as long, and
    take turns with the loop for the interpreter meanwhile.

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
        self._waiting = _Waiting(captures.queue, QUEUE_BYTES)
        self._not_sampled = 0
        self._taken = 0
        self._refused: Counter[Dropped] = Counter()  # counted on the loop
        self._batches = Batches(captures, on_batch)  # opens the place, or refuses it
        self._packing = Packing(redactor, specs, self._batches.blob)
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
        """Take what a user thought; never sampled, there is too little of it."""
        return self._queue(_Feedback(record))

    @property
    def counts(self) -> CaptureCounts:
        """Count what happened; may be read at any time."""
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
        """Store what is left, for `deadline` seconds at most; returns how many were left behind."""
        if self._closing is None:
            self._closing = Future()
            self._hand_over()
            self._jobs.put(_Flush(self._closing, last=True))
        try:
            async with asyncio.timeout(deadline):
                await asyncio.shield(asyncio.wrap_future(self._closing))
        except TimeoutError:
            logger.warning("captures: %d left behind at the deadline", self._unsettled)
        return self._unsettled

    @property
    def _unsettled(self) -> int:
        done = self._batches
        return self._taken - done.written - done.dropped.total()

    def _queue(self, job: _Exchange | _Feedback) -> Put:
        if self._closing is not None:
            self._refused["closed"] += 1
            return "dropped"
        if not self._waiting.enter(job.size):
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
        except Exception:  # noqa: BLE001 - the thread will meet it again, and count it
            return None

    def _keep(self, packed: Packed, size: int) -> None:
        """Hold what is packed until there is enough of it, or for a moment."""
        self._ready.append(packed)
        self._ready_size += size
        if len(self._ready) >= self._captures.batch:
            self._hand_over()
        elif self._handing is None:
            self._handing = asyncio.get_running_loop().call_later(HOLD, self._hand_over)

    def _hand_over(self) -> None:
        """Give the thread what is packed."""
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
                    self._waiting.leave(size, len(packed))
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
            self._waiting.leave(job.size)
            time.sleep(0)  # hands the interpreter to the loop between two exchanges


class _Waiting:
    """How much is in the queue: counted up on the loop, down in the thread."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        self._count = 0

    def enter(self, size: int) -> bool:
        """Take a place, if there is one (a single job of any size always fits)."""
        with self._lock:
            if self._count and (self._count >= self._most or self._bytes + size > self._most_bytes):
                return False
            self._count += 1
            self._bytes += size
            return True

    def leave(self, size: int, count: int = 1) -> None:
        """Give places back."""
        with self._lock:
            self._count -= count
            self._bytes -= size
