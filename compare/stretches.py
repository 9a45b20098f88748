"""Stretches: long segments cut into pieces of work, at batches where one exchange ends.

Where they are cut depends on the files alone, so however many processes share the work, the
pieces are the same, and so is what comes out.
"""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import msgspec
import zstandard
from fsspec.implementations.local import LocalFileSystem

from compare.batches import MAGIC, WHOLE_AT_MOST, frame_end
from compare.damage import ILLEGIBLE
from compare.segments import PACKED, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

STRETCH = 1 << 27
"""Bytes of lines in a stretch, about: half a second of work."""
CUT_FROM = 1 << 16


class _Exchange(msgspec.Struct):
    exchange: str


_exchange = msgspec.json.Decoder(_Exchange).decode


def stretches(segment: Segment, stretch: int = STRETCH) -> list[Segment]:
    """Cut a segment where it is long, packed and on this machine; else give it as it is."""
    if segment.size < CUT_FROM or not segment.url.endswith(PACKED):
        return [segment]
    system, path = fsspec.core.url_to_fs(segment.url)
    if not isinstance(system, LocalFileSystem):
        return [segment]
    try:
        with Path(path).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            cuts = list(_cuts(data, stretch))
    except (OSError, ValueError):
        return [segment]  # whoever reads it will say why it cannot be read
    starts, ends = [0, *cuts], [*cuts, None]
    return [
        Segment(segment.url, (segment.size if end is None else end) - start, start, end)
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
    return _exchange(last).exchange != _exchange(after[: after.find(b"\n")]).exchange
