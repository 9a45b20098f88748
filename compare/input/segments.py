"""Segments: the files captures are made of, as lines, with flat memory."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path

import msgspec
import zstandard

from compare.input.batches import MAGIC, WHOLE_AT_MOST, Batch, decompressed, frame_end
from compare.input.damage import ILLEGIBLE, CapturesUnreadable, Damage
from compare.input.files import files_below, no_file
from contract.capture_files import (
    BLOBS,
    DAY,
    FEEDBACK,
    FLOW_PREFIX,
    FORGOTTEN,
    read_seek_table,
)
from effects.places import Info, Place

LINE_AT_MOST = 1 << 26
STRETCH = 1 << 27
"""Bytes of lines in a stretch, about: half a second of work."""
CUT_FROM = 1 << 16
TABLE_FROM = 1 << 22
"""Bytes of an object whose table is asked for: a shorter one is hardly a stretch long."""
TABLE_TAIL = 1 << 17
"""Bytes asked for at its end: a table of 16 000 batches."""
PACKED = ".zst"
PACKED_LINES = ".jsonl.zst"
NOTHING = "there is nothing there"
_SUFFIXES = (PACKED_LINES, ".jsonl")
_FEEDBACK = f"/{FEEDBACK}/date="
"""Beside the exchanges the capture keeps what users thought; that is no run to compare."""


@dataclass(frozen=True, slots=True)
class CaptureSegment:
    """One file of captures, or a stretch of it: its address, its size in bytes as stored.

    A stretch `begins` behind other batches and `ends` before others; None is the file's end.
    `version` changes with what its file system knows of the file: size, time of change, tag.
    """

    url: str
    size: int
    begins: int = 0
    ends: int | None = None
    version: str = field(default="", compare=False)


class CapturedLine(msgspec.Struct, frozen=True):
    """One line, without its newline; `number` counts from 1 in its batch, or in its file.

    `begins` is where its batch does in the file, None where there are no batches; `ended` is false
    of the last line of a file that lacks its newline.
    """

    number: int
    data: bytes
    begins: int | None = None
    ended: bool = True

    @property
    def place(self) -> str:
        """Where the line stands in its file, for people."""
        batch = "" if self.begins is None else f"batch at byte {self.begins}, "
        return f"{batch}line {self.number}"


@dataclass(frozen=True, slots=True)
class Days:
    """The folders of captures that are wanted: of one flow, "" all, from day to day, both in.

    Days are `YYYY-MM-DD` in UTC, "" without an end. An exchange is in the folder of the day on
    which it began.
    """

    flow: str = ""
    first: str = ""
    last: str = ""

    def __or__(self, other: Days) -> Days:
        """Return what holds both."""
        return Days(
            self.flow if self.flow == other.flow else "",
            min(self.first, other.first),
            max(self.last, other.last) if self.last and other.last else "",
        )

    def holds(self, folder: str) -> bool:
        """Whether a folder of a day is wanted, and any that is none."""
        day = DAY.search(folder)
        return day is None or self.first <= day[1] <= (self.last or day[1])


ALL_DAYS = Days()


def find_segments(
    place: str, *, feedback: bool = False, days: Days = ALL_DAYS
) -> list[CaptureSegment]:
    """List the segments at a path or fsspec URL, in a stable order; raises `CapturesUnreadable`.

    Those of exchanges, or of `feedback`. On an object store other days' folders are not listed;
    on this host they are: a report counts what it leaves out.
    """
    try:
        at = Place(place)
        if at.local:
            if not at.exists(at.root):
                raise CapturesUnreadable(place, NOTHING)
            found = files_below(at)
        else:
            found = _wanted_files(at, days, feedback=feedback)
    except (OSError, ValueError, ImportError) as trouble:
        raise CapturesUnreadable(place, str(trouble)) from trouble
    return [
        CaptureSegment(at.url(path), int(found[path].get("size") or 0), version=str(found[path]))
        for path in sorted(found)
        if path.endswith(_SUFFIXES) and (_FEEDBACK in path) == feedback
    ]


def _wanted_files(at: Place, days: Days, *, feedback: bool) -> dict[str, Info]:
    """List a place of an object store, folder by folder, as far as the files may be wanted."""
    folders, found = at.children(at.root)
    if not folders and not found:
        raise CapturesUnreadable(at.url(at.root), NOTHING)
    for folder in folders:
        name = folder.rpartition("/")[2]
        if name in {BLOBS, FORGOTTEN} or (name == FEEDBACK) != feedback:
            continue
        if name.startswith(FLOW_PREFIX) and days.flow not in {"", name.removeprefix(FLOW_PREFIX)}:
            continue
        if not days.first and not days.last:
            found |= at.below(folder)
            continue
        dated, beside = at.children(folder)
        wanted = [one for one in dated if days.holds(one)]
        if wanted == dated:
            found |= at.below(folder)
            continue
        found |= beside
        for one in wanted:
            found |= at.below(one)
    return found


def read_lines(
    segment: CaptureSegment, on_bytes: Callable[[int], None] | None = None
) -> Iterator[CapturedLine | Damage]:
    """Read one segment; what is torn is yielded as damage; raises `CapturesUnreadable`."""
    try:
        at = Place(segment.url)
        if at.local and (why := no_file(at.root)):
            raise CapturesUnreadable(segment.url, why)
        size = segment.begins + segment.size
        found = at.pieces(at.root, segment.begins, segment.ends, size=size)
        pieces = _noted(found, on_bytes)
        first = next(pieces, b"")
        if not first:
            yield Damage("torn", segment.url, "the file is empty")
        if segment.url.endswith(PACKED):
            batches = decompressed(chain((first,), pieces), segment.url, segment.begins)
        else:
            text = first if segment.begins else first.removeprefix(BOM_UTF8)
            batches = (Batch(None, piece) for piece in chain((text,), pieces))
        yield from split_lines(batches, segment.url)
    except OSError as trouble:
        raise CapturesUnreadable(segment.url, str(trouble)) from trouble


def _noted(pieces: Iterable[bytes], on_bytes: Callable[[int], None] | None) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        if on_bytes is not None:
            on_bytes(len(piece))


def split_lines(batches: Iterable[Batch | Damage], url: str) -> Iterator[CapturedLine | Damage]:
    """Cut batches into lines; damage between two batches discards the line it interrupts.

    A last line without a newline is yielded all the same, for it may be whole.
    """
    parts: list[bytes] = []
    size = 0  # of a line whose end has not come; bounded, for a file may hold no line
    number, begins = 1, None
    for batch in batches:
        if isinstance(batch, Damage):
            parts, size = [], 0
            yield batch
            continue
        if batch.begins != begins:
            number, begins = 1, batch.begins
        start, data = 0, batch.data
        while (end := data.find(b"\n", start)) >= 0:
            line = data[start:end] if not size else b"".join((*parts, data[:end]))
            if line and size <= LINE_AT_MOST:
                yield CapturedLine(number, line, begins)
            parts, size = [], 0
            number, start = number + 1, end + 1
        if start < len(data) and size <= LINE_AT_MOST:
            parts.append(data[start:])
            size += len(data) - start
            if size > LINE_AT_MOST:
                parts = []
                yield Damage("broken", url, f"line {number} is over {LINE_AT_MOST} bytes long")
        del batch, data  # before the next is decompressed: two at once are new pages every time
    last = b"".join(parts)
    if last.strip():
        yield CapturedLine(number, last, begins, ended=False)


def stretches(segment: CaptureSegment, stretch: int = STRETCH) -> list[CaptureSegment]:
    """Cut a segment where it is long, and packed; else return it as it is.

    An object is cut where the table at its end says that batches begin, if it has one.
    """
    if segment.size < CUT_FROM or not segment.url.endswith(PACKED):
        return [segment]
    at = Place(segment.url)
    try:
        if at.local:
            with (
                Path(at.root).open("rb") as file,
                mmap(file.fileno(), 0, access=ACCESS_READ) as data,
            ):
                cuts = list(_cuts(data, stretch))
        elif segment.size >= TABLE_FROM:
            cuts = list(_cuts_by_table(at.read(at.root, -TABLE_TAIL), segment.size, stretch))
        else:
            cuts = []
    except (OSError, ValueError):
        return [segment]  # why it cannot be read comes out when it is read
    starts, ends = [0, *cuts], [*cuts, None]
    return [
        replace(
            segment, size=(segment.size if end is None else end) - start, begins=start, ends=end
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def _cuts_by_table(tail: bytes, size: int, stretch: int) -> Iterator[int]:
    """Yield where to cut an object: a recorder ends each batch between two exchanges."""
    frames = read_seek_table(tail, size) or []
    end, content = 0, 0
    for packed, lines in frames[:-1]:
        end, content = end + packed, content + lines
        if content >= stretch:
            yield end
            content = 0


def _cuts(data: mmap, stretch: int) -> Iterator[int]:
    """Yield where to cut; damage ends the search, so that it is found by one reader alone."""
    start, size = 0, 0
    while start < len(data):
        try:
            end = frame_end(data, start)
            if end is None:
                return
            size += _content_size(data[start : start + CUT_FROM], end - start)
            if size >= stretch and _parted(data, start, end):
                yield end
                size = 0
        except (zstandard.ZstdError, *ILLEGIBLE):
            return
        start = end


def _content_size(head: bytes, packed: int) -> int:
    if not head.startswith(MAGIC):
        return 0
    size = zstandard.get_frame_parameters(head).content_size
    return packed if size > WHOLE_AT_MOST else size


class _Head(msgspec.Struct):
    exchange: str


_head = msgspec.json.Decoder(_Head).decode


def _parted(data: mmap, start: int, end: int) -> bool:
    """Whether one exchange ends with the batch from `start` to `end`, and another begins."""
    behind = frame_end(data, end)
    if behind is None:
        return False
    context = zstandard.ZstdDecompressor()
    before, after = (context.decompress(data[a:b]) for a, b in ((start, end), (end, behind)))
    if not before.endswith(b"\n") or not after:
        return False
    last = before[before.rfind(b"\n", 0, -1) + 1 :]
    return _head(last).exchange != _head(after[: after.find(b"\n")]).exchange
