"""Captures as files: names of folders, and the table that tells where an object's batches begin.

    flow=chat/date=2026-11-18/NAME.jsonl.zst    exchanges, by the day (UTC) on which they began
    feedback/date=2026-11-18/NAME.jsonl.zst     what users thought
    blobs/DIGEST.zst                            long texts
    forgotten/NAME.ids                          exchanges that were removed

A file is a row of zstd frames. An object ends with a table of them, in the seekable format of zstd:
a frame that every decompressor skips.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final

FEEDBACK: Final = "feedback"
BLOBS: Final = "blobs"
FORGOTTEN: Final = "forgotten"
FLOW_PREFIX: Final = "flow="
DATE_PREFIX: Final = "date="
DAY: Final = re.compile(r"/date=(\d{4}-\d\d-\d\d)(?:/|$)")
"""Finds the day in a path."""

_SKIPPED: Final = 0x184D2A5E
_SEEKABLE: Final = 0x8F92EAB1
_HEAD: Final = struct.Struct("<II")
_ENTRY: Final = struct.Struct("<II")
_FOOT: Final = struct.Struct("<IBI")
_WITH_CHECKSUMS: Final = 0x80

FramesSize = tuple[int, int]
"""Bytes of a frame: packed, and of its lines."""


def seek_table(frames: Sequence[FramesSize]) -> bytes:
    """Return the table that goes behind frames of these sizes."""
    entries = b"".join(_ENTRY.pack(*sizes) for sizes in frames)
    foot = _FOOT.pack(len(frames), 0, _SEEKABLE)
    return _HEAD.pack(_SKIPPED, len(entries) + len(foot)) + entries + foot


def read_seek_table(tail: bytes, size: int) -> list[FramesSize] | None:
    """Read the table at the end of a file of `size` bytes; `tail` is the file's last bytes.

    None where there is none, it begins before the tail, or it does not fit the file.
    """
    if len(tail) < _FOOT.size:
        return None
    count, descriptor, magic = _FOOT.unpack(tail[-_FOOT.size :])
    length = count * _ENTRY.size + _FOOT.size
    begins = len(tail) - length - _HEAD.size
    if magic != _SEEKABLE or descriptor & _WITH_CHECKSUMS or begins < 0:
        return None
    if _HEAD.unpack_from(tail, begins) != (_SKIPPED, length):
        return None
    frames = list(_ENTRY.iter_unpack(tail[begins + _HEAD.size : -_FOOT.size]))
    fits = sum(packed for packed, _ in frames) + _HEAD.size + length == size
    return frames if fits else None
