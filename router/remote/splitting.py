"""Splitting a stream at its frames' ends, sans I/O: bytes go in, whole frames come out.

Nothing is parsed and no byte is changed: the frames, one after the other, are what was fed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING

from contract.errors import CutoverError

if TYPE_CHECKING:
    from contract.wire.dialect import Dialect

MOST_BYTES = 4 * 1_048_576
"""Of one frame: beyond, it is no frame but a stream that has none."""

_LF = b"\n"
_BLANK = b"\n\n"
# Two line ends, of CRLF, LF and CR; a CRLF is one line end and never taken for two.
_ANY_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
# The LF that belongs to it is under way.
_TORN = b"\r\n\r"


class FrameTooLarge(CutoverError):
    """A frame does not end."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes without the end of a frame; {MOST_BYTES} are the most")
        self.size = size


class Splitter(ABC):
    """Takes bytes cut anywhere, gives frames."""

    def __init__(self) -> None:
        # Grows in place: a frame of megabytes would otherwise be copied with every piece.
        self._tail = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the frames they complete. Raises `FrameTooLarge`."""
        tail = self._tail
        if tail:
            seen = len(tail)
            tail += piece
            if not self._ends_after(seen):
                if len(tail) > MOST_BYTES:
                    raise FrameTooLarge(len(tail))
                return []
            piece = bytes(tail)
            tail.clear()
        frames = self._split(piece)
        tail += frames.pop()
        return frames

    def flush(self) -> bytes:
        """End the stream; return what has come since the last frame."""
        rest = bytes(self._tail)
        self._tail.clear()
        return rest

    @abstractmethod
    def _ends_after(self, seen: int) -> bool:
        """Whether a frame ends behind the first `seen` bytes of the tail."""

    @abstractmethod
    def _split(self, piece: bytes) -> list[bytes]:
        """Cut bytes into frames and what is left, which may be empty."""


class SseSplitter(Splitter):
    """Frames of an event stream end with a blank line, blank line included."""

    def _ends_after(self, seen: int) -> bool:
        # A blank line may have begun just before.
        return _ANY_BLANK.search(self._tail, max(0, seen - len(_TORN))) is not None

    def _split(self, piece: bytes) -> list[bytes]:
        if b"\r" not in piece:
            return _of_one_line(piece) or _cut(piece, _BLANK)
        ends = [found.end() for found in _ANY_BLANK.finditer(piece)]
        if piece.endswith(_TORN) and ends and ends[-1] == len(piece):
            ends.pop()
        cuts = [0, *ends, len(piece)]
        return [piece[start:end] for start, end in pairwise(cuts)]


class LineSplitter(Splitter):
    """Frames of NDJSON are lines, line end included."""

    def _ends_after(self, seen: int) -> bool:
        return self._tail.find(_LF, seen) >= 0

    def _split(self, piece: bytes) -> list[bytes]:
        return _cut(piece, _LF)


def _of_one_line(piece: bytes) -> list[bytes]:
    """Cut where each frame is one line, as most are: lines are found faster than blank ones."""
    lines = piece.split(_LF)
    if len(lines) % 2 == 0 or any(lines[1::2]):
        return []
    rest = lines.pop()
    return [*[line + _BLANK for line in lines[::2]], rest]


def _cut(piece: bytes, end: bytes) -> list[bytes]:
    *frames, rest = piece.split(end)
    return [*[frame + end for frame in frames], rest]


def splitter(dialect: Dialect) -> Splitter:
    """Make the splitter of a wire."""
    return SseSplitter() if dialect.framing == "sse" else LineSplitter()
