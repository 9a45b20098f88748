"""Writes captures: a queue, one thread, and a file for each batch of lines."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from queue import Empty, SimpleQueue
from typing import Self

from cutover.records import RunRecord, TapeRecord, encode
from cutover.tape import tape_record
from router.captures.lines import began, played_line, served_lines
from router.captures.redaction import Redactor
from router.captures.store import Store
from router.exchange import Served
from router.shadow import Played

log = logging.getLogger("cutover.captures")

BATCH_BYTES, BATCH_SECONDS = 8 << 20, 5.0
"""A batch is written when it has so many bytes, or its first line is so old."""
WAITING_BYTES = 128 << 20
"""Bytes of exchanges that wait to be written; more are dropped."""
_LINE_BYTES = 4096
CLOSING_SECONDS = 20.0
"""What writing the rest may take when the server stops."""

_SAID_SECONDS = 10.0
"""How often a warning says what is dropped: a full disk fails at every batch."""

Made = tuple[Sequence[RunRecord], TapeRecord | None]
"""Lines of an exchange, and its tape where none of them holds it."""
_Offer = tuple[Callable[[], Made], int, int]
"""How lines are made, how many, and their weight in the queue."""


@dataclass(slots=True, eq=False)
class Captures:
    """Stores a line for each run, redacted; where clients are served nothing raises or waits.

        async with Captures(Store("s3://bucket/captures"), Redactor(key)) as captures:
            captures.served(exchange)               # when it ends, not when its shadow does
            captures.played(exchange, played)

    `dropped` counts lines that are not stored, by reason: `tape_overflowed`, `queue_full`,
    `redaction_failed`, `not_encodable`, `store_failed`, `closed`. `written` counts those that are.
    A kill loses what is not `BATCH_SECONDS` old. `keep_days` 0 keeps lines for ever.
    """

    store: Store
    redactor: Redactor | None
    keep_days: int = 0
    batch_bytes: int = BATCH_BYTES
    batch_seconds: float = BATCH_SECONDS
    written: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    _queue: SimpleQueue[_Offer | None] = field(default_factory=SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: int = 0
    _offered: int = 0
    """Lines, each of which is written or dropped in the end."""
    _closing: bool = False
    _batches: dict[tuple[str, date], list[bytes]] = field(default_factory=dict)
    _size: int = 0
    _oldest: float = 0.0
    _swept: date | None = None
    _said: float = float("-inf")
    _thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        """Start the thread that writes."""
        self._thread = threading.Thread(target=self._run, name="captures", daemon=True)
        self._thread.start()
        return self

    def served(self, exchange: Served) -> None:
        """Store the runs that served an exchange, which has ended and whose tape is closed."""
        if not exchange.runs:
            return
        if exchange.tape.overflowed:
            self._offered += len(exchange.runs)
            self.dropped["tape_overflowed"] += len(exchange.runs)
            return
        at = began(exchange)
        self._offer(lambda: (served_lines(exchange, at), None), len(exchange.runs), exchange.size)

    def played(self, exchange: Served, played: Played) -> None:
        """Store a shadow's run."""
        at = began(exchange)

        def made() -> Made:
            return [played_line(exchange, played, at)], tape_record(exchange.tape)

        self._offer(made, 1, played.driver.size)

    def line(self, record: RunRecord) -> None:
        """Store a line that exists, such as one of another store."""
        size = sum(len(frame.data) for frame in record.frames)
        self._offer(lambda: ([record], None), 1, size)

    @property
    def behind(self) -> bool:
        """Whether so much waits to be written that who can wait should."""
        return self._waiting > WAITING_BYTES // 4

    def _offer(self, make: Callable[[], Made], count: int, weight: int) -> None:
        weight += count * _LINE_BYTES
        with self._lock:
            self._offered += count
            if self._closing or self._waiting + weight > WAITING_BYTES:
                self.dropped["closed" if self._closing else "queue_full"] += count
                return
            self._waiting += weight
        self._queue.put((make, count, weight))

    async def __aexit__(self, *_: object) -> None:
        """Write what is left; what is not written within `CLOSING_SECONDS` is lost, and counted."""
        self._closing = True
        self._queue.put(None)
        thread = self._thread
        until = time.monotonic() + CLOSING_SECONDS
        while thread is not None and thread.is_alive():
            if time.monotonic() > until:
                self._drop("closed", self._offered - self.written - self.dropped.total())
                break
            await asyncio.to_thread(thread.join, 0.5)

    # In the thread.

    def _run(self) -> None:
        ending = False
        while not ending:
            self._sweep()
            left = self._oldest + self.batch_seconds - time.monotonic()
            with suppress(Empty):
                taken = self._queue.get(timeout=max(0.0, left) if self._batches else 60.0)
                ending = taken is None
                if taken is not None:
                    self._take(*taken)
            due = time.monotonic() - self._oldest >= self.batch_seconds
            if self._batches and (due or ending or self._size >= self.batch_bytes):
                self._write()

    def _take(self, make: Callable[[], Made], count: int, weight: int) -> None:
        """Make the lines of an exchange, redacted, and add them to their batches."""
        with self._lock:
            self._waiting -= weight
        try:
            lines, tape = make()
        except Exception:
            log.exception("lines of an exchange cannot be made")
            self._drop("not_encodable", count)
            return
        for line in lines:
            reason = "redaction_failed"
            try:
                served = tape or lines[0].tape
                redacted = self.redactor.line(line, served) if self.redactor else line
                reason = "not_encodable"
                encoded = encode(redacted)
                day = datetime.fromtimestamp(line.at / 1e6, UTC).date()
            except Exception as error:  # noqa: BLE001 - its text may hold what is to be redacted
                kind = type(error).__name__
                log.error("exchange=%s not stored: %s with %s", line.exchange, reason, kind)
                self._drop(reason, 1)
                continue
            if not self._batches:
                self._oldest = time.monotonic()
            self._batches.setdefault((line.flow, day), []).append(encoded)
            self._size += len(encoded)

    def _write(self) -> None:
        for (flow, day), lines in self._batches.items():
            try:
                self.store.add(flow, day, b"\n".join(lines) + b"\n")
            except Exception as error:  # noqa: BLE001 - a disk, a network, a service: anything
                self._drop("store_failed", len(lines), error)
            else:
                self.written += len(lines)
        self._batches, self._size = {}, 0

    def _sweep(self) -> None:
        today = datetime.now(UTC).date()
        if not self.keep_days or self._swept == today:
            return
        self._swept = today
        try:
            if removed := self.store.sweep(self.keep_days, today):
                log.info("captures files_removed=%d keep_days=%d", removed, self.keep_days)
        except Exception:
            log.exception("old captures cannot be removed")

    def _drop(self, reason: str, count: int, error: Exception | None = None) -> None:
        self.dropped[reason] += count
        if time.monotonic() - self._said > _SAID_SECONDS:
            self._said = time.monotonic()
            log.warning("captures dropped=%d reason=%s error=%r", count, reason, error)
