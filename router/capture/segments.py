"""Segments: where batches of captures go, one complete zstd frame each.

On a local disk a batch is appended to the open segment of its folder; a store that cannot append
gets one object per batch. A crash in the middle of a batch tears that batch alone: the process
that comes after writes files of its own.
"""

from __future__ import annotations

import os
import re
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_UN, flock
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import fsspec
import zstandard

from contract.errors import CutoverError
from router.capture.retention import (
    Room,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_APPENDING = frozenset({"file", "local"})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]+")
_LEVEL = 3
_DIGEST_BYTES = 32
_SEGMENTS_UNDER_CAP = 8


class CapturePlaceRefused(CutoverError):
    """Captures cannot go where the configuration says."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"captures cannot go to {place!r}: {why}")


@dataclass(frozen=True, slots=True)
class Sizes:
    """When a segment is full, and what all files may take on a local disk, in bytes and days.

    The cap deletes the oldest files first (what happened lately is what is asked about); `days` is
    for how long any are kept, 0 for ever. A store elsewhere has rules of its own for both.
    """

    segment: int
    disk: int
    days: int = 0


@dataclass(slots=True)
class _Open:
    """The segment a folder's batches go to."""

    path: str
    file: IO[bytes]
    size: int = 0


class SegmentStore:
    """Writes batches and blobs below a path or fsspec URL; blocking, for one thread.

    `wall` gives seconds since the Unix epoch.
    """

    def __init__(self, place: str, sizes: Sizes, wall: Callable[[], float] = time.time) -> None:
        self._system: Any
        self._system, self._root = _reached(place)
        self._local = bool(_APPENDING & set(self._system.protocol))
        self._full = max(1, min(sizes.segment, sizes.disk // _SEGMENTS_UNDER_CAP))
        self._room: Room | None = None
        if self._local:
            self._room = Room(self._root, sizes.disk, sizes.days, wall)
        self._prefix = _process_name()
        self._seq = 0
        self._open: dict[str, _Open] = {}
        self._compressor = compressor()

    @property
    def deleted(self) -> int:
        """How many files have been deleted, because they were too many or too old."""
        return self._room.deleted if self._room is not None else 0

    def write(self, folder: str, lines: bytes) -> int:
        """Store lines as one batch; returns the bytes written; raises `OSError`."""
        frame = self._compressor.compress(lines)
        if self._local:
            self._append(folder, frame)
        else:
            self._system.pipe_file(self._new_path(folder), frame)
        self._count(len(frame))
        return len(frame)

    def blob(self, content: bytes) -> str:
        """Store content under its digest, once; returns the digest; raises `OSError`."""
        digest = blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
        path = f"{self._root}/blobs/{digest}.zst"
        if self._system.exists(path):
            if self._local:  # young again: the cap must not delete it before what names it
                os.utime(path)
            return digest
        packed = self._compressor.compress(content)
        if self._local:
            self._system.makedirs(f"{self._root}/blobs", exist_ok=True)
            beside = f"{path}.{self._prefix}"
            self._system.pipe_file(beside, packed)
            self._system.mv(beside, path)
        else:
            self._system.pipe_file(path, packed)
        self._count(len(packed))
        return digest

    def expire(self) -> None:
        """Delete what is older than it may be."""
        if self._room is not None:
            self._room.expire()

    def close(self) -> None:
        """Close every open segment."""
        while self._open:
            self._open.popitem()[1].file.close()

    def _append(self, folder: str, frame: bytes) -> None:
        segment = self._open.get(folder)
        if segment is None or not self._appended(folder, segment, frame):
            self._appended(folder, self._begin(folder), frame)

    def _appended(self, folder: str, segment: _Open, frame: bytes) -> bool:
        """Append to a segment; False where it has been removed or replaced since it was opened.

        Nobody would ever read what follows then.
        """
        try:
            with alone(segment.file):
                there = in_place(segment.file, segment.path)
                if there:
                    segment.file.write(frame)
                    segment.file.flush()
        except OSError:
            self._end(folder)  # its tail may be torn: nothing may follow it
            raise
        if not there:
            self._end(folder)
            return False
        segment.size += len(frame)
        if segment.size >= self._full:
            self._end(folder)
        return True

    def _begin(self, folder: str) -> _Open:
        for other in [name for name in self._open if _flow_of(name) == _flow_of(folder)]:
            self._end(other)  # the day has changed
        if self._room is not None:
            self._room.measure()  # other processes write here, too
        path = self._new_path(folder)
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        segment = _Open(path, self._system.open(path, "ab"))
        self._open[folder] = segment
        return segment

    def _end(self, folder: str) -> None:
        segment = self._open.pop(folder)
        with suppress(OSError):  # what it still held is lost, and counted
            segment.file.close()

    def _new_path(self, folder: str) -> str:
        self._seq += 1
        return f"{self._root}/{folder}/{self._prefix}-{self._seq:06d}.jsonl.zst"

    def _count(self, size: int) -> None:
        if self._room is not None:
            self._room.take(size, {segment.path for segment in self._open.values()})


def compressor() -> zstandard.ZstdCompressor:
    """Make what packs batches and blobs."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)


@contextmanager
def alone(file: IO[bytes]) -> Iterator[None]:
    """Have a segment for oneself: nobody else appends to it or replaces it meanwhile."""
    flock(file.fileno(), LOCK_EX)
    try:
        yield
    finally:
        flock(file.fileno(), LOCK_UN)


def in_place(file: IO[bytes], path: str) -> bool:
    """Tell whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), Path(path).stat())
    except FileNotFoundError:
        return False


def _reached(place: str) -> tuple[Any, str]:
    try:
        return fsspec.core.url_to_fs(place)  # type: ignore[no-any-return]
    except (OSError, ValueError, ImportError) as error:
        raise CapturePlaceRefused(place, str(error)) from error


def _flow_of(folder: str) -> str:
    return folder.partition("/")[0]


def _process_name() -> str:
    host = _NOT_IN_NAMES.sub("-", socket.gethostname())[:40].strip("-") or "host"
    return f"{host}-{os.getpid()}-{time.time_ns() // 1_000_000}"
