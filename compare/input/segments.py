"""Segments: the files captures are made of, as lines, with flat memory."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO

import fsspec
import msgspec
import zstandard
from fsspec.implementations.local import LocalFileSystem

from compare.input.batches import MAGIC, WHOLE_AT_MOST, Batch, decompressed, frame_end
from compare.input.damage import ILLEGIBLE, CapturesUnreadable, Damage
from compare.input.files import files_below, no_file, on_disk

PIECE = 1 << 18
LINE_AT_MOST = 1 << 26
STRETCH = 1 << 27
"""Bytes of lines in a stretch, about: half a second of work."""
CUT_FROM = 1 << 16
PACKED = ".zst"
PACKED_LINES = ".jsonl.zst"
_SUFFIXES = (PACKED_LINES, ".jsonl")
_FEEDBACK = "/feedback/date="
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


def find_segments(place: str, *, feedback: bool = False) -> list[CaptureSegment]:
    """List the segments at a path or fsspec URL, in a stable order; raises `CapturesUnreadable`.

    Those of exchanges, or of `feedback`.
    """
    try:
        system, root = fsspec.core.url_to_fs(place)
        if not system.exists(root):
            raise CapturesUnreadable(place, "there is nothing there")
        found = files_below(system, root)
    except (OSError, ValueError, ImportError) as trouble:
        raise CapturesUnreadable(place, str(trouble)) from trouble
    return [
        CaptureSegment(
            str(system.unstrip_protocol(path)),
            int(found[path].get("size") or 0),
            version=str(found[path]),
        )
        for path in sorted(found)
        if path.endswith(_SUFFIXES) and (_FEEDBACK in path) == feedback
    ]


def read_lines(
    segment: CaptureSegment, on_bytes: Callable[[int], None] | None = None
) -> Iterator[CapturedLine | Damage]:
    """Read one segment; what is torn is yielded as damage; raises `CapturesUnreadable`."""
    try:
        system, path = fsspec.core.url_to_fs(segment.url)
        if on_disk(system) and (why := no_file(path)):
            raise CapturesUnreadable(segment.url, why)
        with fsspec.open(segment.url, "rb") as file:
            pieces = _pieces(file, segment, on_bytes)
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


def _pieces(
    file: IO[bytes], segment: CaptureSegment, on_bytes: Callable[[int], None] | None
) -> Iterator[bytes]:
    file.seek(segment.begins)
    left = sys.maxsize if segment.ends is None else segment.ends - segment.begins
    while piece := file.read(min(PIECE, left)):
        left -= len(piece)
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
    """Cut a segment where it is long, packed and on this machine; else return it as it is."""
    if segment.size < CUT_FROM or not segment.url.endswith(PACKED):
        return [segment]
    system, path = fsspec.core.url_to_fs(segment.url)
    if not isinstance(system, LocalFileSystem):
        return [segment]
    try:
        with Path(path).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            cuts = list(_cuts(data, stretch))
    except (OSError, ValueError):
        return [segment]  # why it cannot be read comes out when it is read
    starts, ends = [0, *cuts], [*cuts, None]
    return [
        replace(
            segment, size=(segment.size if end is None else end) - start, begins=start, ends=end
        )
        for start, end in zip(starts, ends, strict=True)
    ]


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
