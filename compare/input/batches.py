"""Batches: the zstd frames a segment is made of, each decompressed whole; damage passed over.

The layout of a frame (RFC 8878, 3.1.1) tells where it ends without decompressing it: a header,
blocks that begin with three bytes saying how long they are and whether they are the last, and a
checksum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from mmap import mmap

import zstandard

from compare.input.damage import Damage

MAGIC = b"\x28\xb5\x2f\xfd"
WHOLE_AT_MOST = 1 << 26
RETAINED_AT_MOST = 1 << 24
_LONGEST_HEADER = 18
_BLOCK_HEADER = 3
_CHECKSUM = 4
_REPEATED_BYTE = 1
# Frames a decompressor skips, as parallel compressors write them: 0x184D2A50 to 0x184D2A5F.
_SKIPPED = b"\x2a\x4d\x18"
_SKIPPED_FIRST = 5
_SKIPPED_HEADER = 8


Buffer = bytes | bytearray | mmap


@dataclass(frozen=True, slots=True)
class Batch:
    """Decompressed bytes; `begins` is where their batch does in the file, None without batches."""

    begins: int | None
    data: bytes


def frame_end(data: Buffer, start: int = 0) -> int | None:
    """Return the index behind the frame at `start`, None when it goes on behind the data.

    Raises `zstandard.ZstdError` when there is no frame.
    """
    if len(data) - start < len(MAGIC):
        return None
    if data[start + 1 : start + 4] == _SKIPPED and data[start] >> 4 == _SKIPPED_FIRST:
        size = int.from_bytes(data[start + 4 : start + _SKIPPED_HEADER], "little")
        return _within(data, start + _SKIPPED_HEADER + size)
    header = bytes(data[start : start + _LONGEST_HEADER]).ljust(_LONGEST_HEADER, b"\0")
    at = start + zstandard.frame_header_size(header)
    checked = zstandard.get_frame_parameters(header).has_checksum
    last = False
    while not last:
        block = int.from_bytes(data[at : at + _BLOCK_HEADER], "little")
        if at + _BLOCK_HEADER > len(data):
            return None
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        at += _BLOCK_HEADER + (1 if kind == _REPEATED_BYTE else size)
    return _within(data, at + (_CHECKSUM if checked else 0))


def _within(data: Buffer, end: int) -> int | None:
    return end if end <= len(data) else None


def decompressed(
    pieces: Iterable[bytes], url: str, begins: int = 0, *, retained: int = RETAINED_AT_MOST
) -> Iterator[Batch | Damage]:
    """Decompress concatenated zstd frames; after a damaged one go on at the next that begins.

    `begins` is where the first piece stands in the file; frames beyond `retained` bytes are not
    kept but decompressed as they come. Of a frame that is cut off the lines that
    are there are given; of one whose bytes are wrong none are, for nothing vouches for them.
    """
    frames = _Frames(url, begins, retained)
    for piece in pieces:
        yield from frames.walk(piece)
    # A frame without its end is torn, but may hide a whole one.
    yield from frames.walk(b"", ended=True)


class _Frames:
    """Walks over zstd frames; keeps the bytes of one until it ends.

    A process that died in a batch leaves a frame without an end; good ones may follow it, which
    look like part of the first.
    """

    def __init__(self, url: str, begins: int, retained: int) -> None:
        self._url = url
        self._retained = retained
        self._begins = begins
        self._kept = bytearray()
        self._lost = False
        # Of a frame too long to be kept: what decompresses it, and where it begins.
        self._stream: tuple[zstandard.ZstdDecompressionObj, int] | None = None
        self._context = zstandard.ZstdDecompressor()

    def walk(self, piece: bytes, *, ended: bool = False) -> Iterator[Batch | Damage]:
        self._kept += piece
        while self._kept:
            if self._lost and not self._found():
                return
            if self._stream is not None:
                yield from self._streamed(*self._stream, ended=ended)
                continue
            try:
                end = frame_end(self._kept)
            except zstandard.ZstdError:
                yield self._lose("no zstd frame begins there")
                continue
            if end is not None:
                yield from self._frame(end)
            elif ended:
                yield from self._torn("it does not end")
            elif len(self._kept) > self._retained:
                self._stream = self._context.decompressobj(), self._begins
            else:
                return

    def _frame(self, end: int) -> Iterator[Batch | Damage]:
        """Decompress the frame at the beginning of what is kept."""
        frame = bytes(self._kept[:end])
        try:
            if frame.startswith(MAGIC):
                yield from self._content(frame)
        except zstandard.ZstdError as trouble:
            yield from self._torn(str(trouble), end)
            return
        self._drop(end)

    def _content(self, frame: bytes) -> Iterator[Batch]:
        size = zstandard.get_frame_parameters(frame).content_size
        if size <= WHOLE_AT_MOST:
            yield Batch(self._begins, self._context.decompress(frame))
        else:
            reader = self._context.stream_reader(frame)
            while data := reader.read(WHOLE_AT_MOST // 64):
                yield Batch(self._begins, data)

    def _torn(self, why: str, end: int | None = None) -> Iterator[Batch | Damage]:
        """Leave a frame; where another begins inside it, or nothing follows, it was cut off."""
        inside = self._kept.find(MAGIC, 1, end)
        if end is None or inside >= 0:
            data = self._salvaged(bytes(self._kept if inside < 0 else self._kept[:inside]))
            if data:
                yield Batch(self._begins, data)
        if end is not None and inside < 0:
            yield self._damage(why)
            self._drop(end)
            return
        yield self._lose("it does not end" if inside >= 0 else why)

    def _salvaged(self, cut: bytes) -> bytes:
        try:
            return self._context.decompressobj().decompress(cut)
        except zstandard.ZstdError:
            return b""

    def _streamed(
        self, stream: zstandard.ZstdDecompressionObj, begins: int, *, ended: bool
    ) -> Iterator[Batch | Damage]:
        """Decompress a frame too long to be kept, as it comes."""
        piece = bytes(self._kept)
        self._drop(len(piece))
        try:
            data = stream.decompress(piece)
        except zstandard.ZstdError as trouble:
            yield self._damage(str(trouble), begins)
            self._back(piece)
            self._drop(1 if self._begins == begins else 0)
            self._lost = True
            return
        if data:
            yield Batch(begins, data)
        if stream.eof:
            self._back(stream.unused_data)
        elif ended:
            yield self._damage("it does not end", begins)

    def _back(self, rest: bytes) -> None:
        """End a stream and put back what does not belong to it."""
        self._stream = None
        self._kept = bytearray(rest)
        self._begins -= len(rest)

    def _lose(self, why: str) -> Damage:
        """Look for the next frame from here on."""
        damage = self._damage(why)
        self._drop(1)
        self._lost = True
        return damage

    def _found(self) -> bool:
        at = self._kept.find(MAGIC)
        self._lost = at < 0
        self._drop(at if at >= 0 else max(0, len(self._kept) - len(MAGIC) + 1))
        return not self._lost

    def _drop(self, count: int) -> None:
        del self._kept[:count]
        self._begins += count

    def _damage(self, why: str, begins: int | None = None) -> Damage:
        at = self._begins if begins is None else begins
        return Damage("torn", self._url, f"batch at byte {at}: {why}")
