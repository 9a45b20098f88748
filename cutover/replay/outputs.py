"""Outputs: the segments a replay writes, one for each part, each in its place at once or not."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cutover.replay.parts import Part

FOLDER = "segments"
_SUFFIX = ".jsonl.zst"
_LEVEL = 3


class Outputs:
    """Writes parts below a folder."""

    def __init__(self, out: Path) -> None:
        self._folder = out / FOLDER
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    def write(self, part: Part, lines: Iterable[bytes]) -> None:
        """Put a part's lines into its place, whole or not at all; raises `OSError`."""
        text = b"".join(lines)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / name_of(part)
        if not text:
            path.unlink(missing_ok=True)
            return
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_bytes(self._compressor.compress(text))
        beside.replace(path)

    def tidy(self) -> None:
        """Remove what was being written when a replay ended; nobody else may be writing."""
        for left in self._folder.glob(f"*{_SUFFIX}.*"):
            left.unlink(missing_ok=True)


def name_of(part: Part) -> str:
    """Name a part's segment: the same part has the same name, in the order of the captures."""
    stem = part.segment.rpartition("/")[2].partition(".")[0]
    place = blake2b(part.segment.encode(), digest_size=4).hexdigest()
    return f"{stem}-{place}-{part.number:06d}{_SUFFIX}"
