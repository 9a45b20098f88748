"""Pieces: frames that go to the client together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.driving import Frame

Passing = Callable[[bytes], bool]
"""Sends bytes to the client there and then; False where that cannot be, and nothing is sent."""

AT_ONCE = 65_536
"""Bytes of frames that are there already and go out together, unless one alone has more: whoever
reads slowly must not have all that waits for it copied into the connection."""


def together(frames: Sequence[Frame], position: int) -> tuple[Sequence[Frame], int]:
    """Give the frames that go out at once, and their bytes: at least one."""
    rest = frames[position:]
    size = sum([len(frame.data) for frame in rest])
    if size <= AT_ONCE:
        return rest, size
    size = len(frames[position].data)
    end = position + 1
    while end < len(frames) and size + len(frames[end].data) <= AT_ONCE:
        size += len(frames[end].data)
        end += 1
    return frames[position:end], size
