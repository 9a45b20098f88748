"""Segments: the files captures are made of, as lines, with flat memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import fsspec
import zstandard

from compare.damage import CapturesUnreadable, Damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECE = 1 << 18
RETAINED_AT_MOST = 1 << 24
_MAGIC = b"\x28\xb5\x2f\xfd"
_SUFFIXES = (".jsonl.zst", ".jsonl")


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of captures: its address, its size in bytes as stored."""

    url: str
    size: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a segment, without its newline; `number` counts from 1."""

    number: int
    data: bytes


_FEEDBACK = "/feedback/date="
"""Beside the exchanges the capture keeps what users thought; that is no run to compare."""


def find_segments(place: str) -> list[Segment]:
    """List the segments at a path or fsspec URL, in a stable order; raises `CapturesUnreadable`."""
    try:
        system, root = fsspec.core.url_to_fs(place)
        if not system.exists(root):
            raise CapturesUnreadable(place, "there is nothing there")
        found = system.find(root, detail=True)
    except (OSError, ValueError, ImportError) as trouble:
        raise CapturesUnreadable(place, str(trouble)) from trouble
    return [
        Segment(str(system.unstrip_protocol(path)), int(found[path].get("size") or 0))
        for path in sorted(found)
        if path.endswith(_SUFFIXES) and _FEEDBACK not in path
    ]


def read_lines(
    segment: Segment, on_bytes: Callable[[int], None] | None = None
) -> Iterator[Line | Damage]:
    """Read one segment; what is torn is yielded as damage; raises `CapturesUnreadable`."""
    try:
        with fsspec.open(segment.url, "rb") as file:
            pieces = _pieces(file, on_bytes)
            if segment.url.endswith(".zst"):
                yield from split_lines(decompressed(pieces, segment.url), segment.url)
            else:
                yield from split_lines(pieces, segment.url)
    except OSError as trouble:
        raise CapturesUnreadable(segment.url, str(trouble)) from trouble


def _pieces(file: IO[bytes], on_bytes: Callable[[int], None] | None) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece
        if on_bytes is not None:
            on_bytes(len(piece))


def split_lines(
    pieces: Iterator[bytes | Damage] | Iterator[bytes], url: str
) -> Iterator[Line | Damage]:
    """Cut pieces into lines; damage between two pieces discards the line it interrupts."""
    tail = b""
    number = 0
    for piece in pieces:
        if isinstance(piece, Damage):
            tail = b""
            yield piece
            continue
        *lines, tail = (tail + piece).split(b"\n")
        for line in lines:
            number += 1
            if line:
                yield Line(number, line)
    if tail.strip():
        yield Damage("torn", url, f"line {number + 1} does not end")


def decompressed(pieces: Iterator[bytes], url: str) -> Iterator[bytes | Damage]:
    """Decompress concatenated zstd frames; after a damaged one go on at the next that begins."""
    frames = _Frames(url)
    for piece in pieces:
        yield from frames.feed(piece)
    yield from frames.flush()


class _Frames:
    """Walks over zstd frames; keeps a frame's bytes until it ends, to look for another inside.

    A process that died in a batch leaves a frame without an end; the next process may have
    appended good ones behind it, which the decompressor would take for part of the first.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._context = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._kept = b""
        self._begins = 0

    def feed(self, piece: bytes) -> Iterator[bytes | Damage]:
        while piece:
            if self._frame is None:
                self._frame, self._kept = self._context.decompressobj(), b""
            self._kept += piece
            try:
                out = self._frame.decompress(piece)
            except zstandard.ZstdError as trouble:
                piece = self._recover()
                yield self._damage(str(trouble))
                continue
            if out:
                yield out
            piece = self._next()

    def _next(self) -> bytes:
        if self._frame.eof:
            rest: bytes = self._frame.unused_data
            self._begins += len(self._kept) - len(rest)
            self._frame = None
            return rest
        if len(self._kept) > RETAINED_AT_MOST:
            self._begins += len(self._kept) - 4
            self._kept = self._kept[-4:]
        return b""

    def _recover(self) -> bytes:
        """Give up the frame; return the bytes from where the next one may begin."""
        self._frame = None
        at = self._kept.find(_MAGIC, 1)
        rest = self._kept[at:] if at >= 0 else b""
        self._torn_at = self._begins
        self._begins += len(self._kept) - len(rest)
        return rest

    def _damage(self, why: str) -> Damage:
        return Damage("torn", self._url, f"batch at byte {self._torn_at}: {why}")

    def flush(self) -> Iterator[bytes | Damage]:
        """End the file: a frame without its end is torn, but may hide a whole one."""
        while self._frame is not None:
            rest = self._recover()
            yield self._damage("it does not end")
            if rest:
                yield from self.feed(rest)
