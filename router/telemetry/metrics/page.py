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
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import Metric

    from router.telemetry.metrics.books import Books
    from router.telemetry.metrics.panel import Panel


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
        together.register(_Together(Path(self.folder)))
        return together


@dataclass(frozen=True, slots=True)
class _Together(Collector):
    """The values of all workers that keep theirs in a folder."""

    folder: Path

    def collect(self) -> Iterable[Metric]:
        """Add them up."""
        # A file is empty for the moment in which its worker begins it: the library cannot read it.
        files = [entry.path for entry in os.scandir(self.folder) if _holds_values(entry)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call] # the client's own omission
        return merged


def _holds_values(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.name.endswith(".db") and entry.stat().st_size > 0
    except FileNotFoundError:  # another worker's page has just dropped it, see `forget_the_dead`
        return False


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
