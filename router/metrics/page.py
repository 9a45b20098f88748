"""The page Prometheus reads: this worker's values, or all workers' together."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.metrics.books import Books
    from router.metrics.panel import Panel


@dataclass(frozen=True, slots=True)
class Page:
    """Writes the page; `folder` is where the workers of this host keep their values, if several."""

    panel: Panel
    books: Books
    folder: str = ""

    async def write(self, accepted: str) -> tuple[bytes, str]:
        """Give the page and its media type, for what the request accepts."""
        self.books.copy()
        encode, media_type = _encoder(accepted)
        # In a thread: some hundred series take milliseconds, which streams would wait through.
        return await asyncio.to_thread(lambda: encode(self._registry())), media_type

    def _registry(self) -> CollectorRegistry:
        if not self.folder:
            return self.panel.registry
        forget_the_dead(Path(self.folder))
        together = CollectorRegistry()
        MultiProcessCollector(together, self.folder)  # type: ignore[no-untyped-call] # as above
        return together


def _encoder(accepted: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    try:
        return choose_encoder(accepted)
    except TypeError:  # a version that is no number
        return choose_encoder("")


def forget_the_dead(folder: Path) -> None:
    """Drop the gauges of workers that have ended, however they did; their counts stay."""
    for pid in {path.stem.rpartition("_")[2] for path in folder.glob("gauge_live*_*.db")}:
        if pid.isdigit() and not _lives(int(pid)):
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call] # as above


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
