"""Reads captures: the lines of a folder or bucket, damage counted."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from threading import Event

import zstandard

from cutover.records import RecordDamaged, RunRecord, decode
from router.captures.store import Store

POLL_SECONDS = 2.0


@dataclass(slots=True)
class CaptureReader:
    """Yields the lines of captures, in the order in which they were written.

    `lines` and `files` count what was read; `damage` counts what was not: `torn` files that are cut
    off or changed (what stands before is read), `foreign` lines that are no records of this
    version, `duplicate` lines of a run that was read before, and files that are `gone` or cannot
    be opened.
    """

    store: Store
    flow: str | None = None
    only: Collection[str] | None = None
    """Names of the files to read; None: all that there are."""
    lines: int = 0
    files: int = 0
    damage: Counter[str] = field(default_factory=Counter)
    _seen: set[tuple[str, str, str]] = field(default_factory=set)
    _read: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[RunRecord]:
        for name in self.store.names(self.flow) if self.only is None else self.only:
            if name not in self._read:
                self._read.add(name)
                yield from self._file(name)

    def follow(
        self, stop: Event, wait: Callable[[float], object] = time.sleep
    ) -> Iterator[RunRecord]:
        """Yield the lines there are, and those that come, until `stop` is set."""
        while not stop.is_set():
            before = self.files
            yield from self
            if self.files == before:
                wait(POLL_SECONDS)

    def _file(self, name: str) -> Iterator[RunRecord]:
        self.files += 1
        for line in file_lines(self.store, name, self.damage):
            try:
                record = decode(line, RunRecord)
            except RecordDamaged:
                self.damage["foreign"] += 1
                continue
            run = record.exchange, record.role, record.stack
            if run in self._seen:
                self.damage["duplicate"] += 1
                continue
            self._seen.add(run)
            self.lines += 1
            yield record


def file_lines(store: Store, name: str, damage: Counter[str]) -> Iterator[bytes]:
    """Yield the lines of a file that are whole; count in `damage` what is torn or gone."""
    rest: list[bytes] = []
    try:
        for piece in store.pieces(name):
            *whole, last = piece.split(b"\n")
            if whole:
                whole[0] = b"".join((*rest, whole[0]))
                rest.clear()
                yield from (line for line in whole if line)
            rest.append(last)
    except zstandard.ZstdError:
        damage["torn"] += 1
    except OSError:
        damage["gone"] += 1
    else:
        if any(rest):
            damage["torn"] += 1
