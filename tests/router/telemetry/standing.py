"""Books for tests: captures and faults that say what a test wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.capture.writer import CaptureCounts, Dropped


@dataclass
class Written:
    """Captures that wrote and dropped so much."""

    written: int = 0
    waiting: int = 0
    dropped: Mapping[Dropped, int] = field(default_factory=dict)

    @property
    def counts(self) -> CaptureCounts:
        """Count it."""
        return CaptureCounts(
            written=self.written,
            lines=self.written,
            batches=1,
            bytes=0,
            waiting=self.waiting,
            not_sampled=0,
            deleted_files=0,
            dropped=self.dropped,
        )
