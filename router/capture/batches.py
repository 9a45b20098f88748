"""Batches: lines of finished exchanges, gathered until they fill a batch or are due.

Belongs to one thread; its counters may be read from any.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

from router.capture.segments import (
    SegmentStore,
    Sizes,
)
from router.config import CaptureSettings

Dropped = Literal["queue_full", "redaction_failed", "disk", "closed"]

_SWEEP_SECONDS = 3_600.0

logger = logging.getLogger(__name__)


class Batches:
    """Lines that are packed and not yet stored, and what became of all others."""

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
        """How many files have been deleted, because they were too many or too old."""
        return self._store.deleted

    def seconds_left(self) -> float | None:
        """Give the time until there is something to tend to; None while there is nothing."""
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
        """Write what is due, and delete what is too old."""
        now = time.monotonic()
        if self._due is not None and self._due <= now:
            self.write()
        if self._sweep is not None and self._sweep <= now:
            self._sweep = now + _SWEEP_SECONDS
            try:
                self._store.expire()
            except Exception as error:  # noqa: BLE001 (nothing may end the thread: nobody writes then)
                logger.error("captures: what is too old stays: %s", type(error).__name__)  # noqa: TRY400 - a path is enough of a trace

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
            self._tell(folder, count)
        self._lines.clear()
        self._exchanges.clear()
        self._due = None

    def blob(self, content: bytes) -> str:
        """Store a blob; returns its digest."""
        return self._store.blob(content)

    def drop(self, why: Dropped, count: int, error: Exception) -> None:
        """Count what is lost; the error is named, its text could quote the data."""
        self.dropped[why] += count
        logger.error("captures: %d dropped (%s): %s", count, why, type(error).__name__)

    def close(self) -> None:
        """Close the files."""
        self._store.close()

    def _tell(self, folder: str, count: int) -> None:
        if self._on_batch is None:
            return
        try:
            self._on_batch(folder, count)
        except Exception:
            logger.exception("captures: a listener failed")
