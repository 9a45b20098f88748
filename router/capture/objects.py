"""Objects: where batches are stored on an object store, gathered and put in one piece."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import zstandard

from contract.capture_files import (
    BLOBS,
    DATE_PREFIX,
    DAY,
    FEEDBACK,
    FLOW_PREFIX,
    FramesSize,
    seek_table,
)
from contract.errors import MissingExtra
from effects.places import Place, changed_at
from router.capture.segments import (
    Batch,
    CapturePlaceRefused,
    ForgottenLists,
    SegmentStore,
    Settled,
    blob_path,
    compressor,
    day_of,
    digest_of,
    flow_of,
    process_name,
    segment_path,
)
from router.config.schema import CaptureSettings

log = logging.getLogger(__name__)

HELD_OBJECTS = 4
"""Bytes held at most, in objects: gathered, and refused so far."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds after a refused put until the next; doubled each time."""
_DAY_SECONDS = 86_400


class CaptureStore(Protocol):
    """Stores batches and blobs; blocking, for one thread."""

    @property
    def due(self) -> float:
        """When `tend` has something to do, on the monotonic clock."""
        ...

    @property
    def full(self) -> bool:
        """Whether the long texts of a batch are so many that it is to be handed over."""
        ...

    @property
    def waiting(self) -> int:
        """How many exchanges and feedbacks were refused, and are tried again."""
        ...

    @property
    def fault(self) -> str | None:
        """Why nothing is stored at the moment; None where all is well, or nothing was tried."""
        ...

    @property
    def deleted(self) -> int:
        """How many files have been deleted for their age or a quota."""
        ...

    def store(self, batches: Mapping[str, Batch]) -> Iterator[Settled]:
        """Take a batch for each folder; yields what has become of these and of earlier ones."""
        ...

    def tend(self) -> Collection[Settled]:
        """Do what is due."""
        ...

    def flush(self) -> Collection[Settled]:
        """Store what is held, as far as that succeeds now."""
        ...

    def close(self) -> Collection[Settled]:
        """Store what is held, or lose it."""
        ...

    def blob(self, content: bytes) -> str:
        """Take a long text that lines of the next batches name; returns its digest."""
        ...

    def forgotten(self) -> frozenset[str]:
        """Return the exchanges whose feedback is not to be packed."""
        ...

    def expire(self) -> None:
        """Delete what is too old."""
        ...


def capture_store(captures: CaptureSettings) -> CaptureStore:
    """Return the store at the configured place; raises `CapturePlaceRefused`, `MissingExtra`."""
    try:
        if Place(captures.path).local:
            return SegmentStore(captures)
        return ObjectStore(captures)
    except MissingExtra:
        raise
    except (OSError, ValueError, ImportError) as error:
        raise CapturePlaceRefused(captures.path, str(error)) from error


class _Head(msgspec.Struct):
    exchange: str


_head = msgspec.json.Decoder(_Head).decode


@dataclass(slots=True)
class _Object:
    """Batches of one folder that are put in one piece, at the latest when it is `due`.

    Its path is settled when it begins: a put that is tried again, because its answer was lost,
    replaces what it may have stored.
    """

    path: str
    due: float
    frames: list[bytes] = field(default_factory=list)
    sizes: list[FramesSize] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    exchanges: dict[str, int] = field(default_factory=dict)
    packed: int = 0
    lines: int = 0
    size: int = 0
    tried: bool = False

    def add(self, batch: Batch, pack: Callable[[bytes], bytes], blobs: Mapping[str, bytes]) -> None:
        """Take in a batch, and the blobs that it names."""
        content = b"".join(batch.lines)
        frame = pack(content)
        self._append(frame, len(content))
        for digest, packed in blobs.items():
            if digest not in self.blobs and digest.encode() in content:
                self.blobs[digest] = packed
                self.size += len(packed)
        for exchange, count in batch.exchanges.items():
            self.exchanges[exchange] = self.exchanges.get(exchange, 0) + count
        self.packed += batch.packed
        self.lines += len(batch.lines)

    def _append(self, frame: bytes, content: int) -> None:
        self.frames.append(frame)
        self.sizes.append((len(frame), content))
        self.size += len(frame)

    def remove(self, going: Collection[str], pack: Callable[[bytes], bytes]) -> None:
        """Take exchanges out again, and the blobs that nothing else names."""
        if not going:
            return
        unpack, frames = zstandard.ZstdDecompressor(), self.frames
        self.frames, self.sizes, self.size, self.lines = [], [], 0, 0
        blobs, self.blobs = self.blobs, {}
        for frame in frames:
            lines = unpack.decompress(frame).splitlines(keepends=True)
            kept = [line for line in lines if _head(line).exchange not in going]
            if kept:
                content = b"".join(kept)
                self._append(pack(content), len(content))
                self.lines += len(kept)
                self.blobs |= {one: blobs[one] for one in blobs if one.encode() in content}
        self.size += sum(map(len, self.blobs.values()))
        for exchange in going:
            self.exchanges.pop(exchange, None)

    @property
    def content(self) -> bytes:
        """The object as it is stored; empty without lines."""
        return b"".join((*self.frames, seek_table(self.sizes))) if self.frames else b""

    def settled(self, size: int = 0, error: Exception | None = None) -> Settled:
        """Return what has become of it."""
        exchanges = sum(self.exchanges.values())
        return Settled(self.packed, exchanges, self.lines, len(self.frames), size, error)


class ObjectStore:
    """Gathers batches in memory, and puts them as one object below an fsspec URL.

    An object is put when it has `object_bytes`, when it is `object_seconds` old, when a new day
    begins, and at the close. One that is refused is put again with the next batch, after a pause;
    beyond `HELD_OBJECTS` the oldest is lost. Exchanges that were forgotten meanwhile are left out.
    Long texts are put just before the object that names them, each time anew: so the age of one is
    the time since its last use, and `cutover forget` sees that it is in use.

    `wall` returns seconds since the Unix epoch, `clock` those of a monotonic clock.
    """

    def __init__(
        self,
        captures: CaptureSettings,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = Place(captures.path)
        self._place.connect()  # while nothing is served yet
        self._captures = captures
        self._wall, self._clock = wall, clock
        self._process = process_name()
        self._number = 0
        self._gathered: dict[str, _Object] = {}
        self._waiting: list[_Object] = []
        self._blobs: dict[str, bytes] = {}
        self._blob_bytes = 0
        self._lists = ForgottenLists(self._place)
        self._pack = compressor().compress
        self._pause = _FIRST_PAUSE
        self._next_put = -math.inf
        self._refused: OSError | None = None
        self.deleted = 0

    @property
    def due(self) -> float:
        """When an object is due, on the monotonic clock."""
        first = min((one.due for one in self._gathered.values()), default=math.inf)
        return min(first, self._next_put) if self._waiting else first

    @property
    def full(self) -> bool:
        """Whether the long texts that no object names yet fill an object."""
        return self._blob_bytes >= self._captures.object_bytes

    @property
    def waiting(self) -> int:
        """How many exchanges and feedbacks were refused, and are put again."""
        return sum(one.packed for one in self._waiting)

    @property
    def fault(self) -> str | None:
        """Why nothing can be stored at the moment."""
        if (refused := self._refused) is None:
            return None
        name = type(refused).__name__
        return f"the store refuses objects ({name}): {self.waiting} wait in memory"

    def store(self, batches: Mapping[str, Batch]) -> Iterator[Settled]:
        """Gather a batch for each folder."""
        for folder, batch in batches.items():
            one = self._gathered.get(folder) or self._begin(folder)
            one.add(batch, self._pack, self._blobs)
            if one.size >= self._captures.object_bytes:
                self._seal(folder)
        self._blobs.clear()
        self._blob_bytes = 0
        yield from self.tend()

    def tend(self) -> list[Settled]:
        """Put what is due."""
        now = self._clock()
        for folder in [folder for folder, one in self._gathered.items() if one.due <= now]:
            self._seal(folder)
        settled = self._put_waiting() if self._next_put <= now else []
        most = HELD_OBJECTS * self._captures.object_bytes
        held = sum(one.size for one in (*self._waiting, *self._gathered.values()))
        if held > most and not self._waiting:  # many flows: none is full, all are
            for folder in tuple(self._gathered):
                self._seal(folder)
            settled += self._put_waiting()
        while self._waiting and held > most:
            lost = self._waiting.pop(0)
            held -= lost.size
            settled.append(lost.settled(error=self._refused))
        return settled

    def flush(self) -> list[Settled]:
        """Put all there is; what is refused waits."""
        for folder in tuple(self._gathered):
            self._seal(folder)
        return self._put_waiting()

    def close(self) -> list[Settled]:
        """Put all there is; what is refused is lost."""
        settled = self.flush()
        settled += [one.settled(error=self._refused) for one in self._waiting]
        self._waiting.clear()
        return settled

    def blob(self, content: bytes) -> str:
        """Hold a long text until the object with the lines that name it is put."""
        digest = digest_of(content)
        if digest not in self._blobs:
            self._blobs[digest] = self._pack(content)
            self._blob_bytes += len(self._blobs[digest])
        return digest

    def forgotten(self) -> frozenset[str]:
        """Return what was forgotten when an object was put last: what is new is left out then."""
        return self._lists.known

    def expire(self) -> None:
        """Delete objects by their day, and blobs by the day of their last use; raises `OSError`.

        Several routers may do so at once.
        """
        days = self._captures.keep_days
        if not days:
            return
        first_day = day_of(self._wall() - days * _DAY_SECONDS)
        folders, _ = self._place.children(self._place.root)
        for folder in folders:
            name = folder.rpartition("/")[2]
            if name == FEEDBACK or name.startswith(FLOW_PREFIX):
                for dated in self._place.children(folder)[0]:
                    day = DAY.search(dated)
                    if day and day[1] < first_day:
                        self._delete(list(self._place.below(dated)))
        blobs = self._place.below(f"{self._place.root}/{BLOBS}")
        used = {path: changed_at(info) for path, info in blobs.items()}
        self._delete([path for path, at in used.items() if at and day_of(at) < first_day])

    def _delete(self, paths: list[str]) -> None:
        """Delete objects; raises `PermissionError` where they stay: no store says which do."""
        if not paths:
            return
        self._place.remove_all(paths)
        if self._place.exists(paths[-1]):
            raise PermissionError(paths[-1])
        self.deleted += len(paths)

    def _begin(self, folder: str) -> _Object:
        flow, day = flow_of(folder), folder.rpartition(DATE_PREFIX)[2]
        for other in tuple(self._gathered):
            if flow_of(other) == flow and other.rpartition(DATE_PREFIX)[2] < day:
                self._seal(other)
        self._number += 1
        path = segment_path(self._place.root, folder, self._process, self._number)
        one = _Object(path, self._clock() + self._captures.object_seconds)
        self._gathered[folder] = one
        return one

    def _seal(self, folder: str) -> None:
        self._waiting.append(self._gathered.pop(folder))

    def _put_waiting(self) -> list[Settled]:
        """Put what waits, the oldest first; the first that is refused ends it for now."""
        settled = []
        while self._waiting:
            try:
                settled.append(self._put(self._waiting[0]))
            except OSError as error:
                if self._refused is None:
                    log.warning("captures: an object was refused: %s", type(error).__name__)
                self._refused = error
                self._next_put = self._clock() + self._pause
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
                return settled
            del self._waiting[0]
            self._refused, self._pause, self._next_put = None, _FIRST_PAUSE, -math.inf
        return settled

    def _put(self, one: _Object) -> Settled:
        """Put an object without what was forgotten, and the blobs it names; raises `OSError`.

        What is forgotten during the put is found afterwards. An erasure that begins still later
        finds the object.
        """
        size = 0
        while (going := self._lists.read() & one.exchanges.keys()) or not size:
            one.remove(going, self._pack)
            content = one.content
            if not content:
                if one.tried:
                    self._place.remove(one.path)
                break
            one.tried = True
            for digest, packed in one.blobs.items():
                self._place.put(blob_path(self._place.root, digest), packed)
            self._place.put(one.path, content)
            size = len(content) + sum(map(len, one.blobs.values()))
        return one.settled(size)
