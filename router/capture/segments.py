"""Segments: where batches are stored on a local disk, appended as whole frames, within a quota."""

from __future__ import annotations

import math
import os
import re
import secrets
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fcntl import LOCK_EX, LOCK_UN, flock
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import zstandard

from contract.capture_files import BLOBS, DAY, FORGOTTEN
from contract.errors import CutoverError
from effects.files import write_whole
from effects.places import Place
from router.config.schema import CaptureSettings
from router.exchange_ids import KEY_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

_LIST = ".ids"

# Deleting goes a little beyond the cap, so that it is not done at every batch.
_KEPT_SHARE = 0.9
_DAY_SECONDS = 86_400


@dataclass(slots=True)
class Batch:
    """Lines for one folder that are not stored yet, and the exchanges they are of.

    `exchanges` counts, of each, the packs whose loss or storage counts as an exchange: not those of
    second runs that come later. `packed` counts all.
    """

    lines: list[bytes] = field(default_factory=list)
    packed: int = 0
    exchanges: dict[str, int] = field(default_factory=dict)

    def add(self, lines: list[bytes], exchange: str, *, later: bool) -> None:
        """Add the lines of one exchange or feedback."""
        self.lines += lines
        self.packed += 1
        self.exchanges[exchange] = self.exchanges.get(exchange, 0) + (not later)


class Settled(NamedTuple):
    """What became of batches, in counts: stored in so many bytes, or lost by an error."""

    packed: int
    exchanges: int
    lines: int
    batches: int = 1
    size: int = 0
    error: Exception | None = None


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
        first_day = day_of(oldest)
        for changed, size, path in self._files():
            day = DAY.search(path)
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


def day_of(seconds: float) -> str:
    """Return the day (UTC) of a time in seconds since the Unix epoch; raises `ValueError`."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


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
    """Writes batches and blobs below a folder of this host; blocking, for one thread.

    The oldest files go beyond `disk_bytes`, and those older than `keep_days`. `wall` returns
    seconds since the Unix epoch.
    """

    due = math.inf
    """When `tend` has something to do: never, for a batch is written at once."""
    full = False
    waiting = 0
    fault: str | None = None

    def __init__(self, captures: CaptureSettings, wall: Callable[[], float] = time.time) -> None:
        self._place = Place(captures.path)
        self._root = self._place.root
        full = min(captures.segment_bytes, captures.disk_bytes // _SEGMENTS_UNDER_CAP)
        self._full = max(1, full)
        self._quota = DiskQuota(self._root, captures.disk_bytes, captures.keep_days, wall)
        self._prefix = process_name()
        self._seq = 0
        self._open: dict[str, _Open] = {}
        self._compressor = compressor()

    @property
    def deleted(self) -> int:
        """How many files have been deleted for the disk quota or their age."""
        return self._quota.deleted

    def store(self, batches: Mapping[str, Batch]) -> Iterator[Settled]:
        """Write a batch for each folder; yields what became of each."""
        for folder, batch in batches.items():
            counts = Settled(batch.packed, sum(batch.exchanges.values()), len(batch.lines))
            try:
                size = self.write(folder, b"".join(batch.lines))
            except (OSError, MemoryError, zstandard.ZstdError) as error:
                yield counts._replace(error=error)
            else:
                yield counts._replace(size=size)

    def write(self, folder: str, lines: bytes) -> int:
        """Append lines as one batch; returns the bytes written; raises `OSError`."""
        frame = self._compressor.compress(lines)
        self._append(folder, frame)
        self._count(len(frame))
        return len(frame)

    def blob(self, content: bytes) -> str:
        """Store content under its digest, once; returns the digest; raises `OSError`."""
        digest = digest_of(content)
        path = Path(blob_path(self._root, digest))
        if path.exists():
            os.utime(path)  # young again: the cap must not delete it before what names it
            return digest
        packed = self._compressor.compress(content)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{self._prefix}")
        beside.write_bytes(packed)
        beside.replace(path)
        self._count(len(packed))
        return digest

    def forgotten(self) -> frozenset[str]:
        """Return the exchanges that were forgotten; raises `OSError`."""
        return ForgottenLists(self._place).read()

    def expire(self) -> None:
        """Delete files that are too old."""
        self._quota.expire()

    def tend(self) -> tuple[Settled, ...]:
        """Do what is due: nothing."""
        return ()

    flush = tend

    def close(self) -> tuple[Settled, ...]:
        """Close every open segment."""
        while self._open:
            self._open.popitem()[1].file.close()
        return ()

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
        days = sorted(name for name in self._open if flow_of(name) == flow_of(folder))
        for other in days[:-1]:  # around midnight exchanges of two days are written
            self._end(other)
        self._quota.measure()  # other processes write here, too
        self._seq += 1
        path = Path(segment_path(self._root, folder, self._prefix, self._seq))
        path.parent.mkdir(parents=True, exist_ok=True)
        segment = _Open(path, path.open("ab"))
        self._open[folder] = segment
        return segment

    def _end(self, folder: str) -> None:
        segment = self._open.pop(folder)
        with suppress(OSError):  # what it still buffered is lost, and counted
            segment.file.close()

    def _count(self, size: int) -> None:
        self._quota.take(size, {str(segment.path) for segment in self._open.values()})


class ForgottenLists:
    """The exchanges below a place of captures that were forgotten: lists, which never change."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._folder = f"{place.root}/{FORGOTTEN}"
        self._read: dict[str, frozenset[str]] = {}

    @property
    def known(self) -> frozenset[str]:
        """The exchanges of all lists that were read."""
        return frozenset().union(*self._read.values())

    def read(self) -> frozenset[str]:
        """Return all forgotten exchanges; reads what lists are new; raises `OSError`."""
        there = [path for path in self._place.below(self._folder) if path.endswith(_LIST)]
        self._read = {
            path: self._read.get(path) or frozenset(self._place.read(path).decode().split())
            for path in there
        }
        return self.known

    def add(self, exchanges: Collection[str]) -> None:
        """Store that exchanges were forgotten: nothing of them is stored from now on."""
        if not exchanges:
            return
        path = f"{self._folder}/{time.time_ns()}-{secrets.token_hex(4)}{_LIST}"
        content = "".join(f"{one}\n" for one in sorted(exchanges)).encode()
        if self._place.local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(Path(path), content)
        else:
            self._place.put(path, content)


def segment_path(root: str, folder: str, process: str, number: int) -> str:
    """Return the path of the `number`-th segment of a process."""
    return f"{root}/{folder}/{process}-{number:06d}.jsonl.zst"


def blob_path(root: str, digest: str) -> str:
    """Return the path of a long text."""
    return f"{root}/{BLOBS}/{digest}.zst"


def digest_of(content: bytes) -> str:
    """Return the name of a long text."""
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


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


def flow_of(folder: str) -> str:
    """Return the part of a folder that all days of a flow share."""
    return folder.partition("/")[0]


def process_name() -> str:
    """Return a name that no other process has, now or later."""
    host = _NOT_IN_NAMES.sub("-", socket.gethostname())[:40].strip("-") or "host"
    moment = time.time_ns() // 1_000_000
    return f"{host}-{os.getpid()}-{moment}-{secrets.token_hex(3)}"
