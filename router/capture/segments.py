"""Segments: where batches are stored, appended as whole frames, within a quota of the disk."""

from __future__ import annotations

import os
import re
import secrets
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
from effects.files import write_whole
from router.config.schema import CaptureSettings
from router.exchange_ids import KEY_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


FORGOTTEN = "forgotten"
"""The folder of lists of exchanges that were forgotten; quota and age do not delete them."""
_LIST = ".ids"

# Deleting goes a little beyond the cap, so that it is not done at every batch.
_KEPT_SHARE = 0.9
_DATE = re.compile(r"/date=(\d{4}-\d\d-\d\d)/")
_DAY_SECONDS = 86_400


class DiskQuota:
    """Deletes files below a root: the oldest beyond `cap` bytes, and those older than `days`.

    0 days: none by age. `wall` returns seconds since the Unix epoch. Other processes may write and
    delete there, too.
    """

    def __init__(self, root: str, cap: int, days: int, wall: Callable[[], float]) -> None:
        self._root = Path(root)
        self._cap = cap
        self._days = days
        self._wall = wall
        self._used = 0
        self.deleted = 0
        self.measure()

    def measure(self) -> None:
        """Sum the sizes of all files, those of other processes too."""
        self._used = sum(size for _, size, _ in self._files())

    def take(self, written: int, kept: Collection[str]) -> None:
        """Count written bytes; beyond the cap delete the oldest files, but for those kept."""
        self._used += written
        if self._used <= self._cap:
            return
        files = self._files()
        self._used = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if self._used <= self._cap * _KEPT_SHARE:
                return
            if path not in kept:
                self._delete(path, size)

    def expire(self) -> None:
        """Delete old files: exchanges by their day, blobs by their last use."""
        if not self._days:
            return
        oldest = self._wall() - self._days * _DAY_SECONDS
        first_day = time.strftime("%Y-%m-%d", time.gmtime(oldest))
        for changed, size, path in self._files():
            day = _DATE.search(path)
            if (day[1] < first_day) if day else (changed < oldest):
                self._delete(path, size)

    def _delete(self, path: str, size: int) -> None:
        with suppress(OSError):  # another process was faster
            Path(path).unlink()
            self.deleted += 1
        self._used -= size

    def _files(self) -> list[tuple[float, int, str]]:
        """Return time of change, size and path of files below the root; none of a few that stay."""
        found = []
        for folder, _, names in os.walk(self._root):
            if Path(folder).name == FORGOTTEN:
                continue
            for name in names:
                if name == KEY_FILE:
                    continue
                path = f"{folder}/{name}"
                with suppress(FileNotFoundError):  # as above
                    facts = os.stat(path)  # noqa: PTH116 - thousands of files, once a segment
                    found.append((facts.st_mtime, facts.st_size, path))
        return found


_APPENDING = frozenset({"file", "local"})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]+")
_LEVEL = 3
_DIGEST_BYTES = 32
_SEGMENTS_UNDER_CAP = 8


class CapturePlaceRefused(CutoverError):
    """Captures cannot go where the configuration says."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"captures cannot go to {place!r}: {why}")


@dataclass(slots=True)
class _Open:
    """The segment a folder's batches go to.

    The path is parsed once: parsing it for each batch grows the interpreter's table of strings.
    """

    path: Path
    file: IO[bytes]
    size: int = 0


class SegmentStore:
    """Writes batches and blobs below a path or fsspec URL; blocking, for one thread.

    On a local disk the oldest files go beyond `disk_bytes`, and those older than `keep_days`; a
    remote store has rules of its own for both. `wall` returns seconds since the Unix epoch.
    """

    def __init__(self, captures: CaptureSettings, wall: Callable[[], float] = time.time) -> None:
        self._system: Any
        try:
            self._system, self._root = fsspec.core.url_to_fs(captures.path)
        except (OSError, ValueError, ImportError) as error:
            raise CapturePlaceRefused(captures.path, str(error)) from error
        self._local = bool(_APPENDING & set(self._system.protocol))
        full = min(captures.segment_bytes, captures.disk_bytes // _SEGMENTS_UNDER_CAP)
        self._full = max(1, full)
        self._quota: DiskQuota | None = None
        if self._local:
            self._quota = DiskQuota(self._root, captures.disk_bytes, captures.keep_days, wall)
        self._prefix = _process_name()
        self._seq = 0
        self._open: dict[str, _Open] = {}
        self._compressor = compressor()

    @property
    def deleted(self) -> int:
        """How many files have been deleted for the disk quota or their age."""
        return self._quota.deleted if self._quota is not None else 0

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

    def forgotten(self) -> frozenset[str]:
        """Return the exchanges that were forgotten; raises `OSError`."""
        return read_forgotten(self._system, self._root)

    def expire(self) -> None:
        """Delete files that are too old."""
        if self._quota is not None:
            self._quota.expire()

    def close(self) -> None:
        """Close every open segment."""
        while self._open:
            self._open.popitem()[1].file.close()

    def _append(self, folder: str, frame: bytes) -> None:
        segment = self._open.get(folder)
        if segment is None or not self._appended(folder, segment, frame):
            self._appended(folder, self._begin(folder), frame)

    def _appended(self, folder: str, segment: _Open, frame: bytes) -> bool:
        """Append to a segment; False where it was removed or replaced since: none would read it."""
        try:
            with exclusive(segment.file):
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
        days = sorted(name for name in self._open if _flow_of(name) == _flow_of(folder))
        for other in days[:-1]:  # around midnight exchanges of two days are written
            self._end(other)
        if self._quota is not None:
            self._quota.measure()  # other processes write here, too
        path = self._new_path(folder)
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        segment = _Open(Path(path), self._system.open(path, "ab"))
        self._open[folder] = segment
        return segment

    def _end(self, folder: str) -> None:
        segment = self._open.pop(folder)
        with suppress(OSError):  # what it still buffered is lost, and counted
            segment.file.close()

    def _new_path(self, folder: str) -> str:
        self._seq += 1
        return f"{self._root}/{folder}/{self._prefix}-{self._seq:06d}.jsonl.zst"

    def _count(self, size: int) -> None:
        if self._quota is not None:
            self._quota.take(size, {str(segment.path) for segment in self._open.values()})


def add_forgotten(system: Any, root: str, exchanges: Collection[str]) -> None:
    """Store that exchanges were forgotten: later feedback on them is not stored."""
    if exchanges:
        system.makedirs(f"{root}/{FORGOTTEN}", exist_ok=True)
        path = f"{root}/{FORGOTTEN}/{time.time_ns()}-{secrets.token_hex(4)}{_LIST}"
        content = "".join(f"{one}\n" for one in sorted(exchanges)).encode()
        if _APPENDING & set(system.protocol):
            write_whole(Path(path), content)
        else:
            system.pipe_file(path, content)


def read_forgotten(system: Any, root: str) -> frozenset[str]:
    """Return the exchanges below a place of captures that were forgotten; raises `OSError`."""
    folder = f"{root}/{FORGOTTEN}"
    system.invalidate_cache(folder)
    lists = [path for path in system.find(folder) if path.endswith(_LIST)]
    return frozenset(one for path in lists for one in system.cat_file(path).decode().split())


def compressor() -> zstandard.ZstdCompressor:
    """Return the compressor of batches and blobs."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)


@contextmanager
def exclusive(file: IO[bytes]) -> Iterator[None]:
    """Lock a segment: no other process appends to it or replaces it meanwhile."""
    flock(file.fileno(), LOCK_EX)
    try:
        yield
    finally:
        flock(file.fileno(), LOCK_UN)


def in_place(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _flow_of(folder: str) -> str:
    return folder.partition("/")[0]


def _process_name() -> str:
    host = _NOT_IN_NAMES.sub("-", socket.gethostname())[:40].strip("-") or "host"
    return f"{host}-{os.getpid()}-{time.time_ns() // 1_000_000}"
